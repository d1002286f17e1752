"""The study mnist end to end on small images: its files, its page, going on, and input that cannot be right."""

import json
import os
import signal
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from nearfar.data.dataset import write_dataset
from nearfar.experiments.found import Found
from nearfar.experiments.protocol import SIMULATED_WORKERS, Protocol
from nearfar.experiments.results import Courses, MethodResult
from tests.commands import ended, nearfar, running, wait_until

SCALE = ("--scale", "0.005", "--budget", "0.01")
METHODS = [
    "ours, hinge", "ours, logistic", "ours, lifted", "Xing2002", "ITML", "KISS", "KISS, fewer directions", "Euclid",
]  # fmt: skip
FIGURES = ["ap-time", "precision-recall", "convergence", "speed-up", "consistency-alike", "consistency-straggler"]


@pytest.fixture(scope="module")
def images(digits, tmp_path_factory):
    """The digits as a file of images."""
    X, y = digits
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order].reshape(-1, 8, 8).astype(np.uint8), y[order]
    path = tmp_path_factory.mktemp("images") / "digits.npz"
    np.savez(path, x_train=X[:900], y_train=y[:900], x_test=X[900:], y_test=y[900:])
    return path


@pytest.fixture(scope="module")
def study(images, tmp_path_factory):
    """A study that is done, begun by a process that was killed under way; and which parts that one had finished."""
    out = tmp_path_factory.mktemp("study") / "mnist"
    with running("reproduce", "mnist", "--mnist", images, "--out", out, *SCALE) as begun:
        wait_until(lambda: len(_stamps(out)) >= 2, begun, seconds=240)
    before = _stamps(out)
    code, printed, told = ended("reproduce", "mnist", "--mnist", images, "--out", out, *SCALE)
    assert code == 0, told
    return out, before, printed, told


def _stamps(out):
    return {path.name: path.stat().st_mtime_ns for path in (out / "parts").glob("*.json")}


def test_finished_parts_are_left_alone_after_a_kill(study):
    out, before, _, told = study
    after = _stamps(out)
    assert 2 <= len(before) < len(after) == 12
    assert {name: after[name] for name in before} == before
    begun = [line for line in told.splitlines() if " of 12 " in line]
    assert len(begun) == 12 - len(before)


def test_the_whole_again_does_nothing_but_write_the_page(study, images):
    out, *_ = study
    before = _stamps(out)
    _, printed, told = ended("reproduce", "mnist", "--mnist", images, "--out", out, *SCALE)
    assert _stamps(out) == before
    assert " of 12 " not in told
    assert "study.html" in printed


def test_every_method_has_its_figures(study):
    out, *_ = study
    results = [
        MethodResult.from_json(json.loads(path.read_text())["result"]) for path in (out / "parts").glob("method-*.json")
    ]
    by_name = {result.name: result for result in results}
    assert sorted(by_name) == sorted(METHODS)
    for result in results:
        assert 0.5 < result.ap <= 1
        assert result.interval[0] <= result.ap <= result.interval[1]
        assert len(result.recall) == len(result.precision) > 2
        assert result.recall[-1] == 1
        assert result.name == "Euclid" or result.curve
        assert MethodResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert by_name["Euclid"].ap < by_name["ours, logistic"].ap
    assert by_name["Euclid"].seconds == 0
    assert by_name["KISS"].curve[-1][1] == pytest.approx(by_name["KISS"].ap, abs=1e-6)


def test_scaling_has_every_number_of_workers(study):
    out, *_ = study
    found = {
        name: Courses.from_json(json.loads((out / "parts" / f"{name}.json").read_text())["result"])
        for name in ("scaling", "workers", "consistency", "straggler")
    }
    assert [course.workers for course in found["scaling"].courses] == list(SIMULATED_WORKERS)
    assert [course.workers for course in found["workers"].courses] == [1, 2]
    assert len({courses.goal for courses in found.values()}) == 1
    first = found["scaling"].courses[0]
    assert 0 < first.seconds_to(found["scaling"].goal) <= first.curve[-1].seconds
    rates = [course.steps_per_second for course in found["scaling"].courses]
    assert rates[4] > 4 * rates[0]
    for name in ("consistency", "straggler"):
        assert [course.consistency for course in found[name].courses] == ["bsp", "ssp:4", "asp"]
    in_step, _, without_waiting = found["straggler"].courses
    assert without_waiting.steps_per_second > 2 * in_step.steps_per_second
    assert found["straggler"].costs == found["scaling"].costs


def test_the_page_has_all_figures_and_the_text_the_paper_s_numbers(study):
    out, _, printed, _ = study
    page, text = (out / "study.html").read_text(), (out / "study.md").read_text()
    for figure in FIGURES:
        assert f'id="plot-{figure}"' in page
    assert "http" not in page[: page.index("<script")].replace("http-equiv", "")
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    for method in METHODS:
        assert method in rows
        assert method in page
        assert method.split(",")[0] in printed
    assert "| 0.73 |" in rows["KISS"]
    assert "| 1,440 |" in rows["Xing2002"]
    assert "not to be held against the paper" in text


def test_an_interrupt_keeps_what_is_done_and_says_how_to_go_on(images, tmp_path):
    command = ("reproduce", "mnist", "--mnist", images, "--out", tmp_path / "out", "--scale", "0.005")
    with running(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as begun:
        assert begun.stderr is not None
        assert "1 of 12" in begun.stderr.readline()
        begun.send_signal(signal.SIGINT)
        printed, told = begun.communicate(timeout=200)
    assert begun.returncode == 130
    assert "go on with the same command" in printed
    assert "Traceback" not in told


def test_a_damaged_part_and_one_of_other_settings_are_made_again(study, images):
    out, *_ = study
    before = _stamps(out)
    (out / "parts" / "method-euclid.json").write_text('{"part": ')
    _, _, told = ended("reproduce", "mnist", "--mnist", images, "--out", out, *SCALE)
    assert "method-euclid.json is damaged" in told
    assert "it is made again" in told
    after = _stamps(out)
    assert [name for name in after if after[name] != before[name]] == ["method-euclid.json"]
    content = json.loads((out / "parts" / "method-kiss.json").read_text())
    (out / "parts" / "method-kiss.json").write_text(json.dumps({**content, "fingerprint": "0" * 16}))
    _, _, told = ended("reproduce", "mnist", "--mnist", images, "--out", out, *SCALE)
    assert "method-kiss.json was made with other settings or data" in told


def test_a_folder_of_another_study_is_refused(study, images, tmp_path):
    out, *_ = study
    before = _stamps(out)
    for arguments, named in (
        (("mnist", "--mnist", images, "--scale", "0.01"), "scale is 0.01 now and was 0.005"),
        (("imnet-63k", "--scale", "0.005"), "study is imnet-63k now and was mnist"),
        (("mnist", "--mnist", _copied(images, tmp_path), "--scale", "0.005"), "points"),
    ):
        code, _, told = ended("reproduce", *arguments, "--out", out)
        assert code == 2
        assert "holds another study" in told
        assert named in told
    assert _stamps(out) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    code, _, told = ended("reproduce", "mnist", "--mnist", images, "--out", tmp_path / "mine")
    assert code == 2
    assert "is no study" in told
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def _copied(images, folder):
    path = folder / "others.npz"
    path.write_bytes(images.read_bytes())
    return path


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("cifar",), "cifar"),
        (("mnist", "--scale", "0"), "scale is 0"),
        (("mnist", "--scale", "2"), "scale is 2"),
        (("mnist", "--budget", "-1"), "budget is -1"),
        (("mnist", "--dataset", "."), "--dataset is for imnet"),
        (("imnet-1m", "--mnist", "images.npz"), "--mnist is for the study mnist"),
        (("mnist", "--mnist", "nowhere.npz"), "nowhere.npz is missing"),
        (("imnet-63k", "--dataset", "nowhere"), "does not exist"),
    ],
)
def test_wrong_arguments(arguments, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, told = ended("reproduce", *arguments)
    assert code == 2
    assert named in told.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_wrong_images(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (40, 8, 8), np.uint8), rng.integers(0, 3, 40)
    whole = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    wrong = {
        "has no array y_test": {name: whole[name] for name in ("x_train", "y_train", "x_test")},
        "y_train of shape (39,)": {**whole, "y_train": y[:39]},
        "test images of 32": {**whole, "x_test": x[:, :4]},
        "no readable .npz": {**whole, "y_test": np.array([object()] * 40)},
    }
    for number, (named, arrays) in enumerate(wrong.items()):
        path = tmp_path / f"{number}.npz"
        np.savez(path, **arrays)
        code, _, told = ended("reproduce", "mnist", "--mnist", path, "--out", tmp_path / f"out-{number}")
        assert code == 2
        assert named in told.splitlines()[-1]
        assert not (tmp_path / f"out-{number}").exists()
    (tmp_path / "text.npz").write_text("x_train")
    code, _, told = ended("reproduce", "mnist", "--mnist", tmp_path / "text.npz", "--out", tmp_path / "out")
    assert code == 2
    assert "no readable .npz" in told


def test_without_a_network_the_error_names_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    code, _, told = ended("reproduce", "mnist", "--out", tmp_path / "out")
    assert code == 2
    assert "could not be downloaded" in told
    assert "--mnist FILE" in told.splitlines()[-1]
    assert not (tmp_path / "out" / "mnist").exists()


def test_kept_images_that_were_changed_are_refused(tmp_path, images):
    kept = tmp_path / "out" / "mnist"
    kept.mkdir(parents=True)
    (tmp_path / "out" / "study.json").write_text(
        json.dumps({"study": "mnist", "scale": 0.005, "points": "got by the study itself"})
    )
    with np.load(images) as file:
        for name in file:
            np.save(kept / f"{name}.npy", file[name].reshape(len(file[name]), -1))
    code, _, told = ended("reproduce", "mnist", "--out", tmp_path / "out", *SCALE)
    assert code == 2
    assert "is not MNIST" in told


def test_protocols_are_the_paper_s_at_scale_1():
    mnist, middle, large = (Protocol.of(name, 1.0) for name in ("mnist", "imnet-63k", "imnet-1m"))
    assert (mnist.rank, mnist.batch_size, mnist.pairs, mnist.test_pairs) == (600, 1000, 100_000, 10_000)
    assert (middle.points, middle.rank, middle.batch_size, middle.pairs) == (63_000, 10_000, 100, 100_000)
    assert (large.points, large.rank, large.batch_size, large.pairs) == (1_000_000, 1000, 1000, 100_000_000)
    assert Protocol.of("mnist", minutes=9).minutes == 9


def test_a_metric_that_is_no_better_than_euclid_is_said(study):
    out, *_ = study
    kept = {
        name: json.loads((out / "parts" / f"{name}.json").read_text())["result"]
        for name in ("method-hinge", "method-euclid", "scaling")
    }
    methods = [MethodResult.from_json(kept[name]) for name in ("method-hinge", "method-euclid")]
    alone = Courses.from_json(kept["scaling"])
    for ap, said in ((0.9, False), (0.2, True)):
        judged = (replace(methods[0], ap=ap), replace(methods[1], ap=0.6))
        protocol = Protocol.of("imnet-63k", 0.01)
        found = Found(protocol, "somewhere", 2000, 21_504, 2000, judged, {}, alone, alone, alone, alone)
        assert any("No better than Euclid here: ours, hinge." in remark for remark in found.remarks()) == said


def test_an_imnet_study_on_a_dataset_of_one_s_own(digits, tmp_path):
    X, y = digits
    write_dataset(tmp_path / "digits", X[:900], y[:900])
    printed = nearfar("reproduce", "imnet-63k", "--dataset", tmp_path / "digits", "--out", tmp_path / "out", *SCALE)
    assert "ITML: left out: its 64 × 64 matrices would take" in " ".join(printed.split())
    text = (tmp_path / "out" / "study.md").read_text()
    assert "left out: its 64 × 64 matrices would take" in text
    assert "a tenth of it set apart" in text
    assert "counted here for the paper's size: k = 10,000" in text
    parts = sorted(path.stem for path in (tmp_path / "out" / "parts").iterdir())
    assert parts == ["consistency", "method-euclid", "method-hinge", "scaling", "straggler", "workers"]
    write_dataset(tmp_path / "unlabelled", X[:900])
    code, _, told = ended("reproduce", "imnet-63k", "--dataset", tmp_path / "unlabelled", "--out", tmp_path / "none")
    assert code == 2
    assert "has no labels" in told


def test_help_names_the_options():
    out = nearfar("reproduce", "--help")
    for option in ("--out", "--mnist", "--dataset", "--scale", "--budget"):
        assert option in out
