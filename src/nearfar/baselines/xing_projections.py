"""Projected gradient steps for Eq. 1 of the paper, with the projection on its constraints by Dykstra's method.

The allowed M are those in many sets at once: one half-space for each dissimilar pair, and the positive semi-definite
cone. Dykstra's method projects on one after the other and keeps, for each, what it added: a multiplier α for a pair, a
matrix Q for the cone. Since the objective is linear, a step and an exact projection are a proximal step, and the sum of
what was added is, divided by the step size, the solution of the dual problem. So the additions are kept from step to
step, and one round of projections a step is enough at first.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.baselines.progress import Matrix
from nearfar.baselines.wide_rows import WideRows
from nearfar.baselines.xing_forms import Form
from nearfar.compiled import compiled
from nearfar.data.constraints import Indices

Array = NDArray[Any]

_TINY = float(np.finfo(np.float64).tiny)
_BLOCK = 512
_FIRST_STEP = 0.1
"""The length of the first step, as a share of the first M's norm."""
_UNBALANCED = 5.0
_STEPS_A_ROUND = 100
"""After so many steps each, steps have one more round of projections: the nearer the end, the truer they must be."""
_NOTHING = 1e-3
"""The share of plain Euclidean distance's objective below which an objective is not told from 0."""
_ROUND_OF_ALL = 5
"""Every so many rounds, all pairs are looked at; else those that were near their bound then."""
_NEAR = 1.25
"""The value below which a pair is near its bound, which is 1."""


@compiled(error_model="numpy")
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
    gap: float
    """The share of the objective of M by which it may be above the least one."""


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
        self._plain = self._values(start)
        self.M = start / float(np.mean(self._plain))
        self._nothing = _NOTHING * self.form.objective(start) / float(self._plain.min())
        size = self.form.size(self.form.gradient)
        self.step_size = _FIRST_STEP * self.form.size(self.M) / size if size else 1.0
        self._of_cone = np.zeros_like(self.M)
        self._of_pairs = np.zeros_like(self.M)
        self._multipliers = np.zeros(len(self.pairs))
        self._watched: Indices = np.arange(len(self.pairs))
        self._steps = self._rounds = 0

    def step(self) -> None:
        """A step down the gradient, and rounds of projections."""
        Y = self.M - self.step_size * self.form.gradient + self._of_pairs + self._of_cone
        for _ in range(1 + self._steps // _STEPS_A_ROUND):
            raised = self._raise_pairs(Y)
            self._of_pairs += raised
            below = Y - self._of_cone
            Y = self.form.nearest(below)
            self._of_cone = Y - below
        self._steps += 1
        moved, size = self.form.size(Y - self.M), self.form.size(self.form.gradient)
        self._residuals = (
            self.form.size(raised) / max(self.form.size(Y), _TINY),
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
        values = self._values(self.M)
        lowest = float(values.min())
        share = max(0.0, float(np.max((1.0 - values) / self._plain)))
        candidates = [self.M + share * self.form.start()]
        if lowest > 0:
            candidates.append(self.M / lowest)
        upper, M = min(((self.form.objective(M), M) for M in candidates), key=lambda candidate: candidate[0])
        excess = self.form.excess(self._of_pairs / self.step_size)
        lower = float(self._multipliers.sum() / self.step_size / excess) if excess > 0 else 0.0
        return Bounds(M, upper, lower, gap=(upper - lower) / max(upper, self._nothing, _TINY))

    def _raise_pairs(self, Y: Matrix) -> Matrix:
        """A round of projections of Y, in place, on the half-spaces of the pairs; what they add to it together."""
        total = np.zeros_like(Y)
        if self._rounds % _ROUND_OF_ALL == 0:
            everyone: Indices = np.arange(len(self.pairs))
            near = [self._raise_block(Y, total, everyone[i : i + _BLOCK]) for i in range(0, len(everyone), _BLOCK)]
            self._watched = np.concatenate(near)
        else:
            for start in range(0, len(self._watched), _BLOCK):
                self._raise_block(Y, total, self._watched[start : start + _BLOCK])
        self._rounds += 1
        return total

    def _raise_block(self, Y: Matrix, total: Matrix, chosen: Indices) -> Indices:
        """Project on the half-spaces of those that are not in them, or were projected on before; who is near."""
        form = self.form
        F = form.features(self.rows.differences(self.pairs[chosen]))
        values, multipliers = form.values(F, Y), self._multipliers[chosen]
        near = chosen[(values < _NEAR) | (multipliers > 0.0)]
        concerned = np.flatnonzero((values < 1.0) | (multipliers > 0.0))
        if len(concerned):
            F, multipliers, added = F[concerned], multipliers[concerned], np.empty(len(concerned))
            turned = form.turned(F)
            raise_in_turn(values[concerned], form.products(F, turned), multipliers, added)
            self._multipliers[chosen[concerned]] = multipliers
            change = form.change(turned, added)
            Y += change
            total += change
        return near

    def _values(self, M: Matrix) -> Matrix:
        out = np.empty(len(self.pairs))
        for place in self.rows.blocks(len(self.pairs)):
            out[place] = self.form.values(self.form.features(self.rows.differences(self.pairs[place])), M)
        return out
