"""A worker in a process of its own: the plain worker, stepped as it is told."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import ray
from threadpoolctl import threadpool_limits

from nearfar import cost
from nearfar.data.points import Points, SparseRows
from nearfar.data.sampling import Sampler
from nearfar.engine.ray_cluster.parcel import Parcel, unpack
from nearfar.engine.ray_cluster.remote_servers import EraOver, RemoteServers
from nearfar.engine.ray_cluster.wire import Precision
from nearfar.engine.steps import Step, steps_of
from nearfar.objective.fast_gradient import GatheredRows, GradientKernel
from nearfar.objective.losses import Loss
from nearfar.parameter_server.messages import Push
from nearfar.parameter_server.update_rule import LocalStep
from nearfar.parameter_server.worker import Shard, Worker

_PROBE_BYTES = 8 << 20
_PROBES = 3


@dataclass(frozen=True)
class WorkerPart:
    """What all workers begin with; made once, and shared by the workers of a node."""

    points: Points
    sampler: Sampler
    loss: Loss
    rank: int
    rounded: bool
    update_rule: str
    slots: int
    ranges: list[range]
    """The features that each server owns."""
    wire: Precision
    bandwidth: float | None
    """Bytes a second to a server; None to measure it."""
    pulls_with_pushes: bool
    """Whether L may come back with a push, before the step that needs it: not where consistency is bounded."""


@dataclass(frozen=True)
class Grant:
    """Leave to take some steps."""

    era: int
    clock: int
    steps: int


@dataclass(frozen=True)
class Done:
    """What a worker did with a grant, and since it began."""

    steps: int
    """Of this grant."""
    seconds: float
    is_over: bool
    """Whether a server was found lost, or in another era."""
    taken: int
    """Pushes that the servers have taken in this era, in all."""
    pulled_bytes: int
    """Since the worker began."""


class WorkerActor:
    """Steps when it is told to. It never waits for another worker: that is for who grants the steps."""

    def __init__(self, number: int, parcel: Parcel, servers: Sequence[Any]) -> None:
        threadpool_limits(1)
        part: WorkerPart = unpack(parcel)
        self._part = part
        self._bandwidth = part.bandwidth or _measured_bandwidth(servers[0])
        self._servers = RemoteServers(servers, part.ranges, number, part.rank, part.slots, part.wire)
        n_features, memory = part.points.n_features, self._servers.memory
        self._worker = Worker(
            number, part.sampler, [], np.empty((n_features, part.rank), np.float32),
            LocalStep(part.update_rule, n_features), slots=len(memory) or 1, memory=memory,
        )  # fmt: skip
        self._kernel = GradientKernel(part.points, part.loss, part.rank, rounded=part.rounded)
        self._steps = steps_of(self._worker, part.points, part.rank)
        self._has_begun = False

    def ready(self) -> str:
        """The node that it runs on."""
        return str(ray.get_runtime_context().get_node_id())

    def take_over(self, shards: list[Shard]) -> None:
        """Hold these shards too."""
        self._worker.take_over(shards)

    def give_up(self, count: int) -> list[Shard]:
        """Leave so many shards to another worker."""
        return self._worker.give_up(count)

    def run(self, grant: Grant) -> Done:
        """Take the steps granted, or fewer if the era ends meanwhile."""
        began = time.perf_counter()
        if not self._has_begun:
            self._steps.__enter__()  # for the life of the process: rows may be gathered ahead
            self._has_begun = True
        done, is_over = 0, False
        try:
            if grant.era != self._servers.era:
                self._worker.forget()
                self._servers.begin(grant.era)
            for done in range(1, grant.steps + 1):
                self._step(grant.clock + done - 1)
            self._servers.settle()
        except EraOver:
            is_over = True
        return Done(done, time.perf_counter() - began, is_over, self._servers.taken, self._servers.pulled_bytes)

    def _step(self, clock: int) -> None:
        step = self._steps.next()
        try:
            push = self._push(replace(step, task=replace(step.task, clock=clock)))
            self._servers.push(push, pull=self._part.pulls_with_pushes and push.form == "dense")
        finally:
            self._steps.done(step)

    def _push(self, step: Step) -> Push:
        if self._sends_factors(step.gathered):
            return self._worker.compute_factors(step.task, step.gathered, self._kernel, self._servers)
        return self._worker.compute(step.task, step.gathered, self._kernel, self._servers, self._servers.step_size)

    def _sends_factors(self, gathered: GatheredRows) -> bool:
        rows = gathered.rows
        stored = len(rows.values) if isinstance(rows, SparseRows) else rows.size
        return cost.factors_are_cheaper(
            len(rows), stored / max(1, len(rows)), len(gathered.features), self._part.rank,
            sparse=isinstance(rows, SparseRows), bandwidth=self._bandwidth,
        )  # fmt: skip


def _measured_bandwidth(server: Any) -> float:
    """Bytes a second that arrive at a server, at best."""
    payload = np.zeros(_PROBE_BYTES, np.uint8)
    fastest = 0.0
    for _ in range(_PROBES):
        began = time.perf_counter()
        ray.get(server.probe.options(concurrency_group="pull").remote(payload))
        fastest = max(fastest, _PROBE_BYTES / (time.perf_counter() - began))
    return fastest
