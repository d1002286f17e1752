"""The held-out sample: constraints that judge progress and are never trained on.

Where labels allow it, its points are apart from those of all training constraints: some points are set aside, training
passes over every constraint that touches one of them, and the sample is drawn among them. Without labels, some
constraints are set aside, whose points may stand in others, unless they are asked to be apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.apart import points_apart, within
from nearfar.data.constraints import Comparisons, Groups, Indices, Labels, Pairs
from nearfar.data.from_labels import GroupDraws, LabelDraws, pairs_of_sizes
from nearfar.data.sampling import Batch, Block, compared
from nearfar.errors import InvalidConstraints

_FEWEST_SIMILAR = 100
_FEWEST_APART = 10
_BLOCK_ROWS = 1 << 20
_SHARE = 10
"""At most one point (or constraint) in this many is held out."""


@dataclass(frozen=True)
class HeldOut:
    """Held-out constraints: pairs for the objective and the average precision, a block for losses on blocks."""

    pairs: Batch
    triplets: Batch
    block: Block

    @classmethod
    def of_pairs(cls, batch: Batch) -> "HeldOut":
        """Held-out pairs or comparisons, without labels to draw more from."""
        return cls(batch, batch, Block(np.empty(0, np.int64), ()))


@dataclass(frozen=True)
class Split:
    """Which points train, and which are set aside."""

    training: NDArray[np.integer[Any]]
    aside: NDArray[np.integer[Any]]

    def excluded(self, n_points: int) -> NDArray[np.bool_]:
        """A mask of the points set aside."""
        mask = np.zeros(n_points, np.bool_)
        mask[self.aside] = True
        return mask


def split_points(known: Labels | Groups, most: int, seed: int) -> Split | None:
    """Set points aside, at most ``most`` and one in ten, enough of a class to form pairs; None where that fails."""
    n = len(known)
    wanted = min(most, n // _SHARE)
    for chosen in _orders(known, np.random.default_rng([seed, 1]).permutation(n)):
        split = Split(np.sort(chosen[wanted:]), np.sort(chosen[:wanted]))
        if _teaches(known, split.aside, min(_FEWEST_SIMILAR, wanted)) and _teaches(known, split.training, 1):
            return split
    return None


def split_apart(constraints: Pairs | Comparisons, n_points: int, most: int, seed: int) -> tuple[Split, HeldOut]:
    """Set points aside, and hold out the constraints among them: at most ``most`` of a kind, and about one in ten."""
    kinds = [constraints.similar, constraints.dissimilar] if isinstance(constraints, Pairs) else [constraints.indices]
    fewest = min(len(indices) for indices in kinds)
    aside = points_apart(kinds, n_points, min(1 / _SHARE, most / max(1, fewest)), seed)
    found = [_some_within(indices, aside, most) for indices in kinds]
    if min(len(indices) for indices in found) < _FEWEST_APART:
        counts = " and ".join(str(len(indices)) for indices in found)
        raise InvalidConstraints(
            f"held_out_apart leaves {counts} held-out constraints, since most join points of both sides; "
            "give more constraints, or leave it out"
        )
    batch = Batch(found[0], found[1]) if isinstance(constraints, Pairs) else compared(found[0])
    return Split(np.flatnonzero(~aside), np.flatnonzero(aside)), HeldOut.of_pairs(batch)


def draw_held_out(known: Labels | Groups, among: NDArray[np.integer[Any]], seed: int) -> HeldOut:
    """Constraints among these points, about as many of each kind as there are points."""
    count = max(100, len(among))
    if isinstance(known, Groups):
        pairs = GroupDraws(known, among)
        return HeldOut.of_pairs(Batch(pairs.similar(count, seed), pairs.dissimilar(count, seed)))
    draws = LabelDraws(known, among)
    size = min(1000, draws.n_blockable)
    block, sizes = draws.block(size, max(2, -(-size // draws.n_classes)), seed, 0, 0)
    return HeldOut(
        Batch(draws.similar(count, seed), draws.dissimilar(count, seed)),
        compared(draws.triplets(count, seed)),
        Block(block, tuple(sizes.tolist())),
    )


def _orders(known: Labels | Groups, order: NDArray[np.integer[Any]]) -> Iterator[NDArray[np.integer[Any]]]:
    """Orders to set points aside in, the plainest first; the next is made only where the one before did not do."""
    yield order
    if isinstance(known, Labels):
        for share in (0.5, 1.0):
            yield _class_by_class(known, order, share)


def _class_by_class(labels: Labels, order: NDArray[np.integer[Any]], share: float) -> NDArray[np.integer[Any]]:
    """The same points, a share of each class together and classes in random order, the rest of every class last."""
    codes = labels.codes[order]
    by_class = order[np.argsort(codes, kind="stable")]
    sizes = np.bincount(codes)
    rank_in_class = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    late = rank_in_class >= np.ceil(share * np.repeat(sizes, sizes))
    turn = np.empty(len(sizes), np.int64)
    _, first_seen = np.unique(codes, return_index=True)
    turn[np.argsort(first_seen)] = np.arange(len(sizes))
    return by_class[np.lexsort((np.repeat(turn, sizes), late))]


def _teaches(known: Labels | Groups, points: NDArray[np.integer[Any]], fewest: int) -> bool:
    if len(points) < 2:
        return False
    if isinstance(known, Groups):
        pairs = GroupDraws(known, points)
        return pairs.n_similar >= fewest and pairs.has_dissimilar
    n_similar, n_dissimilar = pairs_of_sizes(np.bincount(known.codes[points]))
    return min(n_similar, n_dissimilar) >= fewest


def _some_within(indices: Indices, points: NDArray[np.bool_], most: int) -> Indices:
    """At most so many of the constraints that lie among these points, found block by block."""
    found, count = [np.asarray(indices[:0])], 0
    for start in range(0, len(indices), _BLOCK_ROWS):
        block = np.asarray(indices[start : start + _BLOCK_ROWS])
        found.append(block[within(block, points)][: most - count])
        count += len(found[-1])
        if count == most:
            break
    return np.concatenate(found)
