"""Random points that stand in for those that a plan is made for."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from nearfar.data.constraints import Constraints, Labels, Pairs
from nearfar.errors import InvalidSettings

PROBED_RANK = 1024
"""The largest rank that rates are measured with; they are the same beyond it."""

_FEWEST_POINTS, _MOST_POINTS = 2000, 100_000
_STAND_IN_BYTES = 256 << 20
_CLASSES = 20
_LARGEST_PROBED = 400_000_000
"""Bytes of L, of a lift or of points from which on rates are measured on smaller ones: they are the same."""
_PROBED_FEATURES, _PROBED_LIFTED_FEATURES = 1 << 14, 1 << 11
_PROBED_SPARSE_FEATURES, _PROBED_SPARSE_RANK = 1 << 18, 128
"""Sparse batches take L row by row, so there it is the number of rows that matters; a row of this rank is long."""
_FEWEST_PROBED_NONZEROS = 32
_MOST_PROBED_NONZEROS = 1 << 13


@dataclass(frozen=True)
class Shape:
    """How many points there are to be, and how large each is."""

    points: int
    features: int
    nonzeros: int | None = None
    """Of a point; None for dense points."""

    def __post_init__(self) -> None:
        if self.nonzeros is not None and self.nonzeros > self.features:
            raise InvalidSettings(
                f"nonzeros is {self.nonzeros}, but points have {self.features} features; expected at most that many"
            )

    @property
    def stored(self) -> int:
        """Numbers that are stored of a point."""
        return self.nonzeros or self.features

    def probed(self, rank: int, lift_dim: int | None) -> tuple["Shape", int]:
        """The shape and the rank that rates are measured with: these, unless they are huge.

        Non-zeros become fewer as features do, so that a batch touches about the same share of them.
        """
        if not self._is_huge(min(rank, PROBED_RANK), lift_dim):
            return self, min(rank, PROBED_RANK)
        if self.nonzeros is None:
            most = _PROBED_FEATURES if lift_dim is None else _PROBED_LIFTED_FEATURES
            return replace(self, features=min(self.features, most)), min(rank, PROBED_RANK)
        most = _PROBED_SPARSE_FEATURES if lift_dim is None else _PROBED_LIFTED_FEATURES
        features = min(self.features, most, _MOST_PROBED_NONZEROS * self.features // self.nonzeros)
        evenly = self.nonzeros * features // self.features
        nonzeros = min(self.nonzeros, max(_FEWEST_PROBED_NONZEROS, evenly))
        return Shape(self.points, features, nonzeros), min(rank, _PROBED_SPARSE_RANK)

    def _is_huge(self, rank: int, lift_dim: int | None) -> bool:
        of_points = _FEWEST_POINTS * self.stored * (4 if self.nonzeros is None else 16)
        return max(of_points, 4 * self.features * (lift_dim or rank)) > _LARGEST_PROBED


def stand_in(shape: Shape, pairs: bool) -> tuple[Any, Constraints]:
    """Random points of this shape, and constraints among them: few, but such that batches are as they will be."""
    rng = np.random.default_rng(0)
    count = max(_FEWEST_POINTS, min(shape.points, _MOST_POINTS, _STAND_IN_BYTES // (8 * shape.stored)))
    points: Any
    if shape.nonzeros is None:
        points = rng.random((count, shape.features), dtype=np.float32)
    else:
        columns = np.sort(rng.integers(shape.features, size=(count, shape.nonzeros)), axis=1).astype(np.int32)
        values, starts = rng.random(count * shape.nonzeros, dtype=np.float32), np.arange(count + 1) * shape.nonzeros
        points = sp.csr_matrix((values, columns.ravel(), starts), shape=(count, shape.features))
    if not pairs:
        return points, Labels(np.arange(count) % _CLASSES)
    left = rng.integers(count, size=(2, 10 * count))
    right = (left + rng.integers(1, count, size=left.shape)) % count
    return points, Pairs(*np.stack((left, right), axis=2))
