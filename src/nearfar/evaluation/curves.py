"""Precision against recall, and hits against false alarms, thinned to as few points as a report can show."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.errors import InvalidSettings
from nearfar.objective.ranking import Curve, Distances, Ranking

Array = NDArray[Any]

MOST_POINTS = 500
"""Points of a thinned curve, by default."""

_HALVINGS = 24
"""Of the range in which the error of a thinned curve is looked for: to less than a millionth."""


@dataclass(frozen=True, eq=False)
class ThinnedCurve:
    """Some points of a curve, joined by straight lines. Both coordinates lie between 0 and 1."""

    x: Curve
    y: Curve
    thresholds: Distances
    error: float
    """Every point of the whole curve lies within this of the thinned one, in either coordinate."""

    def to_json(self, x_name: str, y_name: str) -> dict[str, Any]:
        """The points as lists; a threshold below all distances (−∞) is null."""
        thresholds = [each if np.isfinite(each) else None for each in self.thresholds.tolist()]
        return {x_name: self.x.tolist(), y_name: self.y.tolist(), "threshold": thresholds, "error": self.error}


@dataclass(frozen=True, eq=False)
class Curves:
    """The two curves of a distance on known pairs, thinned."""

    precision_recall: ThinnedCurve
    """Precision over recall."""
    roc: ThinnedCurve
    """The true positive rate over the false positive rate."""

    @classmethod
    def of(cls, ranking: Ranking, most: int = MOST_POINTS) -> "Curves":
        """The curves of ranked pairs, of at most so many points each."""
        precision, recall = ranking.precision_recall()
        false_positives, true_positives = ranking.roc()
        from_start = np.concatenate((np.full(1, -np.inf, ranking.distances.dtype), ranking.distances))
        return cls(
            thinned(recall, precision, ranking.distances, most),
            thinned(false_positives, true_positives, from_start, most),
        )

    def to_json(self) -> dict[str, Any]:
        """The curves as JSON values."""
        return {
            "precision_recall": self.precision_recall.to_json("recall", "precision"),
            "roc": self.roc.to_json("false_positive_rate", "true_positive_rate"),
        }


def thinned(x: Curve, y: Curve, thresholds: Distances, most: int = MOST_POINTS) -> ThinnedCurve:
    """Some points of a curve, the first and the last among them, so chosen that the error is about the least.

    Parameters
    ----------
    x, y, thresholds : arrays of shape (n,)
        The points of the curve in their order, both coordinates between 0 and 1.
    most : int
        How many points to keep at the most, 2 or more.
    """
    if most < 2:
        raise InvalidSettings(f"a curve of {most} points was asked for; expected 2 or more")
    kept = np.empty(len(x), np.int64)
    length = np.append(0.0, np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y))))
    low, high = 0.0, 1.0
    if _keep(x, y, length, low, kept) <= most:
        high = low
    for _ in range(_HALVINGS if high else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if _keep(x, y, length, middle, kept) <= most else (middle, high)
    chosen = kept[: _keep(x, y, length, high, kept)]
    return ThinnedCurve(x[chosen], y[chosen], thresholds[chosen], high)


@compiled(error_model="numpy")
def _keep(x: Array, y: Array, length: Array, error: float, kept: Array) -> int:
    """Choose points so that straight lines between them, by the length of the curve, are nowhere off by more.

    From a point that is kept, each later one leaves a range of slopes that pass it by within the error; the
    last one that lies in the ranges of all before it is kept next. How many are kept is returned.
    """
    kept[0] = 0
    count, last = 1, 0
    low_x = low_y = -np.inf
    high_x = high_y = np.inf
    for i in range(1, len(x)):
        far = length[i] - length[last]
        if far == 0:
            continue
        slope_x, slope_y = (x[i] - x[last]) / far, (y[i] - y[last]) / far
        if not (low_x <= slope_x <= high_x and low_y <= slope_y <= high_y):
            last = i - 1
            kept[count] = last
            count += 1
            far = length[i] - length[last]
            slope_x, slope_y = (x[i] - x[last]) / far, (y[i] - y[last]) / far
            low_x = low_y = -np.inf
            high_x = high_y = np.inf
        slack = error / far
        low_x, high_x = max(low_x, slope_x - slack), min(high_x, slope_x + slack)
        low_y, high_y = max(low_y, slope_y - slack), min(high_y, slope_y + slack)
    if last < len(x) - 1:
        kept[count] = len(x) - 1
        count += 1
    return count
