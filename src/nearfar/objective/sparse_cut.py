"""A sparse matrix, or its transpose, in the order in which sparse_kernels.py multiplies it: span, block, target.

What a target has in a block of sources is a *visit*. Its entries are one run of memory, and so are all visits of a
block, and all blocks that the targets of a span visit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearfar.data.points import Floats, SparseRows
from nearfar.data.scratch import Scratch

Array = NDArray[Any]

SPAN = 1024
"""Targets whose sums are in the second cache at a time."""
_SMALLEST_BLOCK, _LARGEST_BLOCK = 128, 1024
_ENTRIES_A_VISIT = 12
"""A visit of fewer entries spends more on loading and storing the sums than the nearer cache saves."""
_COUNTED = 64
"""Visits are put in order of their number of entries up to this one."""


@dataclass(frozen=True)
class CutMatrix:
    """A sparse matrix (targets × sources) in the order in which ``multiply`` reads it."""

    shape: tuple[int, int]
    block: int
    """Sources in a block."""
    first_visits: NDArray[np.int64]
    """Where the visits of each block begin, for the first span, then the next; and the end."""
    targets: NDArray[np.int32]
    """Of each visit, counted from the start of its span; and one more number."""
    first_entries: NDArray[np.int64]
    """Of each visit; and the end."""
    sources: NDArray[np.uint16]
    """Of each entry, counted from the start of its block."""
    values: Floats
    """Of each entry."""

    @classmethod
    def empty(cls, name: str, shape: tuple[int, int], block: int, n_entries: int, scratch: Scratch) -> "CutMatrix":
        """A matrix to be filled with this many entries, or fewer."""
        n_blocks, n_spans = max(1, -(-shape[1] // block)), -(-max(1, shape[0]) // SPAN)
        visits = min(n_entries, shape[0] * n_blocks)
        targets = scratch.array(f"{name} targets", (visits + 1,), np.int32)
        first_entries = scratch.array(f"{name} first entries", (visits + 1,), np.int64)
        first_visits = scratch.array(f"{name} first visits", (n_spans * n_blocks + 1,), np.int64)
        sources = scratch.array(f"{name} sources", (n_entries,), np.uint16)
        values = scratch.array(f"{name} values", (n_entries,))
        return cls(shape, block, first_visits, targets, first_entries, sources, values)

    @property
    def n_blocks(self) -> int:
        return max(1, -(-self.shape[1] // self.block))

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array, Array]:
        """What the compiled loops take."""
        return self.first_visits, self.targets, self.first_entries, self.sources, self.values


def cut(rows: SparseRows, place: NDArray[np.uint32], n_columns: int, scratch: Scratch) -> CutMatrix:
    """The rows, cut. ``place`` gives each of their columns its number, below ``n_columns``."""
    shape = (len(rows), n_columns)
    block = _block_size(len(rows.columns) / max(1, shape[0] * shape[1]))
    matrix = CutMatrix.empty("cut", shape, block, len(rows.columns), scratch)
    places = scratch.array("places", (max(1, len(rows)), matrix.n_blocks), np.uint32)
    _cut(rows.starts, rows.columns, rows.values, place, _shift(block), places, *matrix.arrays)
    return matrix


def transposed(matrix: CutMatrix, kept: NDArray[np.int32], scratch: Scratch) -> CutMatrix:
    """The kept targets of a cut matrix, as the sources of another."""
    shape = (matrix.shape[1], len(kept))
    turned = CutMatrix.empty("transposed", shape, matrix.block, len(matrix.values), scratch)
    number = scratch.array("number", (matrix.shape[0],), np.int32)
    number.fill(-1)
    number[kept] = np.arange(len(kept), dtype=np.int32)
    places = scratch.array("places", (turned.n_blocks, max(1, shape[0])), np.uint32)
    _transpose(*matrix.arrays, number, _shift(matrix.block), places, *turned.arrays)
    return turned


def _block_size(density: float) -> int:
    """Sources in a block: the fewest with which a visit has enough entries, within what the caches hold."""
    block = _SMALLEST_BLOCK
    while block < _LARGEST_BLOCK and block * density < _ENTRIES_A_VISIT:
        block *= 2
    return block


def _shift(block: int) -> int:
    return block.bit_length() - 1


@njit(nogil=True, cache=True, error_model="numpy")
def _cut(
    starts: Array, columns: Array, values: Array, place: Array, shift: int, places: Array,
    first_visits: Array, targets: Array, first_entries: Array, sources: Array, out_values: Array,
) -> None:  # fmt: skip
    """Two passes over the entries: count each visit's, then write each where its visit has it. A block has 2**shift.

    ``places`` has a number for each visit, (targets, blocks): first its count, then where its next entry goes.
    """
    blocks, within = np.uint32(shift), np.uint32((1 << shift) - 1)
    places[:] = 0
    for i in range(len(starts) - 1):
        line = places[i]
        for j in range(starts[i], starts[i + 1]):
            line[place[columns[j]] >> blocks] += 1
    _arrange(places, first_visits, targets, first_entries)
    for i in range(len(starts) - 1):
        line = places[i]
        visit, position = np.uint32(0), line[0]
        for j in range(starts[i], starts[i + 1]):
            column = place[columns[j]]
            if column >> blocks != visit:  # neighbours often fall into one visit
                line[visit] = position
                visit = column >> blocks
                position = line[visit]
            sources[position], out_values[position] = column & within, values[j]
            position += np.uint32(1)
        line[visit] = position


@njit(nogil=True, cache=True, error_model="numpy")
def _transpose(
    cut_visits: Array, cut_targets: Array, cut_first: Array, cut_sources: Array, cut_values: Array,
    number: Array, shift: int, places: Array,
    first_visits: Array, targets: Array, first_entries: Array, sources: Array, values: Array,
) -> None:  # fmt: skip
    """The same for the transpose: all of one block's entries, then the next's, so that they go to places that are near.

    ``number`` has for each target the source it becomes, or -1; ``places`` is (blocks, targets).
    """
    block = 1 << shift
    n_blocks = (places.shape[1] + block - 1) >> shift
    places[:] = 0
    for writing in (False, True):
        if writing:
            _arrange(places.T, first_visits, targets, first_entries)
        for b in range(n_blocks):
            for span in range((len(number) + SPAN - 1) // SPAN):
                group = span * n_blocks + b
                for visit in range(cut_visits[group], cut_visits[group + 1]):
                    source = number[span * SPAN + cut_targets[visit]]
                    if source < 0:
                        continue
                    line = places[source >> shift, b << shift :]
                    if not writing:
                        for j in range(cut_first[visit], cut_first[visit + 1]):
                            line[cut_sources[j]] += 1
                        continue
                    for j in range(cut_first[visit], cut_first[visit + 1]):
                        position = line[cut_sources[j]]
                        line[cut_sources[j]] = position + np.uint32(1)
                        sources[position], values[position] = source & (block - 1), cut_values[j]


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
    targets[visit] = 0
