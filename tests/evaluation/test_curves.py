"""Thinned curves keep the shape: few points, all of them of the curve, and nowhere off by more than they say."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nearfar.errors import InvalidSettings
from nearfar.evaluation import Curves, thinned
from nearfar.objective.ranking import Ranking

side = arrays(np.float32, st.integers(1, 60), elements=st.sampled_from(np.arange(40) / 8))


def farthest(x, y, thin):
    """The largest Euclidean distance of a point of the curve from the lines between the points that were kept."""
    points, kept = np.column_stack((x, y)), np.column_stack((thin.x, thin.y))
    first, ways = kept[:-1], np.diff(kept, axis=0)
    lengths = np.maximum((ways**2).sum(axis=1), 1e-30)
    along = np.einsum("pld,ld->pl", points[:, np.newaxis] - first, ways) / lengths
    nearest = first + np.clip(along, 0, 1)[..., np.newaxis] * ways
    return np.sqrt(((points[:, np.newaxis] - nearest) ** 2).sum(axis=-1)).min(axis=1).max()


def rank(near, far):
    return Ranking.of(np.asarray(near, np.float32), np.asarray(far, np.float32))


@settings(deadline=None)  # the machine may be busy
@given(side, side, st.integers(2, 30))
def test_no_point_is_farther_off_than_the_error(near, far, most):
    ranking = rank(near, far)
    curves = Curves.of(ranking, most)
    precision, recall = ranking.precision_recall()
    for thin, x, y in ((curves.precision_recall, recall, precision), (curves.roc, *ranking.roc())):
        assert 1 <= len(thin.x) == len(thin.y) == len(thin.thresholds) <= most
        assert (thin.x[0], thin.y[0], thin.x[-1], thin.y[-1]) == (x[0], y[0], x[-1], y[-1])
        assert {*zip(thin.x, thin.y, strict=True)} <= {*zip(x, y, strict=True)}
        if len(thin.x) > 1:
            assert farthest(x, y, thin) <= np.sqrt(2) * thin.error + 1e-9
        if len(x) <= most:
            assert thin.error == 0


@pytest.mark.parametrize("n_near", [20, 3000])
def test_five_hundred_points_show_any_curve(n_near):
    rng = np.random.default_rng(0)
    ranking = rank(np.abs(rng.normal(1, 0.3, n_near)), np.abs(rng.normal(1.6, 0.4, 5000)))
    curves = Curves.of(ranking)
    precision, recall = ranking.precision_recall()
    assert len(recall) > 4000
    for thin, x, y in ((curves.precision_recall, recall, precision), (curves.roc, *ranking.roc())):
        assert len(thin.x) <= 500
        assert farthest(x, y, thin) <= np.sqrt(2) * thin.error < 0.004
    area = np.trapezoid(curves.roc.y, curves.roc.x)
    assert area == pytest.approx(ranking.roc_auc(), abs=0.002)


def test_thresholds_belong_to_their_points():
    ranking = rank([1.0, 2.0, 2.0, 5.0], [2.0, 3.0, 4.0, 6.0])
    curve = Curves.of(ranking).roc
    for threshold, hits in zip(curve.thresholds[1:], curve.y[1:], strict=True):
        assert hits == (np.array([1.0, 2.0, 2.0, 5.0]) <= threshold).mean()
    assert curve.thresholds[0] == -np.inf


def test_the_json_is_strict():
    written = json.dumps(Curves.of(rank([1.0, 2.0], [1.5, 3.0])).to_json(), allow_nan=False)
    curves = json.loads(written)
    assert curves["roc"]["threshold"][0] is None
    assert curves["roc"]["false_positive_rate"] == [0.0, 0.0, 0.5, 0.5, 1.0]
    assert curves["roc"]["true_positive_rate"] == [0.0, 0.5, 0.5, 1.0, 1.0]
    assert curves["precision_recall"]["recall"][-1] == 1.0
    assert curves["precision_recall"]["error"] == 0.0


def test_a_curve_has_two_ends():
    with pytest.raises(InvalidSettings, match="a curve of 1 points was asked for; expected 2 or more"):
        thinned(np.zeros(3), np.zeros(3), np.zeros(3), most=1)
