"""Compiled loops of the search for neighbours. They release the GIL.

A candidate is one number, its key: the bits of its squared distance above, the row of the reference below. Keys
sort as the distances do, and of equal distances by the row.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.compiled import compiled

Array = NDArray[Any]
Whole = int | np.integer[Any]
Judged = tuple[Whole, Whole, float]

ROW_BITS = 32
_ROW_MASK = np.uint64((1 << ROW_BITS) - 1)
AT_ONCE = 64
"""References looked at together; there must be room for as many more candidates than are wanted."""


@compiled(error_model="numpy")
def offer(
    products: Array, left_norms: Array, right_norms: Array, first_row: Whole, own_rows: Array,
    wanted: Array, starts: Array, filled: Array, limits: Array, keys: Array,
) -> None:  # fmt: skip
    """Add to the candidates of each query the references that are nearer than its limit.

    ``products`` are those of the queries with some references, the first of which has the row ``first_row``; rows must
    rise from call to call. The candidates of query i begin at ``keys[starts[i]]`` and are ``filled[i]``. Where
    ``starts[i + 1]`` leaves no room for more, only the nearest ``wanted[i]`` are kept, and the last of them is the
    limit from then on. ``own_rows`` has the row of a query itself, which is passed over, or -1.
    """
    for i in range(len(products)):
        row, norm, limit = products[i], left_norms[i], limits[i]
        begin, room, end = starts[i], starts[i + 1] - starts[i], filled[i]
        for first in range(0, len(row), AT_ONCE):
            beyond = min(first + AT_ONCE, len(row))
            nearer = 0
            for j in range(first, beyond):
                squared = row[j] * np.float32(-2) + norm + right_norms[j]
                row[j] = np.float32(0) if squared < 0 else squared  # what is not a number stays so, and is never nearer
                nearer += row[j] < limit
            if not nearer:
                continue
            if end + AT_ONCE > room:
                keep_smallest(keys[begin : begin + end], wanted[i])
                end = wanted[i]
                limit = _largest_distance(keys[begin : begin + end])
            if first <= own_rows[i] - first_row < beyond:
                row[own_rows[i] - first_row] = np.inf
            for j in range(first, beyond):  # without a branch, as nobody can tell which way it would go
                keys[begin + end] = _key(row[j], first_row + j)
                end += row[j] < limit
        filled[i], limits[i] = end, limit


@compiled(error_model="numpy")
def keep_smallest(keys: Array, count: Whole) -> None:
    """Move the smallest ``count`` of the keys, all different, to the front, in any order."""
    low, high = 0, len(keys) - 1
    while low < high:
        pivot = _median(keys[low], keys[(low + high) // 2], keys[high])
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if count - 1 <= j:
            high = j
        elif count - 1 >= i:
            low = i
        else:
            return


@compiled(error_model="numpy")
def judge_query(
    keys: Array, codes: Array, truth: Whole, k: Whole, most: Whole, relevant: Whole, votes: Array
) -> Judged:
    """What the references of one query, in order, say of its class.

    Returned are the class that the first ``k`` vote for, of several the one whose point is nearest; the place, from 1,
    of the first reference of the class ``truth`` among the first ``most``, or 0; and the average precision at R, with
    ``relevant`` as R, or 0 where that is 0. ``votes`` has one number a class, all 0 before and after.
    """
    for j in range(k):
        votes[codes[keys[j] & _ROW_MASK]] += 1
    winner, most_votes = np.int64(-1), 0
    for j in range(k):
        code = codes[keys[j] & _ROW_MASK]
        if votes[code] > most_votes:
            winner, most_votes = np.int64(code), votes[code]
        votes[code] = 0
    first_hit = 0
    for j in range(most):
        if codes[keys[j] & _ROW_MASK] == truth:
            first_hit = j + 1
            break
    hits, total = 0, 0.0
    for j in range(relevant):
        if codes[keys[j] & _ROW_MASK] == truth:
            hits += 1
            total += hits / (j + 1)
    return winner, first_hit, total / max(relevant, 1)


@compiled(error_model="numpy")
def judge_queries(
    keys: Array, starts: Array, codes: Array, truth: Array, k: Whole, most: Whole, relevant: Array, n_classes: Whole,
    winners: Array, first_hits: Array, precisions: Array,
) -> None:  # fmt: skip
    """:func:`judge_query` for each query; the keys of query i begin at ``starts[i]``."""
    votes = np.zeros(n_classes, np.int64)
    for i in range(len(truth)):
        winners[i], first_hits[i], precisions[i] = judge_query(
            keys[starts[i] :], codes, truth[i], k, most, relevant[i], votes
        )


@compiled()
def _key(squared: np.float32, row: Whole) -> Whole:
    bits: Whole = np.uint64(np.float32(squared).view(np.uint32)) << np.uint64(ROW_BITS) | np.uint64(row)
    return bits


@compiled(inline="always")
def _median(a: Whole, b: Whole, c: Whole) -> Whole:
    return max(min(a, b), min(max(a, b), c))


@compiled()
def _largest_distance(keys: Array) -> np.float32:
    largest = keys[0]
    for key in keys:
        largest = max(largest, key)
    distance: np.float32 = np.uint32(largest >> np.uint64(ROW_BITS)).view(np.float32)
    return distance
