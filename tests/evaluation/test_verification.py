"""Verification: the figures are scikit-learn's, the threshold is the best there is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from nearfar.data.constraints import Pairs
from nearfar.errors import InvalidConstraints, InvalidInput, InvalidPoints, InvalidSettings
from nearfar.evaluation import Resampling, best_threshold, judge_distances, judge_pairs, precision_recall, roc
from nearfar.model.euclidean import Euclidean
from nearfar.model.metric import Metric

side = arrays(np.float32, st.integers(1, 25), elements=st.sampled_from(np.arange(12) / 8))


NO_INTERVALS = Resampling(0)


def truth_and_score(near, far):
    return np.repeat([1, 0], [len(near), len(far)]), -np.concatenate((near, far))


def balanced_accuracy(near, far, threshold):
    return (np.mean(near <= np.float64(threshold)) + np.mean(far > np.float64(threshold))) / 2


@pytest.fixture(scope="module")
def digits():
    points, labels = load_digits(return_X_y=True)
    drawn = np.random.default_rng(0).integers(0, len(points), (4000, 2))
    same = labels[drawn[:, 0]] == labels[drawn[:, 1]]
    return points, Pairs(drawn[same], drawn[~same])


def test_judged_pairs_of_digits(digits):
    points, pairs = digits
    judged = judge_pairs(Euclidean(), points, pairs)
    near, far = (np.linalg.norm(points[p[:, 0]] - points[p[:, 1]], axis=1) for p in (pairs.similar, pairs.dissimilar))
    truth, score = truth_and_score(near, far)
    false_alarms, hits, _ = roc_curve(truth, score, drop_intermediate=False)
    crossing = np.interp(0.0, false_alarms + hits - 1, false_alarms)
    assert judged.average_precision == pytest.approx(average_precision_score(truth, score), abs=1e-6)
    assert judged.roc_auc == pytest.approx(roc_auc_score(truth, score), abs=1e-6)
    assert judged.equal_error_rate == pytest.approx(crossing, abs=1e-3)
    assert judged.accuracy == pytest.approx(balanced_accuracy(near, far, judged.threshold), abs=1e-9)
    assert judged.accuracy == pytest.approx((1 + (hits - false_alarms).max()) / 2, abs=1e-3)
    assert (judged.n_similar, judged.n_dissimilar) == (len(near), len(far))
    precision, recall, _ = precision_recall_curve(truth, score)
    for at, found in judged.precision_at_recall.items():
        assert found == pytest.approx(precision[recall >= float(at) - 1e-9][-1], abs=1e-3)


def test_a_metric_is_judged_by_its_own_threshold():
    points = np.array([[0.0], [1.0], [2.0], [10.0]])
    pairs = Pairs([[0, 1], [0, 2]], [[0, 3]])
    metric = Metric([[1.0]])
    free, bound = judge_pairs(metric, points, pairs), judge_pairs(metric.with_threshold(1.5), points, pairs)
    assert (free.threshold, free.accuracy, free.equal_error_rate) == (6.0, 1.0, 0.0)
    assert (bound.threshold, bound.accuracy) == (1.5, 0.75)
    assert free.average_precision == bound.average_precision == 1.0
    given_one = judge_pairs(metric.with_threshold(1.5), points, pairs, threshold=1.0)
    assert (given_one.threshold, given_one.accuracy) == (1.0, 0.75)  # a pair at the threshold counts as similar
    assert [each.threshold_from for each in (free, bound, given_one)] == ["judged pairs", "metric", "given"]


@settings(deadline=None)  # the machine may be busy
@given(side, side, st.sampled_from(np.arange(-1, 14) / 8))
def test_accuracy_counts_a_pair_at_the_threshold_as_similar(near, far, threshold):
    judged = judge_distances(near, far, threshold=threshold, resampling=NO_INTERVALS)
    assert judged.accuracy == pytest.approx(balanced_accuracy(near, far, threshold))
    assert judged.intervals == {}


@settings(deadline=None)  # the machine may be busy
@given(side, side)
def test_no_threshold_beats_the_best(near, far):
    candidates = np.append(np.unique(np.concatenate((near, far))), -1.0)
    best = max(balanced_accuracy(near, far, candidate) for candidate in candidates)
    assert balanced_accuracy(near, far, best_threshold(near, far)) == pytest.approx(best)


def test_best_threshold_separates_distances_that_are_next_to_each_other():
    for dtype in (np.float32, np.float64):
        low = np.array([1.0], dtype)
        high = np.nextafter(low, dtype(2))
        assert low[0] <= np.float64(best_threshold(low, high)) < high[0]


@settings(deadline=None)  # the machine may be busy
@given(side, side)
def test_curves_are_those_of_scikit_learn(near, far):
    truth, score = truth_and_score(near, far)
    precision, recall, thresholds = precision_recall(near, far)
    expected = precision_recall_curve(truth, score)
    np.testing.assert_allclose(precision, expected[0][:-1][::-1])
    np.testing.assert_allclose(recall, expected[1][:-1][::-1])
    np.testing.assert_array_equal(thresholds, -expected[2][::-1])
    false_alarms, hits, thresholds = roc(near, far)
    expected = roc_curve(truth, score, drop_intermediate=False)
    np.testing.assert_allclose(false_alarms, expected[0])
    np.testing.assert_allclose(hits, expected[1])
    np.testing.assert_array_equal(thresholds, -expected[2])


@settings(deadline=None)  # the machine may be busy
@given(side, side)
def test_equal_error_rate_lies_where_both_kinds_of_error_cross(near, far):
    points = np.concatenate(([0.0], near, far))[:, np.newaxis]
    to_first = np.column_stack((np.zeros(len(points) - 1, int), np.arange(1, len(points))))
    pairs = Pairs(to_first[: len(near)], to_first[len(near) :])
    truth, score = truth_and_score(near, far)
    false_alarms, hits, _ = roc_curve(truth, score, drop_intermediate=False)
    rate = judge_pairs(Euclidean(), points, pairs, resampling=NO_INTERVALS).equal_error_rate
    assert np.interp(0.0, false_alarms + hits - 1, false_alarms) == pytest.approx(rate, abs=1e-9)


@pytest.mark.parametrize("missing", ["similar", "dissimilar"])
def test_one_kind_of_pair_is_not_enough(missing):
    given_pairs = {"similar": [[0, 1]], "dissimilar": [[0, 1]]} | {missing: []}
    with pytest.raises(InvalidConstraints, match=f"there are no {missing} pairs"):
        judge_pairs(Euclidean(), np.eye(2), Pairs(**given_pairs))


def test_distances_judged_are_those_of_the_metric(digits):
    points, pairs = digits
    near, far = (Euclidean().pair_distances(points, kind) for kind in (pairs.similar, pairs.dissimilar))
    assert judge_distances(near, far) == judge_pairs(Euclidean(), points, pairs)


def test_every_interval_holds_its_figure(digits):
    judged = judge_pairs(Euclidean(), *digits)
    assert judged.resamples == 1000
    assert judged.intervals.keys() == {"average_precision", "roc_auc", "equal_error_rate", "accuracy"}
    for name, (low, high) in judged.intervals.items():
        assert low < getattr(judged, name) < high
        assert high - low < 0.1


WRONG = {
    "NaN among distances": (lambda: judge_distances([1.0, np.nan], [2.0]), InvalidInput, "a distance is NaN"),
    "scores": (lambda: judge_distances([-1.0], [-2.0]), InvalidInput, "a distance is -2.0; expected none below 0"),
    "NaN in a point": (
        lambda: judge_pairs(Euclidean(), [[0.0], [np.nan]], Pairs([[0, 1]], [[0, 1]])),
        InvalidPoints,
        "point 1 has NaN",
    ),
    "another width": (
        lambda: judge_pairs(Metric(np.eye(3)), np.eye(2), Pairs([[0, 1]], [[0, 1]])),
        InvalidPoints,
        "points have 2 features; this metric measures points of 3",
    ),
    "a pair without its point": (
        lambda: judge_pairs(Euclidean(), np.eye(2), Pairs([[0, 2]], [[0, 1]])),
        InvalidConstraints,
        "index 2; there are 2 points",
    ),
    "a threshold that is none": (
        lambda: judge_distances([1.0], [2.0], threshold=np.nan),
        InvalidSettings,
        "threshold is NaN",
    ),
    "resamples below 0": (lambda: Resampling(-1), InvalidSettings, "resamples is -1"),
    "all of the resamples": (lambda: Resampling(confidence=1.0), InvalidSettings, "confidence is 1.0"),
}


@pytest.mark.parametrize(("act", "kind", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_named(act, kind, message):
    with pytest.raises(kind, match=message):
        act()
