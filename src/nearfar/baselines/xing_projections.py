"""Projected gradient steps for Eq. 1 of the paper, with the projection on its constraints by Dykstra's method.

The allowed M are those in many sets at once: one half-space for each dissimilar pair, and the positive semi-definite
cone. Dykstra's method projects on one after the other and keeps, for each, what it added: a multiplier α for a pair, a
matrix Q for the cone. Since the objective is linear, a step and an exact projection are a proximal step, and the sum of
what was added is, divided by the step size, the solution of the dual problem. So the additions are kept from step to
step, and one round of projections a step is enough.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearfar.baselines.progress import Matrix
from nearfar.baselines.wide_rows import WideRows
from nearfar.baselines.xing_forms import Form
from nearfar.data.constraints import Indices

Array = NDArray[Any]

_BLOCK = 512
_FIRST_STEP = 0.1
"""The length of the first step, as a share of the first M's norm."""
_UNBALANCED = 5.0


@njit(nogil=True, cache=True, error_model="numpy")
def raise_in_turn(values: Array, products: Array, multipliers: Array, added: Array) -> None:
    """Bring pair after pair to a value of 1 by its multiplier, which stays at 0 or above (Hildreth's method).

    Parameters
    ----------
    values : array (n,)
        ``vᵀMv``; changed in place as M would be.
    products : array (n, n)
        What a unit of each multiplier adds to each value.
    multipliers : array (n,)
        Changed in place.
    added : array (n,)
        Takes by how much.
    """
    for i in range(len(values)):
        change = max(-multipliers[i], (1.0 - values[i]) / products[i, i])
        added[i] = change
        if change != 0.0:
            multipliers[i] += change
            for j in range(len(values)):
                values[j] += change * products[i, j]


@dataclass(frozen=True)
class Bounds:
    """An allowed M, and between which numbers the least objective lies."""

    M: Matrix
    upper: float
    """The objective of M."""
    lower: float

    @property
    def gap(self) -> float:
        """The share of the objective of M by which it may be above the least one."""
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0


@dataclass
class ConstrainedDescent:
    """The state of the descent.

    Parameters
    ----------
    form : Form
    rows : WideRows
    pairs : array (n, 2)
        The dissimilar pairs.
    """

    form: Form
    rows: WideRows
    pairs: Indices
    M: Matrix = field(init=False)
    step_size: float = field(init=False)
    _residuals: tuple[float, float] = field(init=False, default=(1.0, 1.0))

    def __post_init__(self) -> None:
        start = self.form.start()
        self.M = start / float(np.mean(self._values(start)))
        size = self.form.size(self.form.gradient)
        self.step_size = _FIRST_STEP * self.form.size(self.M) / size if size else 1.0
        self._of_cone = np.zeros_like(self.M)
        self._of_pairs = np.zeros_like(self.M)
        self._multipliers = np.zeros(len(self.pairs))

    def step(self) -> None:
        """A step down the gradient, and a round of projections."""
        Y = self.M - self.step_size * self.form.gradient + self._of_pairs + self._of_cone
        raised = self._raise_pairs(Y)
        self._of_pairs += raised
        below = Y - self._of_cone
        Y = self.form.nearest(below)
        self._of_cone = Y - below
        moved, size = self.form.size(Y - self.M), self.form.size(self.form.gradient)
        self._residuals = (
            self.form.size(raised) / max(self.form.size(Y), np.finfo(np.float64).tiny),
            moved / (self.step_size * size) if size else 0.0,
        )
        self.M = Y

    def balance(self) -> None:
        """Make steps longer where the objective lags behind the constraints, shorter where it runs ahead of them."""
        of_constraints, of_objective = self._residuals
        if of_objective > _UNBALANCED * of_constraints:
            times = 2.0
        elif of_constraints > _UNBALANCED * of_objective:
            times = 0.5
        else:
            return
        self.step_size *= times
        self._of_cone *= times
        self._of_pairs *= times
        self._multipliers *= times

    def bounds(self) -> Bounds:
        """M made to keep all constraints, by a factor or by a share of the identity, and how good it can be at best."""
        values, plain = self._values(self.M), self._values(self.form.start())
        lowest = float(values.min())
        share = max(0.0, float(np.max((1.0 - values) / plain)))
        candidates = [self.M + share * self.form.start()]
        if lowest > 0:
            candidates.append(self.M / lowest)
        upper, M = min(((self.form.objective(M), M) for M in candidates), key=lambda candidate: candidate[0])
        excess = self.form.excess(self._of_pairs / self.step_size)
        lower = float(self._multipliers.sum() / self.step_size / excess) if excess > 0 else 0.0
        return Bounds(M, upper, lower)

    def _raise_pairs(self, Y: Matrix) -> Matrix:
        """Project Y, in place, on the half-space of each pair that is not in it or that was projected on before."""
        form, total = self.form, np.zeros_like(Y)
        for start in range(0, len(self.pairs), _BLOCK):
            F = form.features(self.rows.differences(self.pairs[start : start + _BLOCK]))
            values = form.values(F, Y)
            multipliers = self._multipliers[start : start + _BLOCK]
            concerned = np.flatnonzero((values < 1.0) | (multipliers > 0.0))
            if not len(concerned):
                continue
            F, added, changed = F[concerned], np.empty(len(concerned)), multipliers[concerned]
            turned = form.turned(F)
            raise_in_turn(values[concerned], form.products(F, turned), changed, added)
            multipliers[concerned] = changed
            change = form.change(turned, added)
            Y += change
            total += change
        return total

    def _values(self, M: Matrix) -> Matrix:
        out = np.empty(len(self.pairs))
        for place in self.rows.blocks(len(self.pairs)):
            out[place] = self.form.values(self.form.features(self.rows.differences(self.pairs[place])), M)
        return out
