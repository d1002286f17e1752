"""How well distances rank similar pairs before dissimilar ones.

All figures come from one table: how many similar and how many dissimilar pairs lie at or below each distance
that occurs. One sort makes it.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidConstraints, InvalidInput

Distances = NDArray[np.floating[Any]]
Counts = NDArray[np.int64]


def average_precision(near: Distances, far: Distances) -> float:
    """The area under the precision–recall curve of "similar, since the distance is small".

    Equal to scikit-learn's ``average_precision_score`` with the negated distance as the score, ties included.

    Parameters
    ----------
    near, far : arrays of shape (n,) and (m,)
        Distances, or squared distances, of the similar and of the dissimilar pairs.

    Returns
    -------
    float
        Between 0 and 1; NaN if there are no similar or no dissimilar pairs, or if a distance is NaN.
    """
    counts = _sound_counts(near, far)
    if counts is None:
        return math.nan
    nears, fars = counts
    return float(np.diff(nears, prepend=0) @ (nears / (nears + fars))) / len(near)


def roc_auc(near: Distances, far: Distances) -> float:
    """The chance that a similar pair is nearer than a dissimilar one; a tie counts one half.

    Equal to scikit-learn's ``roc_auc_score`` with the negated distance as the score.

    Parameters
    ----------
    near, far : arrays of shape (n,) and (m,)
        Distances, or squared distances, of the similar and of the dissimilar pairs.

    Returns
    -------
    float
        Between 0 and 1; NaN if there are no similar or no dissimilar pairs, or if a distance is NaN.
    """
    counts = _sound_counts(near, far)
    if counts is None:
        return math.nan
    nears, fars = counts
    won_or_half_won = nears - 0.5 * np.diff(nears, prepend=0)
    return float(np.diff(fars, prepend=0) @ won_or_half_won) / (len(near) * len(far))


def best_threshold(near: Distances, far: Distances) -> float:
    """The threshold with the best balanced accuracy; a pair at or below it counts as similar.

    It lies midway between two distances that occur; of several equally good ones the smallest is taken.
    """
    for kind, distances in (("similar", near), ("dissimilar", far)):
        if not len(distances):
            raise InvalidConstraints(f"there are no {kind} pairs; a threshold takes at least one pair of either kind")
    thresholds, nears, fars = cumulative_counts(near, far)
    return midway(thresholds, int(np.argmax(nears / len(near) - fars / len(far))))


def midway(distances: Distances, last: int) -> float:
    """A threshold between the distance at ``last`` and the next; these are ascending, each different."""
    low = float(distances[last])
    if last + 1 == len(distances):
        return low
    high = float(distances[last + 1])
    middle = low + (high - low) / 2
    return middle if middle < high else low


def cumulative_counts(near: Distances, far: Distances) -> tuple[Distances, Counts, Counts]:
    """The distances that occur, ascending, and how many similar and dissimilar pairs lie at or below each.

    A NaN counts as farther than everything else. A negative distance is an error: it must be a score.
    """
    values = np.concatenate((near, far))
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    if not len(values):
        return values, np.empty(0, np.int64), np.empty(0, np.int64)
    if values.min() < 0:
        raise InvalidInput(f"a distance is {values.min()}; expected none below 0: negate scores of similarity first")
    keys = _keys(values)
    keys[len(near) :] |= np.uint64(1)
    keys.sort()
    last_of_ties = np.append(np.flatnonzero(np.diff(keys >> np.uint64(1))), len(keys) - 1)
    fars = np.cumsum(keys & np.uint64(1), dtype=np.int64)[last_of_ties]
    return _values(keys[last_of_ties], values.dtype), last_of_ties + 1 - fars, fars


def _sound_counts(near: Distances, far: Distances) -> tuple[Counts, Counts] | None:
    """What :func:`cumulative_counts` counts; None where a figure of them has no meaning: a kind is absent, or NaN."""
    if not len(near) or not len(far):
        return None
    distances, nears, fars = cumulative_counts(near, far)
    return None if np.isnan(distances[-1]) else (nears, fars)


# The bits of a float that is not negative, read as a whole number, sort as the float does. Shifted by one
# they leave room for the kind of pair: sorting such keys takes a third of the time of an argsort.
def _keys(values: Distances) -> NDArray[np.uint64]:
    bits = np.abs(values).view(f"u{values.itemsize}")  # abs: for -0.0
    return bits.astype(np.uint64) << np.uint64(1)


def _values(keys: NDArray[np.uint64], dtype: np.dtype[Any]) -> Distances:
    return (keys >> np.uint64(1)).astype(f"u{dtype.itemsize}").view(dtype)
