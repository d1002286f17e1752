"""Compiled gathers: rows, and differences of rows, straight into float32 blocks.

One pass each: the row is read in its stored type, scaled and written, with no array in between. They release the GIL.
Half floats come as their bits (uint16) with a table of what the bits mean (``halves``), since compiled loops do not
know the type; for every other type ``halves`` is None, and the loops are compiled without it.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]


@njit(nogil=True, cache=True, error_model="numpy")
def dense_rows(stored: Array, halves: Array | None, indices: Array, inverse_scale: Array, out: Array) -> None:
    """``out[i] = stored[indices[i]] * inverse_scale``; an empty scale stands for ones."""
    scaled = len(inverse_scale) > 0
    for i in range(len(indices)):
        row, target = stored[indices[i]], out[i]
        if scaled:
            for j in range(len(target)):
                target[j] = (np.float32(row[j]) if halves is None else halves[row[j]]) * inverse_scale[j]
        else:
            for j in range(len(target)):
                target[j] = np.float32(row[j]) if halves is None else halves[row[j]]


@njit(nogil=True, cache=True, error_model="numpy")
def dense_differences(
    stored: Array, halves: Array | None, left: Array, right: Array, inverse_scale: Array, out: Array
) -> None:
    """``out[i] = (stored[left[i]] - stored[right[i]]) * inverse_scale``; an empty scale stands for ones."""
    scaled = len(inverse_scale) > 0
    for i in range(len(left)):
        a, b, target = stored[left[i]], stored[right[i]], out[i]
        for j in range(len(target)):
            if halves is None:
                target[j] = np.float32(a[j]) - np.float32(b[j])
            else:
                target[j] = halves[a[j]] - halves[b[j]]
        if scaled:
            for j in range(len(target)):
                target[j] *= inverse_scale[j]


@njit(nogil=True, cache=True, error_model="numpy")
def count_stored(indptr: Array, indices: Array) -> int:
    """How many entries the CSR rows ``indices`` hold together."""
    total = 0
    for i in range(len(indices)):
        total += indptr[indices[i] + 1] - indptr[indices[i]]
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def sparse_rows(
    data: Array, halves: Array | None, columns: Array, indptr: Array, sides: Array, inverse_scale: Array, starts: Array,
    out_values: Array, out_columns: Array,
) -> None:  # fmt: skip
    """Gather CSR rows, or differences of rows, as CSR rows.

    ``sides`` is (r, 1) for rows and (r, 2) for differences: a difference lists the left row's entries, then the right
    row's with the sign turned, so a column may stand twice. An empty scale stands for ones.
    """
    scaled = len(inverse_scale) > 0
    position = 0
    for i in range(sides.shape[0]):
        starts[i] = position
        for side in range(sides.shape[1]):
            row = sides[i, side]
            sign = np.float32(1 - 2 * side)
            for j in range(indptr[row], indptr[row + 1]):
                column = columns[j]
                value = sign * (np.float32(data[j]) if halves is None else halves[data[j]])
                if scaled:
                    value *= inverse_scale[column]
                out_values[position] = value
                out_columns[position] = column
                position += 1
    starts[sides.shape[0]] = position
