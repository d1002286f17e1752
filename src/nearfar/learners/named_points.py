"""Points whose rows have names, as preprocessor of a learner."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.data.ids import IdLookup
from nearfar.data.points import Points, as_points
from nearfar.errors import InvalidConstraints, InvalidInput


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
        count = len(as_points(points))
        names = _plain(list(ids) if isinstance(ids, Mapping) else ids)
        if names.ndim != 1 or names.dtype.kind not in "Uiu":
            raise InvalidInput(
                f"ids have shape {names.shape} and type {names.dtype}; expected whole numbers or text, one a point"
            )
        self._rows = np.array(list(ids.values())) if isinstance(ids, Mapping) else np.arange(count)
        if len(names) != len(self._rows):
            raise InvalidInput(f"there are {len(names)} ids for {count} points; expected one a point, or a mapping")
        if self._rows.dtype.kind not in "iu" or not (self._rows.min() >= 0 and self._rows.max() < count):
            raise InvalidInput(f"ids are mapped to rows that are not all from 0 to {count - 1}, as the points are")
        self._lookup = IdLookup(names)

    def __len__(self) -> int:
        return self.points.shape[0] if not isinstance(self.points, Points) else len(self.points)

    def rows(self, ids: Any) -> NDArray[Any]:
        """The rows of these ids, in the same shape; one that is missing or not known is named in the error."""
        wanted = _plain(ids)
        if wanted.dtype.kind not in "Uiu":
            missing = np.argwhere(_is_missing(np.asarray(ids, object)))
            if len(missing):
                raise InvalidConstraints(f"row {missing[0][0]} has a missing id; drop such rows, or fill it in")
            raise InvalidConstraints(
                f"ids have type {wanted.dtype}; expected whole numbers or text, as the points have"
            )
        places = self._lookup.rows(wanted)
        unknown = np.argwhere(places < 0)
        if len(unknown):
            first = tuple(unknown[0])
            raise InvalidConstraints(
                f"row {first[0]} has the id {wanted[first]}, which is not among the {len(self._rows)} ids of the points"
            )
        return self._rows[places]


def _plain(ids: Any) -> NDArray[Any]:
    """Ids as an array of whole numbers or text where they are that, whatever held them."""
    array = np.asarray(ids)
    if array.dtype.kind not in "OT":
        return array
    values = array.ravel().tolist()
    if all(isinstance(value, str) for value in values):
        return array.astype(np.str_)
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return array.astype(np.int64)
    return array


def _is_missing(ids: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Where there is None, or something that is not equal to itself, or that does not know whether it is."""

    def missing(value: Any) -> bool:
        try:
            return value is None or bool(value != value)  # noqa: PLR0124 - only NaN differs from itself
        except TypeError:  # pandas' NA
            return True

    return np.array([missing(value) for value in ids.ravel()], np.bool_).reshape(ids.shape)
