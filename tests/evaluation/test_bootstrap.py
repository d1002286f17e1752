"""Intervals: a resample is as if its pairs were drawn one by one, and many of them are as wide as theory says."""

import itertools

import numpy as np
import pytest

from nearfar.data.draw import mixed, stream_key
from nearfar.evaluation import Resampling
from nearfar.evaluation.bootstrap import (
    _BLOCK,
    _Resampler,
    balanced_accuracy_interval,
    draw_counts,
    mean_intervals,
    ranking_intervals,
)
from nearfar.objective.ranking import Ranking


def distances(n_near, n_far, seed=0, digits=None):
    rng = np.random.default_rng(seed)
    near, far = np.abs(rng.normal(1, 0.3, n_near)), np.abs(rng.normal(1.6, 0.4, n_far))
    return (near, far) if digits is None else (np.round(near, digits), np.round(far, digits))


def resampled(near, far, seed, number):
    """A resample as distances, each as often as it was drawn."""
    ranking = Ranking.of(near, far)
    blocks = np.minimum(np.arange(0, len(ranking.distances) + _BLOCK, _BLOCK), len(ranking.distances))
    rng, key = np.random.default_rng([seed, 0, number]), stream_key(seed, number, 0)
    drawn = []
    for side, cumulative in enumerate((ranking.nears, ranking.fars)):
        counts = np.diff(cumulative, prepend=0)
        in_blocks = np.add.reduceat(counts, blocks[:-1])
        draws = rng.multinomial(counts.sum(), in_blocks / counts.sum())
        parts = []
        for block, (first, end) in enumerate(itertools.pairwise(blocks)):
            times = np.empty(end - first, np.int64)
            places = np.repeat(np.arange(end - first), counts[first:end])
            draw_counts(places, draws[block], np.uint64(mixed(2 * block + side, key)), times)
            parts.append(np.repeat(ranking.distances[first:end], times))
        drawn.append(np.concatenate(parts))
    return drawn


@pytest.mark.parametrize(("n_near", "n_far", "digits"), [(7, 5, None), (3000, 9000, None), (9000, 4000, 2), (1, 1, 0)])
def test_a_resample_has_the_figures_of_its_pairs(n_near, n_far, digits):
    near, far = distances(n_near, n_far, digits=digits)
    resample = _Resampler(Ranking.of(near, far), seed=5)
    for number in (0, 1, 17):
        chosen = resampled(near, far, 5, number)
        assert [len(side) for side in chosen] == [n_near, n_far]
        expected = Ranking.of(*chosen)
        figures = (expected.average_precision(), expected.roc_auc(), expected.equal_error_rate())
        np.testing.assert_allclose(resample(number), figures, rtol=1e-10)


def test_every_pair_is_drawn_as_often_as_every_other():
    counts = np.zeros(1000, np.int64)
    all_counts = []
    for key in range(1000):
        draw_counts(np.arange(1000), 1000, key, counts)
        assert counts.sum() == 1000
        all_counts.append(counts.copy())
    table = np.array(all_counts)
    expected, off = 1000.0, table.sum(axis=0) - 1000
    chi_square = (off**2).sum() / expected  # 999 degrees of freedom: 999 ± 45
    assert 820 < chi_square < 1180
    assert np.var(table) == pytest.approx(1.0, abs=0.01)  # binomial: 1 - 1/1000


def test_the_width_is_that_of_theory():
    """The interval of ROC AUC, as a sum over pairs of pairs, has a variance that can be computed (DeLong)."""
    near, far = distances(800, 1200)
    wins = near[:, np.newaxis] < far
    sigma = np.sqrt(wins.mean(axis=1).var(ddof=1) / len(near) + wins.mean(axis=0).var(ddof=1) / len(far))
    low, high = ranking_intervals(Ranking.of(near, far), Resampling(4000))["roc_auc"]
    assert high - low == pytest.approx(2 * 1.96 * sigma, rel=0.06)
    assert (low + high) / 2 == pytest.approx(wins.mean(), abs=0.2 * sigma)
    narrow = ranking_intervals(Ranking.of(near, far), Resampling(4000, confidence=0.5))["roc_auc"]
    assert narrow[1] - narrow[0] == pytest.approx(2 * 0.674 * sigma, rel=0.06)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """The true ROC AUC is the chance that one normal variable is below another."""
    truth = 0.884930  # P(N(1, .3) < N(1.6, .4)) = Φ(0.6 / 0.5)
    held = [
        low <= truth <= high
        for seed in range(100)
        for low, high in [ranking_intervals(Ranking.of(*distances(150, 150, seed)), Resampling(100))["roc_auc"]]
    ]
    assert 0.86 <= np.mean(held) <= 0.99


def test_the_seed_decides_and_threads_do_not(monkeypatch):
    ranking = Ranking.of(*distances(500, 600))
    intervals = ranking_intervals(ranking, Resampling(50, seed=3))
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert ranking_intervals(ranking, Resampling(50, seed=3)) == intervals
    assert ranking_intervals(ranking, Resampling(50, seed=4)) != intervals


def test_accuracy_and_means_have_binomial_widths():
    ranking = Ranking.of(*distances(2000, 3000))
    hits, alarms = ranking.rates_at(1.25)
    low, high = balanced_accuracy_interval(hits, alarms, ranking, Resampling(4000))
    sigma = np.sqrt(hits * (1 - hits) / 2000 + alarms * (1 - alarms) / 3000) / 2
    assert high - low == pytest.approx(2 * 1.96 * sigma, rel=0.06)
    values = (np.arange(1000) < 100).astype(float)
    means = mean_intervals({"tenth": values, "scaled": 3 * values}, Resampling(4000))
    low, high = means["tenth"]
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.09 / 1000), rel=0.08)
    assert means["scaled"] == pytest.approx((3 * low, 3 * high))


def test_how_many_resamples_are_made():
    assert [Resampling().count(size) for size in (10, 4_000_000, 8_000_000, 1_000_000_000)] == [1000, 1000, 500, 100]
    assert Resampling(7).count(1_000_000_000) == 7
    assert ranking_intervals(Ranking.of(*distances(5, 5)), Resampling(0)) == {}
    assert mean_intervals({"a": np.ones(3)}, Resampling(0)) == {}
