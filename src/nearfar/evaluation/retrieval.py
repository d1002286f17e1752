"""What is nearest? Exact neighbours, and how often they are of the right class."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.data.constraints import Labels
from nearfar.data.points import Floats, Points
from nearfar.errors import InvalidConstraints, InvalidPoints, InvalidSettings
from nearfar.evaluation.bootstrap import Interval, Resampling, mean_intervals
from nearfar.evaluation.nearest import Counts, nearest
from nearfar.evaluation.nearest_kernels import ROW_BITS, judge_queries
from nearfar.model.distance import Distance

_MOST_RANKED = 1 << 28
"""Neighbours looked at for MAP@R, over all queries: where there are more, it is judged on some of the queries."""

Codes = NDArray[np.int32]


def neighbours(
    metric: Distance, queries: Any, references: Any, k: int, *, leave_one_out: bool = False
) -> tuple[NDArray[np.int64], Floats]:
    """The k nearest reference points of each query, found by comparing all with all.

    Memory beyond the result stays below about 1 GB, whatever the numbers of points: all distances are never held at
    once. They are rounded as those of :meth:`~nearfar.model.distance.Distance.pairwise_blocks` are.

    Parameters
    ----------
    metric : Metric or Euclidean
    queries, references : points of shape (n, d) and (m, d)
        Dense, memory-mapped or sparse.
    k : int
        From 1 to the number of references (less one with ``leave_one_out``).
    leave_one_out : bool
        The queries are the references themselves, in the same order: a point is not its own neighbour.

    Returns
    -------
    (indices, distances)
        Arrays of shape (n, k): the nearest first; of equally near ones, those of lower rows.
    """
    asked, known = metric.two_sets(queries, references)
    own_rows = _own_rows(leave_one_out, len(asked), len(known))
    _check_count(k, known, own_rows)
    indices = np.empty((len(asked), k), np.int64)
    distances = np.empty((len(asked), k), np.float32)
    for found in nearest(metric, asked, known, np.full(len(asked), k), own_rows):
        indices[found.queries], distances[found.queries] = found.rows(k), found.squared_distances(k)
    return indices, np.sqrt(distances, out=distances)


@dataclass(frozen=True)
class Retrieval:
    """How often the neighbours of a query are of its class."""

    error: float
    """The share of queries whose k nearest references vote for a wrong class."""
    recall: dict[int, float]
    """For each k, the share of queries with at least one point of their class among the k nearest references."""
    map_at_r: float
    """Mean average precision at R (Musgrave et al. 2020): see :func:`judge_neighbours`."""
    k: int
    """How many references voted."""
    n_queries: int
    n_references: int
    n_ranked: int
    """How many of the queries MAP@R was judged on."""
    resamples: int
    intervals: dict[str, Interval] = field(default_factory=dict)
    """Of ``error``, ``recall_at_…`` and ``map_at_r``, when queries are drawn anew."""


def judge_neighbours(
    metric: Distance,
    references: Any,
    reference_labels: ArrayLike,
    queries: Any,
    query_labels: ArrayLike,
    *,
    k: int = 3,
    ks: Sequence[int] = (1, 5, 10),
    leave_one_out: bool | ArrayLike = False,
    resampling: Resampling | None = None,
) -> Retrieval:
    """Judge a metric by the nearest references of each query.

    In the vote, the class with most votes wins; of classes with equally many, the one whose point is nearest. A query
    whose class no reference has is always an error, always missed, and counts 0 in MAP@R.

    MAP@R is the mean over queries of ``1/R · Σ P(i)``, the sum over those i from 1 to R whose reference is of the
    query's class, with R the number of references of that class and P(i) the share of that class among the i nearest.
    It is 1 if, for every query, all of its class come before all others. Where the R of all queries add up to more
    than 2²⁸, it is judged on as many of them, drawn at random, as keep below.

    Memory stays below about 1 GB, whatever the numbers of points.

    Parameters
    ----------
    metric : Metric or Euclidean
    references, queries : points of shape (m, d) and (n, d)
    reference_labels, query_labels : arrays of shape (m,) and (n,)
    k : int
        How many neighbours vote.
    ks : sequence of int
        For which numbers of neighbours to give the recall; those beyond the number of references are left out.
    leave_one_out : bool, or array of shape (n,)
        The queries are the references themselves, in the same order: a point is not its own neighbour. Where they are
        only some of the references: the row of each.
    resampling : Resampling, optional
        How confidence intervals are made, by drawing queries anew.
    """
    resampling = resampling or Resampling()
    if not len(ks) or min(ks) < 1:
        raise InvalidSettings(f"ks is {tuple(ks)}; expected one or more numbers of neighbours, each 1 or more")
    asked, known = metric.two_sets(queries, references)
    codes = _codes(asked, query_labels, known, reference_labels)
    own_rows = _own_rows(leave_one_out, len(asked), len(known))
    _check_count(k, known, own_rows)
    possible = [each for each in ks if each <= len(known) - (own_rows is not None)]
    most = max(k, *possible, 1)
    ranks = _Ranks.of(metric, asked, known, codes, k, most, own_rows, resampling.seed)
    values = {
        "error": ranks.winners != codes[0],
        **{f"recall_at_{each}": (ranks.first_hits > 0) & (ranks.first_hits <= each) for each in possible},
    }
    intervals = mean_intervals({name: each.astype(np.float64) for name, each in values.items()}, resampling)
    return Retrieval(
        error=float(values["error"].mean()),
        recall={each: float(values[f"recall_at_{each}"].mean()) for each in possible},
        map_at_r=float(ranks.precisions.mean()),
        k=k,
        n_queries=len(asked),
        n_references=len(known),
        n_ranked=len(ranks.precisions),
        resamples=resampling.count(len(asked)),
        intervals=intervals | mean_intervals({"map_at_r": ranks.precisions}, resampling),
    )


def _codes(asked: Points, query_labels: ArrayLike, known: Points, reference_labels: ArrayLike) -> tuple[Codes, Codes]:
    """The classes of queries and references as numbers."""
    for name, labels, points in (("query", query_labels, asked), ("reference", reference_labels, known)):
        if np.shape(labels) != (len(points),):
            raise InvalidConstraints(
                f"{name} labels have shape {np.shape(labels)}; expected ({len(points)},), one a {name} point"
            )
    both = Labels(np.concatenate((np.asarray(reference_labels), np.asarray(query_labels))))
    if len(both.classes) < 2:
        raise InvalidConstraints(
            f"all labels are {both.classes[0]}; expected at least two classes, else every neighbour is right"
        )
    return both.codes[len(known) :], both.codes[: len(known)]


@dataclass(frozen=True, eq=False)
class _Ranks:
    """What was found for each query; see :func:`~nearfar.evaluation.nearest_kernels.judge_query`."""

    winners: Codes
    first_hits: Counts
    precisions: NDArray[np.float64]
    """Of those queries that MAP@R is judged on."""

    @classmethod
    def of(
        cls,
        metric: Distance,
        asked: Points,
        known: Points,
        codes: tuple[Codes, Codes],
        k: int,
        most: int,
        own_rows: Counts | None,
        seed: int,
    ) -> "_Ranks":
        truth, reference_codes = codes
        n_classes = 1 + max(int(truth.max()), int(reference_codes.max()))
        of_class = np.bincount(reference_codes, minlength=n_classes)[truth]
        relevant = of_class if own_rows is None else of_class - (reference_codes[own_rows] == truth)
        ranked = _within(relevant, _MOST_RANKED, seed)
        relevant = np.where(ranked, relevant, 0)
        winners, first_hits = np.empty(len(asked), np.int32), np.empty(len(asked), np.int64)
        precisions = np.empty(len(asked))
        for found in nearest(metric, asked, known, np.maximum(relevant, most), own_rows):
            at = found.queries
            judge_queries(
                found.keys, found.starts, reference_codes, truth[at], k, most, relevant[at], n_classes,
                winners[at], first_hits[at], precisions[at],
            )  # fmt: skip
        return cls(winners, first_hits, precisions[ranked])


def _within(relevant: Counts, most: int, seed: int) -> NDArray[np.bool_]:
    """Queries whose numbers of references add up to no more than ``most``: all, or, at random, some; at least one."""
    order = np.random.default_rng([seed, 4]).permutation(len(relevant))
    count = max(1, int(np.searchsorted(relevant[order].cumsum(), most, side="right")))
    chosen = np.zeros(len(relevant), np.bool_)
    chosen[order[:count]] = True
    return chosen


def _own_rows(leave_one_out: bool | ArrayLike, n_queries: int, n_references: int) -> Counts | None:
    """The row of each query among the references, or None."""
    if not isinstance(leave_one_out, (bool, np.bool_)):
        rows = np.asarray(leave_one_out)
        if rows.shape != (n_queries,) or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= n_references:
            raise InvalidPoints(
                f"leave_one_out is neither a boolean nor the row of each of {n_queries} queries among "
                f"{n_references} references"
            )
        return rows.astype(np.int64)
    if not leave_one_out:
        return None
    if n_queries != n_references:
        raise InvalidPoints(
            f"leave_one_out is for queries that are the references; there are {n_queries} and {n_references}"
        )
    return np.arange(n_queries)


def _check_count(k: int, known: Points, own_rows: Counts | None) -> None:
    most = len(known) - (own_rows is not None)
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= most:
        raise InvalidSettings(f"k is {k}; expected from 1 to {most}, the number of points that can be neighbours")
    if len(known) >= 1 << ROW_BITS:
        raise InvalidPoints(f"there are {len(known)} references; expected fewer than 2**{ROW_BITS}: use a vector index")
