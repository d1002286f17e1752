"""Points whose rows have names, as preprocessor of a learner."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike, NDArray

from nearfar.data.ids import Ids
from nearfar.data.points import Points, as_points
from nearfar.errors import InvalidInput


class NamedPoints:
    """Points with ids of their own, so that tuples may name ids: ``PairLearner(preprocessor=NamedPoints(X, ids))``.

    Parameters
    ----------
    points : array, memory map or sparse matrix of shape (n, d), data frame, or nf.Points
        Not copied.
    ids : array of shape (n,), or mapping of ids to rows
        Whole numbers or text, each once.
    """

    def __init__(self, points: Any, ids: ArrayLike | Mapping[Any, int]) -> None:
        self.points = points
        self._ids = Ids(ids)
        count = len(as_points(points))
        if not isinstance(ids, Mapping) and len(self._ids) != count:
            raise InvalidInput(f"there are {len(self._ids)} ids for {count} points; expected one a point, or a mapping")
        if self._ids.largest_row >= count:
            raise InvalidInput(f"an id has row {self._ids.largest_row}, but there are {count} points")

    def __len__(self) -> int:
        return self.points.shape[0] if not isinstance(self.points, Points) else len(self.points)

    def rows(self, ids: Any) -> NDArray[Any]:
        """The rows of these ids, in the same shape."""
        return self._ids.rows(ids)
