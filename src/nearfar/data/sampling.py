"""Batches: a pure function of (seed, shard, clock), so there is no state to save, to move or to lose.

Constraints are split into shards, more than workers, so that they can move: shard s of n owns the constraints s, s + n,
s + 2n, … of a fixed permutation of all. Each pass over a shard is a new permutation of what it owns.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.data import draw
from nearfar.data.constraints import Comparisons, Pairs
from nearfar.data.from_labels import LabelDraws
from nearfar.errors import InvalidConstraints

Indices = NDArray[np.integer[Any]]

_EVENLY = 8
"""Points of one class in a block where there are many classes."""


@dataclass(frozen=True)
class Batch:
    """Pairs that are to be near and pairs that are to be far, each (n, 2) indices of points.

    For comparisons the two go together row by row; for similar and dissimilar pairs they are separate sets.
    """

    near: Indices
    far: Indices

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

    def batch(self, shard: int, clock: int) -> Batch | Block:
        """The batch number ``clock`` of a shard."""


class _Rows:
    """The rows of a constraint array that train, in shards; the last ones of a fixed permutation may be held out."""

    def __init__(self, constraints: Indices, n_held_out: int, n_shards: int, seed: int) -> None:
        self._constraints, self._n_shards, self._seed = constraints, n_shards, seed
        self.size = len(constraints) - n_held_out
        self._key = draw.stream_key(seed, len(constraints), 1)

    def held_out(self) -> Indices:
        rows = np.arange(self.size, len(self._constraints))
        draw.permuted_rows(rows, len(self._constraints), self._key)
        return np.asarray(self._constraints[rows])

    def batch(self, shard: int, clock: int, size: int) -> Indices:
        rows = np.empty(size, np.int64)
        draw.shard_rows(self.size, self._n_shards, shard, clock * size, self._seed, rows)
        if self.size < len(self._constraints):
            draw.permuted_rows(rows, len(self._constraints), self._key)
        return np.asarray(self._constraints[rows])


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

    def __init__(self, pairs: Pairs, plan: SamplingPlan) -> None:
        fewest = min(len(pairs.similar), len(pairs.dissimilar)) - plan.n_held_out
        self.n_shards = max(1, min(plan.n_shards, fewest))
        self._half = max(1, plan.batch_size // 2)
        self._excluded = plan.excluded
        self._similar = _Rows(pairs.similar, plan.n_held_out, self.n_shards, plan.seed)
        self._dissimilar = _Rows(pairs.dissimilar, plan.n_held_out, self.n_shards, plan.seed + 1)
        self.steps_per_epoch = -(-max(self._similar.size, self._dissimilar.size) // self._half)

    def batch(self, shard: int, clock: int) -> Batch:
        return Batch(
            _without(self._similar.batch(shard, clock, self._half), self._excluded),
            _without(self._dissimilar.batch(shard, clock, self._half), self._excluded),
        )

    def held_out(self) -> Batch:
        """The pairs kept out of all batches."""
        return Batch(self._similar.held_out(), self._dissimilar.held_out())


class ComparisonSampler:
    """Batches of triplets or quadruplets."""

    def __init__(self, comparisons: Comparisons, plan: SamplingPlan) -> None:
        self.n_shards = max(1, min(plan.n_shards, len(comparisons) - plan.n_held_out))
        self._size, self._excluded = plan.batch_size, plan.excluded
        self._rows = _Rows(comparisons.indices, plan.n_held_out, self.n_shards, plan.seed)
        self.steps_per_epoch = -(-self._rows.size // self._size)

    def batch(self, shard: int, clock: int) -> Batch:
        return compared(_without(self._rows.batch(shard, clock, self._size), self._excluded))

    def held_out(self) -> Batch:
        """The comparisons kept out of all batches."""
        return compared(self._rows.held_out())


class BlockSampler:
    """Blocks of labelled points."""

    def __init__(self, draws: LabelDraws, block_size: int, per_class: int | None, n_shards: int, seed: int) -> None:
        if draws.n_blockable_classes < 2:
            raise InvalidConstraints(
                "only one class has two points or more, so blocks have no dissimilar pair; learn from drawn pairs"
            )
        self.n_shards, self._seed, self._draws = n_shards, seed, draws
        self._size = min(block_size, draws.n_blockable)
        evenly = max(_EVENLY, -(-self._size // draws.n_classes))
        self._per_class = min(per_class or evenly, -(-self._size // 2))  # a block of one class has no dissimilar pair
        self.steps_per_epoch = -(-draws.n_points // self._size)

    def batch(self, shard: int, clock: int) -> Block:
        points, sizes = self._draws.block(self._size, self._per_class, self._seed, shard, clock)
        return Block(points, tuple(sizes.tolist()))


class LabelTripletSampler:
    """Batches of triplets drawn from labels as they are needed."""

    def __init__(self, draws: LabelDraws, batch_size: int, n_shards: int, seed: int) -> None:
        self.n_shards, self._size, self._seed, self._draws = n_shards, batch_size, seed, draws
        self.steps_per_epoch = -(-draws.n_points // batch_size)

    def batch(self, shard: int, clock: int) -> Batch:
        first = (clock * self.n_shards + shard) * self._size
        return compared(self._draws.triplets(self._size, self._seed, first))


def compared(indices: Indices) -> Batch:
    """Triplets or quadruplets as a batch."""
    view = Comparisons(indices) if len(indices) else None
    empty = np.empty((0, 2), np.int64)
    return Batch(view.near, view.far) if view else Batch(empty, empty)


def _without(constraints: Indices, excluded: NDArray[np.bool_] | None) -> Indices:
    return constraints if excluded is None else constraints[~excluded[constraints].any(axis=1)]
