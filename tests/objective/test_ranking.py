"""The ranking figures are scikit-learn's, ties and all."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score, roc_auc_score

from nearfar.errors import InvalidInput
from nearfar.objective.ranking import average_precision, cumulative_counts, roc_auc

# A handful of distinct values makes ties, within and between the sides, the rule.
tied = st.sampled_from([0.0, -0.0, 2.0**-140, 0.125, 0.25, 1.0, 3.0, 2.0**100])
any_distance = st.floats(0, 2.0**100, width=32)


def sides(dtype):
    side = arrays(dtype, st.integers(1, 30), elements=tied | any_distance)
    return st.tuples(side, side)


def truth_and_score(near, far):
    return np.repeat([1, 0], [len(near), len(far)]), -np.concatenate((near, far)).astype(np.float64)


@settings(deadline=None)  # the machine may be busy
@given(sides(np.float32) | sides(np.float64))
def test_figures_equal_those_of_scikit_learn(near_and_far):
    truth, score = truth_and_score(*near_and_far)
    assert average_precision(*near_and_far) == pytest.approx(average_precision_score(truth, score), abs=1e-12)
    assert roc_auc(*near_and_far) == pytest.approx(roc_auc_score(truth, score), abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64])
def test_every_type_of_number_is_ranked(dtype):
    random = np.random.default_rng(0)
    near, far = random.integers(0, 40, 500).astype(dtype), random.integers(10, 50, 700).astype(dtype)
    truth, score = truth_and_score(near, far)
    assert average_precision(near, far) == pytest.approx(average_precision_score(truth, score), abs=1e-12)
    assert roc_auc(near, far) == pytest.approx(roc_auc_score(truth, score), abs=1e-12)


def test_float64_distances_that_float32_cannot_tell_apart_are_told_apart():
    near, far = np.array([1.0]), np.array([1.0 + 1e-12])
    assert roc_auc(near, far) == average_precision(near, far) == 1.0
    assert roc_auc(far, near) == 0.0


@settings(deadline=None)  # the machine may be busy
@given(sides(np.float32) | sides(np.float64))
def test_counts_are_those_of_a_plain_comparison(near_and_far):
    near, far = near_and_far
    distances, nears, fars = cumulative_counts(near, far)
    assert distances.dtype == near.dtype
    np.testing.assert_array_equal(distances, np.unique(np.concatenate((near, far))))
    np.testing.assert_array_equal(nears, [(near <= distance).sum() for distance in distances])
    np.testing.assert_array_equal(fars, [(far <= distance).sum() for distance in distances])


@pytest.mark.parametrize("figure", [average_precision, roc_auc])
@pytest.mark.parametrize(
    ("near", "far"), [([], [1.0]), ([1.0], []), ([], []), ([math.nan], [1.0]), ([1.0], [2.0, math.nan])]
)
def test_undefined_is_nan(figure, near, far):
    assert math.isnan(figure(np.array(near), np.array(far)))


@pytest.mark.parametrize("figure", [average_precision, roc_auc])
def test_scores_are_not_taken_for_distances(figure):
    with pytest.raises(InvalidInput, match=r"a distance is -2.0; expected none below 0"):
        figure(np.array([1.0, -2.0]), np.array([3.0]))
