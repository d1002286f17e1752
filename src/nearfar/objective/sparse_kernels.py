"""A sparse matrix times a dense one, from the nearest cache: compiled loops for batches that use their columns often.

``weighted_sums`` in kernels.py says what is computed: for each target, a weighted sum of rows of a dense matrix, the
sources. Done row by row, nearly every number of a source comes from far memory, and each is used for one
multiplication. Here the same sums are made in an order in which far memory is read once:

* **Tiles of k.** A target's sums are made 64 numbers at a time, or 96: these stay in vector registers while the kernel
  runs over the entries. The sources are first copied tile by tile, so that a tile of all of them is one run of memory;
  in training they are rounded as they are copied, and take half of it (packing.py).
* **Blocks of sources.** A tile of a block of 128 sources is 32 KB, the size of the nearest cache, or 24 KB if they are
  rounded: it stays there while all targets use it, and meanwhile the next block is brought to the second cache. One
  target's use of one block is a *visit*: load its sums, add the entries, store the sums. Where columns are so rare that
  these would be for a few entries only, blocks are larger, and used from the second cache.
* **Spans of targets.** The sums of 1,024 targets (a tile: 256 or 384 KB) stay in the second cache while all blocks pass
  by, and are then written to the result, once. Each goes to a row of its own, which no processor foresees, so its lines
  are asked for some rows ahead: without that, the writing takes a quarter of the backward product.

sparse_cut.py brings a matrix into the order of these loops: span, block, target; with its columns by frequency, so that
a block's are all frequent or all rare. What is packed comes in this order, and sums go back to where they belong.
The sizes were found on an AMD Zen 3, where a core makes at most two loads a cycle: an entry takes ten, eight of its
source and two of its own, so at best 5 cycles for 64 multiplications and additions. Measured are 5.2 with all in the
nearest cache and 7 to 10 with the sources in the second one; a visit adds 20 of its own. Tiles of 32 or 48 for blocks
of 256 or 192 load fewer sums, but more often the entries: no gain. With AVX-512 a load brings 16 numbers, and the
products take 0.7 of the time; there tiles of 96 or 128 are no gain either. Rounded sources take half the loads, so that
the multiplications are the limit, 4 cycles for 64: on a Zen 4 without AVX-512 the forward product takes 0.74 of the
time, the backward one 0.82. Their tile of 96 is worth 3 % over one of 64, and blocks of 256 are worth nothing.

The loops release the GIL and add in a fixed order: the same input gives the same bits.
"""

from functools import reduce
from itertools import chain
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.data.points import Floats
from nearfar.data.scratch import Scratch
from nearfar.objective.packing import STEP, TILES, Packed, aligned, emit_unpacked
from nearfar.objective.prefetch import LINE, bring_near, emit_prefetch
from nearfar.objective.sparse_cut import SPAN, CutMatrix
from nearfar.objective.vectors import (
    FUSED,
    HAS_AVX512,
    LANES,
    LONG,
    NUMBER,
    NUMBERS,
    SHORT,
    WORD,
    emitting,
    in_all_lanes,
    loaded,
    long,
    vector_at,
)

Array = NDArray[Any]

_AT_ONCE = {4: 2 if HAS_AVX512 else 1, 2: 1}
"""Entries at once, each with sums of its own, by the bytes of a number: a sum waits 4 cycles for the one before, and an
entry takes 3 with AVX-512 if numbers are not rounded, else more."""
_ROWS_AHEAD = 8
"""Rows of the result between the one that is written and the one that is asked for."""


def multiply(matrix: CutMatrix, packed: Packed, out: Floats, scratch: Scratch) -> None:
    """``out = matrix @ base``, where ``packed`` is ``pack(base, ...)``; both are rounded, or neither."""
    assert matrix.entries.itemsize == 2 * packed.number_bytes
    sums = aligned("sums", min(SPAN, max(1, matrix.shape[0])) * packed.tile, scratch)
    sources = (packed.memory, packed.tile, packed.number_bytes, matrix.shape[1])
    _multiply(*matrix.arrays, matrix.first_sources, matrix.results, *sources, sums, out)


def _visitor() -> Any:
    """A compiled loop over the visits of a block: ``sums[target] += Σ value · near[source]`` in registers.

    It takes the bytes of a packed number and the width of the tile; the addresses of the sums and of this block's part
    of ``targets`` and ``first_entries``; the number of visits; the addresses of all entries, and of this block's packed
    sources; and from where on to bring memory near meanwhile, and how many bytes at each visit.
    """

    @intrinsic
    def visit(
        _typing: Any, number_bytes: Any, width: Any, sums: Any, targets: Any, first_entries: Any, count: Any,
        entries: Any, near: Any, ahead: Any, pace: Any,
    ) -> Any:  # fmt: skip
        def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            number_bytes, width, *visits = arguments
            after = builder.append_basic_block("visited")
            kinds = builder.switch(builder.add(builder.shl(number_bytes, long(16)), width), after)
            for each_bytes, tile in TILES.items():
                for each_width in range(STEP, tile + 1, STEP):
                    block = builder.append_basic_block("visits")
                    kinds.add_case(long((each_bytes << 16) + each_width), block)
                    builder.position_at_end(block)
                    _emit_visits(builder, visits, each_bytes, each_width)
                    builder.branch(after)
            builder.position_at_end(after)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 10), emit

    return visit


def _emit_visits(builder: Any, arguments: Any, number_bytes: int, width: int) -> None:
    """The loop for one kind of packed numbers and one width, which are then known to the compiler."""
    sums, targets, first_entries, count, entries, near, ahead, pace = arguments
    lines = builder.udiv(builder.add(pace, long(LINE - 1)), long(LINE))
    with emitting.for_range(builder, count, intp=LONG) as visits:
        this, following = visits.index, builder.add(visits.index, long(1))
        with emitting.for_range(builder, lines, intp=LONG) as line:
            wanted = builder.add(builder.mul(this, pace), builder.mul(line.index, long(LINE)))
            emit_prefetch(builder, builder.add(ahead, wanted), nearest=False)
        target, next_target = (_sums_of(builder, sums, targets, visit, width) for visit in (this, following))
        for place in range(0, 4 * width, LINE):
            emit_prefetch(builder, builder.add(next_target, long(place)), nearest=True)
        bounds = [loaded(builder, first_entries, visit, LONG) for visit in (this, following)]
        _emit_sums(builder, target, (near, entries), bounds, number_bytes, width)


def _sums_of(builder: Any, sums: Any, targets: Any, visit: Any, width: int) -> Any:
    target = builder.zext(loaded(builder, targets, visit, WORD), LONG)
    return builder.add(sums, builder.mul(target, long(4 * width)))


def _emit_sums(builder: Any, target: Any, entries: Any, bounds: Any, number_bytes: int, width: int) -> None:
    """``target += Σ value · near[source]`` over the entries within the bounds."""
    position, last = bounds
    places = [vector_at(builder, target, long(4 * lane)) for lane in range(0, width, LANES)]
    zeros = [ir.Constant(NUMBERS, None)] * len(places)
    sums = [[builder.load(place, align=4) for place in places], *[zeros] * (_AT_ONCE[number_bytes] - 1)]
    for at_once in sorted({_AT_ONCE[number_bytes], 1}, reverse=True):
        position, sums = _emit_loop(builder, entries, (position, last), sums, at_once, number_bytes)
    for parts, place in zip(zip(*sums, strict=True), places, strict=True):
        builder.store(reduce(builder.fadd, parts), place, align=4)


def _emit_loop(builder: Any, entries: Any, bounds: Any, sums: Any, at_once: int, number_bytes: int) -> Any:
    """Add entries, so many at once, each to sums of its own, while there are so many; then the place and the sums."""
    (first, last), before = bounds, builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("entries", "add", "added"))
    builder.branch(head)
    builder.position_at_end(head)
    position, registers = builder.phi(LONG), [[builder.phi(NUMBERS) for _ in vectors] for vectors in sums]
    following = builder.add(position, long(at_once))
    builder.cbranch(builder.icmp_signed("<=", following, last), body, after)
    builder.position_at_end(body)
    added = list(registers)
    for i in range(at_once):
        added[i] = _emit_entry(builder, entries, builder.add(position, long(i)), registers[i], number_bytes)
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


def _emit_entry(builder: Any, entries: Any, position: Any, registers: Any, number_bytes: int) -> Any:
    """The registers with ``value · near[source]`` of the entry at this position added."""
    near, entries = entries
    lower, value = _halves(builder, entries, position, number_bytes)
    row = builder.add(near, builder.mul(builder.zext(lower, LONG), long(number_bytes * LANES * len(registers))))
    value = in_all_lanes(builder, value)
    return [
        builder.fadd(register, builder.fmul(value, vector, flags=FUSED), flags=FUSED)
        for register, vector in zip(registers, emit_unpacked(builder, row, len(registers), number_bytes), strict=True)
    ]


def _halves(builder: Any, entries: Any, position: Any, number_bytes: int) -> tuple[Any, Any]:
    """The source of an entry, and its value, which with rounded numbers is the whole entry."""
    twice = builder.shl(position, long(1))
    if number_bytes == 2:
        return loaded(builder, entries, twice, SHORT), loaded(builder, entries, position, NUMBER)
    return loaded(builder, entries, twice, WORD), loaded(builder, entries, builder.add(twice, long(1)), NUMBER)


def _not_unrolled(module: Any) -> Any:
    """Marks a loop to be left as it is: unrolled, it would end in a second loop, of a length harder to foresee."""
    wish = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
    mark = module.add_metadata([wish])
    mark.operands = (mark, wish)  # the first operand is the mark itself, so that no two loops share one
    return mark


_visit = _visitor()


@compiled(error_model="numpy")
def _multiply(
    first_groups: Array, first_visits: Array, targets: Array, first_entries: Array, entries: Array,
    first_sources: Array, results: Array, packed: Array, tile: int, number_bytes: int, n_sources: int, sums: Array,
    out: Array,
) -> None:  # fmt: skip
    n_targets, k = len(results), out.shape[1]
    at_targets, at_first_entries = targets.ctypes.data, first_entries.ctypes.data
    for span in range(len(first_groups) - 1):
        first, group, last_group = span * SPAN, first_groups[span], first_groups[span + 1] - 1
        size = min(SPAN, n_targets - first)
        for left in range(0, k, tile):
            filled = min(tile, k - left)
            width = (filled + STEP - 1) // STEP * STEP
            row_bytes, at_tile = number_bytes * width, packed.ctypes.data + number_bytes * left * n_sources
            sums[: size * width] = 0
            for b in range(group, last_group + 1):
                visit, count = first_visits[b], first_visits[b + 1] - first_visits[b]
                visits = (sums.ctypes.data, at_targets + 4 * visit, at_first_entries + 8 * visit, count)
                near = at_tile + row_bytes * first_sources[b]
                following = at_tile + row_bytes * (n_sources if b == last_group else first_sources[b + 1])
                pace = (following - near) // max(1, count) + 1
                _visit(number_bytes, width, *visits, entries.ctypes.data, near, following, pace)
            for i in range(size):
                if i + _ROWS_AHEAD < size:
                    bring_near(out[results[first + i + _ROWS_AHEAD], left:].ctypes.data, 4 * filled)
                if results[first + i] < 0:
                    continue
                ready, result = sums[i * width : i * width + filled], out[results[first + i], left : left + filled]
                for u in range(filled):
                    result[u] = ready[u]
