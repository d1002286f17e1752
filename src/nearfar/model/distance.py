"""Distances between points, block by block: what every distance can do once it can project points.

A distance here is the Euclidean one after a projection: :class:`~nearfar.model.metric.Metric` projects by L,
:class:`~nearfar.model.euclidean.Euclidean` leaves points as they are.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nearfar.data.points import Floats, Indices, Points, Rows, SparseRows, as_points
from nearfar.errors import InvalidConstraints, InvalidInput, InvalidPoints

Projected: TypeAlias = "Floats | sp.csr_matrix"
"""Projected points: a dense array, or a SciPy matrix where the projection keeps sparse points sparse."""

_BLOCK_BYTES = 32 << 20
_ORIGIN_SAMPLE = 1024


class Distance(ABC):
    """A distance between points: arrays, memory maps, SciPy sparse matrices or :class:`Points`.

    A point with NaN or infinity in it is an :class:`~nearfar.errors.InvalidPoints` error that names it.
    """

    @property
    def threshold(self) -> float | None:
        """Two points at this distance or nearer count as similar; None if not calibrated."""
        return None

    @abstractmethod
    def transform(self, X: Any) -> Projected:
        """The points in the space where this distance is the Euclidean one."""

    @abstractmethod
    def width(self, points: Points) -> float:
        """How many numbers a projected point takes."""

    @abstractmethod
    def is_dense(self, points: Points) -> bool:
        """Whether these points become a dense array when projected."""

    @abstractmethod
    def projected(self, points: Points, indices: Indices, origin: Floats | None = None) -> Projected:
        """The chosen points (a fresh array), as seen from ``origin``, where this distance is Euclidean."""

    @abstractmethod
    def _project(self, rows: Rows) -> Projected: ...

    def points(self, X: Any) -> Points:
        """Row access to ``X``, once it is known that this distance can measure it."""
        return as_points(X)

    def two_sets(self, A: Any, B: Any) -> tuple[Points, Points]:
        """Row access to two sets of points, once it is known that they have the same features."""
        a, b = self.points(A), self.points(B)
        if a.n_features != b.n_features:
            raise InvalidPoints(
                f"one set of points has {a.n_features} features, the other {b.n_features}; expected the same"
            )
        return a, b

    def origin(self, *sets: Points) -> Floats | None:
        """The mean of a sample of the first set, to measure from: small norms round less.

        None if a set stays sparse: moving it would fill it up.
        """
        if not all(self.is_dense(points) for points in sets):
            return None
        count = len(sets[0])
        sample = np.unique(np.linspace(0, count - 1, min(count, _ORIGIN_SAMPLE)).astype(np.int64))
        mean: Floats = self.projected(sets[0], sample).mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean

    def distance(self, A: Any, B: Any, *, squared: bool = False) -> Floats:
        """The distance of each point of A to the point of B in the same row.

        Computed from the projected difference, so that points near each other lose no digits.

        Parameters
        ----------
        A, B : points of shape (n, d)
        squared : bool
            Return squared distances.

        Returns
        -------
        array of shape (n,), float32
        """
        a, b = self.two_sets(A, B)
        if len(a) != len(b):
            raise InvalidPoints(
                f"one set has {len(a)} points and the other {len(b)}; expected one partner for each point"
            )
        out = np.empty(len(a), np.float32)
        for place in places(len(a), 2 * (a.stored_per_point + b.stored_per_point) + self.width(a)):
            chosen = np.arange(place.start, place.stop)
            out[place] = squared_norms(self._project(_difference(a.rows(chosen), b.rows(chosen))))
        if not np.isfinite(out).all():
            a.check_finite()
            b.check_finite()
        return out if squared else np.sqrt(out, out=out)

    def pair_distances(self, points: Any, pairs: ArrayLike, *, squared: bool = False) -> Floats:
        """The distance of each pair of points.

        Parameters
        ----------
        points : points of shape (n, d)
        pairs : array of shape (p, 2)
            Indices of points.
        squared : bool
            Return squared distances.

        Returns
        -------
        array of shape (p,), float32
        """
        known = self.points(points)
        chosen = _index_pairs(pairs, len(known))
        out = self._squared_of_pairs(known, chosen)
        if not np.isfinite(out).all():
            known.check_finite()
        return out if squared else np.sqrt(out, out=out)

    def _squared_of_pairs(self, points: Points, pairs: Indices) -> Floats:
        out = np.empty(len(pairs), np.float32)
        for place in places(len(pairs), 4 * points.stored_per_point + self.width(points)):
            left, right = pairs[place].T
            out[place] = squared_norms(self._project(points.differences(left, right)))
        return out

    def pairwise(self, A: Any, B: Any = None, *, squared: bool = False) -> Floats:
        """The distances between all points of A and all of B (or of A again); see :meth:`pairwise_blocks`.

        Returns
        -------
        array of shape (n, m), float32
        """
        a, b = self.two_sets(A, A if B is None else B)
        out = np.empty((len(a), len(b)), np.float32)
        for place, block in self.pairwise_blocks(a, None if B is None else b, squared=squared):
            out[place] = block
        return out

    def pairwise_blocks(self, A: Any, B: Any = None, *, squared: bool = False) -> Iterator[tuple[slice, Floats]]:
        """The distances between all points of A and all of B (or of A again), some rows of A at a time.

        Held in memory are the projected points of B and one block. Squared distances come from norms and
        products in float32: they are off by up to about 1e-6 of the squared spread of the points, and never
        negative. Without B, a point has distance 0 to itself.

        Yields
        ------
        (slice, array)
            Which rows of A, and their distances to all points of B, float32.
        """
        a, b = self.two_sets(A, A if B is None else B)
        origin = self.origin(b, a)
        right = self.projected(b, np.arange(len(b)), origin)
        for place in places(len(a), len(b)):
            chosen = np.arange(place.start, place.stop)
            block = squared_between(right[place] if B is None else self.projected(a, chosen, origin), right)
            if B is None:
                block[chosen - place.start, chosen] = 0.0
            yield place, block if squared else np.sqrt(block, out=block)


def too_far() -> InvalidPoints:
    """The error to raise where squared distances of finite points are not finite."""
    return InvalidPoints("squared distances are too large for float32; divide the points by their largest value")


def places(count: int, numbers_a_row: float, block_bytes: int | None = None) -> Iterator[slice]:
    """Slices that cover ``count`` rows, each of so few rows that a block of them stays small."""
    size = max(1, int((_BLOCK_BYTES if block_bytes is None else block_bytes) / (4 * max(1.0, numbers_a_row))))
    for start in range(0, count, size):
        yield slice(start, min(count, start + size))


@np.errstate(over="ignore", invalid="ignore")  # the points are checked when a result is not finite
def squared_norms(projected: Any) -> Floats:
    """The squared length of each row."""
    if sp.issparse(projected):
        return np.asarray(projected.multiply(projected).sum(axis=1), np.float32).ravel()
    norms: Floats = np.einsum("ij,ij->i", projected, projected)
    return norms


@np.errstate(over="ignore", invalid="ignore")
def squared_between(left: Projected, right: Projected) -> Floats:
    """Squared Euclidean distances of all rows of one to all rows of the other, from norms and products."""
    products: Any = left @ right.T
    out: Floats = products.toarray() if sp.issparse(products) else products
    out *= -2.0
    out += squared_norms(left)[:, np.newaxis]
    out += squared_norms(right)
    return np.maximum(out, 0.0, out=out)


@np.errstate(over="ignore", invalid="ignore")
def _difference(left: Rows, right: Rows) -> Rows:
    if isinstance(left, SparseRows) and isinstance(right, SparseRows):
        matrix = left.to_scipy() - right.to_scipy()
        return SparseRows(matrix.data, matrix.indices, matrix.indptr, left.n_features)
    difference: Floats = _dense(left) - _dense(right)
    return difference


def _dense(rows: Rows) -> Floats:
    return rows.to_scipy().toarray() if isinstance(rows, SparseRows) else rows


def _index_pairs(pairs: ArrayLike, n_points: int) -> NDArray[np.integer[Any]]:
    array = np.asarray(pairs)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise InvalidConstraints(
            f"pairs have shape {array.shape} and type {array.dtype}; expected (n, 2) indices of points"
        )
    low, high = (int(array.min()), int(array.max())) if len(array) else (0, 0)
    if low < 0 or high >= n_points:
        raise InvalidConstraints(
            f"pairs have index {low if low < 0 else high}; there are {n_points} points, from index 0"
        )
    return array


def checked_out(out: Floats | None, shape: tuple[int, int]) -> Floats:
    """``out`` if it can take a float32 result of this shape, or a fresh array if there is none."""
    if out is None:
        return np.empty(shape, np.float32)
    if out.shape != shape or out.dtype != np.float32:
        raise InvalidInput(f"out has shape {out.shape} and type {out.dtype}; expected {shape} and float32")
    return out
