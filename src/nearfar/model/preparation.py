"""From points, constraints and settings to a job: every default that depends on the data is decided here."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar import cost
from nearfar.data.constraints import Comparisons, Constraints, Labels, Pairs
from nearfar.data.from_labels import LabelDraws
from nearfar.data.held_out import HeldOut, Split, draw_held_out, split_points
from nearfar.data.points import Floats, Points, as_points
from nearfar.data.sampling import (
    Block,
    BlockSampler,
    ComparisonSampler,
    LabelTripletSampler,
    PairSampler,
    Sampler,
    SamplingPlan,
)
from nearfar.errors import InvalidConstraints, InvalidSettings
from nearfar.objective.fast_gradient import Gradient, GradientKernel
from nearfar.objective.judging import Judge
from nearfar.objective.losses import BlockLoss, ComparisonLoss, Loss, PairLoss, make_loss
from nearfar.objective.starting_point import feature_scale, rescaled, starting_L
from nearfar.settings import TrainingSettings

_SHARDS_A_WORKER = 4
_LARGEST_DEFAULT_RANK = 256


@dataclass(frozen=True)
class Prepared:
    """All that is decided before the first step."""

    points: Points
    """As learned on: scaled where asked for."""
    scale: NDArray[np.float64] | None
    sampler: Sampler
    loss: Loss
    judge: Judge | None
    held_out: HeldOut | None
    Lt: Floats
    step_size: float
    report_every: int

    @property
    def rank(self) -> int:
        return int(self.Lt.shape[1])


def prepare(
    X: Any,
    constraints: Constraints,
    settings: TrainingSettings,
    *,
    labels: Labels | None,
    loss: Loss | None,
    start: NDArray[np.floating[Any]] | None,
) -> Prepared:
    """Check what was given, and decide what was not."""
    points = as_points(X)
    if isinstance(X, np.ndarray) and not isinstance(X, np.memmap) or sp.issparse(X):
        points.check_finite()
    for remark in constraints.check(len(points)):
        warnings.warn(remark, UserWarning, stacklevel=4)
    rank = _rank(settings.rank, points.n_features)
    loss = loss or _loss(settings, constraints)
    scale = feature_scale(points, settings.seed) if settings.scale_features else None
    points = points if scale is None else points.scaled(scale)
    sampler, held_out = _sampler_and_held_out(constraints, labels, loss, settings, len(points))
    first = sampler.batch(0, 0)
    Lt = starting_L(settings.start if start is None else start, points, rank, scale, settings.seed)
    if start is None:
        rescaled(Lt, points, first, starting_distance(loss))
    judge = Judge(points, held_out, loss) if held_out else None
    return Prepared(
        points=points,
        scale=scale,
        sampler=sampler,
        loss=loss,
        judge=judge,
        held_out=held_out,
        Lt=Lt,
        step_size=settings.step_size or _step_size(settings.update_rule, Lt, points, loss, sampler),
        report_every=settings.report_every or _report_every(judge, points, sampler, rank),
    )


def starting_distance(loss: Loss) -> float:
    """The mean squared distance of far pairs to start from."""
    if isinstance(loss, BlockLoss):
        return 10.0
    return loss.margin


def _rank(rank: int | None, n_features: int) -> int:
    if rank is None:
        return min(n_features, _LARGEST_DEFAULT_RANK)
    if rank > n_features:
        raise InvalidSettings(f"rank is {rank}, but points have {n_features} features; expected at most that many")
    return rank


def _loss(settings: TrainingSettings, constraints: Constraints) -> Loss:
    name = settings.loss
    if name == "auto":
        name = "comparison" if isinstance(constraints, Comparisons) else "logistic"
    loss = make_loss(name, settings.margin, settings.dissimilar_weight)
    if isinstance(constraints, Pairs) and not isinstance(loss, PairLoss):
        raise InvalidSettings(f"the {name} loss does not take pairs; use hinge or logistic, or learn from labels")
    if isinstance(constraints, Comparisons) and not isinstance(loss, ComparisonLoss):
        raise InvalidSettings(f"the {name} loss does not take triplets or quadruplets; use comparison")
    return loss


def _sampler_and_held_out(
    constraints: Constraints, labels: Labels | None, loss: Loss, settings: TrainingSettings, n_points: int
) -> tuple[Sampler, HeldOut | None]:
    n_shards, seed = _SHARDS_A_WORKER * settings.workers, settings.seed
    known = constraints if isinstance(constraints, Labels) else labels
    split = split_points(known, settings.held_out, seed) if known and settings.held_out else None
    held_out = draw_held_out(known, split.aside, seed) if known and split else None
    if isinstance(constraints, Labels):
        draws = LabelDraws(constraints, split.training if split else None)
        if isinstance(loss, ComparisonLoss):
            return LabelTripletSampler(draws, settings.batch_size, n_shards, seed), held_out
        return BlockSampler(draws, settings.block_size, settings.per_class, n_shards, seed), held_out
    return _stored_sampler(constraints, split, held_out, settings, n_shards, n_points)


def _stored_sampler(
    constraints: Pairs | Comparisons,
    split: Split | None,
    held_out: HeldOut | None,
    settings: TrainingSettings,
    n_shards: int,
    n_points: int,
) -> tuple[Sampler, HeldOut | None]:
    if isinstance(constraints, Pairs) and not (len(constraints.similar) and len(constraints.dissimilar)):
        kind = "dissimilar" if len(constraints.similar) else "similar"
        raise InvalidConstraints(f"there are no {kind} pairs; learning takes some of both kinds")
    excluded = split.excluded(n_points) if split else None
    fewest = (
        min(len(constraints.similar), len(constraints.dissimilar))
        if isinstance(constraints, Pairs)
        else len(constraints)
    )
    n_held_out = 0 if split else min(settings.held_out, fewest // 10)
    plan = SamplingPlan(settings.batch_size, n_shards, settings.seed, n_held_out, excluded)
    if isinstance(constraints, Pairs):
        pairs = PairSampler(constraints, plan)
        return pairs, held_out or (HeldOut.of_pairs(pairs.held_out()) if n_held_out else None)
    comparisons = ComparisonSampler(constraints, plan)
    return comparisons, held_out or (HeldOut.of_pairs(comparisons.held_out()) if n_held_out else None)


def _step_size(rule: str, Lt: Floats, points: Points, loss: Loss, sampler: Sampler) -> float:
    """A step size without a unit: a share of the size of L's entries.

    An adaptive rule's step is about as long as its step size, whatever the gradient; for the others the size of the first
    gradient has to be divided out.
    """
    size = float(np.sqrt(np.mean(np.square(Lt), dtype=np.float64)))
    if rule in ("adam", "adagrad"):
        return 0.03 * size
    kernel, gradient = GradientKernel(points, loss, Lt.shape[1]), Gradient.empty()
    batch = sampler.batch(0, 0)
    kernel.gradient(Lt, batch, kernel.rows_of(batch), gradient)
    gradient_size = float(np.sqrt(np.mean(np.square(gradient.values), dtype=np.float64)))
    share = 0.03 if rule == "sgd" else 0.003
    return share * size / gradient_size if gradient_size > 0 else share * size


def _report_every(judge: Judge | None, points: Points, sampler: Sampler, rank: int) -> int:
    batch = sampler.batch(0, 0)
    stored = points.stored_per_point
    if isinstance(batch, Block):
        flops = cost.block_flops(len(batch.indices), stored, rank)
    else:
        flops = cost.step_flops(batch.n_pairs, stored, rank)
    return cost.steps_between_reports(judge.flops(rank) if judge else 0.0, flops)
