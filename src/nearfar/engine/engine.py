"""What an engine is: it runs one job, and lets the supervisor see every update."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from nearfar.data.points import Points
from nearfar.data.sampling import Sampler
from nearfar.engine.budget import Budget
from nearfar.objective.fast_gradient import GradientKernel
from nearfar.objective.losses import Loss
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.messages import Applied
from nearfar.parameter_server.progress import Progress
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import Schedule
from nearfar.parameter_server.worker import Shard
from nearfar.settings import EngineName
from nearfar.sizes import Sizes


@dataclass(frozen=True)
class Job:
    """All that engines need to train: the data's side, the server, and when to stop."""

    points: Points
    sampler: Sampler
    loss: Loss
    rank: int
    rounded: bool
    """Whether sparse products may be of rounded numbers."""
    server: Server
    clocks: Clocks
    budget: Budget
    step_size: Callable[[int], float]
    schedule: Schedule
    update_rule: str
    staleness_scaling: bool
    workers: int
    threads_per_worker: int
    slots: int
    """Gradients that each worker may have under way."""
    checkpoint_every: float
    """Seconds after which what servers in other processes have is to be safe here."""
    shards: list[Shard]
    sizes: Sizes
    """What a step costs, counted."""

    def kernel(self) -> GradientKernel:
        """A kernel for one computing thread."""
        return GradientKernel(self.points, self.loss, self.rank, rounded=self.rounded)


class Servers(Protocol):
    """What the supervisor sees of the server, or of the servers that own parts of L, as one."""

    @property
    def features(self) -> range: ...

    @property
    def version(self) -> int: ...

    def read(self) -> NDArray[np.float32]:
        """The newest L, transposed; not to be changed."""

    def pull(self, features: NDArray[np.int32], local: NDArray[np.float32], known: NDArray[np.int64]) -> int:
        """Bring rows of a copy up to date with what was read last."""

    def state(self) -> dict[str, NDArray[Any]]:
        """L and the rule's state, all of one version."""

    def restore(self, version: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""

    def is_finite(self) -> bool: ...


class Supervisor(Protocol):
    """Sees every update, on the thread that updates, and says when to stop."""

    progress: Progress

    def attend(self, applied: list[Applied]) -> bool:
        """Count, report, save; True when training is to end."""

    def worker_failed(self, worker: int, error: BaseException, left: int) -> None:
        """A worker raised, or is gone; ``left`` workers go on with its shards."""

    def servers_went_back(self, version: int) -> None:
        """A server was lost, and all went back to the last cut, which has this version."""


@runtime_checkable
class Engine(Protocol):
    """Runs a job until the supervisor or the budget ends it."""

    @property
    def name(self) -> EngineName:
        """As settings name it."""

    def now(self) -> float:
        """The clock that training is timed by, in seconds."""

    def servers(self, server: Server) -> Servers:
        """What the supervisor is to look at: the server itself, or what stands for others elsewhere."""

    def run(self, job: Job, supervisor: Supervisor) -> None: ...
