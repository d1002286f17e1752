"""Ids: points named by other things than their row numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.errors import InvalidConstraints, InvalidInput

_KINDS = {"U": "text", "i": "whole numbers", "u": "whole numbers"}


class Ids:
    """Finds the row of an id: whole numbers or text, each once.

    Parameters
    ----------
    ids : array of shape (n,), or mapping of ids to rows
        The id of each row, in order; or for each id its row.
    """

    def __init__(self, ids: ArrayLike | Mapping[Any, int]) -> None:
        rows = None
        if isinstance(ids, Mapping):
            rows = np.array(list(ids.values()))
            if rows.dtype.kind not in "iu":
                raise InvalidInput(f"ids are mapped to rows of type {rows.dtype}; expected whole numbers")
        array = _plain(list(ids) if isinstance(ids, Mapping) else ids)
        if array.ndim != 1 or not len(array) or array.dtype.kind not in _KINDS:
            raise InvalidInput(
                f"ids have shape {array.shape} and type {array.dtype}; expected whole numbers or text, one a point"
            )
        order = np.argsort(array, kind="stable")
        self._sorted = array[order]
        self._rows: NDArray[np.integer[Any]] = order if rows is None else rows[order]
        again = np.flatnonzero(self._sorted[1:] == self._sorted[:-1])
        if len(again):
            raise InvalidInput(f"the id {self._sorted[again[0]]!s} stands for more than one point; expected each once")

    def __len__(self) -> int:
        return len(self._sorted)

    @property
    def largest_row(self) -> int:
        """The last row that has an id."""
        return int(self._rows.max())

    def rows(self, ids: Any) -> NDArray[np.integer[Any]]:
        """The rows of these ids, in the same shape; an id that is not known is named in the error."""
        wanted = _plain(ids)
        if _KINDS.get(wanted.dtype.kind) != _KINDS[self._sorted.dtype.kind]:
            missing = np.argwhere(_is_missing(np.asarray(ids, object)))
            if len(missing):
                raise InvalidConstraints(f"row {missing[0][0]} has a missing id; drop such rows, or fill it in")
            raise InvalidConstraints(
                f"ids have type {wanted.dtype}, but those of the points are {_KINDS[self._sorted.dtype.kind]}"
            )
        places = np.minimum(np.searchsorted(self._sorted, wanted), len(self) - 1)
        unknown = np.argwhere(self._sorted[places] != wanted)
        if len(unknown):
            first = tuple(unknown[0])
            raise InvalidConstraints(
                f"row {first[0]} has the id {wanted[first]!s}, which is not among the {len(self)} ids of the points"
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
