"""Compiled loops of the fast gradient: each does in one pass what gradient.py says in a line of NumPy.

They release the GIL. L, and all that has one row a feature, is kept transposed: the k numbers of a feature are one run
of memory.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.objective.bits import count_of_bits, lowest_bit
from nearfar.objective.prefetch import bring_near

Array = NDArray[Any]

_AHEAD = 24
"""Rows that are asked for before their turn, where the order is that of the entries."""
_COLUMNS_AHEAD = 8
"""The same where each row comes once, for all its entries."""


@compiled(error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def weighted_sums(starts: Array, columns: Array, values: Array, base: Array, out: Array) -> None:
    """``out[i] = Σ_j values[j] · base[columns[j]]`` over the entries j of row i: a CSR matrix times a dense one.

    Four entries at a time, so that a row of ``out`` is read and written once for four rows of ``base``; those of later
    entries are on their way meanwhile.
    """
    first, stride, count = base.ctypes.data, base.strides[0], starts[-1]
    for i in range(len(starts) - 1):
        target = out[i]
        target[:] = 0
        j, end = starts[i], starts[i + 1]
        while j + 4 <= end:
            a, b, c, d = base[columns[j]], base[columns[j + 1]], base[columns[j + 2]], base[columns[j + 3]]
            p, q, r, s = values[j], values[j + 1], values[j + 2], values[j + 3]
            for ahead in range(j + _AHEAD, min(j + _AHEAD + 4, count)):
                bring_near(first + columns[ahead] * stride, 4 * len(target))
            for u in range(len(target)):
                target[u] += p * a[u] + q * b[u] + r * c[u] + s * d[u]
            j += 4
        while j < end:
            a, p = base[columns[j]], values[j]
            for u in range(len(target)):
                target[u] += p * a[u]
            j += 1


@compiled(error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def weighted_sums_by_column(starts: Array, rows: Array, values: Array, touched: Array, base: Array, out: Array) -> None:
    """The same product from entries that stand column by column, ``touched`` being the columns.

    ``base`` is gone over once, in order, and ``out`` in none: for an ``out`` that is the smaller of the two.
    """
    first, stride, count = base.ctypes.data, base.strides[0], len(touched)
    out[:] = 0
    for t in range(count):
        if t + _COLUMNS_AHEAD < count:
            bring_near(first + touched[t + _COLUMNS_AHEAD] * stride, 4 * out.shape[1])
        a = base[touched[t]]
        for j in range(starts[t], starts[t + 1]):
            target, p = out[rows[j]], values[j]
            for u in range(len(target)):
                target[u] += p * a[u]


_ONE, _SHIFT, _WITHIN = np.uint64(1), np.uint64(6), np.uint64(63)
"""Of marks, a bit a column in words of 64: those of a million columns stay in the second cache, numbers would not."""


@compiled(error_model="numpy")
def touched_columns(columns: Array, marks: Array, out: Array) -> int:
    """Write the distinct columns in rising order; how many there are is returned.

    ``marks`` is one bit a column, all clear before and after.
    """
    _mark(columns, marks)
    count = 0
    for word in range(len(marks)):
        bits = marks[word]
        marks[word] = 0
        while bits:
            out[count] = np.uint64(64 * word) + lowest_bit(bits)
            count += 1
            bits &= bits - _ONE
    return count


@compiled(error_model="numpy")
def number(columns: Array, touched: Array, marks: Array, before: Array, out: Array) -> None:
    """For each of the columns write its place among the touched ones.

    That is how many of them come before its word of ``marks``, plus how many before it in that word.
    """
    marks[:] = 0
    _mark(touched, marks)
    total = np.uint64(0)
    for word in range(len(marks)):
        before[word] = total
        total += count_of_bits(marks[word])
    for j in range(len(columns)):
        column = np.uint64(np.uint32(columns[j]))
        own = column >> _SHIFT
        out[j] = before[own] + count_of_bits(marks[own] & ((_ONE << (column & _WITHIN)) - _ONE))


@njit(nogil=True, inline="always")
def _mark(columns: Array, marks: Array) -> None:
    for j in range(len(columns)):
        column = np.uint64(np.uint32(columns[j]))
        marks[column >> _SHIFT] |= _ONE << (column & _WITHIN)


@compiled(error_model="numpy")
def by_column(
    starts: Array, places: Array, values: Array, out_starts: Array, out_rows: Array, out_values: Array
) -> None:
    """The sparse rows, column by column: for each touched column, the rows and values that stand in it.

    ``places`` are those of the entries' columns. While entries are laid down, ``out_starts[t + 1]`` is where the next
    one of column t goes; after the last that is where column t + 1 begins.
    """
    out_starts[:] = 0
    for j in range(len(places)):
        out_starts[places[j] + np.uint32(1)] += 1
    total = 0
    for t in range(1, len(out_starts)):
        out_starts[t], total = total, total + out_starts[t]
    for i in range(len(starts) - 1):
        for j in range(starts[i], starts[i + 1]):
            after = places[j] + np.uint32(1)
            position = np.uint64(out_starts[after])
            out_starts[after] += 1
            out_rows[position] = i
            out_values[position] = values[j]


@compiled(error_model="numpy")
def of_kept_rows(
    starts: Array, rows: Array, values: Array, is_kept: Array, out_starts: Array, out_rows: Array, out_values: Array
) -> None:
    """Of entries that stand column by column, those of some rows. Each is written, and counts if its row is kept."""
    count = np.uint64(0)
    for t in range(len(starts) - 1):
        out_starts[t] = count
        for j in range(starts[t], starts[t + 1]):
            row = np.uint32(rows[j])
            out_rows[count], out_values[count] = row, values[j]
            count += np.uint64(is_kept[row])
    out_starts[len(starts) - 1] = count


@compiled(error_model="numpy")
def made_dense(starts: Array, places: Array, values: Array, out: Array) -> None:
    """The rows with all their zeros, each entry at its column's place; repeated columns add up."""
    out[:] = 0
    for i in range(len(out)):
        row = out[i]
        for j in range(starts[i], starts[i + 1]):
            row[places[j]] += values[j]


@compiled(error_model="numpy")
def distinct(indices: Array, table: Array, out: Array, places: Array) -> int:
    """Write the distinct indices in the order they come, and for each index its place among them.

    ``table`` is an open hash table of at least twice as many slots as indices, a power of two, filled with -1.
    """
    mask = np.uint64(len(table) - 1)
    count = 0
    for i in range(len(indices)):
        slot = ((np.uint64(indices[i]) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
        while table[slot] >= 0 and out[table[slot]] != indices[i]:
            slot = (slot + np.uint64(1)) & mask
        if table[slot] < 0:
            table[slot] = count
            out[count] = indices[i]
            count += 1
        places[i] = table[slot]
    return count


@compiled(error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def pair_squares(Z: Array, pairs: Array, out: Array) -> None:
    """``out[i] = ‖Z[a] - Z[b]‖²`` for each pair (a, b)."""
    for i in range(len(pairs)):
        a, b = Z[pairs[i, 0]], Z[pairs[i, 1]]
        total = np.float32(0)
        for u in range(Z.shape[1]):
            total += (a[u] - b[u]) * (a[u] - b[u])
        out[i] = total


@compiled(error_model="numpy")
def laplacian_rows(Z: Array, pairs: Array, slopes: Array, out: Array) -> None:
    """``out = 2 · Lap · Z`` for the weighted pairs; pairs of slope 0 cost nothing."""
    out[:] = 0
    for i in range(len(pairs)):
        weight = np.float32(2) * slopes[i]
        if weight == 0:
            continue
        a, b = pairs[i, 0], pairs[i, 1]
        for u in range(Z.shape[1]):
            pull = weight * (Z[a, u] - Z[b, u])
            out[a, u] += pull
            out[b, u] -= pull


@compiled(error_model="numpy")
def squares_from_products(products: Array) -> None:
    """Turn the matrix Z Zᵀ into the matrix of squared distances, in place."""
    n = len(products)
    norms = np.empty(n, products.dtype)
    for i in range(n):
        norms[i] = products[i, i]
    for i in range(n):
        row = products[i]
        for j in range(n):
            row[j] = max(norms[i] + norms[j] - 2 * row[j], np.float32(0))
        row[i] = 0
