"""The learned distance as a function of two points."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.errors import InvalidInput
from nearfar.model.metric import Metric


class DistanceFunction:
    """The learned distance between two points; knows a metric and no learner, and can be pickled."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._components = metric.components.astype(np.float64)

    def __call__(self, u: ArrayLike, v: ArrayLike, squared: bool = False) -> float:
        """The distance between two points of shape (d,)."""
        first, second = _vector(u), _vector(v)
        if self._metric.lift is not None:
            return float(self._metric.distance(first[None], second[None], squared=squared)[0])
        projected = self._components @ (first - second)
        length = float(projected @ projected)
        return length if squared else float(np.sqrt(length))


def _vector(values: ArrayLike) -> NDArray[np.float64]:
    vector = np.atleast_1d(np.squeeze(np.asarray(values, np.float64)))
    if vector.ndim > 1:
        raise InvalidInput("Input vector should be 1-D.")
    return vector
