"""The distance that nothing was learned for: the yardstick of every metric."""

from typing import Any

import numpy as np

from nearfar.data.points import Floats, Indices, Points, Rows, SparseRows
from nearfar.model.distance import Distance, Projected


class Euclidean(Distance):
    """Plain Euclidean distance on points of any width. Sparse points stay sparse."""

    def __repr__(self) -> str:
        return "Euclidean()"

    def transform(self, X: Any) -> Projected:
        """The points themselves as float32: a dense array, or a SciPy CSR matrix if they are sparse."""
        points = self.points(X)
        return self.projected(points, np.arange(len(points)))

    def width(self, points: Points) -> float:
        return points.stored_per_point * (2 if points.is_sparse else 1)

    def is_dense(self, points: Points) -> bool:
        return not points.is_sparse

    def projected(self, points: Points, indices: Indices, origin: Floats | None = None) -> Projected:
        projected = self._project(points.rows(indices))
        if not np.isfinite(projected.data if points.is_sparse else projected).all():
            points.check_finite(indices)
        if origin is not None:
            projected -= origin
        return projected

    def _project(self, rows: Rows) -> Projected:
        return rows.to_scipy() if isinstance(rows, SparseRows) else rows
