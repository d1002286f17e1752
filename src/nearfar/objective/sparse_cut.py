"""A sparse matrix, or its transpose, in the order in which sparse_kernels.py multiplies it: span, block, target.

What a target has in a block of sources is a *visit*. Its entries are one run of memory, and so are all visits of a
block, and all blocks that the targets of a span visit.

Real columns are uneven: in features of images, half of them hold a few hundredths of the entries. Blocks of one size
would give every visit some frequent columns and many that are not there, and a rare column as a target a visit for each
entry. So columns are first put in order of falling frequency (``by_frequency``). Each span of columns then has a
density of its own, and the size of blocks that suits it: of its columns, where these are sources, and of rows, where
its columns are targets.

An entry is one number in memory: its value in the upper half of the bits, its source in the lower. Where numbers are
rounded (packing.py), the upper half is that of a float32, and the whole is one as it stands: the source is at most ten
bits at its very end, too little to be taken out.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.data.points import SparseRows
from nearfar.data.scratch import Scratch
from nearfar.objective.packing import ending_in
from nearfar.objective.prefetch import bring_near

Array = NDArray[Any]
Entries = NDArray[np.uint32] | NDArray[np.uint64]

SPAN = 1024
"""Targets whose sums are in the second cache at a time."""
_WITHIN = 10
"""Bits of a column's code that say its place within a block: no block is larger than a span."""
_SMALLEST_BLOCK = 128
_ENTRIES_A_VISIT = 8
"""A visit of fewer entries spends more on loading and storing the sums than the nearer cache saves."""
_COUNTED = 64
"""Visits are put in order of their number of entries up to this one."""
_CLASSES = 2
"""Classes of frequency for each factor of two. In a class columns rise, so that rows of L are neighbours in memory."""
_COUNTED_ROWS = 256
"""Frequencies are counted in about this many rows: they need not be exact."""
_SOURCES = {4: np.uint32(0xFFFF), 8: np.uint64(0xFFFFFFFF)}
"""The bits of an entry that say its source, by the bytes it takes."""


@dataclass(frozen=True)
class ColumnOrder:
    """Columns by falling frequency, and the blocks they are cut into; those of about the same frequency rise."""

    columns: NDArray[np.int32]
    """The columns, rising."""
    places: NDArray[np.int32]
    """Of each of them, in the order of falling frequency."""
    ranks: NDArray[np.int32]
    """The other way: which of the rising columns is first by frequency, which second."""
    shifts: NDArray[np.int64]
    """Of each span of ordered columns: its blocks have 2**shift of them, or of rows where they are targets."""
    first_sources: NDArray[np.int64]
    """Where each block of columns begins."""
    codes: NDArray[np.uint32]
    """Of each feature that is among the columns: block << 10 | place within it."""


def by_frequency(rows: SparseRows, columns: NDArray[np.int32], codes: NDArray[np.uint32]) -> ColumnOrder:
    """An order of these columns, which rise, by how often they stand in the rows; its codes are written to ``codes``.

    ``codes`` has a number for each feature, and is the order's from then on.
    """
    step = max(1, len(rows) // _COUNTED_ROWS)
    _count(rows.starts, rows.columns.view(np.uint32), step, columns, codes)
    counts = codes[columns]
    rarity = np.uint8(255) - (_CLASSES * np.log2(counts + np.float32(1))).astype(np.uint8)
    ranks = np.argsort(rarity, kind="stable").astype(np.int32)  # bytes are sorted by counting
    places = np.empty_like(ranks)
    places[ranks] = np.arange(len(ranks), dtype=np.int32)
    shifts = np.empty(-(-len(columns) // SPAN), np.int64)
    first_sources = np.empty(-(-len(columns) // _SMALLEST_BLOCK), np.int64)
    n_blocks = _encode(columns[ranks], counts[ranks], -(-len(rows) // step), shifts, first_sources, codes)
    return ColumnOrder(columns, places, ranks, shifts, first_sources[:n_blocks], codes)


def order_of_all(rows: SparseRows) -> ColumnOrder:
    """The same of all columns, those that are not in these rows among them."""
    everything = np.arange(rows.n_features, dtype=np.int32)
    return by_frequency(rows, everything, np.empty(len(everything), np.uint32))


@dataclass(frozen=True)
class CutMatrix:
    """A sparse matrix (targets × sources) in the order in which ``multiply`` reads it.

    Spans of targets have groups, one for each block of sources; a group has visits, and a visit entries.
    """

    shape: tuple[int, int]
    results: NDArray[np.int32]
    """The row of the result for each target; -1 for one that has none."""
    first_groups: NDArray[np.int64]
    """Of each span of 1,024 targets; and the end."""
    first_sources: NDArray[np.int64]
    """Of the block of each group."""
    first_visits: NDArray[np.int64]
    """Of each group; and the end."""
    targets: NDArray[np.int32]
    """Of each visit, counted from the start of its span; and one more number."""
    first_entries: NDArray[np.int64]
    """Of each visit; and the end."""
    entries: Entries
    """Value and source of each; the source is counted from the start of its block."""

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array, Array]:
        """What the compiled loops take."""
        return self.first_groups, self.first_visits, self.targets, self.first_entries, self.entries


def cut(rows: SparseRows, order: ColumnOrder, scratch: Scratch, *, rounded: bool = False) -> CutMatrix:
    """The rows, cut, with their columns in this order."""
    n_blocks = len(order.first_sources)
    spans = -(-len(rows) // SPAN)
    groups = [order.first_sources] * spans
    results = np.arange(len(rows), dtype=np.int32)
    kind = np.dtype(np.uint32 if rounded else np.uint64)
    matrix = _empty("cut", len(order.columns), results, groups, len(rows.columns), kind, scratch)
    places = scratch.array("places", (len(rows) * n_blocks,), np.uint32)
    values = rows.values.view(np.uint32)
    _cut(rows.starts, rows.columns.view(np.uint32), values, order.codes, n_blocks, places, *matrix.arrays, rounded)
    return matrix


def transposed(
    matrix: CutMatrix, order: ColumnOrder, kept: NDArray[np.int32], results: NDArray[np.int32], scratch: Scratch
) -> CutMatrix:
    """The kept targets of a matrix cut in this order, as the sources of another with these rows of the result."""
    groups = [np.arange(0, max(1, len(kept)), 1 << shift, dtype=np.int64) for shift in order.shifts]
    turned = _empty("transposed", len(kept), results, groups, len(matrix.entries), matrix.entries.dtype, scratch)
    number = scratch.array("number", (matrix.shape[0],), np.int32)
    number.fill(-1)
    number[kept] = np.arange(len(kept), dtype=np.int32)
    places = scratch.array("places", (len(turned.first_sources) * SPAN,), np.uint32)
    sources = _SOURCES[matrix.entries.itemsize]
    blocks = (order.first_sources, order.shifts)
    _transpose(*matrix.arrays, *blocks, number, len(order.columns), sources, places, *turned.arrays)
    return turned


def _empty(
    name: str, n_sources: int, results: NDArray[np.int32], groups: list[NDArray[np.int64]], n_entries: int,
    kind: np.dtype[Any], scratch: Scratch,
) -> CutMatrix:  # fmt: skip
    """A matrix to be filled with this many entries, or fewer. ``groups`` are the first sources of each span's."""
    first_groups = np.cumsum([0, *map(len, groups)], dtype=np.int64)
    first_sources: NDArray[np.int64] = np.concatenate((np.empty(0, np.int64), *groups))
    visits = min(n_entries, len(first_sources) * SPAN)
    return CutMatrix(
        (len(results), n_sources),
        results,
        first_groups,
        first_sources,
        scratch.array(f"{name} first visits", (len(first_sources) + 1,), np.int64),
        scratch.array(f"{name} targets", (visits + 1,), np.int32),
        scratch.array(f"{name} first entries", (visits + 1,), np.int64),
        scratch.array(f"{name} entries", (n_entries,), kind),
    )


@compiled(error_model="numpy")
def _count(starts: Array, columns: Array, step: int, touched: Array, counts: Array) -> None:
    """How often each of the touched columns stands in every ``step``-th row."""
    for t in range(len(touched)):
        counts[touched[t]] = 0
    for i in range(0, len(starts) - 1, step):
        for j in range(starts[i], starts[i + 1]):
            counts[columns[j]] += np.uint32(1)


@compiled(error_model="numpy")
def _encode(ordered: Array, counts: Array, n_rows: int, shifts: Array, first_sources: Array, codes: Array) -> int:
    """Choose each span's blocks: the smallest with enough entries a visit. How many blocks there are is returned."""
    n_blocks = 0
    for span in range(len(shifts)):
        first, last = span * SPAN, min((span + 1) * SPAN, len(ordered))
        found, block = counts[first:last].sum(), _SMALLEST_BLOCK
        while block < SPAN and block * found < _ENTRIES_A_VISIT * n_rows * (last - first):
            block *= 2
        shifts[span] = np.log2(block)
        for left in range(first, last, block):
            first_sources[n_blocks] = left
            for place in range(left, min(left + block, last)):
                codes[ordered[place]] = n_blocks << _WITHIN | (place - left)
            n_blocks += 1
    return n_blocks


@compiled(error_model="numpy")
def _cut(
    starts: Array, columns: Array, values: Array, codes: Array, n_blocks: int, places: Array,
    first_groups: Array, first_visits: Array, targets: Array, first_entries: Array, entries: Array, rounded: bool,
) -> None:  # fmt: skip
    """Two passes over the entries: count each visit's, then write each where its visit has it.

    Indices are unsigned: for others, each access would begin by asking whether it counts from the end.
    ``places`` has a number for each visit, (targets, blocks): first its count, then where its next entry goes.
    """
    shift, within, one = np.uint32(_WITHIN), np.uint32((1 << _WITHIN) - 1), np.uint32(1)
    places[:] = 0
    for i in range(len(starts) - 1):
        line = places[i * n_blocks : (i + 1) * n_blocks]
        for j in range(np.uint64(starts[i]), np.uint64(starts[i + 1])):
            line[codes[columns[j]] >> shift] += one
    _arrange(places, len(starts) - 1, True, first_groups, first_visits, targets, first_entries)
    a_visit = len(columns) // max(1, first_visits[first_groups[-1]]) + 1
    for i in range(len(starts) - 1):
        for place in places[(i + 1) * n_blocks : (i + 2) * n_blocks]:  # of the next row's visits
            bring_near(entries[place:].ctypes.data, entries.itemsize * a_visit)
        line = places[i * n_blocks : (i + 1) * n_blocks]
        for j in range(np.uint64(starts[i]), np.uint64(starts[i + 1])):
            code = codes[columns[j]]
            position = line[code >> shift]
            line[code >> shift] = position + one
            source = code & within
            if rounded:
                entries[position] = ending_in(source, values[j])
            else:
                entries[position] = np.uint64(values[j]) << np.uint64(32) | np.uint64(source)


@compiled(error_model="numpy")
def _transpose(
    cut_groups: Array, cut_visits: Array, cut_targets: Array, cut_first: Array, cut_entries: Array,
    blocks: Array, shifts: Array, number: Array, n_targets: int, sources: Any, places: Array,
    first_groups: Array, first_visits: Array, targets: Array, first_entries: Array, entries: Array,
) -> None:  # fmt: skip
    """The same for the transpose: all of one block's entries, then the next's, so that they go to places that are near.

    ``number`` has for each target the source it becomes, or -1; ``sources`` are the bits of an entry that say its
    source; ``places`` is (blocks, targets) for each span.
    """
    n_blocks, n_spans, one = len(blocks), len(cut_groups) - 1, np.uint32(1)
    places[:] = 0
    for writing in (False, True):
        if writing:
            _arrange(places, n_targets, False, first_groups, first_visits, targets, first_entries)
        for b in range(n_blocks):
            span, first = blocks[b] // SPAN, blocks[b] % SPAN
            shift, size = shifts[span], min(SPAN, n_targets - span * SPAN)
            corner = SPAN * first_groups[span] + first
            within = (1 << shift) - 1
            for cut_span in range(n_spans):
                group = cut_span * n_blocks + b
                for visit in range(cut_visits[group], cut_visits[group + 1]):
                    source = number[cut_span * SPAN + cut_targets[visit]]
                    if source < 0:
                        continue
                    line = places[corner + (source >> shift) * size :]
                    if not writing:
                        for j in range(np.uint64(cut_first[visit]), np.uint64(cut_first[visit + 1])):
                            line[cut_entries[j] & sources] += one
                        continue
                    becomes = type(sources)(source & within)
                    for j in range(np.uint64(cut_first[visit]), np.uint64(cut_first[visit + 1])):
                        target = cut_entries[j] & sources
                        position = line[target]
                        line[target] = position + one
                        entries[position] = cut_entries[j] & ~sources | becomes


@compiled(error_model="numpy")
def _arrange(
    places: Array, n_targets: int, by_target: bool,
    first_groups: Array, first_visits: Array, targets: Array, first_entries: Array,
) -> None:  # fmt: skip
    """Put the visits in order, and in ``places`` each one's first entry instead of its count.

    Those of one group go by their count, so that the processor foresees where the loop over entries ends.
    """
    visit, position, ends = 0, 0, np.empty(_COUNTED + 1, np.int64)
    most = np.uint32(_COUNTED)
    for span in range(len(first_groups) - 1):
        size, n_blocks = min(SPAN, n_targets - span * SPAN), first_groups[span + 1] - first_groups[span]
        step = n_blocks if by_target else 1
        for b in range(n_blocks):
            group = first_groups[span] + b
            start = SPAN * first_groups[span] + b * (1 if by_target else size)
            counts = places[start : start + (size - 1) * step + 1 : step]
            first_visits[group] = visit
            ends[:] = 0
            for target in range(size):
                ends[min(counts[target], most)] += 1
            ends[0] = visit
            for count in range(1, _COUNTED + 1):
                ends[count] += ends[count - 1]
            end = ends[_COUNTED]
            for target in range(size - 1, -1, -1):
                count = min(counts[target], most)
                if count > 0:
                    ends[count] -= 1
                    targets[ends[count]] = target
            while visit < end:
                target = targets[visit]
                first_entries[visit] = position
                count = counts[target]
                counts[target] = position
                position += count
                visit += 1
    first_visits[first_groups[-1]] = visit
    first_entries[visit] = position
    targets[visit] = 0
