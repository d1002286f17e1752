"""Arrays that are allocated once and used again: fresh pages cost more than the arithmetic done on them."""

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Scratch:
    """Named buffers of one thread. What ``array`` returns is valid until the same name is asked for again."""

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """An uninitialised array of this shape, in the memory of the last one of this name if that is large enough."""
        size = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size or buffer.dtype != dtype:
            buffer = self._buffers[name] = np.empty(size, dtype)
        return buffer[:size].reshape(shape)
