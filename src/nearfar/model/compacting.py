"""Compacting: the fewest directions of a learned L that do its work."""

import numpy as np

from nearfar.data.points import Floats, Points
from nearfar.data.sampling import Batch
from nearfar.objective.fast_gradient import project
from nearfar.objective.judging import Judge

_WORSE_BY = 0.01
"""The share by which the held-out objective may grow."""


def compacted(Lt: Floats, points: Points, sample: Batch, judge: Judge) -> Floats:
    """Lᵀ with as few columns as the held-out objective can do with, to within one per cent.

    L is turned first, which changes no distance, so that its rows are the directions in which the sampled pairs differ
    most, in falling order; then rows are dropped from the end.

    Parameters
    ----------
    Lt : array (d, k)
    points : Points
    sample : Batch
        Pairs whose differences tell how much a direction counts.
    judge : Judge
    """
    pairs = np.concatenate((sample.near, sample.far))
    distinct, places = np.unique(pairs, return_inverse=True)
    Z = project(Lt, points, distinct)
    first, second = places.reshape(pairs.shape).T
    differences = Z[first] - Z[second]
    _, directions = np.linalg.eigh((differences.T @ differences).astype(np.float64))
    turned: Floats = Lt @ directions[:, ::-1].astype(np.float32)
    enough = judge(turned).objective
    enough += _WORSE_BY * abs(enough)
    low, high = 1, turned.shape[1]  # enough are high, and no fewer than low
    while low < high:
        middle = (low + high) // 2
        if judge(np.ascontiguousarray(turned[:, :middle])).objective <= enough:
            high = middle
        else:
            low = middle + 1
    return np.ascontiguousarray(turned[:, :high])
