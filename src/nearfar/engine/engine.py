"""What an engine is: it runs one job, and lets the supervisor see every update."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from nearfar.data.points import Points
from nearfar.data.sampling import Sampler
from nearfar.engine.budget import Budget
from nearfar.objective.fast_gradient import GradientKernel
from nearfar.objective.losses import Loss
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.messages import Applied
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.worker import Shard
from nearfar.sizes import Sizes


@dataclass(frozen=True)
class Job:
    """All that engines need to train: the data's side, the server, and when to stop."""

    points: Points
    sampler: Sampler
    loss: Loss
    rank: int
    server: Server
    clocks: Clocks
    budget: Budget
    step_size: Callable[[int], float]
    update_rule: str
    workers: int
    threads_per_worker: int
    slots: int
    """Gradients that each worker may have under way."""
    shards: list[Shard] = field(default_factory=list)
    sizes: Sizes | None = None
    """What a step costs, counted; an engine that simulates goes by it."""

    def kernel(self) -> GradientKernel:
        """A kernel for one computing thread."""
        return GradientKernel(self.points, self.loss, self.rank)


class Supervisor(Protocol):
    """Sees every update, on the thread that updates, and says when to stop."""

    def attend(self, applied: list[Applied]) -> bool:
        """Count, report, save; True when training is to end."""

    def worker_failed(self, worker: int, error: BaseException, left: int) -> None:
        """A worker raised; ``left`` workers go on with its shards."""


class Engine(Protocol):
    """Runs a job until the supervisor or the budget ends it."""

    def run(self, job: Job, supervisor: Supervisor) -> None: ...
