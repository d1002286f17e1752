"""Parcels: Python objects on their way to another process, with large arrays apart and files by name.

An array in memory travels as a buffer of its own, so that all processes of a node read one copy. An array that is
mapped from a file travels as the file's name: the process at the other end maps the same file, which every node must
see. Parcels are never written to a file.
"""

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidFile

_MAPPED = "nearfar.mapped"


@dataclass(frozen=True)
class Parcel:
    """One object, packed."""

    content: bytes
    buffers: list[Any]

    @property
    def nbytes(self) -> int:
        return len(self.content) + sum(memoryview(buffer).nbytes for buffer in self.buffers)


def pack(content: Any) -> Parcel:
    """Pack an object; what a user defined in a notebook or a script goes by value."""
    from ray import cloudpickle  # noqa: PLC0415 - an extra

    class Packer(cloudpickle.CloudPickler):  # type: ignore[misc]
        def persistent_id(self, part: Any) -> tuple[Any, ...] | None:
            return _mapping(part) if isinstance(part, np.ndarray) else None

    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    Packer(file, protocol=5, buffer_callback=buffers.append).dump(content)
    return Parcel(file.getvalue(), buffers)


def unpack(parcel: Parcel) -> Any:
    """The object; its arrays are read-only views of the parcel's."""
    return _Unpacker(io.BytesIO(parcel.content), buffers=parcel.buffers).load()


class _Unpacker(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> NDArray[Any]:
        name, path, dtype, shape, strides, offset = pid
        assert name == _MAPPED
        if not Path(path).exists():
            raise InvalidFile(f"{path} is not there on this node; put the dataset where every node sees it")
        size = Path(path).stat().st_size
        whole = np.memmap(path, np.uint8, "r", shape=(size,))
        return np.ndarray(shape, np.dtype(dtype), whole, offset, strides)


def _mapping(array: NDArray[Any]) -> tuple[Any, ...] | None:
    """Where in a file an array is mapped from; None for an array in memory."""
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    if base is None or base.filename is None or array.size == 0:
        return None
    while isinstance(base.base, np.memmap):
        base = base.base
    inside = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return _MAPPED, str(base.filename), array.dtype.str, array.shape, array.strides, base.offset + inside
