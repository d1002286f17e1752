"""How well distances rank similar pairs before dissimilar ones.

All figures come from one table: how many similar and how many dissimilar pairs lie at or below each distance
that occurs. One sort makes it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidConstraints, InvalidInput

Distances = NDArray[np.floating[Any]]
Counts = NDArray[np.int64]
Curve = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranking:
    """Similar and dissimilar pairs in the order of their distances: arrays of one length."""

    distances: Distances
    """The distances that occur, ascending."""
    nears: Counts
    """How many similar pairs lie at or below each."""
    fars: Counts
    """How many dissimilar pairs lie at or below each."""

    @classmethod
    def of(cls, near: Distances, far: Distances) -> "Ranking":
        """Rank the distances, or squared distances, of at least one similar and one dissimilar pair."""
        for kind, distances in (("similar", near), ("dissimilar", far)):
            if not len(distances):
                raise InvalidConstraints(
                    f"there are no {kind} pairs; judging takes at least one similar and one dissimilar pair"
                )
        ranking = cls(*cumulative_counts(near, far))
        if np.isnan(ranking.distances[-1]):
            raise InvalidInput("a distance is NaN; expected numbers: leave such pairs out")
        return ranking

    @property
    def n_near(self) -> int:
        """How many similar pairs there are."""
        return int(self.nears[-1])

    @property
    def n_far(self) -> int:
        """How many dissimilar pairs there are."""
        return int(self.fars[-1])

    def precision_recall(self) -> tuple[Curve, Curve]:
        """Precision and recall of "similar if at or below the threshold", for each distance; recall ascends to 1."""
        return self.nears / (self.nears + self.fars), self.nears / self.n_near

    def roc(self) -> tuple[Curve, Curve]:
        """The shares of dissimilar and of similar pairs below all distances, and at or below each of them."""
        return np.append(0, self.fars) / self.n_far, np.append(0, self.nears) / self.n_near

    def average_precision(self) -> float:
        """See :func:`average_precision`."""
        return float(np.diff(self.nears, prepend=0) @ self.precision_recall()[0]) / self.n_near

    def roc_auc(self) -> float:
        """See :func:`roc_auc`."""
        won_or_half_won = self.nears - 0.5 * np.diff(self.nears, prepend=0)
        return float(np.diff(self.fars, prepend=0) @ won_or_half_won) / (self.n_near * self.n_far)

    def equal_error_rate(self) -> float:
        """The share of errors where the line through two successive points of the ROC curve has as many of both."""
        false_alarms, hits = self.roc()
        excess = false_alarms + hits - 1.0  # ascends from -1 to 1
        after = int(np.searchsorted(excess, 0.0))
        share = -excess[after - 1] / (excess[after] - excess[after - 1])
        return float(false_alarms[after - 1] + share * (false_alarms[after] - false_alarms[after - 1]))

    def rates_at(self, threshold: float) -> tuple[float, float]:
        """The shares of similar and of dissimilar pairs at or below a threshold."""
        below = int(np.searchsorted(self.distances, np.float64(threshold), side="right"))
        if not below:
            return 0.0, 0.0
        return float(self.nears[below - 1] / self.n_near), float(self.fars[below - 1] / self.n_far)

    def best_threshold(self) -> float:
        """See :func:`best_threshold`."""
        return midway(self.distances, int(np.argmax(self.nears / self.n_near - self.fars / self.n_far)))


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
    ranking = _ranking_if_defined(near, far)
    return math.nan if ranking is None else ranking.average_precision()


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
    ranking = _ranking_if_defined(near, far)
    return math.nan if ranking is None else ranking.roc_auc()


def best_threshold(near: Distances, far: Distances) -> float:
    """The threshold with the best balanced accuracy; a pair at or below it counts as similar.

    It lies midway between two distances that occur; of several equally good ones the smallest is taken.
    """
    for kind, distances in (("similar", near), ("dissimilar", far)):
        if not len(distances):
            raise InvalidConstraints(f"there are no {kind} pairs; a threshold takes at least one pair of either kind")
    return Ranking(*cumulative_counts(near, far)).best_threshold()


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
    lowest = np.fmin.reduce(values)  # passes over NaN
    if lowest < 0:
        raise InvalidInput(f"a distance is {lowest}; expected none below 0: negate scores of similarity first")
    keys = _keys(values)
    keys[len(near) :] |= np.uint64(1)
    keys.sort()
    last_of_ties = np.append(np.flatnonzero(np.diff(keys >> np.uint64(1))), len(keys) - 1)
    fars = np.cumsum(keys & np.uint64(1), dtype=np.int64)[last_of_ties]
    return _values(keys[last_of_ties], values.dtype), last_of_ties + 1 - fars, fars


def _ranking_if_defined(near: Distances, far: Distances) -> Ranking | None:
    if not len(near) or not len(far):
        return None
    ranking = Ranking(*cumulative_counts(near, far))
    return None if np.isnan(ranking.distances[-1]) else ranking


# The bits of a float that is not negative, read as a whole number, sort as the float does. Shifted by one
# they leave room for the kind of pair: sorting such keys takes a third of the time of an argsort.
def _keys(values: Distances) -> NDArray[np.uint64]:
    bits = np.abs(values).view(f"u{values.itemsize}")  # abs: for -0.0
    return bits.astype(np.uint64) << np.uint64(1)


def _values(keys: NDArray[np.uint64], dtype: np.dtype[Any]) -> Distances:
    return (keys >> np.uint64(1)).astype(f"u{dtype.itemsize}").view(dtype)
