"""What is nearest? Exact neighbours, and how often they are of the right class."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.data.constraints import Labels
from nearfar.data.points import Floats
from nearfar.errors import InvalidConstraints, InvalidPoints, InvalidSettings
from nearfar.model.distance import Distance, places, squared_between

_CHUNK_BYTES = 32 << 20
_TILE_BYTES = 32 << 20
_NUMBERS_A_POINT = 512  # keeps a chunk of narrow points to 16 thousand, so that a tile has some hundreds of rows

Codes = NDArray[np.int32]


def neighbours(
    metric: Distance, queries: Any, references: Any, k: int, *, leave_one_out: bool = False
) -> tuple[NDArray[np.int64], Floats]:
    """The k nearest reference points of each query, found by comparing all with all.

    Memory beyond the result stays below about 256 MB: all distances are never held at once. They are rounded
    as those of :meth:`~nearfar.model.distance.Distance.pairwise_blocks` are.

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
        Arrays of shape (n, k): the nearest first; of equally near ones, any.
    """
    asked, known = metric.two_sets(queries, references)
    _check_count(k, len(asked), len(known), leave_one_out)
    origin = metric.origin(known, asked)
    indices = np.zeros((len(asked), k), np.int64)
    nearest = np.full((len(asked), k), np.inf, np.float32)
    for rows in places(len(asked), max(metric.width(asked), _NUMBERS_A_POINT), _CHUNK_BYTES):
        left = metric.projected(asked, np.arange(rows.start, rows.stop), origin)
        for columns in places(len(known), max(metric.width(known), _NUMBERS_A_POINT), _CHUNK_BYTES):
            right = metric.projected(known, np.arange(columns.start, columns.stop), origin)
            for part in places(rows.stop - rows.start, columns.stop - columns.start, _TILE_BYTES):
                tile = squared_between(left[part], right)
                place = slice(rows.start + part.start, rows.start + part.stop)
                if leave_one_out:
                    _hide_selves(tile, place.start, columns.start)
                _keep_nearest(tile, columns.start, indices[place], nearest[place])
    return indices, np.sqrt(nearest, out=nearest)


@dataclass(frozen=True)
class Retrieval:
    """How often the neighbours of a query are of its class."""

    error: float
    """The share of queries whose nearest references vote for a wrong class."""
    recall: dict[int, float]
    """For each k, the share of queries with at least one point of their class among the k nearest references."""


def judge_neighbours(
    metric: Distance,
    references: Any,
    reference_labels: ArrayLike,
    queries: Any,
    query_labels: ArrayLike,
    *,
    k: int = 3,
    ks: Sequence[int] = (1, 5, 10),
    leave_one_out: bool = False,
) -> Retrieval:
    """Judge a metric by the nearest references of each query.

    In the vote, the class with most votes wins; of classes with equally many, the one whose point is nearest. A query
    whose class no reference has is always an error, and always missed.

    Parameters
    ----------
    metric : Metric or Euclidean
    references, queries : points of shape (m, d) and (n, d)
    reference_labels, query_labels : arrays of shape (m,) and (n,)
    k : int
        How many neighbours vote.
    ks : sequence of int
        For which numbers of neighbours to give the recall; those beyond the number of references are left out.
    leave_one_out : bool
        The queries are the references themselves: a point is not its own neighbour.
    """
    if not len(ks) or min(ks) < 1:
        raise InvalidSettings(f"ks is {tuple(ks)}; expected one or more numbers of neighbours, each 1 or more")
    most = len(np.asarray(reference_labels)) - leave_one_out
    possible = [each for each in ks if each <= most]
    truth, found = _classes_found(
        metric, references, reference_labels, queries, query_labels, k=max(k, *possible, 1), leave_one_out=leave_one_out
    )
    votes = np.column_stack([(found[:, :k] == found[:, [i]]).sum(axis=1) for i in range(k)])
    winner = np.argmax(votes, axis=1)  # the first, so the nearest, of those with most votes
    hits = found == truth[:, np.newaxis]
    return Retrieval(
        error=float(np.mean(found[np.arange(len(found)), winner] != truth)),
        recall={each: float(np.mean(hits[:, :each].any(axis=1))) for each in possible},
    )


def _classes_found(
    metric: Distance,
    references: Any,
    reference_labels: ArrayLike,
    queries: Any,
    query_labels: ArrayLike,
    *,
    k: int,
    leave_one_out: bool,
) -> tuple[Codes, Codes]:
    """The class of each query, and the classes of its k nearest references, nearest first."""
    asked, known = metric.two_sets(queries, references)
    for name, labels, points in (("query", query_labels, asked), ("reference", reference_labels, known)):
        if np.shape(labels) != (len(points),):
            raise InvalidConstraints(
                f"{name} labels have shape {np.shape(labels)}; expected ({len(points)},), one a {name} point"
            )
    codes = Labels(np.concatenate((np.asarray(reference_labels), np.asarray(query_labels)))).codes
    indices, _ = neighbours(metric, asked, known, k, leave_one_out=leave_one_out)
    return codes[len(known) :], codes[: len(known)][indices]


def _check_count(k: int, n_queries: int, n_references: int, leave_one_out: bool) -> None:
    if leave_one_out and n_queries != n_references:
        raise InvalidPoints(
            f"leave_one_out is for queries that are the references; there are {n_queries} and {n_references}"
        )
    most = n_references - 1 if leave_one_out else n_references
    if not 1 <= k <= most:
        raise InvalidSettings(f"k is {k}; expected from 1 to {most}, the number of points that can be neighbours")


def _hide_selves(tile: Floats, first_row: int, first_column: int) -> None:
    selves = np.arange(max(first_row, first_column), min(first_row + tile.shape[0], first_column + tile.shape[1]))
    tile[selves - first_row, selves - first_column] = np.inf


def _keep_nearest(tile: Floats, first_column: int, indices: NDArray[np.int64], nearest: Floats) -> None:
    """Merge a tile of squared distances into the nearest so far, in place; those are kept in order."""
    k = nearest.shape[1]
    columns = np.argpartition(tile, min(k, tile.shape[1]) - 1, axis=1)[:, :k]
    distances = np.concatenate((nearest, np.take_along_axis(tile, columns, axis=1)), axis=1)
    candidates = np.concatenate((indices, columns + first_column), axis=1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    nearest[:] = np.take_along_axis(distances, order, axis=1)
    indices[:] = np.take_along_axis(candidates, order, axis=1)
