"""Blocks of a file as points in memory: numbers of at most four bytes, and all of them once."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data.points import Points, SparsePoints, as_points


def joined_dense(blocks: Iterable[NDArray[Any]]) -> Points:
    """Dense blocks of equal width as points, as the type of the first block if that is small, else as float32."""
    parts: list[NDArray[Any]] = []
    for block in blocks:
        parts.append(_small(block, parts[0].dtype if parts else _small_type(block.dtype)))
    return as_points(_poured(parts))


def joined_sparse(blocks: Iterable[sp.csr_matrix], *, base_unknown: bool) -> Points:
    """Sparse blocks of sound rows as points; with ``base_unknown``, columns count from 1 unless there is a column 0."""
    values, columns, lengths, width = [], [], [np.zeros(1, np.int64)], 1
    for block in blocks:
        values.append(_small(block.data, np.dtype(np.float32)))
        columns.append(block.indices.astype(np.int32))
        lengths.append(np.diff(block.indptr))
        width = max(width, block.shape[1])
    joined = _poured(columns)
    if base_unknown and len(joined) and joined.min() > 0:
        joined -= 1
        width -= 1
    return SparsePoints(_poured(values), joined, np.cumsum(np.concatenate(lengths), dtype=np.int64), width)


def _small_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.itemsize <= 4 else np.dtype(np.float32)


def _small(block: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A copy, so that what the block was a part of can go."""
    with np.errstate(over="ignore"):  # check_finite names what float32 cannot hold
        return block.astype(dtype)


def _poured(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """All parts as one array, each dropped when it is copied: at no time are there two of the whole."""
    size = sum(len(part) for part in parts)
    whole = np.empty((size, *parts[0].shape[1:]), parts[0].dtype)
    parts.reverse()
    start = 0
    while parts:
        part = parts.pop()
        whole[start : start + len(part)] = part
        start += len(part)
    return whole
