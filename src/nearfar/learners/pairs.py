"""Learning from pairs known to be similar or dissimilar."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.data.constraints import Pairs
from nearfar.learners.arguments import documented
from nearfar.learners.base import Learner
from nearfar.learners.thresholds import check_calibration
from nearfar.learners.tuples import Tuples, chosen_tuples, read_pair_labels, read_weights
from nearfar.learners.verifier import PairVerifier


@documented
class PairLearner(PairVerifier, Learner):
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
        self._calibrate_on(known, similar, calibration)
        return self


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
