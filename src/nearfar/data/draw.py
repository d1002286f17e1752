"""Compiled draws: pseudo-random permutations, pairs, triplets and blocks as pure functions of (seed, position).

Nothing here has a state: the i-th draw of a seed is the same wherever and whenever it is made, so a stream of draws can
be cut into pieces, continued after a kill and moved to another worker. All functions release the GIL.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.compiled import compiled

Array = NDArray[Any]
Whole = int | np.integer[Any]

NOT_FOUND = -1
"""Stands in place of a pair that could not be found."""

_MAX_TRIES = 10_000
_FEW = 1 << 12
"""A permutation of so few items needs more and better rounds to be even."""


@compiled(inline="always")
def mixed(value: Whole, key: Whole) -> Whole:
    """A 64-bit hash of two numbers (the finaliser of SplitMix64)."""
    x = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled()
def stream_key(seed: Whole, first: Whole, second: Whole) -> Whole:
    """The key of one stream of draws, from a seed and two numbers that name the stream."""
    key = mixed(np.uint64(second), mixed(np.uint64(first), mixed(np.uint64(seed), np.uint64(0x6A09E667F3BCC909))))
    return np.int64(key >> np.uint64(1))


@compiled(inline="always")
def _scrambled(value: Whole, key: Whole) -> Whole:
    """A cheaper hash than :func:`mixed`, for the rounds of a permutation."""
    x = (np.uint64(value) + np.uint64(key)) * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(32)
    return (x * np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(32)


@compiled()
def permuted(position: Whole, size: Whole, key: Whole) -> Whole:
    """Where a keyed pseudo-random permutation of 0 … size-1 takes ``position``, without making the permutation.

    Feistel rounds over the fewest bits that hold ``size``, in two parts that change places every round; results
    outside are walked on until they fall inside, which takes fewer than two walks on average.
    """
    bits = np.uint64(4)
    while (np.uint64(1) << bits) < np.uint64(size):
        bits += np.uint64(1)
    few = size <= _FEW
    x: Any = np.uint64(position)
    while True:
        low_bits = bits >> np.uint64(1)
        for turn in range(12 if few else 4):
            high_bits = bits - low_bits
            low = x & ((np.uint64(1) << low_bits) - np.uint64(1))
            mask = (np.uint64(1) << high_bits) - np.uint64(1)
            turn_key = np.uint64(key) + np.uint64(turn)
            high = (x >> low_bits) ^ ((mixed(low, turn_key) if few else _scrambled(low, turn_key)) & mask)
            x = (low << high_bits) | high
            low_bits = high_bits
        if x < np.uint64(size):
            return np.int64(x)


@compiled()
def shard_rows(n_rows: Whole, n_shards: Whole, shard: Whole, first: Whole, seed: Whole, out: Array) -> None:
    """The rows at positions ``first``, ``first + 1``, … of a shard's endless walk over its own rows.

    Shard s owns rows s, s + n_shards, s + 2·n_shards, …. Each pass over them is a new permutation of them.
    """
    size = (n_rows - shard + n_shards - 1) // n_shards
    for i in range(len(out)):
        lap, place = divmod(first + i, size)
        out[i] = shard + n_shards * permuted(place, size, stream_key(seed, shard, lap))


@compiled()
def permuted_rows(rows: Array, size: Whole, key: Whole) -> None:
    """Send each of ``rows`` through one permutation of 0 … size-1, in place."""
    for i in range(len(rows)):
        rows[i] = permuted(rows[i], size, key)


@compiled(inline="always")
def _holder(weights: Array, ticket: Whole) -> Whole:
    """The first group whose running weight is above ``ticket``, by halving without branches."""
    low, length = 0, len(weights)
    while length > 1:
        half = length // 2
        low += half if weights[low + half - 1] <= ticket else 0
        length -= half
    return low


@compiled(inline="always")
def _drawn_group(weights: Array, position: Whole, key: Whole) -> tuple[Whole, Whole]:
    """A group drawn by its weight, and which of as many tickets of its own was drawn."""
    ticket: Any = np.int64(mixed(np.uint64(position), key) % np.uint64(weights[-1]))
    group = _holder(weights, ticket)
    return group, ticket - (weights[group - 1] if group > 0 else 0)


@compiled()
def similar_pairs(order: Array, starts: Array, weights: Array, key: Whole, first: Whole, out: Array) -> None:
    """Pairs drawn evenly from all pairs of two points of one group; ``weights`` is the running sum of n·(n-1)."""
    for i in range(len(out)):
        group, ticket = _drawn_group(weights, first + i, key)
        others = starts[group + 1] - starts[group] - 1
        a, b = divmod(ticket, others)
        out[i, 0] = order[starts[group] + a]
        out[i, 1] = order[starts[group] + b + (1 if b >= a else 0)]


@compiled()
def dissimilar_pairs(order: Array, starts: Array, weights: Array, key: Whole, first: Whole, out: Array) -> None:
    """Pairs drawn evenly from all pairs of two classes; ``weights`` is the running sum of n·(all - n)."""
    for i in range(len(out)):
        group, ticket = _drawn_group(weights, first + i, key)
        size = starts[group + 1] - starts[group]
        a, b = divmod(ticket, len(order) - size)
        out[i, 0] = order[starts[group] + a]
        out[i, 1] = order[b + (size if b >= starts[group] else 0)]


@compiled()
def far_points(order: Array, starts: Array, codes: Array, key: Whole, first: Whole, out: Array) -> None:
    """The third column of triplets: a point of another class than the anchor's, evenly drawn."""
    for i in range(len(out)):
        group = codes[out[i, 0]]
        size = starts[group + 1] - starts[group]
        b = np.int64(mixed(np.uint64(first + i), key) % np.uint64(len(order) - size))
        out[i, 2] = order[b + (size if b >= starts[group] else 0)]


@compiled()
def apart_pairs(points: Array, indptr: Array, groups: Array, key: Whole, first: Whole, out: Array) -> None:
    """Pairs of ``points`` that share no group, by drawing again where they do; ``groups`` are sorted in each row."""
    n = np.uint64(len(points))
    for i in range(len(out)):
        out[i, 0] = NOT_FOUND
        inner = mixed(np.uint64(first + i), key)
        for attempt in range(_MAX_TRIES):
            a = points[np.int64(mixed(np.uint64(2 * attempt), inner) % n)]
            b = points[np.int64(mixed(np.uint64(2 * attempt + 1), inner) % n)]
            p, q = indptr[a], indptr[b]
            shared = a == b
            while not shared and p < indptr[a + 1] and q < indptr[b + 1]:
                if groups[p] == groups[q]:
                    shared = True
                elif groups[p] < groups[q]:
                    p += 1
                else:
                    q += 1
            if not shared:
                out[i, 0], out[i, 1] = a, b
                break


@compiled()
def block_points(order: Array, starts: Array, per_class: Whole, key: Whole, points: Array, sizes: Array) -> Whole:
    """Fill ``points`` class by class, at most ``per_class`` of each, classes and points in random order.

    A class of one point, or room for one point only, is passed over. ``sizes`` receives the number of points taken of
    each class; how many classes were used is returned.
    """
    n_classes, filled, used = len(starts) - 1, 0, 0
    for i in range(n_classes):
        group = permuted(i, n_classes, key)
        size = starts[group + 1] - starts[group]
        take = min(size, per_class, len(points) - filled)
        if take < 2:
            continue
        inner = mixed(np.uint64(group), key)
        for j in range(take):
            points[filled + j] = order[starts[group] + permuted(j, size, inner)]
        filled += take
        sizes[used] = take
        used += 1
        if filled == len(points):
            break
    return used
