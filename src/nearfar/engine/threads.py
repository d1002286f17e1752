"""Workers as threads of one process. NumPy, BLAS and the compiled loops release the GIL; points are shared.

Each worker has its own copy of L and one or more computing threads. In one process, communication is handing over a
reference, so a computing thread does it itself; the calling thread is the server's update thread. Threads wait for each
other only through queues and, where consistency asks for it, through the clocks.
"""

import threading
import time
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np

from nearfar.engine.engine import Job, Supervisor
from nearfar.engine.steps import steps_of
from nearfar.errors import WorkerFailed
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import LocalStep
from nearfar.parameter_server.worker import Task, Worker
from nearfar.settings import EngineName

_PATIENCE = 0.05
"""Seconds that the update thread waits for a push before it looks around."""
_PAIRING = 0.5
"""Seconds that a push waits for another one, where L is large and nobody waits for it to be applied."""


class ThreadsEngine:
    """Runs workers as threads, until the budget is used up, the supervisor says stop, or every worker is gone."""

    name: EngineName = "threads"
    now = staticmethod(time.monotonic)

    def servers(self, server: Server) -> Server:
        return server

    def run(self, job: Job, supervisor: Supervisor) -> None:
        _Run(job, supervisor).until_done()


@dataclass(eq=False)
class _Crew:
    """A worker's computing threads. Where one of them ends, all do: another may wait for the step that it gave up."""

    worker: Worker
    working: int
    """Threads that have not ended."""
    is_ending: bool = False
    """Whether one has; the others then end after the step that they are at."""
    error: BaseException | None = None
    """What the first that failed has raised."""
    _changing: threading.Lock = field(default_factory=threading.Lock)

    def thread_ends(self) -> bool:
        """Count one of the threads as ended; whether it is the last one is returned."""
        with self._changing:
            self.is_ending = True
            self.working -= 1
            return self.working == 0


class _Run:
    def __init__(self, job: Job, supervisor: Supervisor) -> None:
        self._job, self._supervisor = job, supervisor
        self._stopping = threading.Event()
        self._failures: SimpleQueue[_Crew] = SimpleQueue()
        self._crews = [_Crew(self._worker(number), job.threads_per_worker) for number in range(job.workers)]
        self._threads = [
            threading.Thread(target=self._compute, args=(crew,), name=f"worker {crew.worker.number}", daemon=True)
            for crew in self._crews
            for _ in range(job.threads_per_worker)
        ]

    def _worker(self, number: int) -> Worker:
        job = self._job
        local = np.empty_like(job.server.Lt)
        step = LocalStep(job.update_rule, len(local))
        shards = job.shards[number :: job.workers]
        near = job.server if job.sizes.shares_packed_copies else None
        return Worker(number, job.sampler, shards, local, step, job.slots, clock=job.clocks.join(number), near=near)

    def until_done(self) -> None:
        """The update thread: ends when all workers have, or at once when the supervisor says so.

        What is then still under way is dropped; its batches count as not done.
        """
        first_error: BaseException | None = None
        pairing = _PAIRING if self._job.sizes.goes_in_pairs else 0.0
        try:
            for thread in self._threads:
                thread.start()
            # In this order: a thread tells of its failure before it ends.
            while self._computing() or self._job.server.waiting or not self._failures.empty():
                if self._supervisor.attend(self._job.server.update(timeout=_PATIENCE, then=pairing)):
                    break
                while not self._failures.empty():
                    gone = self._failures.get()
                    first_error = first_error or gone.error
                    self._move_shards(gone)
        finally:
            self._end()
        if not self._crews:
            raise WorkerFailed(f"every worker failed; the first with: {first_error}") from first_error

    def _compute(self, crew: _Crew) -> None:
        """One computing thread."""
        job, worker, kernel = self._job, crew.worker, self._job.kernel()
        try:
            with steps_of(worker, job.points, job.rank) as steps:
                step = steps.next()
                while self._may_compute(crew, step.task):
                    try:
                        push = worker.compute(
                            step.task, step.gathered, kernel, job.server, job.step_size(job.server.version)
                        )
                    except BaseException:
                        job.budget.give_back()
                        raise
                    steps.done(step)
                    try:
                        step = steps.next()  # before the push wakes the update thread, which wants the interpreter too
                    finally:
                        job.server.receive(push)
        except BaseException as error:  # whatever it is, the other workers must go on
            crew.error = crew.error or error
        finally:
            is_last = crew.thread_ends()
            job.clocks.wake()
            if is_last:
                job.clocks.leave(worker.number)
                if crew.error:
                    self._failures.put(crew)

    def _may_compute(self, crew: _Crew, task: Task) -> bool:
        job = self._job
        return job.clocks.wait_to_begin(
            task.clock, lambda: crew.is_ending or self._stopping.is_set()
        ) and job.budget.take(crew.worker.number, job.clocks, job.server.version)

    def _move_shards(self, gone: _Crew) -> None:
        """The shards of a worker that failed go to the others, in turn."""
        assert gone.error
        self._crews.remove(gone)
        self._supervisor.worker_failed(gone.worker.number, gone.error, len(self._crews))
        for i, crew in enumerate(self._crews):
            crew.worker.take_over(gone.worker.shards[i :: len(self._crews)])

    def _computing(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _end(self) -> None:
        """Wait for the computing threads, and give them the memory they may be waiting for."""
        self._stopping.set()
        self._job.clocks.wake()
        while self._computing():
            for push in self._job.server.inbound.take_all(timeout=_PATIENCE):
                push.release()
