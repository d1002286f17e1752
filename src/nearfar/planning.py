"""Planning: what a run will take of this machine, before it is started.

Work, traffic and memory are counted (sizes.py); the rates at which this machine does them are measured in a few seconds
on a few real batches, of a small L, by the very code that trains.
"""

import contextlib
import math
import os
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from nearfar.data.constraints import Constraints
from nearfar.data.points import Floats, as_points
from nearfar.data.stand_in import PROBED_RANK, Shape, stand_in
from nearfar.model.preparation import Prepared, chosen_rank, prepare
from nearfar.model.run_sizes import allowed_memory, fitted
from nearfar.objective.fast_gradient import Gatherer, Gradient, GradientKernel
from nearfar.parameter_server import update_kernels
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.packed_copies import PackedCopies
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import UpdateRule
from nearfar.parameter_server.worker import gradient_of_packed
from nearfar.settings import TrainingSettings
from nearfar.sizes import Rates, Sizes

_SECONDS = 0.6
"""How long each part is measured, at the least."""
_FEWEST_ROUNDS = 3
_SETTLING = 12
"""Steps before rates are measured. Pairs beyond the margin have no part in the backward product, and at the start there
are fewer of them than soon after."""
_HARDLY = 1e-9
"""A step size at which L stays as it is, nearly."""


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
    allowed: float = math.inf
    """Bytes that a process may take; training refuses to take more."""

    @property
    def fits(self) -> bool:
        """Whether there is memory for it."""
        return sum((self.sizes if self.machines == 1 else self).memory.values()) <= self.allowed

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
            "fits": self.fits,
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
    machines : int
        Machines, each with these workers and as fast as this one.
    bandwidth : float
        Bytes a second from one machine to the others.
    busy : int, optional
        Cores that are busy while rates are measured; by default as many as will be.
    """
    rank = chosen_rank(settings, as_points(points).n_features)
    prepared, rates = _probed(points, constraints, settings, min(rank, PROBED_RANK), busy)
    return _plan(replace(prepared.sizes, rank=rank), rates, settings, len(constraints), machines, bandwidth)


def plan_of_shape(
    shape: Shape,
    pairs: int | None,
    settings: TrainingSettings,
    *,
    machines: int = 1,
    bandwidth: float = 1.25e9,
) -> Plan:
    """Plan for points that are not there: rates are measured on random ones, and on smaller ones where these are huge.

    Parameters
    ----------
    shape : Shape
    pairs : int or None
        Pairs to learn from; None for labels.
    settings, machines, bandwidth
        As for :func:`plan`.
    """
    rank = chosen_rank(settings, shape.features)
    lift_dim = None if settings.lift == "none" else settings.lift_dim
    probed, probed_rank = shape.probed(rank, lift_dim)
    small = replace(settings, start="random")  # to random points all starts are alike, and others take long
    prepared, rates = _probed(*stand_in(probed, pairs is not None), small, probed_rank)
    sizes = replace(_enlarged(prepared.sizes, probed, shape), rank=rank)
    if lift_dim is not None:  # an entry is made of all that is stored of a point
        rates = replace(rates, gather=rates.gather * probed.stored / shape.stored)
    return _plan(sizes, rates, settings, pairs or shape.points, machines, bandwidth)


def _probed(
    points: Any, constraints: Constraints, settings: TrainingSettings, rank: int, busy: int | None = None
) -> tuple[Prepared, Rates]:
    """A job on these points with an L of this rank, and the rates measured on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is odd about the data, training will tell
        small = replace(settings, rank=rank, memory=None)
        prepared = prepare(points, constraints, small, labels=None, loss=None, start=None)
    return prepared, measured_rates(prepared, prepared.sizes, busy)


def _enlarged(sizes: Sizes, probed: Shape, shape: Shape) -> Sizes:
    """The sizes of a job on points of one shape, from those of the same on points of a smaller one."""
    if probed == shape:
        return sizes
    if sizes.lift_features:
        return replace(sizes, lift_features=shape.features)
    batch = sizes.batch
    entries, touched = batch.entries * shape.stored / probed.stored, shape.features
    if shape.nonzeros is not None:  # of evenly spread ones, some fall on the same feature
        touched = round(-shape.features * math.expm1(-batch.rows * entries / shape.features))
    return replace(sizes, n_features=shape.features, batch=replace(batch, entries=entries, touched=touched))


def _plan(
    sizes: Sizes, rates: Rates, settings: TrainingSettings, constraints: float, machines: int, bandwidth: float
) -> Plan:
    sizes = fitted(sizes, settings)
    if machines > 1:
        sizes = replace(sizes, hands_over=False)
    return Plan(sizes, rates, os.cpu_count() or 1, machines, bandwidth, constraints, allowed_memory(settings))


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
    own = replace(sizes, has_copies=True, hands_over=False)  # as the probes do it
    return Rates(
        gather=sizes.batch.rows * sizes.batch.entries / gather,
        products=sizes.flops / gradient,
        pull=own.pull_bytes / pull,
        update=(2 * sizes.update_bytes if sizes.goes_in_pairs else own.update_bytes) / update,
    )


def _settled(prepared: Prepared, update_rule: str) -> Floats:
    """L after some steps."""
    probe = _Probe(prepared, prepared.Lt, update_rule, 0)
    for _ in range(_SETTLING):
        probe.gather()
        probe.gradient()
        probe.step(prepared.step_size)
    return probe.Lt


class _Probe:
    """One thread's work on a batch, part by part, in the forms that it takes in training."""

    def __init__(self, prepared: Prepared, Lt: Floats, update_rule: str, number: int) -> None:
        self._kernel = GradientKernel(prepared.points, prepared.loss, prepared.rank, rounded=prepared.sizes.rounded)
        self._gatherer = Gatherer(prepared.points, prepared.rank)
        self._sampler, self._number, self._clock = prepared.sampler, number, prepared.sampler.settled
        self.Lt, self._local, self._gradient = Lt.copy(), np.empty_like(Lt), Gradient.empty()
        self._sizes, self._rule = prepared.sizes, UpdateRule(update_rule, *Lt.shape)
        self._server = Server(self.Lt, self._rule, Clocks(math.inf), lambda _: 0.0, capacity=2)
        self._versions, self._known = np.zeros(len(Lt), np.int64), np.empty(len(Lt), np.int64)
        self._copies: PackedCopies | None = None
        self.gather()
        self.gradient()
        self._another: Gradient | None = None
        if self._sizes.goes_in_pairs:
            self._another, self._gradient = self._gradient, Gradient.empty()
            self.gather()
            self.gradient()

    def gather(self) -> None:
        self._batch = self._sampler.batch(self._number % self._sampler.n_shards, self._clock)
        self._rows = self._gatherer.rows_of(self._batch)
        self._clock += 1

    def gradient(self) -> None:
        shares = self._sizes.shares_packed_copies
        products = self._kernel.products_of_packed(self._rows) if shares else None
        if products:
            self._copies = self._server.copies_for(products)
            gradient_of_packed(self._server, products, self._kernel, self._batch, self._rows, self._gradient)
        else:
            self._kernel.gradient(self.Lt, self._batch, self._rows, self._gradient)

    def pull(self) -> None:
        self._known[self._gradient.features] = -1
        update_kernels.copy_newer(self.Lt, self._versions, self._gradient.features, 0, self._local, self._known)

    def step(self, step_size: float) -> None:
        self._rule.apply(self.Lt, [self._gradient], [step_size])
        self._server.version += 1

    def update(self) -> None:
        """For two pushes, where they go in pairs; L is then packed on the way, if it is to be."""
        if self._another is None:
            self._rule.apply(self.Lt, [self._gradient], [_HARDLY])
            return
        with contextlib.ExitStack() as stack:
            packed = stack.enter_context(self._server.packed(self._copies)) if self._copies else None
            self._rule.apply(self.Lt, [self._gradient, self._another], [_HARDLY, _HARDLY], packed)


def _seconds(parts: list[Callable[[], None]]) -> float:
    """Seconds of one call, the median over all calls, while every thread does nothing else."""
    ready = threading.Barrier(len(parts))

    def repeat(part: Callable[[], None]) -> list[float]:
        try:
            part()
        except BaseException:
            ready.abort()  # the others would wait for ever
            raise
        with contextlib.suppress(threading.BrokenBarrierError):
            ready.wait()
        own: list[float] = []
        end = time.perf_counter() + _SECONDS
        while len(own) < _FEWEST_ROUNDS or time.perf_counter() < end:
            began = time.perf_counter()
            part()
            own.append(time.perf_counter() - began)
        return own

    with ThreadPoolExecutor(len(parts)) as threads:
        return float(np.median([seconds for own in threads.map(repeat, parts) for seconds in own]))
