"""RCA: relevant component analysis (Shental et al., ECCV 2002; Bar-Hillel et al., JMLR 2005)."""

from typing import Any

import numpy as np

from nearfar.baselines.arguments import share
from nearfar.baselines.base import GivenClasses, LabelBaseline
from nearfar.baselines.progress import Matrix, OnProgress, Progress
from nearfar.baselines.spectra import inverse, principal_axes, shrunk
from nearfar.data.constraints import Indices
from nearfar.errors import InvalidConstraints


class RCA(LabelBaseline):
    """Relevant component analysis: ``L = C^(−1/2)``, with C the covariance of points about the mean of their group.

    A group (a "chunklet") is a set of points known to be of one kind; classes will do. Groups of one point count for
    nothing. ``4 n d²`` flops for n points and two eigen-decompositions of about ``9 d³``; memory for six matrices of
    d² float64 beside the points.

    Parameters
    ----------
    preprocessor : array, memory map or sparse matrix of shape (n, d), nf.Points, nf.NamedPoints or callable, optional
        Where the points of ids are.
    n_components : int, optional
        Principal components of the points to keep before; by default all that vary.
    shrinkage : float, default 0.0
        From 0 to 1: C becomes ``(1 − shrinkage) C + shrinkage · (tr C / d) · I``. The paper has none.
    unlabelled : label, optional
        Points with this label are in no group; by default all are in one.
    on_progress : function of (seconds, components), optional
        Called once, at the end.

    Attributes
    ----------
    metric_ : nf.Metric
        L takes raw points: the reduction is part of it.
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
        if sizes.max() < 2:
            raise InvalidConstraints("every group has one point; RCA takes groups of two points or more")
        everyone: Indices = np.arange(len(given.rows))
        axes = principal_axes(given.rows.covariance(everyone), self.n_components)
        within = axes @ (given.scatter_within() / sizes[sizes > 1].sum()) @ axes.T
        return inverse(shrunk(within, shrinkage), "points within their groups", power=-0.5) @ axes
