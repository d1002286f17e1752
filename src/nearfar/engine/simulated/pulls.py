"""Pulls on a virtual clock: workers ask, the server reads, rows travel."""

from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from nearfar.engine.engine import Job
from nearfar.engine.simulated.snapshots import Features, Snapshots
from nearfar.engine.simulated.virtual_time import READS, Cores, Events, Network
from nearfar.engine.simulated.worker import SimulatedThread, SimulatedWorker
from nearfar.parameter_server.worker import Task

_FLOAT = 4
_EARLIER = 2.0
"""How many times as long as the last pull the next one may take and still come in time. Of the factors from 1 to 3,
rows are newest with this one: those that come late are missed by a whole step."""


class Pulls:
    """Each worker has one pull under way at a time; what its threads want meanwhile goes into the next.

    Parameters
    ----------
    job : Job
    events : Events
    cores : list of Cores
        Of each machine.
    network : Network
    pull_bytes : float or None
        What all rows that are asked for take on a link, if they have all changed; None for what they really take.
    on_rows : function
        Called with each thread whose rows have come.
    """

    def __init__(
        self,
        job: Job,
        events: Events,
        cores: list[Cores],
        network: Network,
        pull_bytes: float | None,
        on_rows: Callable[[SimulatedThread], None],
    ) -> None:
        self._events, self._cores, self._network = events, cores, network
        self._pull_bytes, self._on_rows = pull_bytes, on_rows
        self._n_features, self._rank = job.points.n_features, job.rank
        self._snapshots = Snapshots(job.server, (self._n_features, self._rank))

    def want(self, thread: SimulatedThread) -> None:
        """A thread wants the rows of its next batch: at once, or just when it will have computed the one before.

        Asked for sooner, they would be older when they are used. How long they will take is taken from the last pull.
        """
        worker = thread.worker
        cores = self._cores[worker.machine]
        left = thread.done_at - cores.served - _EARLIER * worker.pull_seconds * cores.speed
        if thread.computing is None or left <= 0:
            self._want_now(thread, thread.task)
        else:
            cores.after_work(left, READS, partial(self._want_now, thread, thread.task))

    def _want_now(self, thread: SimulatedThread, task: Task | None) -> None:
        if task is None or thread.task is not task or thread.has_asked:
            return
        thread.has_asked = True
        worker = thread.worker
        if thread not in worker.wanting:
            worker.wanting.append(thread)
        self._ask(worker)

    def _ask(self, worker: SimulatedWorker) -> None:
        if worker.is_pulling or not worker.wanting:
            return
        asked = [(thread, thread.task) for thread in worker.wanting]
        worker.wanting, worker.is_pulling = [], True
        read = partial(self._read, worker, asked, self._events.now)
        if all(thread.is_answered for thread, _ in asked):
            self._events.after(0.0, READS, read)
        else:
            self._network.ask(worker.machine, read)
        for thread, _ in asked:
            thread.is_answered = False

    def _read(self, worker: SimulatedWorker, asked: list[tuple[SimulatedThread, Task | None]], since: float) -> None:
        """The server reads the rows that are asked for, as they are now."""
        features = reduce(_united, (thread.features for thread, _ in asked))
        snapshot = self._snapshots.read(features, worker.sent)

        def came() -> None:
            worker.inbox.put(snapshot, self._n_features)
            worker.has[features] = True
            worker.is_pulling = False
            worker.pull_seconds = self._events.now - since
            self._ask(worker)
            for thread, task in asked:
                if task is not None and thread.task is task:
                    thread.has_rows = True
                    self._on_rows(thread)

        self._network.from_server(worker.machine, self._bytes(len(snapshot.features), len(features)), came)

    def _bytes(self, changed: int, asked: int) -> float:
        if self._pull_bytes is None:
            return float(_FLOAT * changed * (self._rank + 1))
        return self._pull_bytes * changed / max(1, asked)


def _united(some: Features, others: Features) -> Features:
    return some if some is others else np.union1d(some, others)
