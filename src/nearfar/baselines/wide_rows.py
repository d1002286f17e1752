"""Rows of points and differences of rows in float64, block by block: nothing is expanded as a whole.

Learners gather in float32; baselines are references, so points that are stored in float64 are read as such.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.baselines.progress import Matrix
from nearfar.data.constraints import Indices
from nearfar.data.points import Points, Rows, SparseRows, as_points

_BLOCK_BYTES = 16 << 20


class WideRows:
    """Row access in float64 to what a learner takes as points.

    Parameters
    ----------
    points : array, memory map, sparse matrix or nf.Points
    """

    def __init__(self, points: Any) -> None:
        self._points = as_points(points)
        self._array: NDArray[Any] | None = None if isinstance(points, Points) or sp.issparse(points) else points

    def __len__(self) -> int:
        return len(self._points)

    @property
    def n_features(self) -> int:
        return self._points.n_features

    def rows(self, indices: Indices) -> Matrix:
        """The points with these indices, (n, d)."""
        array = self._array
        wide = _wide(self._points.rows(indices)) if array is None else np.asarray(array[indices], np.float64)
        return self._checked(wide, indices)

    def differences(self, pairs: Indices) -> Matrix:
        """The difference of each pair of points, (n, d)."""
        left, right = pairs.T
        array = self._array
        if array is None:
            wide = _wide(self._points.differences(left, right))
        else:
            with np.errstate(invalid="ignore", over="ignore"):  # the points are checked when a result is not finite
                wide = np.subtract(array[left], array[right], dtype=np.float64)
        return self._checked(wide, pairs.ravel())

    def blocks(self, count: int) -> Iterator[slice]:
        """Slices that cover ``count`` rows, each of so few that a block of them stays small."""
        size = max(1, _BLOCK_BYTES // (8 * self.n_features))
        for start in range(0, count, size):
            yield slice(start, min(count, start + size))

    def second_moment(self, pairs: Indices) -> Matrix:
        """The mean of ``(x − y)(x − y)ᵀ`` over these pairs, (d, d)."""
        total = np.zeros((self.n_features, self.n_features))
        for place in self.blocks(len(pairs)):
            differences = self.differences(pairs[place])
            total += differences.T @ differences
        return total / len(pairs)

    def squared_distances(self, pairs: Indices, prior: Matrix | None = None) -> Matrix:
        """The squared distance of each pair of points, plain or by a matrix ``prior``, (n,)."""
        out = np.empty(len(pairs))
        for place in self.blocks(len(pairs)):
            differences = self.differences(pairs[place])
            measured = differences if prior is None else differences @ prior
            out[place] = np.einsum("ij,ij->i", measured, differences)
        return out

    def mean(self, indices: Indices) -> Matrix:
        """The mean of these points, (d,)."""
        total = np.zeros(self.n_features)
        for place in self.blocks(len(indices)):
            total += self.rows(indices[place]).sum(axis=0)
        return total / len(indices)

    def covariance(self, indices: Indices) -> Matrix:
        """The covariance of these points, divided by their number, (d, d)."""
        mean = self.mean(indices)
        total = np.zeros((self.n_features, self.n_features))
        for place in self.blocks(len(indices)):
            centred = self.rows(indices[place]) - mean
            total += centred.T @ centred
        return total / len(indices)

    def _checked(self, wide: Matrix, indices: Indices) -> Matrix:
        if not np.isfinite(wide).all():
            self._points.check_finite(indices)
        return wide


def _wide(rows: Rows) -> Matrix:
    dense = rows.to_scipy().toarray() if isinstance(rows, SparseRows) else rows
    return dense.astype(np.float64)
