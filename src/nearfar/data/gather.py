"""Compiled gathers: rows, and differences of rows, straight into float32 blocks.

One pass each: the row is read in its stored type, scaled and written, with no array in between. They release the GIL.
Half floats come as their bits (uint16) with a table of what the bits mean (``halves``), since compiled loops do not
know the type; for every other type ``halves`` is None, and the loops are compiled without it. Indices of sparse entries
are unsigned: for others, each access would begin by asking whether it counts from the end.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.compiled import compiled

Array = NDArray[Any]


@compiled(error_model="numpy")
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


@compiled(error_model="numpy")
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


@compiled(error_model="numpy", fastmath={"reassoc"})
def all_finite(values: Array) -> bool:
    """Whether none is NaN or infinity: any other number times 0 is 0."""
    total = np.float32(0)
    for i in range(len(values)):
        row = values[i]
        for j in range(len(row)):
            total += row[j] * np.float32(0)
    return bool(total == 0)


@compiled(error_model="numpy")
def count_stored(indptr: Array, indices: Array) -> int:
    """How many entries the CSR rows ``indices`` hold together."""
    total = 0
    for i in range(len(indices)):
        total += indptr[indices[i] + 1] - indptr[indices[i]]
    return total


@compiled(error_model="numpy")
def sparse_rows(
    data: Array, halves: Array | None, columns: Array, indptr: Array, indices: Array, inverse_scale: Array,
    starts: Array, out_values: Array, out_columns: Array,
) -> None:  # fmt: skip
    """Gather CSR rows as CSR rows. An empty scale stands for ones."""
    scaled, position, one = len(inverse_scale) > 0, np.uint64(0), np.uint64(1)
    for i in range(len(indices)):
        starts[i] = position
        for j in range(np.uint64(indptr[indices[i]]), np.uint64(indptr[indices[i] + 1])):
            column = np.uint64(columns[j])
            value = np.float32(data[j]) if halves is None else halves[data[j]]
            out_values[position] = value * inverse_scale[column] if scaled else value
            out_columns[position] = column
            position += one
    starts[len(indices)] = position


@compiled(error_model="numpy")
def sparse_differences(
    data: Array, halves: Array | None, columns: Array, indptr: Array, left: Array, right: Array, inverse_scale: Array,
    seen: Array, starts: Array, out_values: Array, out_columns: Array,
) -> int:  # fmt: skip
    """Gather differences of CSR rows as CSR rows; how many entries these have is returned.

    The left row's entries, then those of the right row whose columns the left one has not; what both have is one entry.
    Left entries are counted, from one call to the next: ``seen[1 + column]`` is the count at the last entry of a
    column, ``seen[0]`` where the next call goes on. So a column is in this left row if its count is no smaller than
    that at the row's start, and nothing has to be cleared between rows. There is no branch on it, since none could be
    foreseen. An empty scale stands for ones.
    """
    scaled, position, one = len(inverse_scale) > 0, np.uint64(0), np.uint64(1)
    if np.uint64(seen[0]) + np.uint64(len(out_values)) > np.uint64(0xFFFFFFFF):
        seen[:] = 0
    count = np.uint64(seen[0]) + one
    for i in range(len(left)):
        first, first_count = position, count
        starts[i] = first
        for j in range(np.uint64(indptr[left[i]]), np.uint64(indptr[left[i] + 1])):
            column = np.uint64(columns[j])
            value = np.float32(data[j]) if halves is None else halves[data[j]]
            out_values[position] = value * inverse_scale[column] if scaled else value
            out_columns[position] = column
            seen[column + one] = count
            count += one
            position += one
        for j in range(np.uint64(indptr[right[i]]), np.uint64(indptr[right[i] + 1])):
            column = np.uint64(columns[j])
            value = np.float32(data[j]) if halves is None else halves[data[j]]
            if scaled:
                value *= inverse_scale[column]
            last = np.uint64(seen[column + one])
            in_both = last >= first_count
            place = first + (last - first_count) if in_both else position
            before = out_values[place] if in_both else np.float32(0)
            out_values[place] = before - value
            out_columns[place] = column
            position += np.uint64(not in_both)
    seen[0] = count - one
    starts[len(left)] = position
    return int(position)
