"""The sizes of a run, as a typical batch has them, fitted into the memory that it may take."""

import math
import os
from dataclasses import replace

import numpy as np

from nearfar.data.points import Points, SparseRows
from nearfar.data.sampling import Batch, Block
from nearfar.errors import InvalidSettings
from nearfar.objective.fast_gradient import Gatherer
from nearfar.settings import TrainingSettings
from nearfar.sizes import BatchSizes, Sizes, memory_bytes, memory_text

_IN_FLIGHT_BYTES = 64 << 20
"""Gradients of a worker that are under way take no more than this, if two of them do not."""

_FEWEST_ROWS = 4
"""Of a batch: a pair of each kind."""


def run_sizes(
    points: Points, typical: Batch | Block, rank: int, settings: TrainingSettings, *, begins_small: bool
) -> Sizes:
    """What decides the cost of a run.

    Parameters
    ----------
    points : Points
        Before any lift.
    typical : Batch or Block
        Of the size that they come to have.
    rank : int
    settings : TrainingSettings
    begins_small : bool
        Whether the first ones are smaller.
    """
    sizes = Sizes(
        n_features=points.n_features,
        rank=rank,
        batch=_batch_sizes(points, typical, rank, settings),
        workers=settings.workers,
        threads_per_worker=settings.threads_per_worker,
        has_copies=settings.chosen_engine != "serial",
        hands_over=settings.chosen_engine == "threads" and settings.consistency == "asp",
        begins_small=begins_small,
        update_rule=settings.update_rule,
        keeps_best=bool(settings.patience) or not settings.has_budget,
        judged_rows=min(2 * settings.held_out, len(points)),
        rounded=settings.precision == "mixed",
        is_simulated=settings.chosen_engine == "simulated",
    )
    if settings.lift != "none":
        sizes = replace(sizes, n_features=settings.lift_dim, lift_features=points.n_features)
    return fitted(sizes, settings)


def fitted(sizes: Sizes, settings: TrainingSettings) -> Sizes:
    """The same with as many gradients under way as there is memory for."""
    if not sizes.has_copies:
        return sizes
    fewest = settings.threads_per_worker + 1
    most = min(settings.queue_capacity, int(_IN_FLIGHT_BYTES // sizes.gradient_bytes))
    many = replace(sizes, slots=max(fewest, most))
    return many if sum(many.memory.values()) <= allowed_memory(settings) else replace(sizes, slots=fewest)


def _batch_sizes(points: Points, typical: Batch | Block, rank: int, settings: TrainingSettings) -> BatchSizes:
    pairs, is_block = typical.n_pairs, isinstance(typical, Block)
    if settings.lift != "none":
        dim = settings.lift_dim
        return BatchSizes(len(np.unique(typical.indices)), dim, dim, pairs, is_sparse=False, is_block=is_block)
    gathered = Gatherer(points, rank).rows_of(typical)
    rows, touched = gathered.rows, len(gathered.features)
    stored = len(rows.values) if isinstance(rows, SparseRows) else rows.size
    is_sparse = isinstance(rows, SparseRows)
    return BatchSizes(len(rows), stored / max(1, len(rows)), touched, pairs, is_sparse=is_sparse, is_block=is_block)


def check_memory(sizes: Sizes, settings: TrainingSettings) -> None:
    """Raise if a run takes more memory than it may, or than there is, with the sum that shows it."""
    needed, allowed = sum(sizes.memory.values()), allowed_memory(settings)
    if needed > allowed:
        said = f"memory is {settings.memory}" if settings.memory else f"this machine has {memory_text(allowed)}"
        parts = ", ".join(f"{name} {memory_text(part)}" for name, part in sizes.memory.items() if part)
        raise InvalidSettings(f"{said}, but this run takes {memory_text(needed)}: {parts}; {_mend(sizes, allowed)}")


def _mend(sizes: Sizes, allowed: float) -> str:
    """What to do about a run that takes too much."""
    least = sum(_smallest(sizes).memory.values())
    if least > allowed:
        return f"such data take at least {memory_text(least)}, at rank 1 with one worker; expected that much or more"
    lift = "lift_dim, " if sizes.lift_features else ""
    return f"lower {lift}rank, workers or batch_size, or choose an update rule with less state"


def _smallest(sizes: Sizes) -> Sizes:
    """The sizes with all that may be lowered as low as it goes."""
    n_features, entries = (1, 1.0) if sizes.lift_features else (sizes.n_features, sizes.batch.entries)
    rows = min(_FEWEST_ROWS, sizes.batch.rows)
    touched = min(n_features, sizes.batch.touched, math.ceil(rows * entries))
    batch = replace(sizes.batch, rows=rows, entries=entries, touched=touched)
    alone = replace(sizes, workers=1, threads_per_worker=1, slots=1, has_copies=False, hands_over=False)
    return replace(alone, n_features=n_features, rank=1, batch=batch, update_rule="sgd")


def allowed_memory(settings: TrainingSettings) -> float:
    """The bytes that a run may take: as many as it was given, or as this machine has."""
    return memory_bytes(settings.memory) if settings.memory else machine_memory()


def machine_memory() -> float:
    """The bytes of memory that this machine has; infinity where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not every system says
        return float("inf")
