"""Calibration strategies against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, fbeta_score

import nearfar as nf
from nearfar.errors import InvalidConstraints, InvalidSettings
from nearfar.learners.thresholds import calibrated_threshold

SOME = st.lists(st.integers(0, 12).map(float), min_size=1, max_size=15).map(np.array)


def predictions(near: np.ndarray, far: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    truth = np.repeat([1, -1], [len(near), len(far)])
    return truth, np.where(np.concatenate((near, far)) <= threshold, 1, -1)


def rates(near: np.ndarray, far: np.ndarray, threshold: float) -> tuple[float, float]:
    return float(np.mean(near <= threshold)), float(np.mean(far > threshold))


def candidates(near: np.ndarray, far: np.ndarray) -> list[float]:
    return [-1.0, *np.unique(np.concatenate((near, far)))]


@settings(max_examples=60, deadline=None)
@given(SOME, SOME)
def test_accuracy_is_the_highest_there_is(near, far):
    def accuracy(threshold: float) -> float:
        return accuracy_score(*predictions(near, far, threshold))

    found = calibrated_threshold(near, far, "accuracy")
    assert accuracy(found) == max(map(accuracy, candidates(near, far)))


@settings(max_examples=60, deadline=None)
@given(SOME, SOME, st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_f_beta_is_the_highest_there_is(near, far, beta):
    def f_score(threshold: float) -> float:
        return float(fbeta_score(*predictions(near, far, threshold), beta=beta, zero_division=0.0))

    found = calibrated_threshold(near, far, "f_beta", beta=beta)
    assert f_score(found) == pytest.approx(max(map(f_score, candidates(near, far))))


@settings(max_examples=60, deadline=None)
@given(SOME, SOME, st.floats(0, 1))
def test_a_rate_is_the_highest_that_leaves_the_other(near, far, min_rate):
    every = [rates(near, far, threshold) for threshold in candidates(near, far)]
    tpr, tnr = rates(near, far, calibrated_threshold(near, far, "max_tpr", min_rate))
    assert tnr >= min_rate
    assert tpr == max(positive for positive, negative in every if negative >= min_rate)
    tpr, tnr = rates(near, far, calibrated_threshold(near, far, "max_tnr", min_rate))
    assert tpr >= min_rate
    assert tnr == max(negative for positive, negative in every if positive >= min_rate)


def test_the_threshold_may_call_nothing_similar():
    near, far = np.array([3.0]), np.array([0.0, 1.0, 2.0])
    assert calibrated_threshold(near, far, "accuracy") < 0


def test_accuracy_takes_pairs_of_one_kind():
    assert calibrated_threshold(np.array([1.0, 2.0]), np.empty(0)) == 2.0
    assert calibrated_threshold(np.empty(0), np.array([1.0, 2.0])) < 1.0
    with pytest.raises(InvalidConstraints, match="no dissimilar pairs"):
        calibrated_threshold(np.array([1.0]), np.empty(0), "max_tpr", 0.5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"strategy": "best"}, 'Strategy can either be "accuracy", "f_beta" or "max_tpr" or "max_tnr"'),
        ({"strategy": "max_tpr"}, "Parameter min_rate must be a number in"),
        ({"strategy": "max_tnr", "min_rate": 1.5}, "Parameter min_rate must be a number in"),
        ({"strategy": "max_tnr", "min_rate": "0.5"}, "Parameter min_rate must be a number in"),
        ({"strategy": "f_beta", "beta": "1"}, "Parameter beta must be a real number"),
        ({"strategy": "f_beta", "beta": None}, "Parameter beta must be a real number"),
    ],
)
def test_wrong_arguments(problem, arguments, said):
    learner = nf.PairLearner(preprocessor=problem.X, steps=2)
    with pytest.raises(InvalidSettings, match=said):
        learner.fit(problem.pairs, problem.y, calibration_params=arguments)
    assert not hasattr(learner, "components_")
    learner.fit(problem.pairs, problem.y)
    with pytest.raises(InvalidSettings, match=said):
        learner.calibrate_threshold(problem.pairs, problem.y, **arguments)


@pytest.fixture(scope="module")
def fitted(problem):
    return nf.PairLearner(preprocessor=problem.X, steps=20, random_state=0).fit(problem.pairs, problem.y)


def test_fit_calibrates_on_its_pairs(problem, fitted):
    accuracy = np.mean(fitted.predict(problem.pairs) == problem.y)
    distances = fitted.pair_distance(problem.pairs)
    assert accuracy == max(np.mean(np.where(distances <= t, 1, -1) == problem.y) for t in distances)
    assert fitted.metric_.threshold == pytest.approx(fitted.threshold_)


def test_fit_passes_calibration_params_on(problem):
    learner = nf.PairLearner(preprocessor=problem.X, steps=20, random_state=0)
    learner.fit(problem.pairs, problem.y, calibration_params={"strategy": "max_tpr", "min_rate": 0.99})
    predicted = learner.predict(problem.pairs)
    assert np.mean(predicted[problem.y == -1] == -1) >= 0.99
    by_hand = learner.calibrate_threshold(problem.pairs, problem.y, "max_tpr", min_rate=0.99).threshold_
    assert by_hand == learner.threshold_


def test_many_pairs_are_calibrated_on_a_sample(problem, monkeypatch):
    monkeypatch.setattr("nearfar.learners.verifier._CALIBRATION_PAIRS", 200)
    learner = nf.PairLearner(preprocessor=problem.X, steps=20, random_state=0).fit(problem.pairs, problem.y)
    assert np.mean(learner.predict(problem.pairs) == problem.y) > 0.75


def test_set_threshold(problem, fitted):
    learner = nf.PairLearner(preprocessor=problem.X, steps=2).fit(problem.pairs, problem.y)
    distances = learner.pair_distance(problem.pairs)
    assert learner.set_threshold(float(np.median(distances))) is learner
    np.testing.assert_array_equal(learner.predict(problem.pairs), np.where(distances <= np.median(distances), 1, -1))
    assert set(learner.set_threshold(-1.0).predict(problem.pairs)) == {-1}
    for wrong in ("near", None, [1, 2], np.nan):
        with pytest.raises(ValueError, match="threshold"):
            learner.set_threshold(wrong)
    del learner.threshold_
    with pytest.raises(AttributeError, match="A threshold for this estimator has not been set"):
        learner.predict(problem.pairs)
