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
_LINE = 64
"""Bytes of memory that caches move at a time."""
_STEP = 16
"""The last tile is as wide as the rest of k needs, in steps of this."""
_SMALLEST_BLOCK, _LARGEST_BLOCK = 128, 1024
_COUNTED = 64
"""Visits are put in order of their number of entries up to this one."""
_ENTRIES_A_VISIT = 12
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
    targets = scratch.array(f"{name} targets", (most + 1,), np.int32)
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


def _visitor(width: int) -> Any:
    """A compiled loop over the visits of a block: ``sums[target] += Σ value · sources[source]``, in registers.

    Arguments are addresses and numbers: the sums, the block's sources, the block's part of ``targets`` and of
    ``first_entries``, all entries, the number of visits, and what to bring near meanwhile: from where, and how many
    bytes a visit. It is written out in vectors because the compiler, left to itself, keeps the sums in memory and loads
    and stores them at every entry.
    """

    @intrinsic
    def visit(
        _typing: Any, sums: Any, sources: Any, targets: Any, first_entries: Any, entries: Any, count: Any, ahead: Any,
        pace: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            sums, sources, targets, first_entries, entries, count, ahead, pace = arguments
            lines = builder.udiv(builder.add(pace, _long(_LINE - 1)), _long(_LINE))
            with emitting.for_range(builder, count, intp=_LONG) as visits:
                i, following = visits.index, builder.add(visits.index, _long(1))
                with emitting.for_range(builder, lines, intp=_LONG) as line:
                    wanted = builder.add(builder.mul(i, pace), builder.mul(line.index, _long(_LINE)))
                    _emit_prefetch(builder, builder.add(ahead, wanted), nearest=False)
                target, next_target = (_sums_of(builder, sums, targets, visit, width) for visit in (i, following))
                for line in range(0, 4 * width, _LINE):
                    _emit_prefetch(builder, builder.add(next_target, _long(line)), nearest=True)
                first, last = (_loaded(builder, first_entries, visit, _LONG) for visit in (i, following))
                _emit_sums(builder, target, sources, entries, first, last, width)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 8), emit

    return visit


_LONG, _WORD, _NUMBER = ir.IntType(64), ir.IntType(32), ir.FloatType()
_VECTOR = ir.VectorType(_NUMBER, _LANES)
_FUSED = ("contract",)


def _long(number: int) -> Any:
    return ir.Constant(_LONG, number)


def _loaded(builder: Any, address: Any, index: Any, kind: Any) -> Any:
    return builder.load(builder.gep(builder.inttoptr(address, kind.as_pointer()), [index]))


def _sums_of(builder: Any, sums: Any, targets: Any, visit: Any, width: int) -> Any:
    target = builder.zext(_loaded(builder, targets, visit, _WORD), _LONG)
    return builder.add(sums, builder.mul(target, _long(4 * width)))


def _emit_sums(builder: Any, target: Any, sources: Any, entries: Any, first: Any, last: Any, width: int) -> None:
    """``target += Σ value · sources[source]`` over the entries from the first to before the last; there is one."""

    def part(address: Any, lane: int) -> Any:
        return builder.inttoptr(builder.add(address, _long(4 * lane)), _VECTOR.as_pointer())

    lanes, before = range(0, width, _LANES), builder.block
    sums = [builder.load(part(target, lane), align=4) for lane in lanes]
    loop, after = builder.append_basic_block("entries"), builder.append_basic_block("stored")
    builder.branch(loop)
    builder.position_at_end(loop)
    position, *registers = (builder.phi(kind) for kind in (_LONG, *(_VECTOR,) * len(lanes)))
    entry = _loaded(builder, entries, position, _LONG)
    source = builder.add(sources, builder.mul(builder.and_(entry, _long(0xFFFFFFFF)), _long(4 * width)))
    value = builder.bitcast(builder.trunc(builder.lshr(entry, _long(32)), _WORD), _NUMBER)
    value = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(_WORD, 0))
    value = builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(_WORD, _LANES), [0] * _LANES))
    products = (builder.fmul(value, builder.load(part(source, lane), align=4), flags=_FUSED) for lane in lanes)
    added = [builder.fadd(*both, flags=_FUSED) for both in zip(registers, products, strict=True)]
    following = builder.add(position, _long(1))
    for phi, at_first, later in zip((position, *registers), (first, *sums), (following, *added), strict=True):
        phi.add_incoming(at_first, before)
        phi.add_incoming(later, loop)
    branch = builder.cbranch(builder.icmp_signed("<", following, last), loop, after)
    branch.set_metadata("llvm.loop", _not_unrolled(builder.module))
    builder.position_at_end(after)
    for register, lane in zip(added, lanes, strict=True):
        builder.store(register, part(target, lane), align=4)


def _not_unrolled(module: Any) -> Any:
    """Marks a loop to be left as it is: unrolled, it would end in a second loop, of a length harder to foresee."""
    wish = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
    mark = module.add_metadata([wish])
    mark.operands = (mark, wish)  # the first operand is the mark itself, so that no two loops share one
    return mark


def _emit_prefetch(builder: Any, address: Any, *, nearest: bool) -> None:
    """Ask for a line of memory to be brought to the nearest cache, or to the second; nothing waits for it."""
    pointer = ir.IntType(8).as_pointer()
    prefetch = builder.module.declare_intrinsic(
        "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, _WORD, _WORD, _WORD])
    )
    to_read, locality, data = 0, 3 if nearest else 2, 1
    options = [ir.Constant(_WORD, option) for option in (to_read, locality, data)]
    builder.call(prefetch, [builder.inttoptr(address, pointer), *options])


_visit_16, _visit_32, _visit_48, _visit_64 = _visitor(16), _visitor(32), _visitor(48), _visitor(64)


@njit(nogil=True, cache=True, error_model="numpy")
def _multiply(
    first_visits: Array, targets: Array, first_entries: Array, entries: Array, packed: Array, n_sources: int,
    block: int, sums: Array, out: Array,
) -> None:  # fmt: skip
    n_targets, k = out.shape
    n_blocks = max(1, (n_sources + block - 1) // block)
    at_sums, at_packed, at_entries = sums.ctypes.data, packed.ctypes.data, entries.ctypes.data
    at_targets, at_first_entries = targets.ctypes.data, first_entries.ctypes.data
    for span in range((n_targets + SPAN - 1) // SPAN):
        first = span * SPAN
        size = min(SPAN, n_targets - first)
        for left in range(0, k, TILE):
            filled = min(TILE, k - left)
            width = (filled + _STEP - 1) // _STEP * _STEP
            sums[: size * width] = 0
            for b in range(n_blocks):
                group = span * n_blocks + b
                begin, count = first_visits[group], first_visits[group + 1] - first_visits[group]
                base, size_of_block = at_packed + 4 * (left * n_sources + b * block * width), 4 * block * width
                visits = (at_targets + 4 * begin, at_first_entries + 8 * begin, at_entries, count)
                ahead = (base + size_of_block, size_of_block // max(1, count) + 1)
                if width == 64:
                    _visit_64(at_sums, base, *visits, *ahead)
                elif width == 48:
                    _visit_48(at_sums, base, *visits, *ahead)
                elif width == 32:
                    _visit_32(at_sums, base, *visits, *ahead)
                else:
                    _visit_16(at_sums, base, *visits, *ahead)
            for i in range(size):
                ready, target_row = sums[i * width : i * width + filled], out[first + i, left : left + filled]
                for u in range(filled):
                    target_row[u] = ready[u]
