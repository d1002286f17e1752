"""Batches: a pure function of (seed, shard, clock), so there is no state to save, to move or to lose.

Constraints are split into shards, more than workers, so that they can move: shard s of n owns the constraints s, s + n,
s + 2n, … of a fixed permutation of all. Each pass over a shard is a new permutation of what it owns.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.data import draw
from nearfar.data.constraints import Comparisons, Pairs, Weights
from nearfar.data.from_labels import GroupDraws, LabelDraws
from nearfar.errors import InvalidConstraints

Indices = NDArray[np.integer[Any]]

_EVENLY = 8
"""Points of one class in a block where there are many classes."""
_FIRST_SIZE = 125
"""Points of the first blocks, where blocks grow."""
_STEPS_A_SIZE = 16
"""Steps after which they are twice as large."""


@dataclass(frozen=True)
class Batch:
    """Pairs that are to be near and pairs that are to be far, each (n, 2) indices of points.

    For comparisons the two go together row by row; for similar and dissimilar pairs they are separate sets.
    """

    near: Indices
    far: Indices
    weights: Weights | None = None
    """One a comparison; or one a pair, those of near pairs first. None where all count the same."""

    @property
    def n_pairs(self) -> int:
        return len(self.near) + len(self.far)

    @property
    def indices(self) -> Indices:
        """The points of the batch, with repeats."""
        return np.concatenate((self.near.ravel(), self.far.ravel()))


@dataclass(frozen=True)
class Block:
    """Points of several classes, class by class; all pairs among them count."""

    indices: Indices
    sizes: tuple[int, ...]
    """How many points each class has, in order."""

    @property
    def n_pairs(self) -> int:
        return len(self.indices) * (len(self.indices) - 1) // 2


class Sampler(Protocol):
    """Where a worker's batches come from."""

    n_shards: int
    steps_per_epoch: int
    settled: int
    """The clock from which on batches have their full size."""

    def batch(self, shard: int, clock: int) -> Batch | Block:
        """The batch number ``clock`` of a shard."""


@dataclass(frozen=True)
class _Chosen:
    """Some constraints, with their weights if they have any."""

    indices: Indices
    weights: Weights | None

    def without(self, excluded: NDArray[np.bool_] | None) -> "_Chosen":
        """Those that touch no excluded point."""
        if excluded is None:
            return self
        kept = ~excluded[self.indices].any(axis=1)
        return _Chosen(self.indices[kept], None if self.weights is None else self.weights[kept])


class _Rows:
    """The rows of a constraint array that train, in shards; the last ones of a fixed permutation may be held out."""

    def __init__(
        self, constraints: Indices, weights: Weights | None, n_held_out: int, n_shards: int, seed: int
    ) -> None:
        self._constraints, self._weights, self._n_shards, self._seed = constraints, weights, n_shards, seed
        self.size = len(constraints) - n_held_out
        self._key = draw.stream_key(seed, len(constraints), 1)

    def held_out(self) -> _Chosen:
        rows = np.arange(self.size, len(self._constraints))
        draw.permuted_rows(rows, len(self._constraints), self._key)
        return self._chosen(rows)

    def batch(self, shard: int, clock: int, size: int) -> _Chosen:
        rows = np.empty(size, np.int64)
        draw.shard_rows(self.size, self._n_shards, shard, clock * size, self._seed, rows)
        if self.size < len(self._constraints):
            draw.permuted_rows(rows, len(self._constraints), self._key)
        return self._chosen(rows)

    def _chosen(self, rows: NDArray[np.int64]) -> _Chosen:
        return _Chosen(np.asarray(self._constraints[rows]), None if self._weights is None else self._weights[rows])


@dataclass(frozen=True)
class SamplingPlan:
    """What a sampler of stored constraints needs besides them."""

    batch_size: int
    n_shards: int
    seed: int
    n_held_out: int = 0
    """Constraints of each kind to keep out of all batches."""
    excluded: NDArray[np.bool_] | None = None
    """Points whose constraints are to be passed over, because they are held out."""


class PairSampler:
    """Batches of similar and dissimilar pairs, half and half."""

    settled = 0

    def __init__(self, pairs: Pairs, plan: SamplingPlan) -> None:
        fewest = min(len(pairs.similar), len(pairs.dissimilar)) - plan.n_held_out
        self.n_shards = max(1, min(plan.n_shards, fewest))
        self._half = max(1, plan.batch_size // 2)
        self._excluded = plan.excluded
        n_held_out, seed = plan.n_held_out, plan.seed
        self._similar = _Rows(pairs.similar, pairs.similar_weights, n_held_out, self.n_shards, seed)
        self._dissimilar = _Rows(pairs.dissimilar, pairs.dissimilar_weights, n_held_out, self.n_shards, seed + 1)
        self.steps_per_epoch = -(-max(self._similar.size, self._dissimilar.size) // self._half)

    def batch(self, shard: int, clock: int) -> Batch:
        return _of_both_kinds(
            self._similar.batch(shard, clock, self._half).without(self._excluded),
            self._dissimilar.batch(shard, clock, self._half).without(self._excluded),
        )

    def held_out(self) -> Batch:
        """The pairs kept out of all batches."""
        return _of_both_kinds(self._similar.held_out(), self._dissimilar.held_out())


class ComparisonSampler:
    """Batches of triplets or quadruplets."""

    settled = 0

    def __init__(self, comparisons: Comparisons, plan: SamplingPlan) -> None:
        self.n_shards = max(1, min(plan.n_shards, len(comparisons) - plan.n_held_out))
        self._size, self._excluded = plan.batch_size, plan.excluded
        self._rows = _Rows(comparisons.indices, comparisons.weights, plan.n_held_out, self.n_shards, plan.seed)
        self.steps_per_epoch = -(-self._rows.size // self._size)

    def batch(self, shard: int, clock: int) -> Batch:
        chosen = self._rows.batch(shard, clock, self._size).without(self._excluded)
        return compared(chosen.indices, chosen.weights)

    def held_out(self) -> Batch:
        """The comparisons kept out of all batches."""
        chosen = self._rows.held_out()
        return compared(chosen.indices, chosen.weights)


class BlockSampler:
    """Blocks of labelled points.

    Parameters
    ----------
    draws : LabelDraws
    block_size : int
        Points of a block, if there are so many.
    per_class : int or None
        Points of a class in a block; None for as many as give all classes a place, but no fewer than eight.
    n_shards : int
    seed : int
    grows : bool
        Whether blocks begin small and double: L is then far from where it is to go, and rough steps bring it nearer as
        well as exact ones.
    """

    def __init__(
        self,
        draws: LabelDraws,
        block_size: int,
        per_class: int | None,
        n_shards: int,
        seed: int,
        *,
        grows: bool = False,
    ) -> None:
        if draws.n_blockable_classes < 2:
            raise InvalidConstraints(
                "only one class has two points or more, so blocks have no dissimilar pair; learn from drawn pairs"
            )
        self.n_shards, self._seed, self._draws = n_shards, seed, draws
        size = min(block_size, draws.n_blockable)
        self._sizes = [*_doubled(_FIRST_SIZE, size), size] if grows else [size]
        self._per_class = per_class
        self.steps_per_epoch = -(-draws.n_points // size)
        self.settled = -(-_STEPS_A_SIZE * (len(self._sizes) - 1) // n_shards)

    def batch(self, shard: int, clock: int) -> Block:
        step = clock * self.n_shards + shard  # of all, if shards take turns
        size = self._sizes[min(step // _STEPS_A_SIZE, len(self._sizes) - 1)]
        evenly = max(_EVENLY, -(-size // self._draws.n_classes))
        per_class = min(self._per_class or evenly, -(-size // 2))  # a block of one class has no dissimilar pair
        points, sizes = self._draws.block(size, per_class, self._seed, shard, clock)
        return Block(points, tuple(sizes.tolist()))


def _doubled(first: int, below: int) -> list[int]:
    """``first``, twice as many, and so on, as far as they are fewer than ``below``."""
    return [first << i for i in range(below.bit_length()) if first << i < below]


class LabelTripletSampler:
    """Batches of triplets drawn from labels as they are needed."""

    settled = 0

    def __init__(self, draws: LabelDraws, batch_size: int, n_shards: int, seed: int) -> None:
        self.n_shards, self._size, self._seed, self._draws = n_shards, batch_size, seed, draws
        self.steps_per_epoch = -(-draws.n_points // batch_size)

    def batch(self, shard: int, clock: int) -> Batch:
        first = (clock * self.n_shards + shard) * self._size
        return compared(self._draws.triplets(self._size, self._seed, first))


class GroupPairSampler:
    """Batches of pairs drawn from overlapping groups as they are needed, half and half."""

    settled = 0

    def __init__(self, draws: GroupDraws, batch_size: int, n_shards: int, seed: int) -> None:
        self.n_shards, self._half, self._seed, self._draws = n_shards, max(1, batch_size // 2), seed, draws
        self.steps_per_epoch = -(-draws.n_points // batch_size)

    def batch(self, shard: int, clock: int) -> Batch:
        first = (clock * self.n_shards + shard) * self._half
        return Batch(
            self._draws.similar(self._half, self._seed, first), self._draws.dissimilar(self._half, self._seed, first)
        )


def compared(indices: Indices, weights: Weights | None = None) -> Batch:
    """Triplets or quadruplets as a batch."""
    view = Comparisons(indices) if len(indices) else None
    empty = np.empty((0, 2), np.int64)
    return Batch(view.near, view.far, weights) if view else Batch(empty, empty)


def _of_both_kinds(similar: _Chosen, dissimilar: _Chosen) -> Batch:
    if similar.weights is None and dissimilar.weights is None:
        return Batch(similar.indices, dissimilar.indices)
    weights = [
        np.ones(len(chosen.indices), np.float32) if chosen.weights is None else chosen.weights
        for chosen in (similar, dissimilar)
    ]
    return Batch(similar.indices, dissimilar.indices, np.concatenate(weights))
