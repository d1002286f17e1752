"""Arrays in .npy files: opened as memory maps, and written block by block."""

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from nearfar.errors import InvalidFile
from nearfar.files.atomic import atomic_file, open_file
from nearfar.files.damage import DAMAGED, damage

_SLICE_BYTES = 16 << 20


def read_npy(path: Path, *, mapped: bool = True) -> NDArray[Any]:
    """Open an .npy file, memory-mapped and read-only unless told otherwise; never unpickles."""
    with open_file(path) as file:
        try:
            # Not np.load, which opens a zip or a pickle as readily, whatever the file's name.
            if mapped:
                with np.errstate(over="raise"):
                    return np.lib.format.open_memmap(path, mode="r")
            return np.lib.format.read_array(file, allow_pickle=False)
        except DAMAGED as error:
            raise InvalidFile(f"{path} is not a complete .npy file: {damage(error)}") from error


class NpyAppender:
    """An .npy file that grows by blocks of rows; the header, with the final length, is written on close.

    The type may change under way: what is there is then rewritten in place, block by block.
    """

    _HEADER_BYTES = 128

    def __init__(self, file: IO[bytes], dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> None:
        self._file, self.dtype, self._row_shape = file, np.dtype(dtype), row_shape
        self.n_rows = 0
        file.write(bytes(self._HEADER_BYTES))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what was written so far."""
        return (self.n_rows, *self._row_shape)

    def append(self, rows: NDArray[Any]) -> None:
        """Write some rows after those already there."""
        self._file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.n_rows += len(rows)

    def retype(self, dtype: DTypeLike, shift: int = 0) -> None:
        """Turn what is there, and what is to come, into another type; ``shift`` is added to what is there."""
        old, new = self.dtype, np.dtype(dtype)
        if old == new and not shift:
            return
        size = math.prod(self.shape)
        step = max(1, _SLICE_BYTES // max(old.itemsize, new.itemsize))
        starts = range(0, size, step)
        # Larger elements are written from the end, smaller ones from the start: never over what is still to be read.
        for start in reversed(starts) if new.itemsize > old.itemsize else starts:
            self._file.seek(self._HEADER_BYTES + start * old.itemsize)
            block = np.frombuffer(self._file.read(min(step, size - start) * old.itemsize), old)
            self._file.seek(self._HEADER_BYTES + start * new.itemsize)
            self._file.write((block.astype(np.int64) + shift if shift else block).astype(new).data)
        self._file.truncate(self._HEADER_BYTES + size * new.itemsize)
        self._file.seek(0, os.SEEK_END)
        self.dtype = new

    def mapped(self) -> NDArray[Any]:
        """What was written so far, memory-mapped and read-only."""
        if not self.n_rows:
            return np.empty(self.shape, self.dtype)
        self._file.flush()
        return np.memmap(self._file, self.dtype, "r", self._HEADER_BYTES, self.shape)

    def close(self) -> None:
        """Write the header, now that the length is known, and see that all is on disk; once more does no harm."""
        descr = np.lib.format.dtype_to_descr(self.dtype)
        header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {self.shape}, }}"
        magic = b"\x93NUMPY\x01\x00" + (self._HEADER_BYTES - 10).to_bytes(2, "little")
        self._file.seek(0)
        self._file.write(magic + header.ljust(self._HEADER_BYTES - 11).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@contextlib.contextmanager
def atomic_npy(path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> Iterator[NpyAppender]:
    """An .npy file to append to that appears at ``path``, whole, only if the block ends without an error."""
    with atomic_file(path) as file:
        appender = NpyAppender(file, dtype, row_shape)
        yield appender
        appender.close()


@contextlib.contextmanager
def growing_npy(path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> Iterator[NpyAppender]:
    """An .npy file to append to, in a folder that is itself atomic: complete and on disk when the block ends."""
    with path.open("w+b") as file:
        appender = NpyAppender(file, dtype, row_shape)
        yield appender
        appender.close()
