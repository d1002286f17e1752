"""Xing2002: the original formulation of distance metric learning, the paper's Eq. 1 (after Xing et al., NIPS 2002)."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from nearfar.baselines.arguments import positive, whole
from nearfar.baselines.base import GivenPairs, PairBaseline
from nearfar.baselines.progress import Matrix, OnProgress, Progress
from nearfar.baselines.xing_forms import DiagonalForm, FullForm
from nearfar.baselines.xing_projections import ConstrainedDescent
from nearfar.errors import InvalidSettings

_CHECK_EVERY = 10
"""Steps between two looks at how far the solution can still be."""


class Xing2002(PairBaseline):
    """The original formulation, with one hard constraint for each dissimilar pair::

        minimise   Σ over similar pairs of (x − y)ᵀM(x − y)
        subject to (x − y)ᵀM(x − y) ≥ 1   for each dissimilar pair
                   M ⪰ 0

    by projected gradient descent: an eigen-decomposition keeps M positive semi-definite, and Dykstra's method projects
    on the intersection of that cone and the constraints. What is returned keeps every constraint.

    With s similar and n dissimilar pairs: ``2 s d²`` flops once, then ``2 n d²`` in every fifth step to measure the
    dissimilar pairs, and in every step ``6 d²`` for each of them near its bound and about ``20 d³`` for the cone;
    memory for seventeen matrices of d² float64 and two numbers a pair. The diagonal form has d in place of d² after
    the start.

    Parameters
    ----------
    preprocessor : array, memory map or sparse matrix of shape (n, d), nf.Points, nf.NamedPoints or callable, optional
        Where the points of ids are.
    diagonal : bool, default False
        Look among diagonal M only: a weight for each feature.
    whiten : bool, default True
        Measure steps and projections where the similar pairs' differences are white. The solution is the same, and
        the way to it shorter; without it the descent is the textbook's.
    tol : float, default 1e-3
        It has converged when the objective is known to be within this share of the least one, or of a thousandth of
        what plain Euclidean distance gives.
    max_steps : int, default 2000
        A warning is given if they do not suffice.
    max_seconds : float, optional
        Running time after which it ends; :attr:`cut_` then says how far it came.
    on_progress : function of (seconds, components), optional
        Called at the start, every ``progress_every`` seconds and at the end; its time is not counted.
    progress_every : float, default 1.0
        Seconds.

    Attributes
    ----------
    metric_ : nf.Metric
    components_ : array of shape (k, d)
        k is the rank of M.
    threshold_ : float
        Pairs at this distance or nearer are predicted to be similar.
    gap_ : float
        The share by which the objective may still be above the least one, from the dual problem: a proof, and 1 where
        it shows nothing.
    n_iter_ : int
        Steps made.
    cut_ : str or None
        How far it was when its budget was used up; None if it has converged.
    history_ : list of (seconds, objective)
        The mean squared distance of similar pairs, by an M that keeps every constraint.
    n_features_in_ : int
    """

    _matrices = 17

    def __init__(
        self,
        *,
        preprocessor: Any = None,
        diagonal: bool = False,
        whiten: bool = True,
        tol: float = 1e-3,
        max_steps: int = 2000,
        max_seconds: float | None = None,
        on_progress: OnProgress | None = None,
        progress_every: float = 1.0,
    ) -> None:
        self.preprocessor = preprocessor
        self.diagonal = diagonal
        self.whiten = whiten
        self.tol = tol
        self.max_steps = max_steps
        self.max_seconds = max_seconds
        self.on_progress = on_progress
        self.progress_every = progress_every

    def _solve(self, given: GivenPairs, progress: Progress) -> Matrix:
        tol, max_steps = positive("tol", self.tol), whole("max_steps", self.max_steps)
        for name in ("diagonal", "whiten"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidSettings(f"{name} is {getattr(self, name)!r}; expected True or False")
        given.check_kinds(type(self).__name__)
        given.check_apart(type(self).__name__)
        form = (DiagonalForm if self.diagonal else FullForm)(given.rows.second_moment(given.similar), self.whiten)
        descent = ConstrainedDescent(form, given.rows, given.dissimilar)
        self._report(descent, progress)
        cut = self._descend(descent, tol, max_steps, progress)
        M = self._report(descent, progress)
        at_most = f"the objective is at most {self.gap_:.2g} of itself above the least"
        self.cut_ = None if cut is None or self.gap_ <= tol else f"{cut}: {at_most}"
        return form.components(M)

    def _descend(self, descent: ConstrainedDescent, tol: float, max_steps: int, progress: Progress) -> str | None:
        """Step until it has converged, or there is no budget left; how far it then was."""
        for step in range(1, max_steps + 1):
            self.n_iter_ = step
            descent.step()
            if progress.is_over:
                return f"max_seconds={self.max_seconds} was up after {step} steps"
            if step % _CHECK_EVERY == 0:
                descent.balance()
                if descent.bounds().gap <= tol:
                    return None
            if progress.is_due:
                self._report(descent, progress)
        warnings.warn(
            f"max_steps={max_steps} did not suffice to come within {tol:.2g} of the least objective; "
            "raise max_steps or tol",
            ConvergenceWarning,
            stacklevel=5,
        )
        return f"max_steps={max_steps} did not suffice"

    def _report(self, descent: ConstrainedDescent, progress: Progress) -> Matrix:
        """Report how far it is; M, made to keep every constraint."""
        found = []

        def objective() -> float:
            found.append(descent.bounds())
            return found[0].upper

        progress.report(objective, lambda: descent.form.components(found[0].M))
        self.gap_ = float(np.clip(found[0].gap, 0.0, 1.0))
        M: Matrix = found[0].M
        return M
