"""Plain Euclidean distance: the yardstick."""

from typing import Any

import numpy as np

from nearfar.baselines.base import GivenPairs, PairBaseline
from nearfar.baselines.progress import Matrix, OnProgress, Progress


class Euclidean(PairBaseline):
    """Euclidean distance as an estimator: M = I. Only the threshold comes from the pairs.

    It costs nothing to learn; L is an identity matrix of d² numbers. For wide points, sparse ones among them, use the
    distance :class:`nearfar.model.euclidean.Euclidean`, which needs no matrix.

    Parameters
    ----------
    preprocessor : array, memory map or sparse matrix of shape (n, d), nf.Points, nf.NamedPoints or callable, optional
        Where the points of ids are.
    on_progress : function of (seconds, components), optional
        Called once.

    Attributes
    ----------
    metric_ : nf.Metric
    components_ : array of shape (d, d)
    threshold_ : float
        Pairs at this distance or nearer are predicted to be similar.
    history_ : list of (seconds, None)
        One entry.
    n_features_in_ : int
    """

    _matrices = 2

    def __init__(self, *, preprocessor: Any = None, on_progress: OnProgress | None = None) -> None:
        self.preprocessor = preprocessor
        self.on_progress = on_progress

    def _solve(self, given: GivenPairs, progress: Progress) -> Matrix:
        return np.eye(given.rows.n_features)
