"""The nearest references of each query, by comparing all with all, in memory that does not grow with either.

Queries are gone through in chunks whose candidates fit a fixed memory. For each chunk all references pass by, in
blocks; a block is multiplied with some queries at a time, and what is nearer than a query's limit becomes a
candidate. Each core works at its own part of the queries.
"""

import itertools
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nearfar.data.points import Floats, Points
from nearfar.evaluation import nearest_kernels as kernels
from nearfar.model.distance import Distance, Projected, places, squared_norms, too_far

Counts = NDArray[np.int64]
Keys = NDArray[np.uint64]

_CANDIDATE_BYTES = 256 << 20
_QUERY_BYTES = 64 << 20
_BLOCK_BYTES = 16 << 20
_MOST_IN_BLOCK = 1 << 14
_HELD_BYTES = 512 << 20
"""Projected references up to this size are kept from one chunk of queries to the next."""
_TILE = (256, 1024)
_SPARSE_TILE_ROWS = 64
_SPARSE_COST, _COST_SAMPLE = 100, 1000


@dataclass(frozen=True, eq=False)
class Found:
    """The nearest references of some successive queries, the nearest first; valid until the next are found."""

    queries: slice
    starts: Counts
    """Where the keys of each query begin."""
    keys: Keys

    def rows(self, count: int) -> NDArray[np.int64]:
        """The rows of the ``count`` nearest references, (queries, count)."""
        return (self._keys(count) & np.uint64((1 << kernels.ROW_BITS) - 1)).astype(np.int64)

    def squared_distances(self, count: int) -> Floats:
        """The squared distances of the ``count`` nearest references, (queries, count)."""
        return (self._keys(count) >> np.uint64(kernels.ROW_BITS)).astype(np.uint32).view(np.float32)

    def _keys(self, count: int) -> Keys:
        chosen: Keys = self.keys[self.starts[:-1, np.newaxis] + np.arange(count)]
        return chosen


def nearest(
    metric: Distance, asked: Points, known: Points, wanted: Counts, own_rows: Counts | None = None
) -> Iterator[Found]:
    """Find as many nearest references of each query as are wanted of it, chunk by chunk.

    Of references at the same distance, as float32 from norms and products knows it, those of lower rows come first.

    Parameters
    ----------
    metric : Distance
    asked, known : Points
        Queries and references, from :meth:`Distance.two_sets`.
    wanted : array of shape (queries,)
        How many, each from 1 to the number of references other than the query itself.
    own_rows : array of shape (queries,), optional
        The row of each query among the references, where it is not to be found.
    """
    origin = metric.origin(known, asked)
    chunks = list(_chunks(wanted, metric.width(asked)))
    blocks = _Blocks(metric, known, origin, held=len(chunks) > 1)
    room = _room(wanted)
    keys = np.empty(max(int(room[queries].sum()) for queries in chunks), np.uint64)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for queries in chunks:
            left = metric.projected(asked, np.arange(queries.start, queries.stop), origin)
            own = np.full(len(wanted[queries]), -1) if own_rows is None else own_rows[queries]
            candidates = _Candidates(left, wanted[queries], own, keys)
            candidates.search(blocks, pool)
            candidates.sort(pool)
            yield Found(queries, candidates.starts, keys)


def comparison_cost(metric: Distance, asked: Points, known: Points) -> float:
    """About how many multiplications it takes to compare a query with a reference.

    Of sparse points only numbers in the same feature are multiplied, but finding them takes a hundred times as long.
    """
    if metric.is_dense(asked) or metric.is_dense(known):
        return metric.width(known) if metric.is_dense(known) else _SPARSE_COST * known.stored_per_point
    shares = []
    for points in (asked, known):
        sample = np.unique(np.linspace(0, len(points) - 1, min(len(points), _COST_SAMPLE)).astype(np.int64))
        rows: Any = metric.projected(points, sample)
        shares.append(np.bincount(rows.indices, minlength=points.n_features) / len(sample))
    return 1.0 + _SPARSE_COST * float(shares[0] @ shares[1])


def _chunks(wanted: Counts, width: float) -> Iterator[slice]:
    """Successive queries that fit into memory: their candidates, and themselves."""
    size = 8 * _room(wanted).cumsum()
    begin = 0
    while begin < len(wanted):
        before = size[begin - 1] if begin else 0
        end = int(np.searchsorted(size, before + _CANDIDATE_BYTES, side="right"))
        end = max(begin + 1, min(end, begin + int(_QUERY_BYTES / (4 * max(1.0, width)))))
        yield slice(begin, end)
        begin = end


def _room(wanted: Counts) -> Counts:
    """How many candidates a query may have: some more than are wanted, as each clearing out takes its time."""
    return wanted + np.maximum(wanted // 2, kernels.AT_ONCE)


@dataclass(frozen=True, eq=False)
class _Block:
    """Some references, projected."""

    first_row: int
    transposed: Any
    """One column a reference: a dense array, or a sparse matrix of rows."""
    norms: Floats


class _Blocks:
    """All references in blocks, projected anew each time, or kept where they are few."""

    def __init__(self, metric: Distance, known: Points, origin: Floats | None, held: bool) -> None:
        self._metric, self._known, self._origin = metric, known, origin
        held = held and 4 * len(known) * metric.width(known) <= _HELD_BYTES
        self._held = list(self._projected()) if held else None

    def __iter__(self) -> Iterator[_Block]:
        return iter(self._projected() if self._held is None else self._held)

    def _projected(self) -> Iterator[_Block]:
        width = max(self._metric.width(self._known), _BLOCK_BYTES / (4 * _MOST_IN_BLOCK))
        for place in places(len(self._known), width, _BLOCK_BYTES):
            points: Any = self._metric.projected(self._known, np.arange(place.start, place.stop), self._origin)
            transposed = points.T.tocsr() if sp.issparse(points) else points.T
            yield _Block(place.start, transposed, squared_norms(points))


class _Candidates:
    """What a chunk of queries has found so far."""

    def __init__(self, left: Projected, wanted: Counts, own_rows: Counts, keys: Keys) -> None:
        self._left, self._wanted, self._own_rows = left, wanted, own_rows
        self._norms = squared_norms(left)
        self.starts: Counts = np.append(0, _room(wanted).cumsum())
        self._filled = np.zeros(len(wanted), np.int64)
        self._limits = np.full(len(wanted), np.inf, np.float32)
        self._keys = keys

    def search(self, blocks: Iterable[_Block], pool: ThreadPoolExecutor) -> None:
        """Let all references pass by."""
        parts = self._parts()
        with threadpool_limits(1, "blas"):  # each thread has its own products
            for block in blocks:
                list(pool.map(lambda part, block=block: self._offer(part, block), parts))

    def sort(self, pool: ThreadPoolExecutor) -> None:
        """Put the keys of each query in order, those that are wanted."""
        if (self._filled < self._wanted).any():  # what is not finite is never nearer than a limit
            raise too_far()
        list(pool.map(self._sort, self._parts()))

    def _parts(self) -> list[slice]:
        """The queries cut into about equal parts, one a core."""
        bounds = np.linspace(0, len(self._wanted), (os.cpu_count() or 1) + 1).astype(int)
        return [slice(int(first), int(end)) for first, end in itertools.pairwise(bounds) if end > first]

    def _offer(self, part: slice, block: _Block) -> None:
        sparse = sp.issparse(block.transposed) or sp.issparse(self._left)
        rows, columns = (_SPARSE_TILE_ROWS, len(block.norms)) if sparse else _TILE
        tile = np.empty(0 if sparse else rows * columns, np.float32)
        for first in range(part.start, part.stop, rows):
            queries = slice(first, min(first + rows, part.stop))
            left = self._left[queries]
            for column in range(0, len(block.norms), columns):
                chosen = slice(column, min(column + columns, len(block.norms)))
                products = (
                    _sparse_products(left, block.transposed)
                    if sparse
                    else _dense_products(left, block.transposed[:, chosen], tile)
                )
                kernels.offer(
                    products, self._norms[queries], block.norms[chosen], block.first_row + column,
                    self._own_rows[queries], self._wanted[queries], self.starts[first : queries.stop + 1],
                    self._filled[queries], self._limits[queries], self._keys,
                )  # fmt: skip

    def _sort(self, part: slice) -> None:
        for i in range(part.start, part.stop):
            keys = self._keys[self.starts[i] : self.starts[i] + self._filled[i]]
            kernels.keep_smallest(keys, self._wanted[i])
            keys[: self._wanted[i]].sort()


@np.errstate(over="ignore", invalid="ignore")  # what is not finite is found out at the end
def _dense_products(left: Floats, right: Floats, tile: Floats) -> Floats:
    out = tile[: left.shape[0] * right.shape[1]].reshape(left.shape[0], right.shape[1])
    return np.matmul(left, right, out=out)


def _sparse_products(left: Any, right: Any) -> Floats:
    """Of two sides, at least one of which is sparse."""
    products = left @ right
    return np.ascontiguousarray(products.toarray() if sp.issparse(products) else products)
