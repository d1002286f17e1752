"""The held-out sample: constraints that judge progress and are never trained on.

Where labels allow it, its points are apart from those of all training constraints: some points are set aside, training
passes over every constraint that touches one of them, and the sample is drawn among them. Without labels, some
constraints are set aside, whose points may stand in others.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.constraints import Labels
from nearfar.data.from_labels import LabelDraws
from nearfar.data.sampling import Batch, Block, compared

_FEWEST_SIMILAR = 100
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


def split_points(labels: Labels, most: int, seed: int) -> Split | None:
    """Set points aside, at most ``most`` and one in ten, enough of a class to form pairs; None where that fails."""
    n = len(labels)
    wanted = min(most, n // _SHARE)
    order = np.random.default_rng([seed, 1]).permutation(n)
    for chosen in (order, _class_by_class(labels, order, 0.5), _class_by_class(labels, order, 1.0)):
        split = Split(np.sort(chosen[wanted:]), np.sort(chosen[:wanted]))
        if _teaches(labels, split.aside, min(_FEWEST_SIMILAR, wanted)) and _teaches(labels, split.training, 1):
            return split
    return None


def draw_held_out(labels: Labels, among: NDArray[np.integer[Any]], seed: int) -> HeldOut:
    """Constraints among these points, about as many of each kind as there are points."""
    draws = LabelDraws(labels, among)
    count = max(100, len(among))
    size = min(1000, draws.n_blockable)
    block, sizes = draws.block(size, max(2, -(-size // draws.n_classes)), seed, 0, 0)
    return HeldOut(
        Batch(draws.similar(count, seed), draws.dissimilar(count, seed)),
        compared(draws.triplets(count, seed)),
        Block(block, tuple(sizes.tolist())),
    )


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


def _teaches(labels: Labels, points: NDArray[np.integer[Any]], fewest: int) -> bool:
    if len(points) < 2:
        return False
    draws = LabelDraws(labels, points)
    return draws.n_similar >= fewest and draws.n_dissimilar >= fewest
