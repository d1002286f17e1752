"""ITML: information-theoretic metric learning (Davis et al., ICML 2007)."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from nearfar.baselines.arguments import positive, whole
from nearfar.baselines.base import GivenPairs, PairBaseline
from nearfar.baselines.itml_projections import project_block
from nearfar.baselines.progress import Matrix, OnProgress, Progress
from nearfar.baselines.spectra import inverse
from nearfar.data.constraints import Indices
from nearfar.errors import InvalidPoints, InvalidSettings

_PERCENTILES = (5, 95)
_BOUND_PAIRS = 20_000
"""Pairs of points whose distances the bounds are taken from, if there are not fewer."""
_BLOCK = (64, 192)
"""The fewest and the most constraints of a block."""


@dataclass
class _State:
    """What changes from projection to projection."""

    M: Matrix
    prior: Matrix
    targets: Matrix
    """ξ₀ of each pair: the bound of its kind."""
    slacks: Matrix
    multipliers: Matrix
    gamma: float

    def objective(self) -> float:
        """``D(M, M₀) + γ D(ξ, ξ₀)``, with the LogDet divergence D."""
        ratio = scipy.linalg.solve(self.prior, self.M, assume_a="pos")
        divergence = float(np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(ratio))
        if not np.isfinite(self.gamma):
            return divergence
        shares = self.slacks / self.targets
        return divergence + self.gamma * float(np.sum(shares - np.log(shares) - 1))

    def components(self) -> Matrix:
        L: Matrix = scipy.linalg.cholesky((self.M + self.M.T) / 2)
        return L


class ITML(PairBaseline):
    """Information-theoretic metric learning (Davis et al., 2007).

    Of all M that keep similar pairs within u and dissimilar ones beyond l, up to slack, the nearest to a prior M₀::

        minimise   D(M, M₀) + γ · D(ξ, ξ₀)          D: the LogDet divergence
        subject to (x − y)ᵀM(x − y) ≤ ξ  for similar pairs,     ξ₀ = u
                   (x − y)ᵀM(x − y) ≥ ξ  for dissimilar pairs,  ξ₀ = l

    by cyclic Bregman projections, one pair at a time: ``4 d²`` flops and more a pair in each sweep over the pairs, as
    matrix products of blocks of up to 192 pairs; memory for six matrices of d² float64, and four numbers a pair.

    Parameters
    ----------
    preprocessor : array, memory map or sparse matrix of shape (n, d), nf.Points, nf.NamedPoints or callable, optional
        Where the points of ids are.
    gamma : float, default 1.0
        γ: how dear slack is; ``numpy.inf`` allows none.
    bounds : (u, l), optional
        Of *squared* distances. By default the 5th and 95th percentile of the squared distances, by the prior, between
        points that stand in the pairs (of 20,000 such pairs of points, if there are more; equal points left out).
    prior : {"identity", "covariance"} or array of shape (d, d), default "identity"
        M₀: the identity, the inverse of the points' covariance, or a positive definite matrix of your own.
    tol : float, default 1e-3
        It has converged when the multipliers change by less than this share of their sum in a sweep.
    max_sweeps : int, default 1000
        Sweeps over all pairs; a warning is given if they do not suffice.
    max_seconds : float, optional
        Running time after which it ends, wherever it is; :attr:`cut_` then says what was left undone.
    shuffle : bool, default True
        Go through the pairs in a random order, the same in each sweep, and not in theirs.
    random_state : int, RandomState or None
        For the order and for the default bounds.
    on_progress : function of (seconds, components), optional
        Called at the start, every ``progress_every`` seconds and at the end; its time is not counted.
    progress_every : float, default 1.0
        Seconds.

    Attributes
    ----------
    metric_ : nf.Metric
    components_ : array of shape (d, d)
    threshold_ : float
        Pairs at this distance or nearer are predicted to be similar.
    bounds_ : (float, float)
        u and l.
    slacks_ : array of shape (n,)
        ξ of each pair.
    n_iter_ : int
        Sweeps begun.
    cut_ : str or None
        What was left undone when the time was up or the sweeps used; None if it has converged.
    history_ : list of (seconds, objective)
    n_features_in_ : int
    """

    _matrices = 6

    def __init__(
        self,
        *,
        preprocessor: Any = None,
        gamma: float = 1.0,
        bounds: ArrayLike | None = None,
        prior: Any = "identity",
        tol: float = 1e-3,
        max_sweeps: int = 1000,
        max_seconds: float | None = None,
        shuffle: bool = True,
        random_state: Any = None,
        on_progress: OnProgress | None = None,
        progress_every: float = 1.0,
    ) -> None:
        self.preprocessor = preprocessor
        self.gamma = gamma
        self.bounds = bounds
        self.prior = prior
        self.tol = tol
        self.max_sweeps = max_sweeps
        self.max_seconds = max_seconds
        self.shuffle = shuffle
        self.random_state = random_state
        self.on_progress = on_progress
        self.progress_every = progress_every

    def _solve(self, given: GivenPairs, progress: Progress) -> Matrix:
        gamma, tol = positive("gamma", self.gamma), positive("tol", self.tol)
        max_sweeps = whole("max_sweeps", self.max_sweeps)
        given.check_kinds(type(self).__name__)
        given.check_apart(type(self).__name__)
        rng = np.random.default_rng(self._seed())
        prior = _prior(self.prior, given)
        self.bounds_ = _bounds(self.bounds, given, prior, rng)
        targets = np.where(given.is_similar, *self.bounds_)
        state = _State(prior.copy(), prior, targets, targets.copy(), np.zeros(len(targets)), gamma)
        order = rng.permutation(len(targets)) if self.shuffle else np.arange(len(targets))
        progress.report(state.objective, state.components)
        self.cut_ = self._sweep(given, state, order, tol, max_sweeps, progress)
        progress.report(state.objective, state.components)
        self.slacks_ = state.slacks
        return state.components()

    def _sweep(
        self, given: GivenPairs, state: _State, order: Indices, tol: float, max_sweeps: int, progress: Progress
    ) -> str | None:
        """Project until it has converged, or there is no budget left; what was then left undone."""
        for sweep in range(1, max_sweeps + 1):
            self.n_iter_ = sweep
            before = state.multipliers.copy()
            done = _project_all(given, state, order, progress)
            size = before.sum() + state.multipliers.sum()
            change = float(np.abs(state.multipliers - before).sum() / size) if size else 0.0
            if done < len(order):
                left = "were never used" if sweep == 1 else "were not used again"
                return (
                    f"max_seconds={self.max_seconds} was up in sweep {sweep}: "
                    f"{len(order) - done:,} of {len(order):,} pairs {left}"
                )
            if change < tol:
                return None
        undone = f"max_sweeps={max_sweeps} did not suffice: the multipliers still changed by {change:.2g} in the last"
        warnings.warn(f"{undone}; raise max_sweeps or tol", ConvergenceWarning, stacklevel=5)
        return undone


def _project_all(given: GivenPairs, state: _State, order: Indices, progress: Progress) -> int:
    """One sweep over the pairs in this order, a block at a time; how many of them the time allowed."""
    size = int(np.clip(given.rows.n_features // 4, *_BLOCK))
    for start in range(0, len(order), size):
        if progress.is_over:
            return start
        chosen = order[start : start + size]
        signs = np.where(given.is_similar[chosen], 1.0, -1.0)
        multipliers, slacks = state.multipliers[chosen], state.slacks[chosen]
        project_block(state.M, given.rows.differences(given.indices[chosen]), signs, state.gamma, multipliers, slacks)
        state.multipliers[chosen], state.slacks[chosen] = multipliers, slacks
        if progress.is_due:
            progress.report(state.objective, state.components)
    return len(order)


def _prior(prior: Any, given: GivenPairs) -> Matrix:
    d = given.rows.n_features
    if isinstance(prior, str):
        if prior == "identity":
            return np.eye(d)
        if prior == "covariance":
            return inverse(given.rows.covariance(given.distinct), "points")
        raise InvalidSettings(f'prior is "{prior}"; expected "identity", "covariance" or a matrix')
    M = np.array(prior, np.float64)
    if M.shape != (d, d) or not np.allclose(M, M.T):
        raise InvalidSettings(f"prior has shape {M.shape}; expected a symmetric matrix of shape {(d, d)}")
    try:
        scipy.linalg.cholesky(M)
    except (scipy.linalg.LinAlgError, ValueError) as error:
        raise InvalidSettings(f"prior is not positive definite: {error}") from error
    return M


def _bounds(
    bounds: ArrayLike | None, given: GivenPairs, prior: Matrix, rng: np.random.Generator
) -> tuple[float, float]:
    if bounds is not None:
        u, limit = np.asarray(bounds, np.float64).ravel() if np.size(bounds) == 2 else (0.0, 0.0)
        if not 0 < u <= limit < np.inf:
            raise InvalidSettings(f"bounds are {bounds}; expected two numbers (u, l) with 0 < u <= l")
        return float(u), float(limit)
    distances = given.rows.squared_distances(_some_pairs(given.distinct, rng), prior)
    distances = distances[distances > 0]
    if not len(distances):
        raise InvalidPoints("all points are equal; expected points that differ")
    low, high = np.percentile(distances, _PERCENTILES)
    return float(low), float(high)


def _some_pairs(points: Indices, rng: np.random.Generator) -> Indices:
    """All pairs of these points, or as many drawn evenly as the bounds take."""
    if len(points) * (len(points) - 1) // 2 <= _BOUND_PAIRS:
        return points[np.column_stack(np.triu_indices(len(points), 1))]
    return points[rng.integers(0, len(points), (_BOUND_PAIRS, 2))]
