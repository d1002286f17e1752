"""Copies of a large L as products of sparse rows read it, for workers in the server's memory.

Where a batch needs most of L, packing it is a pass over all of L for each batch (objective/packing.py). So the server
packs it once for all workers, as it goes over L to apply two pushes; after a push that was alone, the first worker to
ask does. A copy stays as it is while somebody reads it: the next one is written elsewhere, so workers take the newest
without waiting for the update under way.
"""

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.data.points import Floats
from nearfar.data.scratch import Scratch
from nearfar.objective import packing
from nearfar.objective.sparse_cut import ColumnOrder


@dataclass
class PackedCopy:
    """All rows of L, as they were at one version, packed in an order of features."""

    packed: packing.Packed
    places: NDArray[np.int32]
    """The row that each feature becomes."""
    version: int = -1
    readers: int = 0

    def pack(self, Lt: Floats, features: NDArray[np.int32]) -> None:
        """Write the rows of these features."""
        packing.pack_rows(Lt, features, self.places[features], self.packed)


class PackedCopies:
    """The newest copy, those still read, and room for the next; each is made when it is first needed.

    Parameters
    ----------
    order : ColumnOrder
        Of all features; every batch is multiplied in it.
    rank : int
        Rows of L.
    rounded : bool
        Whether numbers are rounded as they are packed.
    """

    def __init__(self, order: ColumnOrder, rank: int, *, rounded: bool) -> None:
        self.order = order
        self._rank, self._rounded = rank, rounded
        self._copies: list[PackedCopy] = []
        self._newest: PackedCopy | None = None
        self._changing = threading.Lock()

    def take(self, version: int) -> PackedCopy | None:
        """The copy of this version, to be given back; None if there is none."""
        with self._changing:
            if self._newest is None or self._newest.version != version:
                return None
            self._newest.readers += 1
            return self._newest

    def give_back(self, copy: PackedCopy) -> None:
        """What was taken is no longer read."""
        with self._changing:
            copy.readers -= 1

    def next(self) -> PackedCopy:
        """A copy that nobody reads, to be written and published, by one thread at a time."""
        with self._changing:
            for copy in self._copies:
                if copy.readers == 0 and copy is not self._newest:
                    return copy
            room = packing.room_for(len(self.order.columns), self._rank, Scratch(), rounded=self._rounded)
            self._copies.append(PackedCopy(room, self.order.places))
            return self._copies[-1]

    def publish(self, copy: PackedCopy, version: int) -> None:
        """From now on this is the newest one."""
        with self._changing:
            copy.version = version
            self._newest = copy
