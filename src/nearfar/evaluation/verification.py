"""Are these two alike? Judges a metric on pairs whose answer is known."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nearfar.data.constraints import Pairs
from nearfar.errors import InvalidSettings
from nearfar.evaluation.bootstrap import Interval, Resampling, balanced_accuracy_interval, ranking_intervals
from nearfar.model.distance import Distance, too_far
from nearfar.objective.ranking import Curve, Distances, Ranking


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
    """Pairs at this distance or nearer count as similar."""
    threshold_from: str
    """Where it comes from: ``"metric"``, ``"given"``, or ``"judged pairs"``, on which it is the best there is."""
    equal_error_rate: float
    """Share of errors at the threshold where both kinds are equally frequent."""
    n_similar: int
    n_dissimilar: int
    precision_at_recall: dict[str, float]
    """The precision–recall curve at recall 0.1, 0.2, … 1.0."""
    resamples: int = 0
    intervals: dict[str, Interval] = field(default_factory=dict)
    """Of ``average_precision``, ``roc_auc``, ``equal_error_rate`` and ``accuracy``, when pairs are drawn anew."""


def judge_pairs(
    metric: Distance,
    points: Any,
    pairs: Pairs,
    *,
    threshold: float | None = None,
    resampling: Resampling | None = None,
) -> Verification:
    """Judge a metric on similar and dissimilar pairs.

    Parameters
    ----------
    metric : Metric or Euclidean
    points : points of shape (n, d)
    pairs : Pairs
        At least one similar and one dissimilar pair, of points that the metric has not seen in training.
    threshold : float, optional
        What the accuracy is judged at. By default the metric's own; if it has none, the best on these very pairs.
    resampling : Resampling, optional
        How confidence intervals are made; by default from 1,000 resamples of the pairs.
    """
    judged = judge_ranking(
        rank_pairs(metric, points, pairs), metric.threshold if threshold is None else threshold, resampling
    )
    own = threshold is None and metric.threshold is not None
    return replace(judged, threshold_from="metric") if own else judged


def judge_distances(
    near: Distances, far: Distances, *, threshold: float | None = None, resampling: Resampling | None = None
) -> Verification:
    """Judge distances of similar and of dissimilar pairs, wherever they come from; see :func:`judge_pairs`.

    Parameters
    ----------
    near, far : arrays of shape (n,) and (m,)
        Distances of the similar and of the dissimilar pairs, at least one of each.
    threshold : float, optional
    resampling : Resampling, optional
    """
    return judge_ranking(Ranking.of(near, far), threshold, resampling)


def rank_pairs(metric: Distance, points: Any, pairs: Pairs) -> Ranking:
    """The pairs in the order of their distances: what all figures and curves are made from."""
    ranking = Ranking.of(metric.pair_distances(points, pairs.similar), metric.pair_distances(points, pairs.dissimilar))
    if not np.isfinite(ranking.distances[-1]):
        raise too_far()
    return ranking


def judge_ranking(ranking: Ranking, threshold: float | None, resampling: Resampling | None = None) -> Verification:
    """The figures of ranked pairs; without a threshold, the accuracy is that of the best on these pairs."""
    resampling = resampling or Resampling()
    cut = ranking.best_threshold() if threshold is None else threshold
    if np.isnan(cut):
        raise InvalidSettings("threshold is NaN; expected a distance")
    hits, false_alarms = ranking.rates_at(cut)
    intervals = ranking_intervals(ranking, resampling)
    accuracy = balanced_accuracy_interval(hits, false_alarms, ranking, resampling)
    return Verification(
        average_precision=ranking.average_precision(),
        roc_auc=ranking.roc_auc(),
        accuracy=(hits + 1 - false_alarms) / 2,
        threshold=cut,
        threshold_from="judged pairs" if threshold is None else "given",
        equal_error_rate=ranking.equal_error_rate(),
        n_similar=ranking.n_near,
        n_dissimilar=ranking.n_far,
        precision_at_recall=_precision_at_recall(ranking),
        resamples=resampling.count(ranking.n_near + ranking.n_far),
        intervals=intervals | ({} if accuracy is None else {"accuracy": accuracy}),
    )


def precision_recall(near: Distances, far: Distances) -> tuple[Curve, Curve, Distances]:
    """Precision and recall of "similar if at or below the threshold", for each distance that occurs.

    Parameters
    ----------
    near, far : arrays of shape (n,) and (m,)
        Distances of the similar and of the dissimilar pairs, at least one of each.

    Returns
    -------
    (precision, recall, thresholds)
        Arrays of one length. Recall ascends to 1.
    """
    ranking = Ranking.of(near, far)
    return *ranking.precision_recall(), ranking.distances


def roc(near: Distances, far: Distances) -> tuple[Curve, Curve, Distances]:
    """The shares of dissimilar and of similar pairs at or below a threshold, for each distance that occurs.

    Parameters
    ----------
    near, far : arrays of shape (n,) and (m,)
        Distances of the similar and of the dissimilar pairs, at least one of each.

    Returns
    -------
    (false_positive_rate, true_positive_rate, thresholds)
        Arrays of one length. Both rates ascend from 0, at threshold −∞, to 1.
    """
    ranking = Ranking.of(near, far)
    below_all = np.full(1, -np.inf, ranking.distances.dtype)
    return *ranking.roc(), np.concatenate((below_all, ranking.distances))


def _precision_at_recall(ranking: Ranking) -> dict[str, float]:
    precision, recall = ranking.precision_recall()
    places = np.searchsorted(recall, np.arange(1, 11) / 10 - 1e-12)
    return {f"{(i + 1) / 10:.1f}": float(precision[place]) for i, place in enumerate(places)}
