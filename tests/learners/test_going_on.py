"""Streams, warm starts, what watches a fit, labels that are missing, and a lift."""

import numpy as np
import pytest
from sklearn.base import clone

import nearfar as nf
from nearfar.errors import InvalidSettings, MissingExtra
from nearfar.learners import MLflowCallback, TensorBoardCallback
from nearfar.parameter_server.progress import Report

LEARNERS = [nf.PairLearner, nf.TripletLearner, nf.QuadrupletLearner, nf.LabelLearner]


def judged(learner, problem) -> float:
    """How well any learner's metric tells similar pairs."""
    near, far = (learner.pair_distance(problem.pairs[problem.y == sign]) for sign in (1, -1))
    return float(np.mean(near[:, None] < far))


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_stream_of_batches_teaches(problem, learner):
    given = problem.given(learner)
    made = learner(preprocessor=problem.X, n_components=16, random_state=0)
    scores = []
    for start in range(0, 300, 50):
        assert made.partial_fit(*(array[start : start + 50] for array in given)) is made
        scores.append(judged(made, problem))
    assert made.n_iter_ == 60
    assert made.n_features_in_ == 64
    assert scores[-1] > scores[0] + 0.02
    assert scores[-1] > 0.8


@pytest.mark.parametrize("learner", LEARNERS)
def test_partial_fit_goes_on_from_fit_and_keeps_the_width(problem, learner):
    given = problem.given(learner)
    made = learner(preprocessor=problem.X, steps=40, step_size=1e-9, random_state=0).fit(*given)
    before = made.components_
    made.partial_fit(*given)
    np.testing.assert_allclose(made.components_, before, rtol=1e-3, atol=1e-5)
    assert made.n_iter_ == 50
    narrow = problem.X[:, :10]
    made.set_params(preprocessor=narrow)
    with pytest.raises(ValueError, match="expecting 64 features"):
        made.partial_fit(*((narrow, problem.labels) if learner is nf.LabelLearner else given))


@pytest.mark.parametrize("learner", LEARNERS)
def test_warm_start_goes_on(problem, learner):
    given = problem.given(learner)
    made = learner(preprocessor=problem.X, steps=5, step_size=1e-9, random_state=0, warm_start=True).fit(*given)
    before = made.components_
    made.set_params(random_state=1).fit(*given)
    np.testing.assert_allclose(made.components_, before, rtol=1e-3, atol=1e-5)
    assert made.n_iter_ == 10
    narrow = problem.X[:, :10]
    with pytest.raises(ValueError, match="expecting 64 features"):
        clone(made).fit(*given).set_params(preprocessor=narrow).fit(
            *((narrow, problem.labels) if learner is nf.LabelLearner else given)
        )
    made.set_params(warm_start=False).fit(*given)
    assert np.abs(made.components_ - before).max() > 0.01
    assert made.n_iter_ == 5


def test_a_lift_is_learned_and_gone_on_from(problem):
    made = nf.LabelLearner(lift="rbf", lift_dim=64, n_components=8, steps=20, random_state=0)
    made.fit(problem.X, problem.labels)
    projected = made.transform(problem.X)
    assert projected.shape == (300, 8)
    assert projected.dtype == np.float64
    expected = np.linalg.norm(projected[0] - projected[1])
    assert made.pair_distance(problem.X[[[0, 1]]])[0] == pytest.approx(expected, rel=1e-3)
    assert made.get_metric()(problem.X[0], problem.X[1]) == pytest.approx(expected, rel=1e-3)
    lift, before = made.metric_.lift, judged(made.set_params(preprocessor=problem.X), problem)
    for seed in range(5):
        made.set_params(random_state=seed).partial_fit(problem.X, problem.labels)
    assert made.n_iter_ == 70
    assert made.metric_.lift is lift
    assert judged(made, problem) > before
    made.set_params(warm_start=True, step_size=1e-9).fit(problem.X, problem.labels)
    assert made.metric_.lift is lift
    np.testing.assert_allclose(made.transform(problem.X[:2])[0], made.metric_.transform(problem.X[:2])[0], rtol=1e-4)
    for changed in ({"lift_dim": 32}, {"lift": "none"}):
        with pytest.raises(InvalidSettings, match="the metric to start from"):
            clone(made).fit(problem.X, problem.labels).set_params(**changed).fit(problem.X, problem.labels)


def test_unlabelled_points_are_used_for_nothing(problem):
    hidden = np.arange(300) % 3 == 0
    X = np.where(hidden[:, None], 1e6 * problem.X, problem.X)
    expected = nf.LabelLearner(steps=5, random_state=0).fit(problem.X[~hidden], problem.labels[~hidden]).components_
    for missing in (-1, np.nan):
        labels = np.where(hidden, missing, problem.labels)
        learner = nf.LabelLearner(steps=5, random_state=0, unlabelled=missing).fit(X, labels)
        np.testing.assert_allclose(learner.components_, expected, rtol=1e-5, atol=1e-6)
    names = np.where(hidden, "?", problem.labels.astype(str))
    assert nf.LabelLearner(steps=5, random_state=0, unlabelled="?").fit(X, names).n_iter_ == 5
    with pytest.raises(ValueError, match="all points have the label -1"):
        nf.LabelLearner(unlabelled=-1).fit(X, np.full(300, -1))


def test_labels_of_points_out_of_memory(problem):
    points = nf.as_points(problem.X)
    expected = nf.LabelLearner(steps=5, random_state=0).fit(problem.X, problem.labels)
    learner = nf.LabelLearner(steps=5, random_state=0).fit(points, problem.labels)
    np.testing.assert_allclose(learner.components_, expected.components_, rtol=1e-5, atol=1e-6)
    assert learner.transform(points).dtype == np.float32


@pytest.mark.parametrize("learner", LEARNERS)
def test_callbacks_see_every_report(problem, learner):
    seen: list[Report] = []
    made = learner(preprocessor=problem.X, steps=10, report_every=2, callbacks=[seen.append])
    clone(made).fit(*problem.given(learner))
    assert [report.step for report in seen] == [0, 2, 4, 6, 8, 10]


def test_verbose_shows_progress(problem, capsys):
    nf.LabelLearner(steps=4, report_every=2, verbose=True).fit(problem.X, problem.labels)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "step 4  objective " in lines[-1]
    nf.LabelLearner(steps=4).fit(problem.X, problem.labels)
    assert capsys.readouterr().err == ""


def test_several_workers(problem):
    learner = nf.LabelLearner(n_workers=2, consistency="bsp", steps=20, random_state=0).fit(problem.X, problem.labels)
    assert learner.metric_.settings["workers"] == 2
    assert judged(learner.set_params(preprocessor=problem.X), problem) > 0.85


@pytest.mark.parametrize(
    ("make", "package"), [(lambda: TensorBoardCallback("logs"), "tensorboard"), (MLflowCallback, "mlflow")]
)
def test_a_missing_package_is_named(make, package):
    try:
        __import__(package)
    except ImportError:
        with pytest.raises(MissingExtra, match=f"pip install {package}"):
            make()
    else:
        pytest.skip(f"{package} is installed")


def test_tensorboard_reads_what_is_written(problem, tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    watch = TensorBoardCallback(str(tmp_path))
    nf.LabelLearner(steps=4, report_every=2, callbacks=[watch]).fit(problem.X, problem.labels)
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    assert [event.step for event in read.Tensors("objective")] == [0, 2, 4]
