"""Arrays that are allocated once and used again: fresh pages cost more than the arithmetic done on them."""

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Scratch:
    """Named buffers of one thread. What ``array`` returns is valid until the same name is asked for again."""

    def __init__(self, buffers: dict[str, NDArray[Any]] | None = None) -> None:
        self._buffers = buffers or {}

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """An uninitialised array of this shape, in the memory of the last one of this name if that is large enough."""
        size = math.prod(shape)
        if not self._has(name, size, dtype):
            self._buffers.pop(name, None)  # before there is a new one: at no time are there both
            self._buffers[name] = np.empty(size, dtype)
        return self._buffers[name][:size].reshape(shape)

    def lasting(self, name: str, size: int, dtype: DTypeLike) -> NDArray[Any]:
        """So many numbers as they were left, at first all zero."""
        if not self._has(name, size, dtype):
            self._buffers[name] = np.zeros(size, dtype)
        return self._buffers[name][:size]

    def _has(self, name: str, size: int, dtype: DTypeLike) -> bool:
        buffer = self._buffers.get(name)
        return buffer is not None and buffer.size >= size and buffer.dtype == dtype
