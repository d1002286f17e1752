"""The gradient as workers compute it: buffers kept, products by BLAS or compiled loops. The reference is gradient.py.

Every form ends in two factors: rows V (differences, or distinct points, dense or sparse) and coefficients C, with
G = CᵀV. For dense rows the gradient covers all features; for sparse rows only the features that the batch touches.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar import cost
from nearfar.data.points import Floats, Points, Rows, SparseRows
from nearfar.data.sampling import Batch, Block
from nearfar.data.scratch import Scratch
from nearfar.objective import kernels
from nearfar.objective.losses import (
    BlockLoss,
    ComparisonLoss,
    Loss,
    PairLoss,
    block_value_and_slopes,
    value_and_slopes,
)
from nearfar.objective.sparse_products import (
    BlockProducts,
    RowProducts,
    SparseProducts,
    SparseProjection,
    TouchedFeatures,
)

_WORTH_DROPPING = 0.9
"""If no more than this share of the rows has a slope, the others are dropped before the backward product."""


@dataclass
class Gradient:
    """A gradient of L for some features: one row of k numbers each. Its memory is kept and used again."""

    features: NDArray[np.int32]
    """The features it covers, rising."""
    values: Floats
    """(features, k)."""
    scratch: Scratch

    @classmethod
    def empty(cls) -> "Gradient":
        """A gradient of nothing, to be filled."""
        return cls(np.empty(0, np.int32), np.empty((0, 0), np.float32), Scratch())

    @classmethod
    def within(cls, memory: Floats) -> "Gradient":
        """The same, with this memory for its values."""
        return cls(np.empty(0, np.int32), memory[:0], Scratch({"values": memory.reshape(-1)}))

    def part(self, features: range) -> "Gradient":
        """What falls on a range of features, counted from the start of that range; a view."""
        first, last = np.searchsorted(self.features, (features.start, features.stop))
        if first == 0 and last == len(self.features) and features.start == 0:
            return self
        return Gradient(self.features[first:last] - np.int32(features.start), self.values[first:last], self.scratch)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.features.nbytes


@dataclass(frozen=True)
class Factors:
    """A gradient that is not multiplied out: G = CᵀV. Smaller than G where the rows are few."""

    rows: Rows
    """V: those with a coefficient."""
    features: NDArray[np.int32]
    """The features that the rows touch, rising."""
    C: Floats
    """(rows, k)."""

    def part(self, features: range) -> Gradient:
        """What falls on a range of features, counted from the start of that range, multiplied out."""
        if isinstance(self.rows, SparseRows):
            rows = columns_of(self.rows, features)
            touched = TouchedFeatures(len(features)).of(rows)
            out = np.empty((len(touched), self.C.shape[1]), np.float32)
            all_rows = np.arange(len(rows), dtype=np.int32)
            SparseProducts(len(features)).of(rows, touched, out.shape[1]).gradient(all_rows, self.C, out)
            return Gradient(touched, out, Scratch())
        values = self.rows[:, features.start : features.stop].T @ self.C
        return Gradient(np.arange(len(features), dtype=np.int32), values, Scratch())

    @property
    def nbytes(self) -> int:
        rows = self.rows
        of_rows = (
            rows.values.nbytes + rows.columns.nbytes + rows.starts.nbytes
            if isinstance(rows, SparseRows)
            else rows.nbytes
        )
        return of_rows + self.C.nbytes


class Gatherer:
    """Gathers the rows of batches, each into the memory of the one before; for one thread at a time.

    Parameters
    ----------
    points : Points
        What batches index.
    rank : int
        Rows of L, on which it depends whether points or differences are cheaper.
    """

    def __init__(self, points: Points, rank: int) -> None:
        self._points, self._rank = points, rank
        self._scratch = Scratch()
        self._all_features = np.arange(0 if points.is_sparse else points.n_features, dtype=np.int32)
        self._touched = TouchedFeatures(points.n_features if points.is_sparse else 0)

    def rows_of(self, batch: Batch | Block) -> "GatheredRows":
        """Gather what the gradient of a batch needs of the points, and say which features that touches."""
        if isinstance(batch, Block):
            return self._with_features(self._points.rows(batch.indices, self._scratch), None)
        pairs = np.concatenate((batch.near, batch.far))
        flat = pairs.ravel()
        table = self._scratch.array("table", (1 << (2 * max(2, len(flat))).bit_length(),), np.int32)
        table.fill(-1)
        found = self._scratch.array("distinct", (len(flat),), np.int64)
        places = self._scratch.array("places", (len(flat),), np.int64)
        n_distinct = kernels.distinct(flat, table, found, places)
        points = self._points
        if cost.points_are_cheaper(
            len(pairs), n_distinct, points.stored_per_point, self._rank, sparse=points.is_sparse,
            n_features=points.n_features,
        ):  # fmt: skip
            rows = points.rows(found[:n_distinct], self._scratch)
            return self._with_features(rows, places.reshape(pairs.shape))
        return self._with_features(points.differences(pairs[:, 0], pairs[:, 1], self._scratch), None)

    def _with_features(self, rows: Rows, places: NDArray[np.int64] | None) -> "GatheredRows":
        features = self._touched.of(rows) if isinstance(rows, SparseRows) else self._all_features
        return GatheredRows(rows, features, places)


class GradientKernel:
    """Objective and gradient of batches, for one computing thread.

    Parameters
    ----------
    points : Points
        What batches index.
    loss : Loss
        A pair, comparison or block loss.
    rank : int
        Rows of L.
    rounded : bool
        Whether sparse products may be of rounded numbers, see packing.py.
    """

    def __init__(self, points: Points, loss: Loss, rank: int, *, rounded: bool = False) -> None:
        self._loss, self._rank = loss, rank
        self._scratch = Scratch()
        self._sparse = SparseProducts(points.n_features if points.is_sparse else 0, rounded=rounded)

    def products_of_packed(self, gathered: "GatheredRows") -> BlockProducts | None:
        """The products of a batch, if they need L packed; once they have it, :meth:`gradient` takes them for L."""
        products = self._products(gathered)
        return products if isinstance(products, BlockProducts) else None

    def gradient(
        self, Lt: Floats | BlockProducts, batch: Batch | Block, gathered: "GatheredRows", out: Gradient
    ) -> float:
        """The batch's objective; its gradient is written to ``out``."""
        products = Lt if isinstance(Lt, BlockProducts) else self._products(gathered)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite shows in the objective
            value, C = self._coefficients(Lt, batch, gathered, products)
            self._backward(gathered, products, C, out)
        return value

    def factors(self, Lt: Floats, batch: Batch | Block, gathered: "GatheredRows") -> tuple[float, Factors]:
        """The batch's objective, and its gradient as factors; valid until the next batch is gathered or computed."""
        with np.errstate(over="ignore", invalid="ignore"):
            value, C = self._coefficients(Lt, batch, gathered, self._products(gathered))
        rows, active = gathered.rows, _active(C)
        if len(active) < len(C):
            rows, C = _chosen_rows(rows, active), C[active]
        return value, Factors(rows, gathered.features, C)

    def _products(self, gathered: "GatheredRows") -> RowProducts | None:
        rows = gathered.rows
        return self._sparse.of(rows, gathered.features, self._rank) if isinstance(rows, SparseRows) else None

    def _coefficients(
        self, Lt: Floats | BlockProducts, batch: Batch | Block, gathered: "GatheredRows", products: RowProducts | None
    ) -> tuple[float, Floats]:
        rows = gathered.rows
        Z = self._scratch.array("Z", (len(rows), self._rank))
        if isinstance(Lt, BlockProducts):
            Lt.project_packed(Z)
        elif products:
            products.project(Lt, Z)
        else:
            assert not isinstance(rows, SparseRows)
            np.matmul(rows, Lt, out=Z)
        if isinstance(batch, Block):
            return self._block_coefficients(Z, batch)
        return self._pair_coefficients(Z, batch, gathered)

    def _pair_coefficients(self, Z: Floats, batch: Batch, gathered: "GatheredRows") -> tuple[float, Floats]:
        assert isinstance(self._loss, PairLoss | ComparisonLoss)
        n_near = len(batch.near)
        if gathered.places is None:
            s = np.einsum("ij,ij->i", Z, Z)
        else:
            Z -= Z.mean(axis=0)  # distances stay the same, and differences of small numbers lose fewer digits
            s = np.empty(batch.n_pairs, np.float32)
            kernels.pair_squares(Z, gathered.places, s)
        value, near_slopes, far_slopes = value_and_slopes(self._loss, s[:n_near], s[n_near:], batch.weights)
        slopes = np.concatenate((near_slopes, far_slopes))
        if gathered.places is None:
            Z *= (2 * slopes)[:, None]
            return value, Z
        C = self._scratch.array("C", Z.shape)
        kernels.laplacian_rows(Z, gathered.places, slopes, C)
        return value, C

    def _block_coefficients(self, Z: Floats, block: Block) -> tuple[float, Floats]:
        assert isinstance(self._loss, PairLoss | BlockLoss)
        Z -= Z.mean(axis=0)  # distances stay the same, and products of small numbers lose fewer digits
        s = np.matmul(Z, Z.T, out=self._scratch.array("s", (len(Z), len(Z))))
        kernels.squares_from_products(s)
        value, W = block_value_and_slopes(self._loss, s, block.sizes)
        both = np.add(W, W.T, out=self._scratch.array("both", W.shape))
        np.fill_diagonal(both, 0)
        C = np.matmul(both, Z, out=self._scratch.array("C", Z.shape))
        Z *= both.sum(axis=1)[:, None]
        np.subtract(Z, C, out=C)
        C *= 2
        return value, C

    def _backward(self, gathered: "GatheredRows", products: RowProducts | None, C: Floats, out: Gradient) -> None:
        active = _active(C)
        if products:
            out.features = out.scratch.array("features", gathered.features.shape, np.int32)
            out.features[:] = gathered.features
            out.values = out.scratch.array("values", (len(out.features), self._rank))
            products.gradient(active, C, out.values)
            return
        rows = gathered.rows
        assert not isinstance(rows, SparseRows)
        out.features = gathered.features
        out.values = out.scratch.array("values", (len(out.features), self._rank))
        if len(active) < len(C):
            kept = self._scratch.array("active", (len(active), rows.shape[1]))
            rows, C = np.take(rows, active, axis=0, out=kept, mode="clip"), C[active]
        np.matmul(rows.T, C, out=out.values)


@dataclass(frozen=True)
class GatheredRows:
    """The rows of one batch, the features they touch, and for rows that are points the place of each pair's two."""

    rows: Rows
    features: NDArray[np.int32]
    places: NDArray[np.int64] | None


def columns_of(rows: SparseRows, features: range) -> SparseRows:
    """The entries of rows that fall on a range of features, counted from the start of that range."""
    if features.start == 0 and features.stop == rows.n_features:
        return rows
    kept = (rows.columns >= features.start) & (rows.columns < features.stop)
    counted: NDArray[np.int64] = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=counted[1:])
    starts = counted[rows.starts]
    return SparseRows(rows.values[kept], rows.columns[kept] - np.int32(features.start), starts, len(features))


def _active(C: Floats) -> NDArray[np.int32]:
    """The rows that have a coefficient; all, if hardly any has none."""
    active = np.flatnonzero(C.any(axis=1)).astype(np.int32)
    return np.arange(len(C), dtype=np.int32) if len(active) > _WORTH_DROPPING * len(C) else active


def _chosen_rows(rows: Rows, chosen: NDArray[np.int32]) -> Rows:
    if not isinstance(rows, SparseRows):
        return rows[chosen]
    matrix = rows.to_scipy()[chosen]
    return SparseRows(matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int64), rows.n_features)


def squared_distances(
    Lt: Floats, points: Points, pairs: NDArray[np.integer[Any]], scratch: Scratch | None = None
) -> Floats:
    """‖L(x - y)‖² for each pair, each distinct point projected once."""
    found, places = np.unique(pairs, return_inverse=True)
    Z = project(Lt, points, found, scratch)
    s = np.empty(len(pairs), np.float32)
    kernels.pair_squares(Z, places.reshape(pairs.shape), s)
    return s


def project(Lt: Floats, points: Points, indices: NDArray[np.integer[Any]], scratch: Scratch | None = None) -> Floats:
    """Lx for these points, in blocks. With ``scratch``, what is as large as L is kept for the next time."""
    Z = np.empty((len(indices), Lt.shape[1]), np.float32)
    sparse = SparseProjection(Lt, scratch or Scratch())
    for place, rows in points.blocks(indices):
        if isinstance(rows, SparseRows):
            sparse.project(rows, Z[place])
        else:
            np.matmul(rows, Lt, out=Z[place])
    return Z
