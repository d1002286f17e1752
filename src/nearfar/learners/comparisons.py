"""Learning from comparisons: this pair is nearer than that one. Triplets are those that share a point."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from nearfar.data.constraints import Comparisons
from nearfar.data.points import Floats
from nearfar.learners.arguments import documented
from nearfar.learners.base import Learner
from nearfar.learners.tuples import read_weights


@documented
class QuadrupletLearner(Learner):
    """Learns a distance from quadruplets (a, b, c, d): a and b are nearer than c and d."""

    _tuple_size = 4

    def fit(self, quadruplets: Any, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the distance.

        Parameters
        ----------
        quadruplets : array of shape (n, 4, d), or ids of shape (n, 4) with a preprocessor
            The first two points are to be nearer to each other than the last two.
        y : ignored
        sample_weight : array of shape (n,), optional
            How much each quadruplet counts beside others, 0 or more.
        """
        return self._fit(quadruplets, sample_weight, partial=False)

    def partial_fit(self, quadruplets: Any, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Go on learning from a further batch of quadruplets, by a few steps. See :meth:`fit`."""
        return self._fit(quadruplets, sample_weight, partial=True)

    def decision_function(self, quadruplets: Any) -> Floats:
        """The distance of the far pair minus that of the near one; above 0 where the order is right."""
        check_is_fitted(self)
        known = self._read_tuples(quadruplets, self._tuple_size)
        compared = Comparisons(known.indices)
        near, far = (self.metric_.pair_distances(known.points, pairs) for pairs in (compared.near, compared.far))
        difference: Floats = far - near
        return difference

    def predict(self, quadruplets: Any) -> NDArray[np.int64]:
        """+1 where the order is right, -1 where it is not."""
        return np.where(self.decision_function(quadruplets) > 0, 1, -1)

    def score(self, quadruplets: Any, y: ArrayLike | None = None) -> float:
        """The share of quadruplets whose order is right."""
        return float(np.mean(self.decision_function(quadruplets) > 0))

    def _fit(self, tuples: Any, weights: ArrayLike | None, *, partial: bool) -> Self:
        known = self._read_tuples(tuples, self._tuple_size, reset=not self._goes_on(partial))
        compared = Comparisons(known.indices, None if weights is None else read_weights(weights, known))
        self._learn(known.points, compared, known.float_type, partial=partial)
        return self


@documented
class TripletLearner(QuadrupletLearner):
    """Learns a distance from triplets (anchor, near, far): quadruplets (anchor, near, anchor, far)."""

    _tuple_size = 3

    def fit(self, triplets: Any, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the distance.

        Parameters
        ----------
        triplets : array of shape (n, 3, d), or ids of shape (n, 3) with a preprocessor
            The second point is to be nearer to the first than the third is.
        y : ignored
        sample_weight : array of shape (n,), optional
            How much each triplet counts beside others, 0 or more.
        """
        return self._fit(triplets, sample_weight, partial=False)

    def partial_fit(self, triplets: Any, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Go on learning from a further batch of triplets, by a few steps. See :meth:`fit`."""
        return self._fit(triplets, sample_weight, partial=True)

    def decision_function(self, triplets: Any) -> Floats:
        """The distance of the anchor to the far point minus that to the near one; above 0 where the order is right."""
        return super().decision_function(triplets)

    def predict(self, triplets: Any) -> NDArray[np.int64]:
        """+1 where the order is right, -1 where it is not."""
        return super().predict(triplets)

    def score(self, triplets: Any, y: ArrayLike | None = None) -> float:
        """The share of triplets whose order is right."""
        return super().score(triplets)
