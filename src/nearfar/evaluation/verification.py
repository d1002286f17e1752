"""Are these two alike? Judges a metric on pairs whose answer is known."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.constraints import Pairs
from nearfar.errors import InvalidConstraints
from nearfar.model.distance import Distance
from nearfar.objective.ranking import Distances, average_precision, best_threshold, cumulative_counts, roc_auc

Curve = NDArray[np.float64]


@dataclass(frozen=True)
class Verification:
    """How well a distance tells similar pairs from dissimilar ones."""

    average_precision: float
    """Area under the precision–recall curve; similar is the class to be found."""
    roc_auc: float
    """The chance that a similar pair is nearer than a dissimilar one."""
    accuracy: float
    """Balanced: the mean of the shares of similar and of dissimilar pairs that the threshold has right."""
    threshold: float
    """The metric's own, or, if it has none, the one that is best on these very pairs."""
    equal_error_rate: float
    """Share of errors at the threshold where both kinds are equally frequent."""
    n_similar: int
    n_dissimilar: int
    precision_at_recall: dict[str, float]
    """The precision–recall curve at recall 0.1, 0.2, … 1.0."""


def judge_pairs(metric: Distance, points: Any, pairs: Pairs) -> Verification:
    """Judge a metric on similar and dissimilar pairs.

    Parameters
    ----------
    metric : Metric or Euclidean
    points : points of shape (n, d)
    pairs : Pairs
        At least one similar and one dissimilar pair, of points that the metric has not seen in training.
    """
    near = metric.pair_distances(points, pairs.similar)
    far = metric.pair_distances(points, pairs.dissimilar)
    threshold = best_threshold(near, far) if metric.threshold is None else metric.threshold
    cut = np.float64(threshold)  # a plain float would be rounded to float32 before it is compared
    return Verification(
        average_precision=average_precision(near, far),
        roc_auc=roc_auc(near, far),
        accuracy=float((np.mean(near <= cut) + np.mean(far > cut)) / 2),
        threshold=threshold,
        equal_error_rate=_equal_error_rate(near, far),
        n_similar=len(near),
        n_dissimilar=len(far),
        precision_at_recall=_precision_at_recall(near, far),
    )


def precision_recall(near: Distances, far: Distances) -> tuple[Curve, Curve, Distances]:
    """Precision and recall of "similar if at or below the threshold", for each distance that occurs.

    Returns
    -------
    (precision, recall, thresholds)
        Arrays of one length. Recall ascends to 1.
    """
    thresholds, nears, fars = _counts(near, far)
    return nears / (nears + fars), nears / len(near), thresholds


def roc(near: Distances, far: Distances) -> tuple[Curve, Curve, Distances]:
    """The shares of dissimilar and of similar pairs at or below a threshold, for each distance that occurs.

    Returns
    -------
    (false_positive_rate, true_positive_rate, thresholds)
        Arrays of one length. Both rates ascend from 0, at threshold −∞, to 1.
    """
    thresholds, nears, fars = _counts(near, far)
    start = np.zeros(1)
    return (
        np.concatenate((start, fars / len(far))),
        np.concatenate((start, nears / len(near))),
        np.concatenate((np.full(1, -np.inf, thresholds.dtype), thresholds)),
    )


def _precision_at_recall(near: Distances, far: Distances) -> dict[str, float]:
    precision, recall, _ = precision_recall(near, far)
    places = np.searchsorted(recall, np.arange(1, 11) / 10 - 1e-12)
    return {f"{(i + 1) / 10:.1f}": float(precision[place]) for i, place in enumerate(places)}


def _equal_error_rate(near: Distances, far: Distances) -> float:
    """Where the line through two successive points of the ROC curve has as many misses as false alarms."""
    false_alarms, hits, _ = roc(near, far)
    excess = false_alarms - (1.0 - hits)  # ascends from -1 to 1
    after = int(np.searchsorted(excess, 0.0))
    share = -excess[after - 1] / (excess[after] - excess[after - 1])
    return float(false_alarms[after - 1] + share * (false_alarms[after] - false_alarms[after - 1]))


def _counts(near: Distances, far: Distances) -> tuple[Distances, NDArray[np.int64], NDArray[np.int64]]:
    for kind, distances in (("similar", near), ("dissimilar", far)):
        if not len(distances):
            raise InvalidConstraints(
                f"there are no {kind} pairs; judging takes at least one similar and one dissimilar pair"
            )
    return cumulative_counts(near, far)
