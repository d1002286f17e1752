"""Rows of a dense matrix in the order in which sparse_kernels.py reads them: a tile of all rows, then the next tile.

Numbers are packed as they are, or *rounded* to bfloat16, which keeps the exponent and eight binary digits. Two
of those share a word of 32 bits, so that a load brings twice as many, and a cache holds twice as many rows. A loop that
does little but load gains a fifth to a quarter by that.

Taking a word apart must cost next to nothing too. Shifted left by 16 bits it is its first number. Its second one is
the word as it stands: the first one's bits follow as if they were further digits. So the second is chosen such that
*with* them it comes nearest to what it stands for, and both are off by at most 1/256, typically by 1/600. Only numbers
below 2^-100, and 0, become 2^-100 in the second place, lest the borrowed bits be all there is.

What is rounded is a copy. As L and coefficients of one batch, and its entries (sparse_cut.py), it moves a gradient by
about a quarter of a percent; other batches of a thousand pairs would move it by a large part of its length. L itself,
sums, gradients and updates stay float32, and so does every evaluation.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.data.points import Floats
from nearfar.data.scratch import Scratch
from nearfar.objective.vectors import LANES, LONG, NUMBERS, WORD, WORDS, emitting, long, vector_at, words

Array = NDArray[Any]

STEP = 2 * LANES
"""The last tile is as wide as the rest of k needs, in steps of this: two registers, or one with two numbers a word."""
TILES = {4: 64, 2: 96}
"""Numbers of a row in a tile, by the bytes that each takes. Their sums are to stay in AVX2's sixteen registers."""
_SIGN, _SIZE, _UPPER = 0x80000000, 0x7FFFFFFF, 0xFFFF0000
_HALF = 0x8000
"""Half of the last digit that is kept: added before the others are cut off, it rounds to the nearest."""
_SMALLEST = 27 << 23
"""2^-100 as a word."""


@dataclass(frozen=True)
class Packed:
    """Packed rows of a dense matrix; valid until others are packed into the same memory."""

    memory: Floats
    n_rows: int
    number_bytes: int
    """4, or 2 where numbers are rounded."""

    @property
    def tile(self) -> int:
        return TILES[self.number_bytes]

    @property
    def target(self) -> tuple[Floats, int, int, int]:
        """What ``pack_row`` takes."""
        return self.memory, self.n_rows, self.tile, self.number_bytes


def pack(
    base: Floats, chosen: NDArray[np.int32], places: NDArray[np.int32], scratch: Scratch, *, rounded: bool = False
) -> Packed:
    """The chosen rows of ``base``, tile after tile, the last one filled up with zeros.

    ``places`` says for each of them which row it becomes: they are read as they lie in memory, and written anywhere.
    """
    packed = room_for(len(chosen), base.shape[1], scratch, rounded=rounded)
    pack_rows(base, chosen, places, packed)
    return packed


def room_for(n_rows: int, k: int, scratch: Scratch, *, rounded: bool) -> Packed:
    """Memory for so many packed rows of k numbers each."""
    number_bytes = 2 if rounded else 4
    width = -(-k // STEP) * STEP
    return Packed(aligned("packed", n_rows * width * number_bytes // 4, scratch), n_rows, number_bytes)


def pack_rows(base: Floats, chosen: NDArray[np.int32], places: NDArray[np.int32], packed: Packed) -> None:
    """Write the chosen rows of ``base`` to their places among packed rows."""
    base = np.ascontiguousarray(base, np.float32)  # tiles are copied by address
    _pack(base, chosen, places, *packed.target)


def aligned(name: str, size: int, scratch: Scratch) -> Floats:
    """An array that begins with a cache line, so that no load of a vector reads two lines."""
    array = scratch.array(name, (size + 16,))
    first = -array.ctypes.data % 64 // 4
    return array[first : first + size]


def _tile_writer(number_bytes: int) -> Any:
    """Writes a row's part of a tile. It takes the addresses of the row's numbers and of the tile, and their count.

    Whole tiles are whole lines of memory, which go past the caches: they are read again after all others are written.
    """

    @intrinsic
    def write(_typing: Any, source: Any, target: Any, width: Any) -> Any:
        def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            source, target, width = arguments
            tile = TILES[number_bytes]
            with builder.if_else(builder.icmp_signed("==", width, long(tile))) as (whole, part):
                with whole:
                    past_caches = builder.module.add_metadata([ir.Constant(WORD, 1)])
                    for step in range(tile // STEP):
                        for store in _emit_step(builder, source, target, long(step), number_bytes):
                            store.set_metadata("nontemporal", past_caches)
                with part, emitting.for_range(builder, builder.udiv(width, long(STEP)), intp=LONG) as steps:
                    _emit_step(builder, source, target, steps.index, number_bytes)
            return context.get_dummy_value()

        return types.void(source, target, width), emit

    return write


def _emit_step(builder: Any, source: Any, target: Any, step: Any, number_bytes: int) -> list[Any]:
    """Write two vectors of numbers, or one of words with two numbers each; the stores."""

    def vector(address: Any, bytes_each: int, lane: int) -> Any:
        place = builder.add(builder.mul(step, long(bytes_each * STEP)), long(bytes_each * lane))
        return vector_at(builder, address, place, WORDS)

    both = [builder.load(vector(source, 4, lane), align=4) for lane in (0, LANES)]
    if number_bytes == 2:
        both = [_rounded(builder, *both)]
    return [
        builder.store(written, vector(target, number_bytes, i * LANES), align=4 * LANES)
        for i, written in enumerate(both)
    ]


def _rounded(builder: Any, first: Any, second: Any) -> Any:
    """Two vectors of float32, given as words, as one of words with two numbers each."""
    first = builder.lshr(builder.add(first, words(_HALF)), words(16))
    sign, size = (builder.and_(second, words(bits)) for bits in (_SIGN, _SIZE))
    size = builder.select(builder.icmp_signed("<", size, words(_SMALLEST)), words(_SMALLEST), size)
    second = builder.and_(builder.add(builder.sub(size, first), words(_HALF)), words(_UPPER))
    return builder.or_(builder.or_(sign, second), first)


@compiled(error_model="numpy")
def ending_in(lower: Any, number: Any) -> Any:
    """The same for one number: of those that end in these lower bits, the nearest. All are words."""
    size = max(number & np.uint32(_SIZE), np.uint32(_SMALLEST))
    return number & np.uint32(_SIGN) | (size - lower + np.uint32(_HALF)) & np.uint32(_UPPER) | lower


def emit_unpacked(builder: Any, address: Any, count: int, number_bytes: int) -> list[Any]:
    """Load so many vectors of numbers from a packed row."""
    if number_bytes == 4:
        return [builder.load(vector_at(builder, address, long(4 * LANES * i)), align=4) for i in range(count)]
    vectors = []
    for i in range(0, count, 2):
        both = builder.load(vector_at(builder, address, long(2 * LANES * i), WORDS), align=4)
        vectors += [builder.bitcast(word, NUMBERS) for word in (builder.shl(both, words(16)), both)]
    return vectors


_write_as_it_is, _write_rounded = _tile_writer(4), _tile_writer(2)


@njit(nogil=True, inline="always")
def pack_row(row: Array, place: int, last: Array, memory: Array, n_rows: int, tile: int, number_bytes: int) -> None:
    """Write a row to its place among ``n_rows`` packed ones; ``last`` is a tile that was all zeros at first."""
    k = len(row)
    for left in range(0, k, tile):
        filled = min(tile, k - left)
        width = (filled + STEP - 1) // STEP * STEP
        source, target = row[left:].ctypes.data, memory.ctypes.data + number_bytes * (left * n_rows + place * width)
        if filled < width:
            last[:filled] = row[left:]
            source = last.ctypes.data
        if number_bytes == 4:
            _write_as_it_is(source, target, width)
        else:
            _write_rounded(source, target, width)


@compiled(error_model="numpy")
def _pack(base: Array, chosen: Array, places: Array, memory: Array, n_rows: int, tile: int, number_bytes: int) -> None:
    last = np.zeros(tile, np.float32)
    for i in range(len(chosen)):
        pack_row(base[chosen[i]], places[i], last, memory, n_rows, tile, number_bytes)
