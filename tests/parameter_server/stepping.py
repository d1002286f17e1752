"""A small parameter server that tests step by hand, message by message, with no thread."""

from dataclasses import dataclass

import numpy as np

from nearfar.data.constraints import Labels
from nearfar.data.from_labels import LabelDraws
from nearfar.data.points import as_points
from nearfar.data.sampling import BlockSampler
from nearfar.objective.fast_gradient import Gatherer, Gradient, GradientKernel
from nearfar.objective.losses import Hinge
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.messages import Push
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import LocalStep, UpdateRule
from nearfar.parameter_server.worker import Shard, Worker

D, K = 6, 3
STEP_SIZE = 0.01


@dataclass
class SteppedCluster:
    """A server and workers; nothing happens unless a test says so."""

    server: Server
    workers: list[Worker]
    clocks: Clocks
    gatherer: Gatherer
    kernel: GradientKernel

    def compute(self, worker: int) -> Push:
        """One step of a worker, queued at the server but not applied."""
        chosen = self.workers[worker]
        task = chosen.begin()
        push = chosen.compute(task, self.gatherer.rows_of(task.batch), self.kernel, self.server, STEP_SIZE)
        assert self.server.receive(push, timeout=0)
        return push


def stepped_cluster(slack: float, n_workers: int = 2, rule: str = "sgd", slots: int = 8) -> SteppedCluster:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 10)
    points = as_points((rng.normal(size=(40, D)) + labels[:, None]).astype(np.float32))
    sampler = BlockSampler(LabelDraws(Labels(labels)), 8, 2, n_shards=2 * n_workers, seed=0)
    clocks = Clocks(slack)
    Lt = rng.normal(size=(D, K)).astype(np.float32) * 0.3
    server = Server(Lt, UpdateRule(rule, D, K), clocks, lambda version: STEP_SIZE, capacity=slots * n_workers)
    workers = [
        Worker(
            number,
            sampler,
            [Shard(shard) for shard in range(number, 2 * n_workers, n_workers)],
            np.empty_like(Lt),
            LocalStep(rule, D),
            slots,
            clock=clocks.join(number),
        )
        for number in range(n_workers)
    ]
    return SteppedCluster(server, workers, clocks, Gatherer(points, K), GradientKernel(points, Hinge(margin=5.0), K))


def push_of(values: np.ndarray, *, worker: int = 0, number: int = 0, version: int = 0) -> Push:
    """A push of a given gradient over all features."""
    gradient = Gradient.empty()
    gradient.features = np.arange(len(values), dtype=np.int32)
    gradient.values = np.asarray(values, np.float32)
    return Push(worker, number, number, worker, number, version, gradient, 0.0, 1, 1, lambda: None)
