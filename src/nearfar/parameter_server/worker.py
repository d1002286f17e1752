"""The worker: holds shards and a local copy of L, computes gradients on it, and changes it by them itself."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import LifoQueue
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar import cost
from nearfar.data.sampling import Batch, Block, Sampler
from nearfar.objective.fast_gradient import Factors, GatheredRows, Gradient, GradientKernel
from nearfar.objective.sparse_products import BlockProducts
from nearfar.parameter_server.messages import Form, Push
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import LocalStep

Floats = NDArray[np.float32]


class Source(Protocol):
    """Where a worker's copy of L comes from: a server, or several that own parts of it, near or far."""

    @property
    def version(self) -> int:
        """The newest version that is known of."""

    def pull(self, features: NDArray[np.int32], local: Floats, known: NDArray[np.int64]) -> int:
        """Bring rows of a worker's copy up to date; see :meth:`nearfar.parameter_server.server.Server.pull`."""


@dataclass
class Shard:
    """A share of the constraints, and the clock of its next batch. Belongs to one worker at a time."""

    number: int
    clock: int = 0


@dataclass(frozen=True)
class Task:
    """One step that a computing thread has begun."""

    clock: int
    shard: int
    shard_clock: int
    batch: Batch | Block


class Worker:
    """One worker: several computing threads may step it at once, each with a kernel of its own.

    Parameters
    ----------
    number : int
        Its name among the workers.
    sampler : Sampler
        Where its batches come from.
    shards : list of Shard
        The shards it holds.
    local : array (n features, k)
        Its copy of L, transposed.
    local_step : LocalStep or None
        How it changes its copy by its own gradients; None where the copy is the server's own L.
    slots : int
        Gradients it may have under way; who finds none free waits.
    clock : int
        Its first step's clock.
    memory : arrays (n features, k)
        Where the gradients are written, one for each slot; without any, in memory of its own.
    near : Server or None
        A server in the same memory, with a large L: a batch that needs most of it packed takes the packed copy that the
        server has for all its workers. ``local`` is then left alone, and so is memory.
    """

    def __init__(
        self,
        number: int,
        sampler: Sampler,
        shards: list[Shard],
        local: Floats,
        local_step: LocalStep | None,
        slots: int,
        clock: int = 0,
        memory: Sequence[Floats] = (),
        near: Server | None = None,
    ) -> None:
        self.number, self.shards, self.local = number, shards, local
        self.clock = clock
        """The clock of its next step."""
        self._sampler, self._local_step, self._near = sampler, local_step, near
        self._known = np.full(len(local), -1, np.int64)
        self._pushed = 0
        self._free: LifoQueue[Gradient] = LifoQueue()  # last in, first out: the last one used is still in the cache
        for slot in range(slots):
            self._free.put(Gradient.within(memory[slot]) if memory else Gradient.empty())
        self._lock = threading.Lock()

    # Computing side

    def begin(self) -> Task:
        """Take the next batch of the shard that is furthest behind."""
        with self._lock:
            shard = min(self.shards, key=lambda shard: (shard.clock, shard.number))
            clock, shard_clock = self.clock, shard.clock
            self.clock += 1
            shard.clock += 1
        return Task(clock, shard.number, shard_clock, self._sampler.batch(shard.number, shard_clock))

    def compute(
        self, task: Task, gathered: GatheredRows, kernel: GradientKernel, server: Source, step_size: float
    ) -> Push:
        """Bring the local copy up to date, compute the gradient on it, and change it by that gradient.

        The copy is ``local``, or the server's packed one; that one is shared, and so is not changed.
        """
        products = self._products_of_packed(gathered, kernel)
        if products:
            gradient = self._free.get()
            assert self._near
            version, objective = gradient_of_packed(self._near, products, kernel, task.batch, gathered, gradient)
        else:
            version = self.remote_update(server, gathered)
            gradient = self._free.get()
            objective = kernel.gradient(self.local, task.batch, gathered, gradient)
            if self._local_step and not self._will_be_replaced(gradient, version, server):
                self._local_step.apply(self.local, gradient, step_size)
        return self._push(task, gathered, version, gradient, objective, self._releaser(gradient))

    def compute_factors(self, task: Task, gathered: GatheredRows, kernel: GradientKernel, server: Source) -> Push:
        """The same with a push that the server multiplies out: the local copy waits for the next pull to see it.

        The push is valid until the next batch is gathered or computed.
        """
        version = self.remote_update(server, gathered)
        objective, factors = kernel.factors(self.local, task.batch, gathered)
        return self._push(task, gathered, version, factors, objective, lambda: None)

    def _push(
        self,
        task: Task,
        gathered: GatheredRows,
        version: int,
        gradient: Gradient | Factors,
        objective: float,
        release: Callable[[], None],
    ) -> Push:
        with self._lock:
            number = self._pushed
            self._pushed += 1
        return Push(
            self.number, number, task.clock, task.shard, task.shard_clock, version, gradient, objective,
            task.batch.n_pairs, len(gathered.rows), release, _form(gradient, len(self.local)), gradient.nbytes,
        )  # fmt: skip

    def abandon(self, task: Task) -> None:
        """A step failed: its batch is to be done by whoever holds the shard next."""
        with self._lock:
            for shard in self.shards:
                if shard.number == task.shard:
                    shard.clock = min(shard.clock, task.shard_clock)

    # Remote-update side

    def _products_of_packed(self, gathered: GatheredRows, kernel: GradientKernel) -> BlockProducts | None:
        """A batch's products, if they are to read the server's packed copy of L."""
        if not self._near or not cost.are_most_features(len(gathered.features), len(self.local)):
            return None
        return kernel.products_of_packed(gathered)

    def remote_update(self, server: Source, gathered: GatheredRows) -> int:
        """Replace the rows of the local copy that the batch needs and the server has changed; return the version."""
        if self._local_step is None:
            return server.version
        return server.pull(gathered.features, self.local, self._known)

    def _will_be_replaced(self, gradient: Gradient, version: int, server: Source) -> bool:
        """Whether the server has newer rows for most features already, so that a step here would not be seen."""
        return server.version > version and cost.are_most_features(len(gradient.features), len(self.local))

    def take_over(self, shards: list[Shard]) -> None:
        """Go on with another worker's shards."""
        with self._lock:
            self.shards = self.shards + shards

    def give_up(self, count: int) -> list[Shard]:
        """Leave so many shards to another worker."""
        with self._lock:
            given, self.shards = self.shards[:count], self.shards[count:]
            return given

    def forget(self) -> None:
        """The server went back to an older L, and knows of no push: take all rows anew, and count pushes from 0."""
        self._known[:] = -1
        self._pushed = 0

    def _releaser(self, gradient: Gradient) -> Callable[[], None]:
        def release() -> None:
            self._free.put(gradient)

        return release


def gradient_of_packed(
    near: Server,
    products: BlockProducts,
    kernel: GradientKernel,
    batch: Batch | Block,
    gathered: GatheredRows,
    out: Gradient,
) -> tuple[int, float]:
    """A batch's gradient by a server's packed copy of L; the copy's version, and the batch's objective."""
    copies = near.copies_for(products)
    products.arrange(copies.order)
    with near.packed(copies) as copy:
        products.take(copy.packed)
        return copy.version, kernel.gradient(products, batch, gathered, out)


def _form(gradient: Gradient | Factors, n_features: int) -> Form:
    if isinstance(gradient, Factors):
        return "factors"
    return "dense" if len(gradient.features) == n_features else "columns"
