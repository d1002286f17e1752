"""A sparse matrix times a dense one, from the nearest cache: compiled loops for batches that use their columns often.

``weighted_sums`` in kernels.py says what is computed: for each target, a weighted sum of rows of a dense matrix, the
sources. Done row by row, nearly every number of a source comes from far memory, and each is used for one
multiplication. Here the same sums are made in an order in which far memory is read once:

* **Tiles of k.** A target's sums are made 64 numbers at a time: these stay in vector registers while the kernel runs
  over the entries. ``pack`` first copies the sources tile by tile, so that a tile of all sources is one run of memory.
* **Blocks of sources.** A tile of a block of sources (128 of them: 32 KB) stays in the nearest caches while all
  targets use it. One target's use of one block is a *visit*: load its 64 sums, add the entries, store the sums.
* **Spans of targets.** The sums of 1,024 targets (a tile: 256 KB) stay in the second cache while all blocks pass by,
  and are then written to the result, once.

``cut`` brings a sparse matrix, or its transpose, into the order of these loops: span, block, target. An entry is
packed into 64 bits, the value's above the place of its source within the block, so that one load and one store move it.
The loops release the GIL and add in a fixed order: the same input gives the same bits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from nearfar.data.points import Floats, SparseRows
from nearfar.data.scratch import Scratch

Array = NDArray[Any]
emitting: Any = cgutils  # which has no types

TILE = 64
"""Numbers of k at a time: eight registers of eight, half of what AVX2 has."""
SPAN = 1024
"""Targets whose sums are in the second cache at a time."""
_LANES = 8
_STEP = 16
"""The last tile is as wide as the rest of k needs, in steps of this."""
_SMALLEST_BLOCK, _LARGEST_BLOCK = 128, 1024
_COUNTED = 64
"""Visits are put in order of their number of entries up to this one."""
_ENTRIES_A_VISIT = 24
"""A visit of fewer entries spends more on loading and storing the sums than on adding."""


@dataclass(frozen=True)
class CutMatrix:
    """A sparse matrix (targets × sources) in the order in which ``multiply`` reads it."""

    shape: tuple[int, int]
    block: int
    """Sources in a block."""
    first_visits: NDArray[np.int64]
    """Where the visits of each block begin, for the first span, then the next; and the end."""
    targets: NDArray[np.int32]
    """Of each visit."""
    first_entries: NDArray[np.int64]
    """Of each visit; and the end."""
    entries: NDArray[np.uint64]


def cut(
    rows: SparseRows, kept: NDArray[np.int32], place: NDArray[np.uint32], n_columns: int, scratch: Scratch,
    *, transposed: bool,
) -> CutMatrix:  # fmt: skip
    """The kept rows, or their transpose, cut. ``place`` gives each of their columns its number, below ``n_columns``."""
    shape = (n_columns, len(kept)) if transposed else (len(kept), n_columns)
    n_targets = max(1, shape[0])
    block = _block_size(len(rows.columns), shape)
    n_blocks, n_spans = max(1, -(-shape[1] // block)), -(-n_targets // SPAN)
    name = "transposed" if transposed else "cut"
    most = min(len(rows.columns), shape[0] * n_blocks)
    entries = scratch.array(f"{name} entries", rows.columns.shape, np.uint64)
    targets = scratch.array(f"{name} targets", (most,), np.int32)
    first_entries = scratch.array(f"{name} first entries", (most + 1,), np.int64)
    first_visits = scratch.array(f"{name} first visits", (n_spans * n_blocks + 1,), np.int64)
    places = scratch.array("places", (n_blocks, n_targets) if transposed else (n_targets, n_blocks), np.uint32)
    _cut(
        rows.starts, rows.columns, rows.values.view(np.uint32), kept, place, transposed, block.bit_length() - 1, places,
        first_visits, targets, first_entries, entries,
    )  # fmt: skip
    return CutMatrix(shape, block, first_visits, targets, first_entries, entries)


def pack(base: Floats, chosen: NDArray[np.int32], scratch: Scratch) -> Floats:
    """The chosen rows of ``base``, tile after tile, the last one filled up with zeros to a multiple of 16."""
    width = -(-base.shape[1] // _STEP) * _STEP
    packed = _aligned("packed", len(chosen) * width, scratch)
    _pack(base, chosen, packed)
    return packed


def multiply(matrix: CutMatrix, packed: Floats, out: Floats, scratch: Scratch) -> None:
    """``out = matrix @ base``, where ``packed`` is ``pack(base, ...)``."""
    sums = _aligned("sums", min(SPAN, max(1, len(out))) * TILE, scratch)
    _multiply(
        matrix.first_visits, matrix.targets, matrix.first_entries, matrix.entries, packed, matrix.shape[1],
        matrix.block, sums, out,
    )  # fmt: skip


def _block_size(n_entries: int, shape: tuple[int, int]) -> int:
    """Sources in a block: the fewest with which a visit has enough entries, within what the caches hold."""
    density = n_entries / max(1, shape[0] * shape[1])
    block = _SMALLEST_BLOCK
    while block < _LARGEST_BLOCK and block * density < _ENTRIES_A_VISIT:
        block *= 2
    return block


def _aligned(name: str, size: int, scratch: Scratch) -> Floats:
    """An array that begins with a cache line, so that no load of a vector reads two lines."""
    array = scratch.array(name, (size + 16,))
    first = -array.ctypes.data % 64 // 4
    return array[first : first + size]


@njit(nogil=True, cache=True, error_model="numpy")
def _cut(
    starts: Array, columns: Array, values: Array, kept: Array, place: Array, transposed: bool, shift: int,
    places: Array, first_visits: Array, targets: Array, first_entries: Array, entries: Array,
) -> None:  # fmt: skip
    """Two passes over the entries: count each visit's, then write each where its visit has it. A block has 2**shift.

    ``places`` has a number for each visit, first its count, then where its next entry goes: a line for each row (or,
    transposed, for each block of rows), in it one for each block of columns (or each column).
    """
    row_shift, column_shift = (shift, 0) if transposed else (0, shift)
    column_mask = np.uint32(0 if transposed else (1 << shift) - 1)
    row_mask = (1 << shift) - 1 if transposed else 0
    places[:] = 0
    for i in range(len(kept)):
        line = places[i >> row_shift]
        for j in range(starts[kept[i]], starts[kept[i] + 1]):
            line[place[columns[j]] >> np.uint32(column_shift)] += 1
    _arrange(places.T if transposed else places, first_visits, targets, first_entries)
    for i in range(len(kept)):
        line, row = places[i >> row_shift], np.uint64(i & row_mask)
        visit, position = np.uint32(0), line[0]
        for j in range(starts[kept[i]], starts[kept[i] + 1]):
            column = place[columns[j]]
            if column >> np.uint32(column_shift) != visit:  # neighbours often fall into one visit
                line[visit] = position
                visit = column >> np.uint32(column_shift)
                position = line[visit]
            entries[position] = np.uint64(values[j]) << np.uint64(32) | np.uint64(column & column_mask) | row
            position += np.uint32(1)
        line[visit] = position


@njit(nogil=True, cache=True, error_model="numpy")
def _arrange(places: Array, first_visits: Array, targets: Array, first_entries: Array) -> None:
    """Put the visits in order, and in ``places`` (targets, blocks) each one's first entry instead of its count.

    Those of one block and span go by their count, so that the processor foresees where the loop over entries ends.
    """
    n_targets, n_blocks = places.shape
    ends = np.empty(_COUNTED + 1, np.int64)
    visit, position, group = 0, 0, 0
    for first in range(0, n_targets, SPAN):
        last = min(first + SPAN, n_targets)
        for b in range(n_blocks):
            first_visits[group] = visit
            group += 1
            ends[:] = 0
            for target in range(first, last):
                ends[min(places[target, b], np.uint32(_COUNTED))] += 1
            ends[0] = visit
            for count in range(1, _COUNTED + 1):
                ends[count] += ends[count - 1]
            end = ends[_COUNTED]
            for target in range(last - 1, first - 1, -1):
                count = min(places[target, b], np.uint32(_COUNTED))
                if count > 0:
                    ends[count] -= 1
                    targets[ends[count]] = target - first
            while visit < end:
                target = first + targets[visit]
                first_entries[visit] = position
                count = places[target, b]
                places[target, b] = position
                position += count
                visit += 1
    first_visits[group:] = visit
    first_entries[visit] = position


@njit(nogil=True, cache=True, error_model="numpy")
def _pack(base: Array, chosen: Array, packed: Array) -> None:
    n, k = len(chosen), base.shape[1]
    for i in range(n):
        row = base[chosen[i]]
        for left in range(0, k, TILE):
            filled = min(TILE, k - left)
            width = (filled + _STEP - 1) // _STEP * _STEP
            source, target = row[left : left + filled], packed[left * n + i * width : left * n + (i + 1) * width]
            for u in range(filled):
                target[u] = source[u]
            for u in range(filled, width):
                target[u] = 0


def _adder(width: int) -> Any:
    """A compiled ``sums[:width] += Σ value · base[source]`` over packed entries, with the sums in registers.

    All arguments but the count are addresses. It is written out in vectors because the compiler, left to itself, keeps
    the sums in memory and loads and stores them at every entry.
    """
    number, wide, word = ir.FloatType(), ir.IntType(64), ir.IntType(32)
    vector = ir.VectorType(number, _LANES)
    all_lanes = ir.Constant(ir.VectorType(word, _LANES), [0] * _LANES)
    fused = ("contract",)

    @intrinsic
    def add(_typing: Any, sums: Any, base: Any, entries: Any, count: Any) -> Any:
        def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            sums, base, entries, count = arguments
            sums, base = (builder.inttoptr(address, number.as_pointer()) for address in (sums, base))
            entries = builder.inttoptr(entries, wide.as_pointer())

            def part(start: Any, lane: int) -> Any:
                address = builder.gep(start, [ir.Constant(wide, lane)])
                return builder.bitcast(address, vector.as_pointer())

            lanes = range(0, width, _LANES)
            registers = [emitting.alloca_once_value(builder, builder.load(part(sums, lane), align=4)) for lane in lanes]
            with emitting.for_range(builder, count, intp=wide) as loop:
                entry = builder.load(builder.gep(entries, [loop.index]))
                source = builder.and_(entry, ir.Constant(wide, 0xFFFFFFFF))
                row = builder.gep(base, [builder.mul(source, ir.Constant(wide, width))])
                value = builder.bitcast(builder.trunc(builder.lshr(entry, ir.Constant(wide, 32)), word), number)
                value = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(word, 0))
                value = builder.shuffle_vector(value, value, all_lanes)
                for register, lane in zip(registers, lanes, strict=True):
                    product = builder.fmul(value, builder.load(part(row, lane), align=4), flags=fused)
                    builder.store(builder.fadd(builder.load(register), product, flags=fused), register)
            for register, lane in zip(registers, lanes, strict=True):
                builder.store(builder.load(register), part(sums, lane), align=4)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp, types.intp), emit

    return add


_add_16, _add_32, _add_48, _add_64 = _adder(16), _adder(32), _adder(48), _adder(64)


@njit(nogil=True, cache=True, error_model="numpy")
def _multiply(
    first_visits: Array, targets: Array, first_entries: Array, entries: Array, packed: Array, n_sources: int,
    block: int, sums: Array, out: Array,
) -> None:  # fmt: skip
    n_targets, k = out.shape
    n_blocks = max(1, (n_sources + block - 1) // block)
    at_sums, at_packed, at_entries = sums.ctypes.data, packed.ctypes.data, entries.ctypes.data
    for span in range((n_targets + SPAN - 1) // SPAN):
        first = span * SPAN
        size = min(SPAN, n_targets - first)
        for left in range(0, k, TILE):
            filled = min(TILE, k - left)
            width = (filled + _STEP - 1) // _STEP * _STEP
            sums[: size * width] = 0
            for b in range(n_blocks):
                base = at_packed + 4 * (left * n_sources + b * block * width)
                for visit in range(first_visits[span * n_blocks + b], first_visits[span * n_blocks + b + 1]):
                    target, entry = at_sums + 4 * width * targets[visit], at_entries + 8 * first_entries[visit]
                    count = first_entries[visit + 1] - first_entries[visit]
                    if width == 64:
                        _add_64(target, base, entry, count)
                    elif width == 48:
                        _add_48(target, base, entry, count)
                    elif width == 32:
                        _add_32(target, base, entry, count)
                    else:
                        _add_16(target, base, entry, count)
            for i in range(size):
                ready, target_row = sums[i * width : i * width + filled], out[first + i, left : left + filled]
                for u in range(filled):
                    target_row[u] = ready[u]
