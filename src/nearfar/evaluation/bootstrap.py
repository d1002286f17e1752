"""How far a figure may be off for having been judged on these pairs or queries and not on others: the bootstrap.

A resample draws as many pairs as there are, with replacement, similar and dissimilar ones apart, and the figure is
computed anew; the interval is what the middle share of such figures spans. Pairs are never sorted again: a resample
only counts how often each is drawn. That is done a few thousand distances at a time, first how many draws
fall on them all, then which each falls on, so memory does not grow with the resamples, and counting stays in cache.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.compiled import compiled
from nearfar.data.draw import mixed, stream_key
from nearfar.errors import InvalidSettings
from nearfar.objective.ranking import Counts, Ranking

Array = NDArray[Any]
Whole = int | np.integer[Any]
Interval = tuple[float, float]

RESAMPLES = 1000
"""Resamples by default, unless that many would draw more often than ``_MOST_DRAWS``."""
CONFIDENCE = 0.95
"""The share of resamples whose figures an interval spans, by default."""

_FEWEST_RESAMPLES = 100
_MOST_DRAWS = 4_000_000_000
_BLOCK = 4096
"""Distances counted at once."""
_AVERAGE_PRECISION, _ROC_AUC, _EQUAL_ERROR_RATE = range(3)
_FIGURES = ("average_precision", "roc_auc", "equal_error_rate")


@dataclass(frozen=True)
class Resampling:
    """How intervals are made.

    Parameters
    ----------
    resamples : int, optional
        How often to draw anew; 0 for no intervals. By default 1,000, or, beyond 4 million pairs, as many as make
        4 billion draws, but no fewer than 100.
    confidence : float
        The share of resamples that an interval spans.
    seed : int
    """

    resamples: int | None = None
    confidence: float = CONFIDENCE
    seed: int = 0

    def __post_init__(self) -> None:
        if self.resamples is not None and self.resamples < 0:
            raise InvalidSettings(f"resamples is {self.resamples}; expected 1 or more, or 0 for no intervals")
        if not 0 < self.confidence < 1:
            raise InvalidSettings(f"confidence is {self.confidence}; expected a share between 0 and 1, such as 0.95")

    def count(self, size: int) -> int:
        """How many resamples are made of so many pairs or queries."""
        if self.resamples is not None:
            return self.resamples
        return min(RESAMPLES, max(_FEWEST_RESAMPLES, _MOST_DRAWS // size))

    def interval(self, figures: ArrayLike) -> Interval:
        """What the middle share of the resamples' figures spans."""
        outside = (1 - self.confidence) / 2
        low, high = np.quantile(np.asarray(figures), (outside, 1 - outside))
        return float(low), float(high)


def ranking_intervals(ranking: Ranking, resampling: Resampling) -> dict[str, Interval]:
    """Intervals of average precision, ROC AUC and equal error rate; none if there are to be no resamples."""
    count = resampling.count(ranking.n_near + ranking.n_far)
    if not count:
        return {}
    resample = _Resampler(ranking, resampling.seed)
    with ThreadPoolExecutor(min(count, os.cpu_count() or 1)) as pool:
        figures = np.array(list(pool.map(resample, range(count))))
    return {name: resampling.interval(column) for name, column in zip(_FIGURES, figures.T, strict=True)}


def balanced_accuracy_interval(
    hits: float, false_alarms: float, ranking: Ranking, resampling: Resampling
) -> Interval | None:
    """The interval of the balanced accuracy at a fixed threshold, from the shares of pairs at or below it.

    How many resampled pairs of a kind lie at or below a threshold is binomial, so they are not drawn one by one.
    """
    count = resampling.count(ranking.n_near + ranking.n_far)
    if not count:
        return None
    rng = np.random.default_rng([resampling.seed, 1])
    near = rng.binomial(ranking.n_near, hits, count) / ranking.n_near
    far = rng.binomial(ranking.n_far, false_alarms, count) / ranking.n_far
    return resampling.interval((near + 1 - far) / 2)


def mean_intervals(values: Mapping[str, NDArray[np.float64]], resampling: Resampling) -> dict[str, Interval]:
    """For each name the interval of the mean of its values, one a query, when queries are drawn anew.

    All values are of the same queries, in the same order. None if there are to be no resamples.
    """
    table = np.column_stack(list(values.values()))
    size, count = len(table), resampling.count(len(table))
    if not count:
        return {}
    rng = np.random.default_rng([resampling.seed, 2])
    means = np.empty((count, len(values)))
    for resample in range(count):
        drawn = np.bincount(rng.integers(size, size=size), minlength=size)
        means[resample] = drawn @ table / size
    return {name: resampling.interval(column) for name, column in zip(values, means.T, strict=True)}


@dataclass(frozen=True, eq=False)
class _Kind:
    """The pairs of one kind, by blocks of distances."""

    starts: Counts
    """Where each block begins among the pairs, in the order of their distances, and where the last one ends."""
    places: NDArray[np.uint16]
    """For each pair, which of the distances of its block it has."""
    shares: NDArray[np.float64]
    """The share of pairs that is in each block."""

    @classmethod
    def of(cls, cumulative: Counts, blocks: Counts) -> "_Kind":
        starts = np.append(0, cumulative)[blocks]
        places = np.repeat((np.arange(len(cumulative)) % _BLOCK).astype(np.uint16), np.diff(cumulative, prepend=0))
        return cls(starts, places, np.diff(starts) / cumulative[-1])

    def draws(self, rng: np.random.Generator) -> Counts:
        """How many draws of a resample fall into each block."""
        drawn: Counts = rng.multinomial(len(self.places), self.shares)
        return drawn


class _Resampler:
    """The figures of a resample, by its number; may be called from several threads."""

    def __init__(self, ranking: Ranking, seed: int) -> None:
        distances = len(ranking.nears)
        self._blocks = np.minimum(np.arange(0, distances + _BLOCK, _BLOCK), distances)
        self._near = _Kind.of(ranking.nears, self._blocks)
        self._far = _Kind.of(ranking.fars, self._blocks)
        self._seed = seed

    def __call__(self, number: int) -> NDArray[np.float64]:
        rng = np.random.default_rng([self._seed, 0, number])
        figures = np.empty(len(_FIGURES))
        near, far = self._near, self._far
        _resample(
            self._blocks, near.starts, near.places, near.draws(rng), far.starts, far.places, far.draws(rng),
            stream_key(self._seed, number, 0), figures,
        )  # fmt: skip
        return figures


@compiled(error_model="numpy")
def draw_counts(places: Array, draws: Whole, key: Whole, counts: Array) -> None:
    """Count how often each place comes up when so many of ``places`` are drawn, evenly, with replacement."""
    counts[:] = 0
    size, lower = np.uint64(len(places)), np.uint64(0xFFFFFFFF)
    for i in range((draws + 1) // 2):
        bits = mixed(i, key)  # two draws of 32 bits each
        counts[places[((bits >> np.uint64(32)) * size) >> np.uint64(32)]] += 1
        if 2 * i + 1 < draws:
            counts[places[((bits & lower) * size) >> np.uint64(32)]] += 1


@compiled(error_model="numpy")
def _resample(
    blocks: Array, near_starts: Array, near_places: Array, near_draws: Array,
    far_starts: Array, far_places: Array, far_draws: Array, key: Whole, figures: Array,
) -> None:  # fmt: skip
    """One resample: draws the pairs of each block, and adds up the figures on the way through the distances."""
    near_counts, far_counts = np.empty(_BLOCK, np.int32), np.empty(_BLOCK, np.int32)
    n_near, n_far = near_draws.sum(), far_draws.sum()
    nears = fars = last_nears = last_fars = np.int64(0)
    precision, won = 0.0, 0.0
    crossed = False
    for block in range(len(blocks) - 1):
        draw_counts(
            near_places[near_starts[block] : near_starts[block + 1]], near_draws[block],
            mixed(2 * block, key), near_counts,
        )  # fmt: skip
        draw_counts(
            far_places[far_starts[block] : far_starts[block + 1]], far_draws[block],
            mixed(2 * block + 1, key), far_counts,
        )  # fmt: skip
        for i in range(blocks[block + 1] - blocks[block]):
            near, far = near_counts[i], far_counts[i]
            nears += near
            fars += far
            precision += near * (nears / max(nears + fars, 1))
            won += far * (nears - 0.5 * near)
            if not crossed:
                if fars * n_near + nears * n_far >= n_near * n_far:
                    crossed = True
                else:
                    last_nears, last_fars = nears, fars
                    continue
                figures[_EQUAL_ERROR_RATE] = crossing(last_nears, last_fars, nears, fars, n_near, n_far)
    figures[_AVERAGE_PRECISION] = precision / n_near
    figures[_ROC_AUC] = won / n_near / n_far


@compiled(error_model="numpy")
def crossing(last_nears: Whole, last_fars: Whole, nears: Whole, fars: Whole, n_near: Whole, n_far: Whole) -> float:
    """The equal error rate, between the last counts with fewer false alarms than misses and the first without."""
    before = last_fars / n_far + last_nears / n_near - 1.0
    after = fars / n_far + nears / n_near - 1.0
    share = -before / (after - before)
    rate: float = last_fars / n_far + share * (fars - last_fars) / n_far
    return rate
