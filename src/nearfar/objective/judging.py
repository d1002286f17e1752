"""Judging L on held-out constraints: the objective and the average precision that reports show."""

from dataclasses import dataclass

import numpy as np

from nearfar import cost
from nearfar.data.held_out import HeldOut
from nearfar.data.points import Floats, Points
from nearfar.data.scratch import Scratch
from nearfar.objective import kernels
from nearfar.objective.fast_gradient import project, squared_distances
from nearfar.objective.losses import BlockLoss, ComparisonLoss, Loss, block_value_and_slopes, value_and_slopes
from nearfar.objective.ranking import average_precision


@dataclass(frozen=True)
class Judgement:
    """What held-out constraints say of L."""

    objective: float
    ap: float


class Judge:
    """Judges L on one held-out sample; for one thread at a time."""

    def __init__(self, points: Points, held_out: HeldOut, loss: Loss) -> None:
        self._points, self._held_out, self._loss = points, held_out, loss
        self._scratch = Scratch()
        self._batch = held_out.triplets if isinstance(loss, ComparisonLoss) else held_out.pairs

    def flops(self, rank: int) -> float:
        """What one judgement costs."""
        rows = len(np.unique(self._batch.indices))
        if isinstance(self._loss, BlockLoss):
            rows += len(self._held_out.block.indices)
        return cost.step_flops(rows, self._points.stored_per_point, rank) / 2

    @np.errstate(over="ignore", invalid="ignore")  # as in training, what is not finite shows in the objective
    def __call__(self, Lt: Floats) -> Judgement:
        """The objective and the average precision of L."""
        batch = self._batch
        s = squared_distances(Lt, self._points, np.concatenate((batch.near, batch.far)), self._scratch)
        near, far = s[: len(batch.near)], s[len(batch.near) :]
        ap = average_precision(near, far)
        if not isinstance(self._loss, BlockLoss):
            return Judgement(value_and_slopes(self._loss, near, far, batch.weights)[0], ap)
        Z = project(Lt, self._points, self._held_out.block.indices, self._scratch)
        Z -= Z.mean(axis=0)
        products = Z @ Z.T
        kernels.squares_from_products(products)
        return Judgement(block_value_and_slopes(self._loss, products, self._held_out.block.sizes)[0], ap)
