"""Learning from pairs known to be similar or dissimilar."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.data.constraints import Pairs
from nearfar.data.points import Floats
from nearfar.errors import InvalidInput
from nearfar.learners.arguments import documented
from nearfar.learners.base import Learner
from nearfar.learners.thresholds import calibrated_threshold, check_calibration
from nearfar.learners.tuples import Tuples, chosen_tuples, read_pair_labels, read_weights
from nearfar.objective.ranking import roc_auc

_CALIBRATION_PAIRS = 1_000_000


@documented
class PairLearner(ClassifierMixin, Learner):  # type: ignore[misc]  # sklearn has no types
    """Learns a distance from pairs of points that are similar (+1) or dissimilar (-1).

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    threshold_ : float
        Pairs at this distance or nearer are predicted to be similar.
    classes_ : array
        -1 and +1.
    {attributes}
    """

    _tuple_size = 2

    def fit(
        self,
        pairs: Any,
        y: ArrayLike,
        calibration_params: dict[str, Any] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> "PairLearner":
        """Learn the distance, then set the threshold on the same pairs (a million of them, if there are more).

        Parameters
        ----------
        pairs : array of shape (n, 2, d), or ids of shape (n, 2) with a preprocessor
        y : array of shape (n,)
            +1 for similar pairs, -1 for dissimilar ones.
        calibration_params : dict, optional
            Arguments for :meth:`calibrate_threshold`; by default the accuracy is made highest.
        sample_weight : array of shape (n,), optional
            How much each pair counts beside others of its kind, 0 or more; one of weight 0 is used for nothing. The
            two kinds are balanced by ``dissimilar_weight``. The threshold counts each pair once.
        """
        return self._fit(pairs, y, calibration_params or {}, sample_weight, partial=False)

    def partial_fit(self, pairs: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "PairLearner":
        """Go on learning from a further batch of pairs, by a few steps; it sets the threshold. See :meth:`fit`."""
        return self._fit(pairs, y, {}, sample_weight, partial=True)

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

    def set_threshold(self, threshold: float) -> "PairLearner":
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
    ) -> "PairLearner":
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

    def _fit(
        self, pairs: Any, y: ArrayLike, calibration: dict[str, Any], weights: ArrayLike | None, *, partial: bool
    ) -> "PairLearner":
        check_calibration(**calibration)
        known = self._read_tuples(pairs, 2, reset=not self._goes_on(partial))
        similar = read_pair_labels(y, known.indices)
        counted, known, similar = _of_some_weight(weights, known, similar)
        constraints = Pairs(
            chosen_tuples(known.indices, similar),
            chosen_tuples(known.indices, ~similar),
            None if counted is None else counted[similar],
            None if counted is None else counted[~similar],
        )
        self._learn(known.points, constraints, known.float_type, partial=partial)
        self.classes_ = np.array([-1, 1])
        self._calibrate_on(known, similar, calibration)
        return self

    def _calibrate_on(self, known: Tuples, similar: NDArray[np.bool_], calibration: dict[str, Any]) -> None:
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


def _of_some_weight(
    weights: ArrayLike | None, known: Tuples, similar: NDArray[np.bool_]
) -> tuple[NDArray[Any] | None, Tuples, NDArray[np.bool_]]:
    """The weights that are not 0, and the pairs that have them."""
    if weights is None:
        return None, known, similar
    array = read_weights(weights, known)
    used = array > 0
    if used.all():
        return array, known, similar
    return array[used], replace(known, indices=known.indices[used]), similar[used]
