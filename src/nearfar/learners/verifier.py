"""Deciding by the distance whether a pair is similar."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.data.points import Floats
from nearfar.errors import InvalidInput
from nearfar.learners.estimator import MetricEstimator
from nearfar.learners.thresholds import calibrated_threshold, check_calibration
from nearfar.learners.tuples import Tuples, read_pair_labels
from nearfar.objective.ranking import roc_auc

_CALIBRATION_PAIRS = 1_000_000


class PairVerifier(ClassifierMixin, MetricEstimator):  # type: ignore[misc]  # sklearn has no types
    """A learned metric with a threshold: pairs at this distance or nearer are predicted to be similar."""

    _tuple_size = 2
    threshold_: float
    classes_: NDArray[Any]

    def decision_function(self, pairs: Any) -> Floats:
        """The negated distance of each pair; see :meth:`pair_distance`."""
        return self.pair_score(pairs)

    def predict(self, pairs: Any) -> NDArray[np.int64]:
        """+1 for pairs at the threshold or nearer, -1 for the others."""
        check_is_fitted(self)
        if not hasattr(self, "threshold_"):
            raise AttributeError(
                "A threshold for this estimator has not been set: call its set_threshold or calibrate_threshold method"
            )
        return np.where(self.pair_distance(pairs) <= self.threshold_, 1, -1)

    def score(self, pairs: Any, y: ArrayLike) -> float:
        """The area under the ROC curve: the chance that a similar pair is nearer than a dissimilar one."""
        distances = self.pair_distance(pairs)
        similar = read_pair_labels(y, distances)
        return roc_auc(distances[similar], distances[~similar])

    def set_threshold(self, threshold: float) -> "PairVerifier":
        """Set the distance up to which a pair is predicted to be similar."""
        check_is_fitted(self)
        try:
            self._keep_threshold(float(threshold))
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"Parameter threshold must be a real number. Got {type(threshold)} instead.") from error
        return self

    def calibrate_threshold(
        self,
        pairs_valid: Any,
        y_valid: ArrayLike,
        strategy: str = "accuracy",
        min_rate: float | None = None,
        beta: float = 1.0,
    ) -> "PairVerifier":
        """Set the threshold to the best one on these pairs.

        Parameters
        ----------
        pairs_valid : array of shape (n, 2, d), or ids of shape (n, 2) with a preprocessor
        y_valid : array of shape (n,)
            +1 for similar pairs, -1 for dissimilar ones.
        strategy : {"accuracy", "f_beta", "max_tpr", "max_tnr"}
            What is to be highest: the accuracy, the F score, the true positive rate or the true negative rate.
        min_rate : float, optional
            For max_tpr the least true negative rate, for max_tnr the least true positive rate.
        beta : float
            Of the F score.
        """
        check_is_fitted(self)
        check_calibration(strategy, min_rate, beta)
        distances = self.pair_distance(pairs_valid)
        similar = read_pair_labels(y_valid, distances)
        self._keep_threshold(calibrated_threshold(distances[similar], distances[~similar], strategy, min_rate, beta))
        return self

    def _calibrate_on(self, known: Tuples, similar: NDArray[np.bool_], calibration: dict[str, Any]) -> None:
        """Set the threshold on the pairs that were learned from, or on a million of them."""
        self.classes_ = np.array([-1, 1])
        pairs = known.indices
        if len(pairs) > _CALIBRATION_PAIRS:
            chosen = np.random.default_rng(self._seed()).choice(len(pairs), _CALIBRATION_PAIRS)
            pairs, similar = pairs[chosen], similar[chosen]
        distances = self.metric_.pair_distances(known.points, pairs)
        self._keep_threshold(calibrated_threshold(distances[similar], distances[~similar], **calibration))

    def _keep_threshold(self, threshold: float) -> None:
        """The metric, whose thresholds are distances, keeps the nearest one to it that is."""
        self.metric_ = self.metric_.with_threshold(min(max(threshold, 0.0), float(np.finfo(np.float32).max)))
        self.threshold_ = threshold
