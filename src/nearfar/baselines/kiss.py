"""KISS: the ratio of two Gaussians' likelihoods (Köstinger et al., CVPR 2012)."""

from typing import Any

from nearfar.baselines.arguments import share
from nearfar.baselines.base import GivenPairs, PairBaseline
from nearfar.baselines.progress import Matrix, OnProgress, Progress
from nearfar.baselines.spectra import factor, inverse, principal_axes, shrunk
from nearfar.errors import InvalidConstraints


class KISS(PairBaseline):
    """KISS (Köstinger et al., 2012): ``M = Σ_S⁻¹ − Σ_D⁻¹``, its negative eigenvalues made 0.

    Σ_S and Σ_D are the mean of ``(x − y)(x − y)ᵀ`` over the similar and the dissimilar pairs, after the points have
    been reduced to their principal components. There is no iteration: ``2 n d²`` flops for n pairs and u points among
    them, ``2 u d²`` for the principal components, and four eigen-decompositions of about ``9 d³``; memory for six
    matrices of d² float64 beside the points.

    Parameters
    ----------
    preprocessor : array, memory map or sparse matrix of shape (n, d), nf.Points, nf.NamedPoints or callable, optional
        Where the points of ids are.
    n_components : int, optional
        Principal components to keep before; by default all that vary. The result depends much on it: directions in
        which similar pairs hardly differ get the largest weight, and they are mostly noise.
    shrinkage : float, default 0.0
        From 0 to 1: both covariances become ``(1 − shrinkage) Σ + shrinkage · (tr Σ / d) · I``. The paper has none.
    on_progress : function of (seconds, components), optional
        Called once, at the end.

    Attributes
    ----------
    metric_ : nf.Metric
        L takes raw points: the reduction is part of it.
    components_ : array of shape (k, d)
        k is the number of positive eigenvalues.
    threshold_ : float
        Pairs at this distance or nearer are predicted to be similar.
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
        on_progress: OnProgress | None = None,
    ) -> None:
        self.preprocessor = preprocessor
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.on_progress = on_progress

    def _solve(self, given: GivenPairs, progress: Progress) -> Matrix:
        shrinkage = share("shrinkage", self.shrinkage)
        given.check_kinds(type(self).__name__)
        axes = principal_axes(given.rows.covariance(given.distinct), self.n_components)
        near, far = (
            inverse(shrunk(axes @ given.rows.second_moment(pairs) @ axes.T, shrinkage), f"{kind} differences")
            for kind, pairs in (("similar", given.similar), ("dissimilar", given.dissimilar))
        )
        L = factor(near - far)
        if not L.any():
            raise InvalidConstraints(
                "in no direction do similar pairs differ less than dissimilar ones, so KISS finds no metric; "
                "see that +1 stands for similar pairs"
            )
        return L @ axes
