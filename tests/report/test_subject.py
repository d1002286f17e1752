"""What runs are judged on: points that they have not seen, and never too many."""

import numpy as np
import pytest
import scipy.sparse as sp

from nearfar.data.constraints import Pairs
from nearfar.data.dataset import Dataset, write_dataset
from nearfar.model.training import train
from nearfar.report import subject as subject_module
from nearfar.report.neighbours import Examples
from nearfar.report.pictures import Looks
from nearfar.report.reading import read_runs
from nearfar.report.subject import Subjects
from nearfar.settings import TrainingSettings


def test_a_run_is_judged_on_what_it_held_out(place):
    run = read_runs([place / "pairs"])[0]
    subject = Subjects(None, 0, pytest.fail).of(run)
    assert subject.description == ("120 points of digits that it held out; neighbours among 1,080 of digits")
    asked, known = (set(part.ids.tolist()) for part in (subject.asked, subject.known))
    assert not asked & known
    assert asked | known == set(range(1200))
    labels = Dataset.open(place / "digits").labels
    np.testing.assert_array_equal(subject.asked.labels, labels[subject.asked.ids])
    left, right = subject.asked.labels[subject.asked.constraints.similar].T
    assert (left == right).all()


def test_runs_of_one_split_share_a_subject_and_others_do_not(place, tmp_path):
    seen = Dataset.open(place / "digits")
    train(
        seen.points, seen.labels, TrainingSettings(steps=2, rank=4, seed=5, block_size=100), labels=seen.labels,
        run=tmp_path / "other-seed", source={"dataset": str(seen.folder)},
    )  # fmt: skip
    runs = read_runs([place / "pairs", place / "paper", tmp_path / "other-seed"])
    subjects = Subjects(None, 0, pytest.fail)
    first, second, third = (subjects.of(run) for run in runs)
    assert first is second
    assert third is not first
    shared = Subjects(place / "unseen", 0, pytest.fail)
    assert len({shared.of(run) for run in runs}) == 1
    assert shared.of(runs[0]).description == "597 points of unseen; neighbours among 1,200 of digits"


def test_a_dataset_that_is_gone_or_changed_is_noted(place, copied):
    run = copied("pairs")
    toml = (run / "run.toml").read_text()
    for other, says in ((run / "gone", "does not exist"), (place / "unseen", "other points or labels")):
        (run / "run.toml").write_text(toml.replace(str(place / "digits"), str(other)))
        notes: list[str] = []
        assert Subjects(None, 0, notes.append).of(read_runs([run])[0]) is None
        assert len(notes) == 1
        assert says in notes[0]
        assert "--dataset" in notes[0]
        notes.clear()
        given = Subjects(place / "unseen", 0, notes.append).of(read_runs([run])[0])
        assert notes == []
        assert given.known is None
        assert given.description.endswith("neighbours among themselves")


def test_samples_are_bounded(place, monkeypatch):
    monkeypatch.setattr(subject_module, "_MOST_ASKED", 50)
    monkeypatch.setattr(subject_module, "_FEWEST_KNOWN", 40)
    monkeypatch.setattr(subject_module, "_WORK", 1)
    subject = Subjects(None, 0, pytest.fail).of(read_runs([place / "pairs"])[0])
    assert (len(subject.asked.points), len(subject.known.points)) == (50, 40)
    assert "(a sample)" in subject.description
    assert "among a sample of 40" in subject.description
    assert subject.asked.constraints.similar.max() < 50


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory):
    """A run on sparse points with pairs and without labels."""
    folder, rng = tmp_path_factory.mktemp("unlabelled"), np.random.default_rng(0)
    points = sp.random(400, 300, 0.1, "csr", np.float32, rng)
    every = np.arange(400)
    pairs = Pairs(np.column_stack((every, (every + 1) % 400)), np.column_stack((every, (every + 7) % 400)))
    dataset = write_dataset(folder / "sparse", points, None, pairs)
    settings = TrainingSettings(steps=5, rank=4, batch_size=50)
    source = {"dataset": str(folder / "sparse")}
    train(dataset.points, dataset.constraints, settings, run=folder / "run", source=source)
    return read_runs([folder / "run"])[0]


def test_without_labels_the_stored_pairs_judge(unlabelled, monkeypatch):
    subject = Subjects(None, 0, pytest.fail).of(unlabelled)
    assert subject.description == "the stored pairs of sparse, among which it learned"
    assert (len(subject.asked.constraints.similar), subject.known) == (400, None)
    monkeypatch.setattr(subject_module, "_MOST_PAIRS", 100)
    some = Subjects(None, 0, pytest.fail).of(unlabelled).asked.constraints
    assert (len(some.similar), len(some.dissimilar)) == (100, 100)


def test_no_point_is_its_own_neighbour(unlabelled, monkeypatch):
    subject = Subjects(None, 0, pytest.fail).of(unlabelled)
    for most in (100_000, 50):
        monkeypatch.setattr("nearfar.report.neighbours._MOST_SEARCHED", most)
        examples = Examples.choose(subject, Looks(), 0)
        indices, distances = examples._found(unlabelled.metric)
        found = indices if most > 400 else np.asarray(examples.known.ids)[indices]
        assert indices.shape == (6, 5)
        assert not (found == examples.rows[:, np.newaxis]).any()
        assert (np.diff(distances, axis=1) >= 0).all()
        assert examples.html([("learned", 0, unlabelled.metric)]).count("<li") == 6 * 5


def test_examples_are_of_different_classes(place):
    run = read_runs([place / "pairs"])[0]
    subject = Subjects(None, 0, pytest.fail).of(run)
    looks = Looks.of(subject.asked.points, None, None)
    examples = Examples.choose(subject, looks, 0)
    assert len(set(subject.asked.labels[examples.rows].tolist())) == 6
    html = examples.html([("learned", 0, run.metric)])
    assert html.count("<img") == 6 * 9
    assert html.count("same class") + html.count("other class") == 6 * 8
