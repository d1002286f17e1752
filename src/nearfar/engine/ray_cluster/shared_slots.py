"""Memory that a worker and a server of one machine share, so that rows of all features need not travel.

A worker makes a segment that has no name, only a descriptor of its process; a server on the same machine maps it
through that descriptor. Nothing is left of it when both are gone, however they went. On another machine the server
finds no such descriptor, or another one, and says so: rows then travel through Ray.
"""

import contextlib
import mmap
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nearfar.data.points import Floats

_NAME = "nearfar"
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class Place:
    """Where a segment is, and what is written at its end."""

    process: int
    descriptor: int
    token: bytes
    slots: int
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        return 4 * self.slots * self.shape[0] * self.shape[1] + _TOKEN_BYTES


class SharedSlots:
    """Some arrays of one shape, float32, in memory that two processes share."""

    def __init__(self, place: Place, segment: mmap.mmap) -> None:
        self.place = place
        count = place.slots * place.shape[0] * place.shape[1]
        self.arrays: Floats = np.frombuffer(segment, np.float32, count).reshape(place.slots, *place.shape)

    @classmethod
    def make(cls, slots: int, shape: tuple[int, int]) -> "SharedSlots | None":
        """A new segment; None on systems that have none without a name."""
        if not hasattr(os, "memfd_create"):
            return None
        place = Place(os.getpid(), os.memfd_create(_NAME), secrets.token_bytes(_TOKEN_BYTES), slots, shape)
        os.ftruncate(place.descriptor, place.nbytes)
        segment = mmap.mmap(place.descriptor, place.nbytes)
        segment[-_TOKEN_BYTES:] = place.token
        return cls(place, segment)

    @classmethod
    def attach(cls, place: Place) -> "SharedSlots | None":
        """The segment that another process of this machine made; None if it is not to be found here."""
        path = Path(f"/proc/{place.process}/fd/{place.descriptor}")
        with contextlib.suppress(OSError, ValueError):
            if str(path.readlink()).startswith(f"/memfd:{_NAME}"):
                with path.open("r+b") as file:
                    segment = mmap.mmap(file.fileno(), place.nbytes)
                if segment[-_TOKEN_BYTES:] == place.token:
                    return cls(place, segment)
        return None

    def slot_of(self, values: Floats) -> int | None:
        """The slot that these values fill."""
        for slot, array in enumerate(self.arrays):
            if values.shape == array.shape and values.ctypes.data == array.ctypes.data:
                return slot
        return None

    def __getitem__(self, slot: int) -> Floats:
        array: Floats = self.arrays[slot]
        return array
