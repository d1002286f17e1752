"""One worker, no queues, no threads: the deterministic reference."""

import time

from nearfar.engine.engine import Job, Supervisor
from nearfar.engine.steps import steps_of
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.worker import Worker
from nearfar.settings import EngineName


class SerialEngine:
    """The worker computes on the server's own L, and the server applies each gradient at once."""

    name: EngineName = "serial"
    now = staticmethod(time.monotonic)

    def servers(self, server: Server) -> Server:
        return server

    def run(self, job: Job, supervisor: Supervisor) -> None:
        clock = job.clocks.join(0)
        worker = Worker(0, job.sampler, job.shards, job.server.Lt, local_step=None, slots=1, clock=clock)
        kernel = job.kernel()
        with steps_of(worker, job.points, job.rank) as steps:
            while job.budget.take(0, job.clocks, job.server.version):
                step = steps.next()
                push = worker.compute(step.task, step.gathered, kernel, job.server, job.step_size(job.server.version))
                steps.done(step)
                job.server.receive(push)
                if supervisor.attend(job.server.update()):
                    break
