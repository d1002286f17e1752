"""From points, constraints and settings to a job: every default that depends on the data is decided here."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar import cost
from nearfar.data.constraints import Comparisons, Constraints, Groups, Labels, Pairs
from nearfar.data.from_labels import GroupDraws, LabelDraws
from nearfar.data.held_out import HeldOut, Split, draw_held_out, split_apart, split_points
from nearfar.data.points import Floats, Points, as_points
from nearfar.data.sampling import (
    Batch,
    Block,
    BlockSampler,
    ComparisonSampler,
    GroupPairSampler,
    LabelTripletSampler,
    PairSampler,
    Sampler,
    SamplingPlan,
)
from nearfar.errors import InvalidConstraints, InvalidSettings
from nearfar.model.metric import Metric
from nearfar.model.run_sizes import check_memory, run_sizes
from nearfar.objective.fast_gradient import Gatherer, Gradient, GradientKernel
from nearfar.objective.judging import Judge
from nearfar.objective.lift import Lift, LiftedPoints, rbf_lift
from nearfar.objective.losses import BlockLoss, ComparisonLoss, Hinge, Loss, PairLoss, make_loss
from nearfar.objective.starting_point import (
    feature_scale,
    mean_squared_difference,
    median_distance,
    rescale,
    starting_metric,
)
from nearfar.settings import TrainingSettings
from nearfar.sizes import Sizes

_SHARDS_A_WORKER = 4
_LARGEST_DEFAULT_RANK = 256
_LARGEST_DEFAULT_LIFTED_RANK = 128
_LIFT_WIDTH = 0.7
"""Width of a lift's kernel, as a share of the median distance between points; see docs/defaults.md."""


@dataclass(frozen=True)
class Prepared:
    """All that is decided before the first step."""

    points: Points
    """As learned on: scaled, or lifted, where asked for."""
    scale: NDArray[np.float64] | None
    """What L has yet to be divided by; with a lift it is in the lift's weights."""
    lift: Lift | None
    lift_width: float | None
    sampler: Sampler
    loss: Loss
    judge: Judge | None
    held_out: HeldOut | None
    Lt: Floats
    sizes: Sizes
    step_size: float
    flops_a_step: float
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
    start: NDArray[np.floating[Any]] | Metric | None,
) -> Prepared:
    """Check what was given, and decide what was not."""
    points = as_points(X)
    if sp.issparse(X) or (isinstance(X, np.ndarray) and not isinstance(X, np.memmap)):
        points.check_finite()
    for remark in constraints.check(len(points)):
        warnings.warn(remark, UserWarning, stacklevel=4)
    if labels is not None and len(labels) != len(points):
        raise InvalidConstraints(f"there are {len(labels)} labels for {len(points)} points; expected one a point")
    start_lift, start_L = _started_from(start, settings)
    rank = len(start_L) if start_L is not None and settings.rank is None else chosen_rank(settings, points.n_features)
    loss = loss or _loss(settings, constraints)
    scale = feature_scale(points, settings.seed) if settings.scale_features else None
    sampler, held_out = _sampler_and_held_out(constraints, labels, loss, settings, len(points))
    typical = sampler.batch(0, sampler.settled)
    lift, width = None, None
    sizes = run_sizes(points, typical, rank, settings, begins_small=sampler.settled > 0)
    check_memory(sizes, settings)
    if settings.lift == "none":
        points = points if scale is None else points.scaled(scale)
    else:
        lift, width = start_lift or _lift(points, scale, settings)
        points, scale = LiftedPoints(points, lift), None
    Lt = starting_metric(settings.start if start_L is None else start_L, points, rank, scale, settings.seed)
    if start_L is None:
        rescale(Lt, points, typical, starting_distance(loss))
    typical_entry = math.sqrt(starting_distance(loss) / (rank * mean_squared_difference(points, typical)))
    judge = Judge(points, held_out, loss) if held_out else None
    flops_a_step = _flops_a_step(typical, points, rank)
    judging = judge.flops(rank) if judge else 0.0
    if isinstance(points, LiftedPoints):
        judging *= 1 + points.lifting_flops / (2 * points.stored_per_point * rank)  # lifted, then projected
    return Prepared(
        points=points,
        scale=scale,
        lift=lift,
        lift_width=width,
        sampler=sampler,
        loss=loss,
        judge=judge,
        held_out=held_out,
        Lt=Lt,
        sizes=sizes,
        step_size=settings.step_size or _step_size(settings, typical_entry, Lt, points, loss, typical),
        flops_a_step=flops_a_step,
        report_every=settings.report_every
        or cost.steps_between_reports(judging * _judged(lift, loss), flops_a_step, sampler.steps_per_epoch),
    )


def starting_distance(loss: Loss) -> float:
    """The mean squared distance of far pairs to start from. Found by trial on five data sets; see docs/defaults.md."""
    if isinstance(loss, BlockLoss):
        return 10.0
    if isinstance(loss, ComparisonLoss):
        return 2.0 * loss.margin
    return 0.5 * loss.margin if isinstance(loss, Hinge) else loss.margin


def chosen_rank(settings: TrainingSettings, n_features: int) -> int:
    """Rows of L: as many as are asked for, or the default for points of so many features."""
    is_lifted = settings.lift != "none"
    most = settings.lift_dim if is_lifted else n_features
    if settings.rank is None:
        return min(most, _LARGEST_DEFAULT_LIFTED_RANK if is_lifted else _LARGEST_DEFAULT_RANK)
    if settings.rank > most:
        points = "lifted points" if is_lifted else "points"
        raise InvalidSettings(f"rank is {settings.rank}, but {points} have {most} features; expected at most that many")
    return settings.rank


def _started_from(
    start: NDArray[np.floating[Any]] | Metric | None, settings: TrainingSettings
) -> tuple[tuple[Lift, float] | None, NDArray[np.floating[Any]] | None]:
    """The lift of a metric to go on from, with the width of its kernel, and the L to start from, where given."""
    if not isinstance(start, Metric):
        return None, None if start is None else np.atleast_2d(np.asarray(start))
    if (settings.lift == "none") != (start.lift is None):
        has, asked = ("a", "none") if start.lift else ("no", settings.lift)
        raise InvalidSettings(f"the metric to start from has {has} lift, but lift is {asked!r}; they must agree")
    if start.lift is None:
        return None, start.components
    if start.lift.dim != settings.lift_dim:
        raise InvalidSettings(
            f"the metric to start from is lifted to {start.lift.dim} features, but lift_dim is {settings.lift_dim}"
        )
    return (start.lift, float(start.settings.get("lift_width", math.nan))), start.components


def _judged(lift: Lift | None, loss: Loss) -> float:
    """Steps with a lift are dear and few: judged twice as often, a plateau is seen after half as many.

    Not for a block loss: on MNIST it then ended sooner, and worse (docs/defaults.md).
    """
    return 1.0 if lift is None or isinstance(loss, BlockLoss) else 0.5


def _lift(points: Points, scale: NDArray[np.float64] | None, settings: TrainingSettings) -> tuple[Lift, float]:
    """The lift for raw points, and the width of its kernel on scaled ones."""
    scaled = points if scale is None else points.scaled(scale)
    width = settings.lift_width or _LIFT_WIDTH * median_distance(scaled, settings.seed)
    return rbf_lift(points.n_features, settings.lift_dim, width, scale, settings.seed), width


def _loss(settings: TrainingSettings, constraints: Constraints) -> Loss:
    name = settings.loss
    if name == "auto":
        name = "comparison" if isinstance(constraints, Comparisons) else "logistic"
    loss = make_loss(name, settings.margin, settings.dissimilar_weight)
    if isinstance(constraints, Groups) and not isinstance(loss, PairLoss):
        raise InvalidSettings(f"the {name} loss does not take overlapping groups; use hinge or logistic")
    if isinstance(constraints, Pairs) and not isinstance(loss, PairLoss):
        raise InvalidSettings(f"the {name} loss does not take pairs; use hinge or logistic, or learn from labels")
    if isinstance(constraints, Comparisons) and not isinstance(loss, ComparisonLoss):
        raise InvalidSettings(f"the {name} loss does not take triplets or quadruplets; use comparison")
    return loss


def _sampler_and_held_out(
    constraints: Constraints, labels: Labels | None, loss: Loss, settings: TrainingSettings, n_points: int
) -> tuple[Sampler, HeldOut | None]:
    n_shards, seed = _SHARDS_A_WORKER * settings.workers, settings.seed
    known = constraints if isinstance(constraints, Labels | Groups) else labels
    split = split_points(known, settings.held_out, seed) if known and settings.held_out else None
    held_out = draw_held_out(known, split.aside, seed) if known and split else None
    if isinstance(constraints, Labels):
        draws = LabelDraws(constraints, split.training if split else None)
        if isinstance(loss, ComparisonLoss):
            return LabelTripletSampler(draws, settings.batch_size, n_shards, seed), held_out
        size = settings.block_size or (2000 if isinstance(loss, BlockLoss) else 1000)
        return BlockSampler(draws, size, settings.per_class, n_shards, seed, grows=_grows(settings, loss)), held_out
    if isinstance(constraints, Groups):
        of_groups = GroupDraws(constraints, split.training if split else None)
        return GroupPairSampler(of_groups, settings.batch_size, n_shards, seed), held_out
    if isinstance(constraints, Pairs) and not (len(constraints.similar) and len(constraints.dissimilar)):
        kind = "dissimilar" if len(constraints.similar) else "similar"
        raise InvalidConstraints(f"there are no {kind} pairs; learning takes some of both kinds")
    if settings.held_out_apart and settings.held_out and not split:
        split, held_out = split_apart(constraints, n_points, settings.held_out, seed)
    return _stored_sampler(constraints, split, held_out, settings, n_shards, n_points)


def _grows(settings: TrainingSettings, loss: Loss) -> bool:
    """Whether blocks begin small: where nobody chose their size, nor how many there are to be."""
    chosen = (settings.block_size, settings.per_class, settings.steps, settings.epochs)
    return isinstance(loss, PairLoss) and all(one is None for one in chosen)


def _stored_sampler(
    constraints: Pairs | Comparisons,
    split: Split | None,
    held_out: HeldOut | None,
    settings: TrainingSettings,
    n_shards: int,
    n_points: int,
) -> tuple[Sampler, HeldOut | None]:
    excluded = split.excluded(n_points) if split else None
    fewest = (
        min(len(constraints.similar), len(constraints.dissimilar))
        if isinstance(constraints, Pairs)
        else len(constraints)
    )
    n_held_out = 0 if split else min(settings.held_out, fewest // 10)
    if fewest - n_held_out < settings.workers:
        what = "pairs of one kind" if isinstance(constraints, Pairs) else "comparisons"
        raise InvalidSettings(
            f"workers is {settings.workers}, but there are only {fewest - n_held_out} {what} to learn from, and each "
            "worker takes one at least; lower workers"
        )
    plan = SamplingPlan(settings.batch_size, n_shards, settings.seed, n_held_out, excluded)
    if isinstance(constraints, Pairs):
        pairs = PairSampler(constraints, plan)
        return pairs, held_out or (HeldOut.of_pairs(pairs.held_out()) if n_held_out else None)
    comparisons = ComparisonSampler(constraints, plan)
    return comparisons, held_out or (HeldOut.of_pairs(comparisons.held_out()) if n_held_out else None)


def _step_size(
    settings: TrainingSettings, typical_entry: float, Lt: Floats, points: Points, loss: Loss, batch: Batch | Block
) -> float:
    """A step size without a unit: a share of the typical entry of a random starting L.

    An adaptive rule's step is about as long as its step size, whatever the gradient; for the others the size of the
    first gradient has to be divided out. With n threads that compute, a gradient is about n - 1 versions stale when it
    is applied, and L stays where a lone worker would take it only if steps are n times shorter.
    """
    share = 0.05 if isinstance(loss, BlockLoss) else 0.1
    if settings.update_rule == "adagrad":
        return share * typical_entry  # its steps become shorter by themselves
    share /= settings.workers * settings.threads_per_worker
    if settings.update_rule == "adam":
        return share * typical_entry
    kernel, gradient = GradientKernel(points, loss, Lt.shape[1]), Gradient.empty()
    kernel.gradient(Lt, batch, Gatherer(points, Lt.shape[1]).rows_of(batch), gradient)
    size = float(np.sqrt(np.mean(np.square(gradient.values), dtype=np.float64)))
    if settings.update_rule == "momentum":
        share /= 10  # a velocity adds up ten gradients
    return share * typical_entry / size if size > 0 else share * typical_entry


def _flops_a_step(batch: Batch | Block, points: Points, rank: int) -> float:
    stored = points.stored_per_point
    if isinstance(batch, Block):
        flops = cost.block_flops(len(batch.indices), stored, rank)
    else:
        flops = cost.step_flops(batch.n_pairs, stored, rank)
    if isinstance(points, LiftedPoints):
        flops += points.lifting_flops * len(np.unique(batch.indices))
    return flops
