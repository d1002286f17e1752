"""A worker's next steps with their rows gathered: by the computing thread itself, or ahead of it by another thread.

Ahead is for points on disk that memory may not hold: while a batch is computed, the rows of the next one are read, so
computing waits for the disk only where the disk is slower than computing.
"""

import threading
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol

from nearfar.data.points import Points
from nearfar.objective.fast_gradient import GatheredRows, Gatherer
from nearfar.parameter_server.worker import Task, Worker

_WORTH_A_THREAD = 1 << 30
"""Bytes on disk from which on rows are gathered ahead; fewer are soon in memory."""
_AHEAD = 1
"""Batches that wait to be computed."""


@dataclass(frozen=True)
class Step:
    """A task, and what its gradient needs of the points."""

    task: Task
    gathered: GatheredRows
    gatherer: Gatherer


class Steps(Protocol):
    """Where a computing thread gets its steps from; used in a ``with``, which gives back those not computed."""

    def __enter__(self) -> "Steps": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def next(self) -> Step:
        """The worker's next step."""

    def done(self, step: Step) -> None:
        """The step's rows are no longer needed."""


def steps_of(worker: Worker, points: Points, rank: int) -> Steps:
    """The steps of a worker, for one computing thread."""
    if points.mapped_bytes >= _WORTH_A_THREAD:
        return StepsAhead(worker, [Gatherer(points, rank) for _ in range(_AHEAD + 1)])
    return StepsInTurn(worker, Gatherer(points, rank))


class StepsInTurn:
    """Gathers when asked."""

    def __init__(self, worker: Worker, gatherer: Gatherer) -> None:
        self._worker, self._gatherer = worker, gatherer
        self._begun: Step | None = None

    def __enter__(self) -> "StepsInTurn":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._begun is not None:
            self._worker.abandon(self._begun.task)

    def next(self) -> Step:
        task = self._worker.begin()
        try:
            self._begun = Step(task, self._gatherer.rows_of(task.batch), self._gatherer)
        except BaseException:
            self._worker.abandon(task)
            raise
        return self._begun

    def done(self, step: Step) -> None:
        self._begun = None


class StepsAhead:
    """Gathers on a thread of its own, as many steps ahead as there are gatherers, but one."""

    def __init__(self, worker: Worker, gatherers: list[Gatherer]) -> None:
        self._worker = worker
        self._free: SimpleQueue[Gatherer | None] = SimpleQueue()
        self._ready: SimpleQueue[Step | BaseException] = SimpleQueue()
        self._begun: list[Task] = []
        for gatherer in gatherers:
            self._free.put(gatherer)
        self._thread = threading.Thread(target=self._gather, name=f"gathers for worker {worker.number}", daemon=True)

    def __enter__(self) -> "StepsAhead":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._free.put(None)
        self._thread.join()
        for task in self._begun:
            self._worker.abandon(task)

    def next(self) -> Step:
        step = self._ready.get()
        if isinstance(step, BaseException):
            raise step
        return step

    def done(self, step: Step) -> None:
        self._begun.remove(step.task)
        self._free.put(step.gatherer)

    def _gather(self) -> None:
        try:
            while (gatherer := self._free.get()) is not None:
                task = self._worker.begin()
                self._begun.append(task)
                self._ready.put(Step(task, gatherer.rows_of(task.batch), gatherer))
        except BaseException as error:  # the computing thread is to raise it
            self._ready.put(error)
