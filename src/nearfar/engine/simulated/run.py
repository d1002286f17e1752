"""The very server and workers, with real gradients, on a virtual clock: one thread plays a cluster, event by event.

A gradient is computed for real when its virtual computation begins, on the copy of L that its worker has then. What
takes virtual time is what the cluster says: computing, travelling, updating. All that decides who may go on (clocks,
slots, the budget) is the code that other engines run.
"""

import heapq
import itertools
from functools import partial

import numpy as np

from nearfar.engine.engine import Job, Supervisor
from nearfar.engine.simulated.cluster import Costs, SimulatedCluster
from nearfar.engine.simulated.pulls import Pulls
from nearfar.engine.simulated.server import SimulatedServer
from nearfar.engine.simulated.snapshots import Features
from nearfar.engine.simulated.usage import Meter, State, Usage
from nearfar.engine.simulated.virtual_time import BEGINS, ENDS, Cores, Event, Events, Network
from nearfar.engine.simulated.worker import SimulatedThread, SimulatedWorker, simulated_worker
from nearfar.errors import WorkerFailed
from nearfar.objective.fast_gradient import Gatherer
from nearfar.parameter_server.messages import Applied, Push
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.worker import Task
from nearfar.settings import EngineName
from nearfar.sizes import duration_text


class SimulatedEngine:
    """Runs workers on a simulated cluster: any number of them, at any speed, the same every time.

    Parameters
    ----------
    cluster : SimulatedCluster, optional
        What to simulate.

    Attributes
    ----------
    usage : Usage or None
        What the last run was busy with.
    """

    name: EngineName = "simulated"

    def __init__(self, cluster: SimulatedCluster | None = None) -> None:
        self.cluster = cluster or SimulatedCluster()
        self.usage: Usage | None = None
        self._events = Events()
        self._is_stopping = False

    def now(self) -> float:
        """The virtual clock, in seconds."""
        return self._events.now

    def servers(self, server: Server) -> Server:
        return server

    def stop(self) -> None:
        """End the run after the current update."""
        self._is_stopping = True

    def run(self, job: Job, supervisor: Supervisor) -> None:
        self._is_stopping = False
        run = _Run(job, supervisor, self.cluster, self._events)
        try:
            run.begin()
            while run.goes_on and not self._is_stopping:
                run.step()
        finally:
            self.usage = run.usage()
            self._events.clear()
        run.check_end()


class _Run:
    def __init__(self, job: Job, supervisor: Supervisor, cluster: SimulatedCluster, events: Events) -> None:
        cluster.check(job.workers, job.threads_per_worker)
        self._job, self._supervisor, self._cluster, self._events = job, supervisor, cluster, events
        self._costs = cluster.costs or Costs.counted(job.sizes)
        self._kernel, self._gatherer = job.kernel(), Gatherer(job.points, job.rank)
        self._full_size = len(job.sampler.batch(0, job.sampler.settled).indices)
        self._all_features: Features = np.arange(job.points.n_features, dtype=np.int32)
        is_free = job.clocks.slack == float("inf")
        self._never_waits = cluster.pulls == "behind" and is_free
        self._waits_for_pushes = cluster.pulls == "with" and is_free
        self._unanswered: dict[int, Event] = {}
        self._workers = [simulated_worker(number, job, cluster) for number in range(job.workers)]
        self._living = list(self._workers)
        machines = self._workers[-1].machine + 1
        self._network = Network(events, cluster, machines)
        self._cores = [self._machine(number) for number in range(machines)]
        self._pulls = Pulls(job, events, self._cores, self._network, self._costs.pull_bytes, self._begin_if_ready)
        self._server = SimulatedServer(
            job,
            events,
            Cores(events, 1, 1) if cluster.server_apart else self._cores[0],
            self._costs.update_seconds / cluster.servers,
            self._applied,
        )
        self._pauses = {
            worker: [pause for pause in cluster.pauses if pause.worker == worker] for worker in range(job.workers)
        }
        self._held: list[tuple[int, int, SimulatedThread, Task]] = []
        self._numbers = itertools.count()
        self._is_over = False
        self._threads = job.workers * job.threads_per_worker
        self._under_way = 0
        self._version_before = job.server.version
        self._meter = Meter(events.now)

    def _machine(self, number: int) -> Cores:
        threads = sum(len(worker.threads) for worker in self._workers if worker.machine == number)
        has_server = number == 0 and not self._cluster.server_apart
        gathering = threads if self._costs.gather_seconds else 0
        return Cores(self._events, self._cluster.machine_cores, threads + gathering + has_server, self._costs.crowding)

    # From the first event to the last

    def begin(self) -> None:
        """Every thread sets out, and deaths are scheduled."""
        for death in self._cluster.deaths:
            self._events.after(death.at, ENDS, partial(self._die, self._workers[death.worker]))
        for worker in self._workers:
            for thread in list(worker.threads):
                self._go_on(thread)

    @property
    def goes_on(self) -> bool:
        """Whether something is still computed, travels or waits to be applied."""
        return not self._is_over and self._threads + self._under_way > 0

    def step(self) -> None:
        """One event."""
        when = self._events.next_time()
        assert when is not None, "every thread waits for another"
        self._meter.advance(when, when if self._server.is_updating else self._network.server.busy_until)
        self._events.step()

    def check_end(self) -> None:
        """Raise if the run ended because there was no worker left."""
        if not self._living:
            raise WorkerFailed("every worker died, as the cluster says")

    def usage(self) -> Usage:
        """What the run was busy with."""
        now, job = self._events.now, self._job
        machines, server = (
            max(link.busy_seconds - max(0.0, link.busy_until - now) for link in links)
            for links in (self._network.machines, [self._network.server])
        )
        threads = job.workers * job.threads_per_worker
        steps = job.server.version - self._version_before
        return self._meter.usage(steps, threads, self._server.busy_seconds, server, machines)

    # Computing threads

    def _go_on(self, thread: SimulatedThread) -> None:
        """A thread is free."""
        thread.is_resting = False
        if thread.worker.is_ending and not thread.has_step:
            self._end(thread.worker)
        elif thread.task is None and thread in thread.worker.threads:
            self._take_next(thread)
        self._begin_if_ready(thread)

    def _take_next(self, thread: SimulatedThread) -> None:
        """A thread takes its next batch, and asks for the rows as soon as the consistency lets it."""
        task = thread.worker.worker.begin()
        thread.task, thread.is_admitted, thread.has_asked, thread.has_rows = task, False, False, False
        thread.features = self._features(task)
        heapq.heappush(self._held, (task.clock, next(self._numbers), thread, task))
        self._admit()

    def _features(self, task: Task) -> Features:
        """The features that a batch needs."""
        if not self._job.points.is_sparse:
            return self._all_features
        return self._gatherer.rows_of(task.batch).features.copy()  # which are the gatherer's, for the next batch again

    def _admit(self) -> None:
        """Let those go on that may, by the clocks; one that does not compute yet needs a step of the budget first."""
        while self._held and self._job.clocks.may_begin(self._held[0][0]):
            _, _, thread, task = heapq.heappop(self._held)
            if thread.task is not task:
                continue
            if thread.computing is None and not self._has_step(thread):
                self._end(thread.worker)
                continue
            thread.is_admitted = True
            self._pulls.want(thread)
            self._begin_if_ready(thread)

    def _has_step(self, thread: SimulatedThread) -> bool:
        """Whether the budget has a step for a thread; it is then its own."""
        job = self._job
        if not thread.has_step:
            thread.has_step = job.budget.take(thread.worker.worker.number, job.clocks, job.server.version)
        return thread.has_step

    def _begin_if_ready(self, thread: SimulatedThread) -> None:
        worker = thread.worker
        if thread.task is None or thread.computing is not None or thread.is_resting:
            return
        if not thread.is_admitted:
            self._enter(thread, "waiting for others")
        elif worker.under_way >= self._job.slots or not self._has_rows(thread):
            self._enter(thread, "waiting for messages")
        elif self._has_step(thread):
            self._compute(thread, thread.task)
        else:
            self._end(thread.worker)

    def _has_rows(self, thread: SimulatedThread) -> bool:
        """Whether the rows of a thread's batch are there; where no one ever waits, old ones will do."""
        return thread.has_rows or (self._never_waits and bool(thread.worker.has[thread.features].all()))

    def _compute(self, thread: SimulatedThread, task: Task) -> None:
        """The gradient is computed now; virtually, it will have taken its time."""
        job, worker = self._job, thread.worker
        gathered = self._gatherer.rows_of(task.batch)
        push = worker.worker.compute(task, gathered, self._kernel, worker.inbox, job.step_size(job.server.version))
        own_step = worker.step.kept()
        thread.computing, thread.task, thread.has_step = task, None, False
        worker.under_way += 1
        self._under_way += 1
        self._enter(thread, "computing")
        is_growing = task.shard_clock < job.sampler.settled
        share = len(task.batch.indices) / self._full_size if is_growing else 1.0
        seconds = share * self._costs.compute_seconds * worker.slowness
        seconds *= self._cluster.variation(worker.worker.number, task.clock)

        def computed() -> None:
            if thread.computing is task:
                if own_step is not None:
                    own_step()
                self._computed(thread, push)

        cores = self._cores[worker.machine]
        thread.done_at = cores.served + seconds
        cores.run(seconds, ENDS, computed)
        if self._costs.gather_seconds:
            cores.run(share * self._costs.gather_seconds * worker.slowness, ENDS, _nothing)
        if self._cluster.pulls == "behind":
            self._take_next(thread)

    def _computed(self, thread: SimulatedThread, push: Push) -> None:
        thread.computing = None
        if thread.task is not None and thread.is_admitted:
            self._pulls.want(thread)  # it was done sooner than foreseen
        count = push.nbytes if self._costs.push_bytes is None else self._costs.push_bytes
        self._network.to_server(thread.worker.machine, count, lambda: self._server.push_came(push))
        thread.is_resting = True
        pause = self._pause(thread.worker.worker.number)
        set_out = partial(self._events.after, pause, BEGINS, partial(self._go_on, thread))
        if self._waits_for_pushes:
            thread.is_answered = True
            self._unanswered[id(push)] = set_out
        else:
            set_out()
        self._enter(thread, None if pause else "waiting for messages")

    def _pause(self, worker: int) -> float:
        """Seconds that a worker is to stand still now."""
        left = self._pauses[worker]
        due = [pause for pause in left if pause.at <= self._events.now - self._meter.began]
        self._pauses[worker] = [pause for pause in left if pause not in due]
        return sum(pause.seconds for pause in due)

    def _end(self, worker: SimulatedWorker) -> None:
        """The budget has no step left for one of a worker's threads, nor then for the others: they may wait for it."""
        worker.is_ending = True
        for thread in list(worker.threads):
            if thread.computing is None and not thread.has_step:
                if thread.task is not None:
                    worker.worker.abandon(thread.task)
                self._leave(thread)
        if not worker.threads:
            self._job.clocks.leave(worker.worker.number)
            self._events.after(0.0, BEGINS, self._look_around)

    def _leave(self, thread: SimulatedThread) -> None:
        thread.task = thread.computing = None
        thread.worker.threads.remove(thread)
        self._threads -= 1
        self._enter(thread, None)

    def _enter(self, thread: SimulatedThread, state: State | None) -> None:
        self._meter.change(thread.state, state)
        thread.state = state

    def _look_around(self) -> None:
        """The clocks have changed, though nothing was applied."""
        self._admit()
        self._server.wake()

    # The server

    def _applied(self, applied: list[Applied]) -> None:
        """The server has updated: L, the clocks and the slots are as they are from now on."""
        for one in applied:
            self._workers[one.push.worker].under_way -= 1
        self._under_way -= len(applied)
        if self._supervisor.attend(applied):
            self._is_over = True
            return
        for one in applied:
            self._unanswered.pop(id(one.push), _nothing)()
        self._admit()
        for number in sorted({one.push.worker for one in applied}):
            for thread in list(self._workers[number].threads):
                self._begin_if_ready(thread)

    # Deaths

    def _die(self, worker: SimulatedWorker) -> None:
        """What a worker has sent arrives, what it computes is lost, its shards go to the others, in turn."""
        if not worker.threads:
            return
        self._living.remove(worker)
        for thread in list(worker.threads):
            for task in (thread.task, thread.computing):
                if task is not None:
                    worker.worker.abandon(task)
            for _ in range(thread.has_step + (thread.computing is not None)):
                self._job.budget.give_back()
            self._under_way -= thread.computing is not None
            self._leave(thread)
        left, number = len(self._living), worker.worker.number
        self._job.clocks.leave(number)
        error = WorkerFailed(f"it died at {duration_text(self._events.now - self._meter.began)}, as the cluster says")
        self._supervisor.worker_failed(number, error, left)
        for i, other in enumerate(self._living):
            other.worker.take_over(worker.worker.shards[i::left])
        self._look_around()


def _nothing() -> None:
    pass
