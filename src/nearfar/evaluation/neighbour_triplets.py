"""Triplets among neighbours: what a metric for nearest neighbours is to learn from.

A triplet of points drawn evenly says little about nearest neighbours: its far point is far already, and its near point
need never become near. Here the near point is among an anchor's nearest of its own class, and the far point among its
nearest of all other classes, both by plain distance: the pairs that decide which neighbours come first.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.data.constraints import Comparisons, Labels
from nearfar.data.points import Points, as_points
from nearfar.errors import InvalidSettings
from nearfar.evaluation.retrieval import neighbours
from nearfar.model.euclidean import Euclidean

_ANCHORS = 10_000
"""Anchors at the most: each is compared with all points."""


def draw_neighbour_triplets(
    points: Any, labels: ArrayLike | Labels, count: int, *, near: int = 3, far: int = 10, seed: int = 0
) -> Comparisons:
    """Draw triplets (anchor, near, far) among neighbours, with replacement.

    Parameters
    ----------
    points : array, memory map or sparse matrix of shape (n, d), or Points
    labels : array of shape (n,)
    count : int
        Triplets to draw.
    near, far : int
        How many nearest points of the anchor's class, and of the others, to draw from.
    seed : int
    """
    for name, number in (("count", count), ("near", near), ("far", far)):
        if number < 1:
            raise InvalidSettings(f"{name} is {number}; expected 1 or more")
    known, X = labels if isinstance(labels, Labels) else Labels(labels), as_points(points)
    known.check(len(X))
    rng = np.random.default_rng([seed, 6])
    sizes = np.bincount(known.codes)
    usable = np.flatnonzero(sizes[known.codes] > 1)
    anchors = np.sort(rng.choice(usable, min(_ANCHORS, count, len(usable)), replace=False))
    drawn = np.empty((count, 3), np.int64)
    drawn[:, 0] = anchors[np.arange(count) * len(anchors) // count]
    for code in np.unique(known.codes[anchors]):
        of_class = known.codes == code
        own, others = np.flatnonzero(of_class), np.flatnonzero(~of_class)
        asked = anchors[of_class[anchors]]
        nearest = _nearest_others(X, asked, own, near)
        impostors = _nearest(X, asked, others, min(far, len(others)))
        mine = np.flatnonzero(of_class[drawn[:, 0]])
        place = np.searchsorted(asked, drawn[mine, 0])
        drawn[mine, 1] = nearest[place, rng.integers(nearest.shape[1], size=len(mine))]
        drawn[mine, 2] = impostors[place, rng.integers(impostors.shape[1], size=len(mine))]
    return Comparisons(drawn)


def _nearest(X: Points, asked: NDArray[np.int64], among: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    return among[neighbours(Euclidean(), X.chosen(asked), X.chosen(among), k)[0]]


def _nearest_others(X: Points, asked: NDArray[np.int64], own: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The nearest points of the anchor's class but the anchor itself."""
    found = _nearest(X, asked, own, min(k, len(own) - 1) + 1)
    selves = found == asked[:, None]
    selves[~selves.any(axis=1), -1] = True  # points equal to the anchor came before it: drop the last in its place
    others: NDArray[np.int64] = found[~selves].reshape(len(asked), -1)
    return others
