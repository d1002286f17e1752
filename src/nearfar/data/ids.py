"""Names of points other than their row numbers, and the way back from a name to its row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidConstraints, InvalidPoints

_CHECK_ROWS = 1 << 20


class IdLookup:
    """Finds the rows of ids. Ids in ascending order cost no memory, others 8 bytes a point and a sorted copy.

    Parameters
    ----------
    ids
        One id a point, whole numbers or text, maybe memory-mapped. One that stands twice is an error.
    """

    def __init__(self, ids: NDArray[Any]) -> None:
        self._order: NDArray[np.int64] | None = None
        self._sorted = ids
        if not _ascending(ids):
            self._order = np.argsort(ids, kind="stable")
            self._sorted = np.asarray(ids[self._order])
            self._refuse_repeats()

    def rows(self, wanted: NDArray[Any]) -> NDArray[np.int64]:
        """The row of each wanted id, -1 for one that no point has."""
        if (wanted.dtype.kind == "U") != (self._sorted.dtype.kind == "U"):
            return np.full(wanted.shape, -1, np.int64)
        places = np.searchsorted(self._sorted, wanted)
        places[places == len(self._sorted)] = 0
        found = self._sorted[places] == wanted
        return np.where(found, places if self._order is None else self._order[places], -1)

    @property
    def are_text(self) -> bool:
        """Whether the ids are text."""
        return self._sorted.dtype.kind == "U"

    def _refuse_repeats(self) -> None:
        assert self._order is not None
        repeats = np.flatnonzero(self._sorted[1:] == self._sorted[:-1])
        if not len(repeats):
            return
        place = repeats[np.argmin(self._order[repeats + 1])]
        before, again = self._order[place], self._order[place + 1]
        raise InvalidPoints(
            f"the id {self._sorted[place]} stands for point {before} and for point {again}; expected each id once"
        )


@dataclass(frozen=True)
class PointNames:
    """What constraints call the points: their ids where they have such, else their row numbers."""

    n_points: int
    lookup: IdLookup | None = None

    @property
    def are_text(self) -> bool:
        """Whether points are called by text."""
        return self.lookup is not None and self.lookup.are_text

    def rows(self, names: NDArray[Any], place: Callable[[int], str]) -> NDArray[np.integer[Any]]:
        """The rows of the points of these names, (n, width); ``place`` says where a row of names was read."""
        rows = names if self.lookup is None else self.lookup.rows(names)
        wrong = (rows < 0) | (rows >= self.n_points)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            name = names[row, column]
            raise InvalidConstraints(
                f"{place(int(row))}: index {name}, but there are {self.n_points} points; "
                f"indices go from 0 to {self.n_points - 1}"
                if self.lookup is None
                else f"{place(int(row))}: no point has the id {name}; expected one of the ids given with the points"
            )
        return rows


def are_row_numbers(ids: NDArray[Any]) -> bool:
    """Whether the ids are 0, 1, 2, …, and so say nothing."""
    return ids.dtype.kind in "iu" and all(
        np.array_equal(ids[start : start + _CHECK_ROWS], np.arange(start, min(len(ids), start + _CHECK_ROWS)))
        for start in range(0, len(ids), _CHECK_ROWS)
    )


def _ascending(ids: NDArray[Any]) -> bool:
    """Whether each id is above the one before."""
    return all(
        bool((block[1:] > block[:-1]).all())
        for block in (ids[start : start + _CHECK_ROWS + 1] for start in range(0, len(ids), _CHECK_ROWS))
    )
