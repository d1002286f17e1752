"""A worker on a virtual clock: the real one, its computing threads, and what is on its way to it and from it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nearfar.engine.engine import Job
from nearfar.engine.simulated.cluster import SimulatedCluster
from nearfar.engine.simulated.snapshots import Features, Floats, Inbox
from nearfar.engine.simulated.usage import State
from nearfar.objective.fast_gradient import Gradient
from nearfar.parameter_server.update_rule import LocalStep
from nearfar.parameter_server.worker import Task, Worker


class DelayedStep(LocalStep):
    """A worker's step on its own copy, taken when the virtual time of the computation is over."""

    def __init__(self, rule: str, n_features: int) -> None:
        super().__init__(rule, n_features)
        self._kept: Callable[[], None] | None = None

    def apply(self, local: Floats, gradient: Gradient, step_size: float) -> None:
        """Keep the step for later."""
        take = super().apply
        self._kept = lambda: take(local, gradient, step_size)

    def kept(self) -> Callable[[], None] | None:
        """The step that was kept last, to be called when its time has come; handed over once."""
        kept, self._kept = self._kept, None
        return kept


@dataclass(eq=False)
class SimulatedThread:
    """One computing thread."""

    worker: "SimulatedWorker"
    task: Task | None = None
    """The next step; where pulls are behind, it is there while the one before is computed."""
    features: Features = field(default_factory=lambda: np.empty(0, np.int32))
    """Those that its batch needs."""
    is_admitted: bool = False
    """Whether the consistency lets it begin."""
    is_answered: bool = False
    """Whether the server sends rows of its own accord, as the thread's push was applied."""
    has_step: bool = False
    """Whether the budget has given it a step that it has not begun."""
    has_asked: bool = False
    """Whether the rows of its next step have been asked for."""
    has_rows: bool = False
    """Whether they have come."""
    computing: Task | None = None
    done_at: float = 0.0
    """The work of its machine's cores at which that will be done."""
    is_resting: bool = False
    """Between two steps."""
    state: State | None = None


@dataclass(eq=False)
class SimulatedWorker:
    """One worker."""

    worker: Worker
    step: DelayedStep
    machine: int
    slowness: float
    sent: NDArray[np.int64]
    """For each feature, the version that was last sent to it."""
    has: NDArray[np.bool_]
    """For each feature, whether it has ever come."""
    inbox: Inbox = field(default_factory=Inbox)
    under_way: int = 0
    """Gradients computed or travelling."""
    is_pulling: bool = False
    pull_seconds: float = 0.0
    """How long its last pull took."""
    wanting: list[SimulatedThread] = field(default_factory=list)
    """Threads whose rows are to be asked for next."""
    threads: list[SimulatedThread] = field(default_factory=list)
    """Those that have not ended."""
    is_ending: bool = False
    """Whether one of its threads has ended; the others then end after the step that they are at."""


def simulated_worker(number: int, job: Job, cluster: SimulatedCluster) -> SimulatedWorker:
    """A worker of a job, in its place in the cluster."""
    n_features = job.points.n_features
    step = DelayedStep(job.update_rule, n_features)
    worker = SimulatedWorker(
        Worker(
            number,
            job.sampler,
            job.shards[number :: job.workers],
            np.empty((n_features, job.rank), np.float32),
            step,
            job.slots,
            clock=job.clocks.join(number),
        ),
        step,
        machine=cluster.machine_of(number, job.threads_per_worker),
        slowness=cluster.slowness(number, job.workers),
        sent=np.full(n_features, -1, np.int64),
        has=np.zeros(n_features, np.bool_),
    )
    worker.threads = [SimulatedThread(worker) for _ in range(job.threads_per_worker)]
    return worker
