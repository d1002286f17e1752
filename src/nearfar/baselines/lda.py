"""LDA: linear discriminant analysis as a metric (Fisher, 1936; Rao, 1948)."""

from typing import Any

import numpy as np
import scipy.linalg

from nearfar.baselines.arguments import share, whole
from nearfar.baselines.base import GivenClasses, LabelBaseline
from nearfar.baselines.progress import Matrix, OnProgress, Progress
from nearfar.baselines.spectra import inverse, principal_axes, shrunk
from nearfar.data.constraints import Indices
from nearfar.errors import InvalidConstraints


class LDA(LabelBaseline):
    """Linear discriminant analysis: the directions that part the class means most, measured within the classes.

    The rows of L solve ``S_B l = ρ S_W l`` with ``l S_W lᵀ = 1`` for the largest ρ, where S_W is the covariance of
    points about the mean of their class and S_B that of the class means. ``4 n d²`` flops for n points and two
    eigen-decompositions of about ``9 d³``; memory for six matrices of d² float64 beside the points.

    Parameters
    ----------
    preprocessor : array, memory map or sparse matrix of shape (n, d), nf.Points, nf.NamedPoints or callable, optional
        Where the points of ids are.
    n_components : int, optional
        Rows of L; by default, and at most, one fewer than there are classes, and no more than directions that vary.
    shrinkage : float, default 0.0
        From 0 to 1: S_W becomes ``(1 − shrinkage) S_W + shrinkage · (tr S_W / d) · I``, over the directions in which
        the points vary.
    unlabelled : label, optional
        Points with this label are used for nothing; by default all points are labelled.
    on_progress : function of (seconds, components), optional
        Called once, at the end.

    Attributes
    ----------
    metric_ : nf.Metric
    components_ : array of shape (k, d)
    history_ : list of (seconds, None)
        One entry.
    n_features_in_ : int
    """

    _matrices = 6

    def __init__(
        self,
        *,
        preprocessor: Any = None,
        n_components: int | None = None,
        shrinkage: float = 0.0,
        unlabelled: Any = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.preprocessor = preprocessor
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.unlabelled = unlabelled
        self.on_progress = on_progress

    def _solve(self, given: GivenClasses, progress: Progress) -> Matrix:
        shrinkage = share("shrinkage", self.shrinkage)
        sizes = given.sizes
        if len(sizes) < 2:
            raise InvalidConstraints("there is one class only; LDA takes two or more")
        everyone: Indices = np.arange(len(given.rows))
        axes = principal_axes(given.rows.covariance(everyone), None)
        most = min(len(sizes) - 1, len(axes))
        count = most if self.n_components is None else whole("n_components", self.n_components, most)
        within = axes @ (given.scatter_within() / sizes.sum()) @ axes.T
        whiten = inverse(shrunk(within, shrinkage), "points within their classes", power=-0.5) @ axes
        means = given.means()
        between = (means - np.average(means, axis=0, weights=sizes)) * np.sqrt(sizes / sizes.sum())[:, np.newaxis]
        _, _, directions = scipy.linalg.svd(between @ whiten.T, full_matrices=False)
        L: Matrix = directions[:count] @ whiten
        return L
