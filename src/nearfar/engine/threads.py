"""Workers as threads of one process. NumPy, BLAS and the compiled loops release the GIL; points are shared.

Each worker has its own copy of L and one or more computing threads. In one process, communication is handing over a
reference, so a computing thread does it itself; the calling thread is the server's update thread. Threads wait for each
other only through queues and, where consistency asks for it, through the clocks.
"""

import threading
import time
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


class _Run:
    def __init__(self, job: Job, supervisor: Supervisor) -> None:
        self._job, self._supervisor = job, supervisor
        self._stopping = threading.Event()
        self._failures: SimpleQueue[tuple[Worker, BaseException]] = SimpleQueue()
        self._workers = [self._worker(number) for number in range(job.workers)]
        self._threads = {
            worker.number: [
                threading.Thread(target=self._compute, args=(worker,), name=f"worker {worker.number}", daemon=True)
                for _ in range(job.threads_per_worker)
            ]
            for worker in self._workers
        }

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
            for threads in self._threads.values():
                for thread in threads:
                    thread.start()
            # In this order: a thread tells of its failure before it ends.
            while self._computing() or self._job.server.waiting or not self._failures.empty():
                if self._supervisor.attend(self._job.server.update(timeout=_PATIENCE, then=pairing)):
                    break
                while not self._failures.empty():
                    worker, error = self._failures.get()
                    first_error = first_error or error
                    self._move_shards(worker, error)
        finally:
            self._end()
        if not self._workers:
            raise WorkerFailed(f"every worker failed; the first with: {first_error}") from first_error

    def _compute(self, worker: Worker) -> None:
        """One computing thread. Where one of a worker's ends, all do: another may wait for the step that it gave up."""
        job, kernel = self._job, self._job.kernel()
        try:
            with steps_of(worker, job.points, job.rank) as steps:
                step = steps.next()
                while self._may_compute(worker, step.task):
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
            worker.error = worker.error or error
        finally:
            worker.is_ending = True
            job.clocks.wake()
            if worker.thread_ended() == job.threads_per_worker:
                job.clocks.leave(worker.number)
                if worker.error:
                    self._failures.put((worker, worker.error))

    def _may_compute(self, worker: Worker, task: Task) -> bool:
        job = self._job
        return job.clocks.wait_to_begin(
            task.clock, lambda: worker.is_ending or self._stopping.is_set()
        ) and job.budget.take(worker.number, job.clocks, job.server.version)

    def _move_shards(self, gone: Worker, error: BaseException) -> None:
        """The shards of a worker that failed go to the others, in turn."""
        if gone in self._workers:
            self._workers.remove(gone)
            self._supervisor.worker_failed(gone.number, error, len(self._workers))
            for i, worker in enumerate(self._workers):
                worker.take_over(gone.shards[i :: len(self._workers)])

    def _computing(self) -> bool:
        return any(thread.is_alive() for threads in self._threads.values() for thread in threads)

    def _end(self) -> None:
        """Wait for the computing threads, and give them the memory they may be waiting for."""
        self._stopping.set()
        self._job.clocks.wake()
        while self._computing():
            for push in self._job.server.inbound.take_all(timeout=_PATIENCE):
                push.release()
