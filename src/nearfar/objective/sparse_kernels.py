"""A sparse matrix times a dense one, from the nearest cache: compiled loops for batches that use their columns often.

``weighted_sums`` in kernels.py says what is computed: for each target, a weighted sum of rows of a dense matrix, the
sources. Done row by row, nearly every number of a source comes from far memory, and each is used for one
multiplication. Here the same sums are made in an order in which far memory is read once:

* **Tiles of k.** A target's sums are made 64 numbers at a time: these stay in vector registers while the kernel runs
  over the entries. ``pack`` first copies the sources tile by tile, so that a tile of all sources is one run of memory.
* **Blocks of sources.** A tile of a block of 128 sources is 32 KB, the size of the nearest cache: it stays there while
  all targets use it, and meanwhile the next block is brought to the second cache. One target's use of one block is a
  *visit*: load its 64 sums, add the entries, store the sums. Where columns are so rare that these would be for a few
  entries only, blocks are larger, and used from the second cache.
* **Spans of targets.** The sums of 1,024 targets (a tile: 256 KB) stay in the second cache while all blocks pass by,
  and are then written to the result, once. Each goes to a row of its own, which no processor foresees, so its lines
  are asked for some rows ahead: without that, the writing takes a quarter of the backward product.

sparse_cut.py brings a matrix into the order of these loops: span, block, target; with its columns by frequency, so that
a block's are all frequent or all rare. What is packed comes in this order, and sums go back to where they belong.
The sizes were found on an AMD Zen 3, where a core makes at most two loads a cycle: an entry takes ten, eight of its
source and two of its own, so at best 5 cycles for 64 multiplications and additions. Measured are 5.2 with all in the
nearest cache and 7 to 10 with the sources in the second one; a visit adds 20 of its own. Tiles of 32 or 48 for blocks
of 256 or 192 load fewer sums, but more often the entries: no gain. With AVX-512 a load brings 16 numbers, and the
products take 0.7 of the time; there tiles of 96 or 128 are no gain either.

The loops release the GIL and add in a fixed order: the same input gives the same bits.
"""

from functools import reduce
from itertools import chain
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from nearfar.data.points import Floats
from nearfar.data.scratch import Scratch
from nearfar.objective.prefetch import LINE, bring_near, emit_prefetch
from nearfar.objective.sparse_cut import SPAN, CutMatrix

Array = NDArray[Any]
emitting: Any = cgutils  # which has no types

TILE = 64
"""Numbers of k at a time: four registers of sixteen, or eight of eight, half of what AVX2 has."""
_STEP = 16
"""The last tile is as wide as the rest of k needs, in steps of this."""
_LANES = 16
"""Numbers of a vector: with AVX-512 a register; else the compiler makes two or four of it."""
_AT_ONCE = 2 if get_host_cpu_features().get("avx512f") else 1
"""Entries at once, each with sums of its own: a sum waits 4 cycles for the one before, and the loads of an entry take 3
with AVX-512, 5 without."""
_ROWS_AHEAD = 8
"""Rows of the result between the one that is written and the one that is asked for."""
_LONG, _WORD, _SHORT, _NUMBER = ir.IntType(64), ir.IntType(32), ir.IntType(16), ir.FloatType()
_VECTOR = ir.VectorType(_NUMBER, _LANES)
_FUSED = ("contract",)


def pack(base: Floats, chosen: NDArray[np.int32], places: NDArray[np.int32], scratch: Scratch) -> Floats:
    """The chosen rows of ``base``, tile after tile, the last one filled up with zeros to a multiple of 16.

    ``places`` says for each of them which row it becomes: they are read as they lie in memory, and written anywhere.
    """
    width = -(-base.shape[1] // _STEP) * _STEP
    packed = _aligned("packed", len(chosen) * width, scratch)
    _pack(np.ascontiguousarray(base, np.float32), chosen, places, packed)  # tiles are copied by address
    return packed


def multiply(matrix: CutMatrix, packed: Floats, out: Floats, scratch: Scratch) -> None:
    """``out = matrix @ base``, where ``packed`` is ``pack(base, ...)``."""
    sums = _aligned("sums", min(SPAN, max(1, len(out))) * TILE, scratch)
    _multiply(*matrix.arrays, matrix.first_sources, matrix.results, packed, matrix.shape[1], sums, out)


def _aligned(name: str, size: int, scratch: Scratch) -> Floats:
    """An array that begins with a cache line, so that no load of a vector reads two lines."""
    array = scratch.array(name, (size + 16,))
    first = -array.ctypes.data % 64 // 4
    return array[first : first + size]


def _visitor(width: int) -> Any:
    """A compiled loop over the visits of a block: ``sums[target] += Σ value · near[source]`` in registers.

    It takes the addresses of the sums and of this block's part of ``targets`` and ``first_entries``; the number of
    visits; the addresses of all entries' sources and values, and of this block's packed sources; and from where on to
    bring memory near meanwhile, and how many bytes at each visit.
    """

    @intrinsic
    def visit(
        _typing: Any, sums: Any, targets: Any, first_entries: Any, count: Any, sources: Any, values: Any, near: Any,
        ahead: Any, pace: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            sums, targets, first_entries, count, sources, values, near, ahead, pace = arguments
            lines = builder.udiv(builder.add(pace, _long(LINE - 1)), _long(LINE))
            with emitting.for_range(builder, count, intp=_LONG) as visits:
                this, following = visits.index, builder.add(visits.index, _long(1))
                with emitting.for_range(builder, lines, intp=_LONG) as line:
                    wanted = builder.add(builder.mul(this, pace), builder.mul(line.index, _long(LINE)))
                    emit_prefetch(builder, builder.add(ahead, wanted), nearest=False)
                target, next_target = (_sums_of(builder, sums, targets, visit, width) for visit in (this, following))
                for place in range(0, 4 * width, LINE):
                    emit_prefetch(builder, builder.add(next_target, _long(place)), nearest=True)
                first, last = (_loaded(builder, first_entries, visit, _LONG) for visit in (this, following))
                _emit_sums(builder, target, near, (sources, values), (first, last), width)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 9), emit

    return visit


def _long(number: int) -> Any:
    return ir.Constant(_LONG, number)


def _loaded(builder: Any, address: Any, index: Any, kind: Any) -> Any:
    return builder.load(builder.gep(builder.inttoptr(address, kind.as_pointer()), [index]))


def _vector(builder: Any, address: Any, lane: int) -> Any:
    return builder.inttoptr(builder.add(address, _long(4 * lane)), _VECTOR.as_pointer())


def _sums_of(builder: Any, sums: Any, targets: Any, visit: Any, width: int) -> Any:
    target = builder.zext(_loaded(builder, targets, visit, _WORD), _LONG)
    return builder.add(sums, builder.mul(target, _long(4 * width)))


def _emit_sums(builder: Any, target: Any, near: Any, entries: Any, bounds: Any, width: int) -> None:
    """``target += Σ value · near[source]`` over the entries within the bounds."""
    lanes, (position, last) = range(0, width, _LANES), bounds
    zeros = [ir.Constant(_VECTOR, None)] * len(lanes)
    sums = [[builder.load(_vector(builder, target, lane), align=4) for lane in lanes], *[zeros] * (_AT_ONCE - 1)]
    for at_once in sorted({_AT_ONCE, 1}, reverse=True):
        position, sums = _emit_loop(builder, near, entries, (position, last), sums, at_once)
    for parts, lane in zip(zip(*sums, strict=True), lanes, strict=True):
        builder.store(reduce(builder.fadd, parts), _vector(builder, target, lane), align=4)


def _emit_loop(builder: Any, near: Any, entries: Any, bounds: Any, sums: Any, at_once: int) -> Any:
    """Add entries, so many at once, each to sums of its own, while there are so many; then the place and the sums."""
    (first, last), before = bounds, builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("entries", "add", "added"))
    builder.branch(head)
    builder.position_at_end(head)
    position, registers = builder.phi(_LONG), [[builder.phi(_VECTOR) for _ in vectors] for vectors in sums]
    following = builder.add(position, _long(at_once))
    builder.cbranch(builder.icmp_signed("<=", following, last), body, after)
    builder.position_at_end(body)
    added = list(registers)
    for i in range(at_once):
        added[i] = _emit_entry(builder, near, entries, builder.add(position, _long(i)), registers[i])
    phis, at_first, later = (
        (place, *chain.from_iterable(vectors))
        for place, vectors in ((position, registers), (first, sums), (following, added))
    )
    for phi, *incoming in zip(phis, at_first, later, strict=True):
        for value, block in zip(incoming, (before, body), strict=True):
            phi.add_incoming(value, block)
    builder.branch(head).set_metadata("llvm.loop", _not_unrolled(builder.module))
    builder.position_at_end(after)
    return position, registers


def _emit_entry(builder: Any, near: Any, entries: Any, position: Any, registers: Any) -> Any:
    """The registers with ``value · near[source]`` of the entry at this position added."""
    sources, values = entries
    source = builder.zext(_loaded(builder, sources, position, _SHORT), _LONG)
    row = builder.add(near, builder.mul(source, _long(4 * _LANES * len(registers))))
    value = _loaded(builder, values, position, _NUMBER)
    value = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(_WORD, 0))
    value = builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(_WORD, _LANES), [0] * _LANES))
    added = []
    for i, register in enumerate(registers):
        loaded = builder.load(_vector(builder, row, i * _LANES), align=4)
        added.append(builder.fadd(register, builder.fmul(value, loaded, flags=_FUSED), flags=_FUSED))
    return added


def _not_unrolled(module: Any) -> Any:
    """Marks a loop to be left as it is: unrolled, it would end in a second loop, of a length harder to foresee."""
    wish = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
    mark = module.add_metadata([wish])
    mark.operands = (mark, wish)  # the first operand is the mark itself, so that no two loops share one
    return mark


def _tile_copier() -> Any:
    """Copies a whole tile between two addresses, past the caches: it is read again after all others are copied."""

    @intrinsic
    def copy(_typing: Any, source: Any, target: Any) -> Any:
        def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            past_caches = builder.module.add_metadata([ir.Constant(_WORD, 1)])
            for lane in range(0, TILE, _LANES):
                source, target = (_vector(builder, address, lane) for address in arguments)
                stored = builder.store(builder.load(source, align=4), target, align=4 * _LANES)
                stored.set_metadata("nontemporal", past_caches)
            return context.get_dummy_value()

        return types.void(source, target), emit

    return copy


_copy_tile = _tile_copier()


@njit(nogil=True, cache=True, error_model="numpy")
def _pack(base: Array, chosen: Array, places: Array, packed: Array) -> None:
    n, k = len(chosen), base.shape[1]
    whole = k // TILE * TILE
    width = (k - whole + _STEP - 1) // _STEP * _STEP
    for i in range(n):
        row, place = base[chosen[i]], places[i]
        for left in range(0, whole, TILE):
            _copy_tile(row[left:].ctypes.data, packed[left * n + place * TILE :].ctypes.data)
        if width > 0:
            target = packed[whole * n + place * width : whole * n + (place + 1) * width]
            target[: k - whole] = row[whole:]
            target[k - whole :] = 0


_visit_16, _visit_32, _visit_48, _visit_64 = _visitor(16), _visitor(32), _visitor(48), _visitor(64)


@njit(nogil=True, cache=True, error_model="numpy")
def _multiply(
    first_groups: Array, first_visits: Array, targets: Array, first_entries: Array, sources: Array, values: Array,
    first_sources: Array, results: Array, packed: Array, n_sources: int, sums: Array, out: Array,
) -> None:  # fmt: skip
    n_targets, k = len(results), out.shape[1]
    at_targets, at_first_entries = targets.ctypes.data, first_entries.ctypes.data
    entries = (sources.ctypes.data, values.ctypes.data)
    for span in range(len(first_groups) - 1):
        first, group, last_group = span * SPAN, first_groups[span], first_groups[span + 1] - 1
        size = min(SPAN, n_targets - first)
        for left in range(0, k, TILE):
            filled = min(TILE, k - left)
            width = (filled + _STEP - 1) // _STEP * _STEP
            sums[: size * width] = 0
            tile = packed.ctypes.data + 4 * left * n_sources
            for b in range(group, last_group + 1):
                visit, count = first_visits[b], first_visits[b + 1] - first_visits[b]
                visits = (sums.ctypes.data, at_targets + 4 * visit, at_first_entries + 8 * visit, count)
                near = tile + 4 * width * first_sources[b]
                following = tile + 4 * width * (n_sources if b == last_group else first_sources[b + 1])
                ahead = (following, (following - near) // max(1, count) + 1)
                if width == 64:
                    _visit_64(*visits, *entries, near, *ahead)
                elif width == 48:
                    _visit_48(*visits, *entries, near, *ahead)
                elif width == 32:
                    _visit_32(*visits, *entries, near, *ahead)
                else:
                    _visit_16(*visits, *entries, near, *ahead)
            for i in range(size):
                if i + _ROWS_AHEAD < size:
                    bring_near(out[results[first + i + _ROWS_AHEAD], left:].ctypes.data, 4 * filled)
                ready, result = sums[i * width : i * width + filled], out[results[first + i], left : left + filled]
                for u in range(filled):
                    result[u] = ready[u]
