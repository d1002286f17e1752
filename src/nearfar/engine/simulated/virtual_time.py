"""Virtual time: events in order, cores that threads share, and links that messages share."""

import heapq
import itertools
from collections.abc import Callable

from nearfar.engine.simulated.cluster import SimulatedCluster

Event = Callable[[], None]

ENDS, ARRIVES, UPDATES, READS, BEGINS = range(5)
"""What comes first at one moment: a computation ends, a push arrives, the server updates, rows are read and come, a
step begins. So with no costs a worker begins a step on an L that has its last one, and all pushes of a moment are one
update."""


class Events:
    """What is going to happen, in order of time, then of kind, then of who asked first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, int, Event]] = []
        self._numbers = itertools.count()

    def at(self, when: float, kind: int, event: Event) -> None:
        """Let an event happen at a moment that is not past."""
        heapq.heappush(self._queue, (when, kind, next(self._numbers), event))

    def after(self, seconds: float, kind: int, event: Event) -> None:
        """Let an event happen some seconds from now."""
        self.at(self.now + seconds, kind, event)

    def next_time(self) -> float | None:
        """When the next event happens; None if nothing ever will."""
        return self._queue[0][0] if self._queue else None

    def step(self) -> None:
        """Go to the next event, and let it happen."""
        self.now, _, _, event = heapq.heappop(self._queue)
        event()

    def clear(self) -> None:
        """Nothing of what was going to happen will."""
        self._queue.clear()


class Cores:
    """The cores of one machine. More threads than cores run at once, each at the same share of its speed.

    Parameters
    ----------
    events : Events
    count : int
        Cores.
    most_threads : int
        Threads that may run at once.
    crowding : float
        How many times as long work takes while all cores are busy; with fewer, in proportion less.
    """

    def __init__(self, events: Events, count: int, most_threads: int, crowding: float = 1.0) -> None:
        self._events, self._count = events, count
        self._slower_by = (crowding - 1) / max(1, count - 1)
        self._has_enough = most_threads <= (count if crowding == 1 else 1)
        self._coming: list[tuple[float, int, int, bool, Event]] = []  # by the service at which each comes
        self._threads = 0
        self._served = self._since = 0.0
        self._numbers = itertools.count()
        self._plan = 0

    @property
    def served(self) -> float:
        """Seconds of work that a thread which had always run would have done by now."""
        if self._has_enough:
            return self._events.now
        return self._served + (self._events.now - self._since) * self.speed

    @property
    def speed(self) -> float:
        """Of a thread, with as many as run now; 1 is that of one alone."""
        running = max(1, self._threads)
        busy = min(running, self._count)
        return busy / running / (1 + self._slower_by * (busy - 1))

    def run(self, seconds: float, kind: int, then: Event) -> None:
        """Work that takes so long on a core of its own; ``then`` happens when it is done."""
        self._add(seconds, kind, then, is_thread=True)

    def after_work(self, seconds: float, kind: int, then: Event) -> None:
        """Let an event happen when every thread that runs from now on has done so much work; it takes no core."""
        self._add(seconds, kind, then, is_thread=False)

    def _add(self, seconds: float, kind: int, then: Event, *, is_thread: bool) -> None:
        if self._has_enough:
            self._events.after(seconds, kind, then)
            return
        self._serve()
        heapq.heappush(self._coming, (self._served + seconds, kind, next(self._numbers), is_thread, then))
        self._threads += is_thread
        self._plan_next()

    def _serve(self) -> None:
        self._served, self._since = self.served, self._events.now

    def _plan_next(self) -> None:
        self._plan += 1
        if self._coming:
            done, kind, *_ = self._coming[0]
            plan = self._plan
            self._events.after(max(0.0, done - self._served) / self.speed, kind, lambda: self._next(plan))

    def _next(self, plan: int) -> None:
        if plan != self._plan:  # since then another thread began or ended, and this was planned again
            return
        self._serve()
        done, _, _, is_thread, then = heapq.heappop(self._coming)
        self._served = done
        self._threads -= is_thread
        self._plan_next()
        then()


class Link:
    """One machine's link: each direction sends one message after the other, at full speed."""

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth
        self.busy_until = 0.0
        """When it has sent all that it was given, both ways."""
        self.busy_seconds = 0.0
        """How long it was, or will be, busy in one direction at least."""
        self._free_at = [0.0, 0.0]

    def free_at(self, direction: int) -> float:
        """When a direction has sent all that it was given."""
        return self._free_at[direction]

    def take(self, direction: int, start: float, count: float) -> float:
        """Send so many bytes from ``start`` on, or after what was given before; when that is done is returned."""
        done = max(start, self._free_at[direction]) + count / self.bandwidth
        self._free_at[direction] = done
        self.busy_seconds += max(0.0, done - max(start, self.busy_until))
        self.busy_until = max(self.busy_until, done)
        return done


OUT, IN = range(2)


class Network:
    """Links of machines and of the server; a message takes the link of who sends it and of who gets it.

    It goes through both at once: it arrives when the slower or fuller one is done with it, and a latency later.
    """

    def __init__(self, events: Events, cluster: SimulatedCluster, machines: int) -> None:
        self._events, self._latency = events, cluster.latency
        self.machines = [Link(cluster.bandwidth) for _ in range(machines)]
        bandwidth = cluster.server_bandwidth or cluster.bandwidth
        self.server = Link(bandwidth * cluster.servers) if cluster.server_apart else self.machines[0]
        self._inside = None if cluster.server_apart else 0

    def ask(self, machine: int, then: Event) -> None:
        """A message without any weight to the server."""
        self._events.after(0.0 if machine == self._inside else self._latency, READS, then)

    def to_server(self, machine: int, count: float, then: Event) -> None:
        """Bytes from a machine to the server."""
        self._send(machine, self.machines[machine], self.server, count, ARRIVES, then)

    def from_server(self, machine: int, count: float, then: Event) -> None:
        """Bytes from the server to a machine."""
        self._send(machine, self.server, self.machines[machine], count, READS, then)

    def _send(self, machine: int, sender: Link, receiver: Link, count: float, kind: int, then: Event) -> None:
        if machine == self._inside:
            self._events.after(0.0, kind, then)
            return
        starts = max(self._events.now, sender.free_at(OUT))
        sent = sender.take(OUT, starts, count)

        def receive() -> None:
            received = receiver.take(IN, self._events.now, count)
            self._events.at(max(sent, received) + self._latency, kind, then)

        if starts > self._events.now:
            self._events.at(starts, ARRIVES, receive)
        else:
            receive()
