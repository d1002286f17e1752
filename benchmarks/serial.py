"""The engine-level loop that the benchmarks time: one worker, one thread, a constant step size."""

from abc import ABC, abstractmethod

from nearfar.data.points import Floats, Points
from nearfar.data.sampling import Sampler
from nearfar.engine.budget import Budget
from nearfar.engine.engine import Job
from nearfar.model.preparation import Prepared
from nearfar.model.run_sizes import run_sizes
from nearfar.objective.losses import Loss
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.messages import Applied
from nearfar.parameter_server.progress import Progress
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import Schedule, UpdateRule
from nearfar.parameter_server.worker import Shard
from nearfar.settings import TrainingSettings
from nearfar.sizes import Sizes


def serial_job(
    points: Points, sampler: Sampler, loss: Loss, Lt: Floats, step_size: float = 1e-6, sizes: Sizes | None = None
) -> Job:
    """A job for the serial engine that ends when its supervisor says so; it changes ``Lt`` in place."""
    d, rank = Lt.shape
    if sizes is None:
        typical = sampler.batch(0, sampler.settled)
        sizes = run_sizes(points, typical, rank, TrainingSettings(rank=rank), begins_small=False)
    clocks = Clocks(float("inf"))

    def constant(version: int) -> float:
        return step_size

    return Job(
        points=points, sampler=sampler, loss=loss, rank=rank, rounded=True,
        server=Server(Lt, UpdateRule("adam", d, rank), clocks, constant, capacity=2), clocks=clocks,
        budget=Budget(None, None), step_size=constant, schedule=Schedule("constant", step_size), update_rule="adam",
        staleness_scaling=False, workers=1, threads_per_worker=1, slots=1, checkpoint_every=10.0,
        shards=[Shard(number) for number in range(sampler.n_shards)], sizes=sizes,
    )  # fmt: skip


class Watcher(ABC):
    """A supervisor that only watches the steps, and says when there were enough."""

    def __init__(self) -> None:
        self.progress = Progress()

    @abstractmethod
    def attend(self, applied: list[Applied]) -> bool:
        """Whether training is to end."""

    def worker_failed(self, worker: int, error: BaseException, left: int) -> None:
        raise error

    def servers_went_back(self, version: int) -> None:
        raise AssertionError("one process has no server to lose")


def prepared_job(prepared: Prepared) -> Job:
    """The steps that ``nf.train`` takes with the same settings, until its step size falls."""
    of_steps = (prepared.points, prepared.sampler, prepared.loss, prepared.Lt, prepared.step_size)
    return serial_job(*of_steps, prepared.sizes)
