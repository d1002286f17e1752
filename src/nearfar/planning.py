"""Planning: what a run will take of this machine, before it is started.

Work, traffic and memory are counted (sizes.py); the rates at which this machine does them are measured in a few seconds
on a few real batches, of a small L, by the very code that trains.
"""

import math
import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from nearfar.data.constraints import Constraints, Labels, Pairs
from nearfar.data.points import Floats
from nearfar.model.preparation import Prepared, prepare
from nearfar.model.run_sizes import fitted
from nearfar.objective.fast_gradient import Gatherer, Gradient, GradientKernel
from nearfar.parameter_server import update_kernels
from nearfar.parameter_server.update_rule import UpdateRule
from nearfar.settings import TrainingSettings
from nearfar.sizes import Rates, Sizes

PROBED_RANK = 1024
"""The largest rank that rates are measured with; they are the same beyond it."""

_SECONDS = 0.6
"""How long each part is measured, at the least."""
_FEWEST_ROUNDS = 3
_SETTLING = 12
"""Steps before rates are measured. Pairs beyond the margin have no part in the backward product, and at the start there
are fewer of them than soon after."""
_FEWEST_POINTS, _MOST_POINTS = 2000, 100_000
_STAND_IN_BYTES = 256 << 20
_CLASSES = 20


@dataclass(frozen=True)
class Plan:
    """What a run will take."""

    sizes: Sizes
    rates: Rates
    cores: int
    machines: int = 1
    bandwidth: float = 0.0
    """Bytes a second between two machines."""
    constraints: float = 0.0
    """In one pass; points, where blocks of them are drawn."""

    @property
    def compute_seconds(self) -> dict[str, float]:
        """What a computing thread spends on a step, part by part."""
        return self.sizes.compute_seconds(self.rates)

    @property
    def update_seconds(self) -> float:
        """What the server spends on a push."""
        return self.sizes.update_seconds(self.rates)

    @property
    def network_bytes(self) -> float:
        """What a step sends between machines: its gradient, and the rows that it pulls; 0 on one machine."""
        return 0.0 if self.machines == 1 else 2 * self.sizes.gradient_bytes

    @property
    def limits(self) -> dict[str, float]:
        """Seconds a step, over all workers, if nothing but this were in the way; the largest one decides."""
        computing = sum(self.compute_seconds.values())
        threads = self.sizes.workers * self.sizes.threads_per_worker * self.machines
        limits = {
            "computing threads": computing / threads,
            "the server's update": self.update_seconds / self.machines,  # each machine owns a range of features
            "cores": (computing + self.update_seconds) / (self.cores * self.machines),
        }
        if self.sizes.workers == 1 and not self.sizes.has_copies:
            limits = {"one thread": computing + self.update_seconds}
        if self.machines > 1:
            limits["network"] = self.network_bytes / (self.bandwidth * self.machines)
        return limits

    @property
    def bottleneck(self) -> str:
        return max(self.limits, key=self.limits.__getitem__)

    @property
    def step_seconds(self) -> float:
        """Seconds from one step's end to the next one's, over all workers."""
        return max(self.limits.values())

    @property
    def pass_seconds(self) -> float:
        """Seconds of one pass over the constraints, or over the points where blocks of them are drawn."""
        batch = self.sizes.batch
        return self.step_seconds * self.constraints / max(1, batch.rows if batch.is_block else batch.pairs)

    @property
    def memory(self) -> dict[str, float]:
        """Bytes a process, with as many gradients under way as there will be; each machine has its range of L."""
        threads = self.sizes.workers * self.sizes.threads_per_worker
        waiting = math.ceil(self.update_seconds / self.step_seconds) + self.sizes.goes_in_pairs
        under_way = min(self.sizes.workers * self.sizes.slots, threads + waiting) * self.sizes.gradient_bytes
        parts = {**self.sizes.memory, "gradients under way": under_way}
        if self.machines == 1:
            return parts
        owned = ("L", f"state of {self.sizes.update_rule}", "best L")
        return {name: part / self.machines if name in owned else part for name, part in parts.items()}

    def to_json(self) -> dict[str, Any]:
        """All of it, in bytes and seconds."""
        return {
            "memory": self.memory,
            "memory_bytes": sum(self.memory.values()),
            "push_bytes": self.sizes.gradient_bytes,
            "pull_bytes": self.sizes.pull_bytes / 2,
            "network_bytes": self.network_bytes,
            "compute_seconds": self.compute_seconds,
            "update_seconds": self.update_seconds,
            "limits": self.limits,
            "bottleneck": self.bottleneck,
            "step_seconds": self.step_seconds,
            "pairs_per_second": self.sizes.batch.pairs / self.step_seconds,
            "pass_seconds": self.pass_seconds,
        }


def plan(
    points: Any,
    constraints: Constraints,
    settings: TrainingSettings,
    *,
    n_constraints: float | None = None,
    machines: int = 1,
    bandwidth: float = 1.25e9,
    busy: int | None = None,
) -> Plan:
    """Plan the training of a metric: count what it takes, and measure how fast this machine is at it.

    Parameters
    ----------
    points, constraints
        As for :func:`~nearfar.train`, or like those: a sample of the points will do.
    settings : TrainingSettings
    n_constraints : float, optional
        Constraints, or points where blocks of them are drawn, in one pass; by default as many as are given.
    machines : int
        Machines, each with these workers and as fast as this one.
    bandwidth : float
        Bytes a second from one machine to the others.
    busy : int, optional
        Cores that are busy while rates are measured; by default as many as will be.
    """
    small = replace(settings, rank=min(settings.rank or PROBED_RANK, PROBED_RANK), memory=None)
    if settings.rank is None or settings.rank <= PROBED_RANK:
        small = replace(small, rank=settings.rank)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is odd about the data, training will tell
        prepared = prepare(points, constraints, small, labels=None, loss=None, start=None)
    rates = measured_rates(prepared, prepared.sizes, busy)
    sizes = fitted(replace(prepared.sizes, rank=settings.rank or prepared.rank), settings)
    if machines > 1:
        sizes = replace(sizes, hands_over=False)
    count = len(constraints) if n_constraints is None else n_constraints
    return Plan(sizes, rates, os.cpu_count() or 1, machines, bandwidth, count)


def stand_in(n_points: int, n_features: int, nonzeros: int | None, pairs: bool) -> tuple[Any, Constraints]:
    """Random points of this shape, and constraints among them: few, but such that batches are as they will be."""
    rng = np.random.default_rng(0)
    stored = nonzeros or n_features
    count = max(_FEWEST_POINTS, min(n_points, _MOST_POINTS, _STAND_IN_BYTES // (8 * stored)))
    points: Any
    if nonzeros is None:
        points = rng.random((count, n_features), dtype=np.float32)
    else:
        columns = np.sort(rng.integers(n_features, size=(count, nonzeros)), axis=1).astype(np.int32)
        values, starts = rng.random(count * nonzeros, dtype=np.float32), np.arange(count + 1) * nonzeros
        points = sp.csr_matrix((values, columns.ravel(), starts), shape=(count, n_features))
    if not pairs:
        return points, Labels(np.arange(count) % _CLASSES)
    left = rng.integers(count, size=(2, 10 * count))
    right = (left + rng.integers(1, count, size=left.shape)) % count
    return points, Pairs(*np.stack((left, right), axis=2))


def measured_rates(prepared: Prepared, sizes: Sizes, busy: int | None = None) -> Rates:
    """Measure this machine's rates on batches of a job with a small L; ``sizes`` are that job's own."""
    busy = busy or min(os.cpu_count() or 1, sizes.workers * sizes.threads_per_worker + sizes.has_copies)
    Lt = _settled(prepared, sizes.update_rule)
    probes = [_Probe(prepared, Lt, sizes.update_rule, number) for number in range(busy)]
    with threadpool_limits(1):
        gather = _seconds([probe.gather for probe in probes])
        gradient = _seconds([probe.gradient for probe in probes])
        pull = _seconds([probe.pull for probe in probes])
        update = _seconds([probe.update for probe in probes])
    one = replace(sizes, has_copies=True, hands_over=False)  # as the probes do it
    return Rates(
        gather=sizes.batch.rows * sizes.batch.entries / gather,
        products=sizes.flops / gradient,
        pull=one.pull_bytes / pull,
        update=one.update_bytes / update,
    )


def _settled(prepared: Prepared, update_rule: str) -> Floats:
    """L after some steps."""
    probe = _Probe(prepared, prepared.Lt, update_rule, 0)
    for _ in range(_SETTLING):
        probe.gather()
        probe.gradient()
        probe.update(prepared.step_size)
    return probe.Lt


class _Probe:
    """One thread's work on a batch, part by part."""

    def __init__(self, prepared: Prepared, Lt: Floats, update_rule: str, number: int) -> None:
        self._kernel = GradientKernel(prepared.points, prepared.loss, prepared.rank, rounded=prepared.sizes.rounded)
        self._gatherer = Gatherer(prepared.points, prepared.rank)
        self._sampler, self._number, self._clock = prepared.sampler, number, prepared.sampler.settled
        self.Lt, self._local, self._gradient = Lt.copy(), np.empty_like(Lt), Gradient.empty()
        self._rule = UpdateRule(update_rule, *Lt.shape)
        self._versions, self._known = np.zeros(len(Lt), np.int64), np.empty(len(Lt), np.int64)
        self.gather()
        self.gradient()

    def gather(self) -> None:
        self._batch = self._sampler.batch(self._number % self._sampler.n_shards, self._clock)
        self._rows = self._gatherer.rows_of(self._batch)
        self._clock += 1

    def gradient(self) -> None:
        self._kernel.gradient(self.Lt, self._batch, self._rows, self._gradient)

    def pull(self) -> None:
        self._known[self._gradient.features] = -1
        update_kernels.copy_newer(self.Lt, self._versions, self._gradient.features, 0, self._local, self._known)

    def update(self, step_size: float = 1e-9) -> None:
        self._rule.apply(self.Lt, [self._gradient], [step_size])


def _seconds(parts: list[Callable[[], None]]) -> float:
    """Seconds of one call, the median over all calls, while every thread does nothing else."""
    taken: list[float] = []
    ready = threading.Barrier(len(parts))

    def repeat(part: Callable[[], None]) -> None:
        part()
        ready.wait()
        own: list[float] = []
        end = time.perf_counter() + _SECONDS
        while len(own) < _FEWEST_ROUNDS or time.perf_counter() < end:
            began = time.perf_counter()
            part()
            own.append(time.perf_counter() - began)
        taken.extend(own)

    threads = [threading.Thread(target=repeat, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return float(np.median(taken))
