"""A server in a process of its own: the plain server, a thread that updates it, and what others may ask of it."""

import threading
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nearfar.engine.budget import Budget
from nearfar.engine.ray_cluster.shared_slots import Place, SharedSlots
from nearfar.engine.ray_cluster.wire import Precision, SentPush, nothing, received, shorten
from nearfar.objective.fast_gradient import Gradient
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.messages import Applied, Push, PushNumbers
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import Schedule, UpdateRule

_UPDATE_WAIT = 0.05
_SENT_DIRECTLY = 8 << 20
"""Bytes of L up to which an answer holds the rows themselves: a reference costs one call more."""


@dataclass(frozen=True)
class ServerPart:
    """What one server begins, or begins again, with."""

    features: range
    rank: int
    version: int
    arrays: dict[str, NDArray[Any]]
    """Of its features: L transposed, and the state of the rule where there is one."""
    update_rule: str
    slack: float
    workers: dict[int, int]
    """Those that take part, with their clocks."""
    capacity: int
    staleness_scaling: bool
    schedule: Schedule
    steps: int | None
    seconds: float | None
    elapsed: float


@dataclass(frozen=True)
class Snapshot:
    """The answer to a pull of all rows."""

    is_current: bool
    """False if the server is in another era than who asks."""
    version: int
    step_size: float
    rows: Any = None
    """The rows, or, where they are large, a list with a reference to them in the object store, which all workers of a
    node read in one place. None if nothing changed."""
    slot: int | None = None
    """Where they are in the memory that the worker shares with the server."""


@dataclass(frozen=True)
class Receipt:
    """The answer to a push: whether it was taken, the version that the server is at, and its rows if asked for."""

    taken: bool
    version: int
    snapshot: Snapshot | None = None


@dataclass(frozen=True)
class NewerRows:
    """The answer to a pull of some rows."""

    is_current: bool
    version: int
    step_size: float
    features: NDArray[np.int32]
    values: NDArray[Any]


class WrongEra(Exception):
    """A server is in another era than who asks, or in none: it was started again and has not begun."""


class ServerActor:
    """Owns a range of features. Blank until :meth:`begin`; after a restart it is blank again.

    An era is the time between two beginnings: when a server was lost, all of them go back to one checkpoint and begin a
    new era. What belongs to another era is refused, so L never mixes the two.
    """

    def __init__(self, precision: Precision = "float32") -> None:
        threadpool_limits(1)
        self._precision = precision
        self._era = -1
        self._server: Server | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._applied: list[Applied] = []
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._gone: set[int] = set()
        self._taken: dict[int, PushNumbers] = defaultdict(PushNumbers)
        self._to_apply = 0
        """The version, repeats included, at which all that was taken is applied."""
        self._published: tuple[int, Any] = (-1, None)
        self._publishing = threading.Lock()
        self._shared: dict[int, SharedSlots] = {}

    def ready(self) -> bool:
        """Whether the process is there."""
        return True

    def begin(self, era: int, part: ServerPart) -> None:
        """Begin an era; raises what went wrong in the last one, as going back to the cut would not help."""
        self._end_updates()
        if self._error is not None:
            raise self._error
        budget = Budget(part.steps, part.seconds, part.elapsed)
        budget.begin(part.version)
        self._budget, self._schedule = budget, part.schedule
        self._clocks = Clocks(part.slack)
        for worker, clock in part.workers.items():
            self._clocks.join(worker, clock)
        Lt = np.empty((len(part.features), part.rank), np.float32)
        self._server = Server(
            Lt, UpdateRule(part.update_rule, *Lt.shape), self._clocks, self._step_size, part.capacity,
            first_feature=part.features.start, staleness_scaling=part.staleness_scaling,
        )  # fmt: skip
        self._server.restore(part.version, part.arrays)
        self._applied, self._error, self._gone = [], None, set()
        self._taken.clear()
        self._to_apply = part.version
        self._shared.clear()  # workers attach theirs anew; of those that are gone nothing is kept
        self._published = (-1, None)
        self._era = era
        self._stop.clear()
        self._thread = threading.Thread(target=self._update, args=(self._server,), name="updates", daemon=True)
        self._thread.start()

    # Communication side

    def attach(self, worker: int, place: Place) -> bool:
        """Share a worker's memory, if it is on this machine."""
        shared = SharedSlots.attach(place)
        if shared is not None:
            self._shared[worker] = shared
        return shared is not None

    def push(self, era: int, sent: SentPush, known: int | None = None, slot: int = 0) -> Receipt:
        """Queue a push, waiting for room; refused if it is of another era, or of a worker that is gone.

        With ``known``, a pull of all rows comes back with the receipt, once the push is applied: one call, not two.
        Where memory is shared with the worker, they are in this slot. The push's own slot may be used again after the
        receipt.
        """
        server = self._server
        if server is None or era != self._era or sent.push.worker in self._gone:
            return Receipt(False, -1)
        push, is_applied = received(sent, server.features.start, self._shared.get(sent.push.worker)), threading.Event()
        if known is not None:
            push = replace(push, release=is_applied.set)
        elif sent.slot is not None:
            push = _apart(push)
        if not self._take(server, era, push):
            return Receipt(False, -1)
        if known is None:
            return Receipt(True, server.version)
        with self._changed:
            while not is_applied.is_set():
                if self._is_over(era):
                    return Receipt(False, -1)
                self._changed.wait(_UPDATE_WAIT)
        return Receipt(True, server.version, self.snapshot(era, known, push.worker, slot))

    def _take(self, server: Server, era: int, push: Push) -> bool:
        """Queue a push and count it as one: after :meth:`leave`, nothing more is taken that it did not tell of."""
        with self._changed:
            while not self._is_over(era) and push.worker not in self._gone:
                if server.receive(push, timeout=0):
                    self._taken[push.worker].add(push.number)
                    self._to_apply += 1
                    return True
                self._changed.wait(_UPDATE_WAIT)
        return False

    def _is_over(self, era: int) -> bool:
        """Whether nothing is applied in this era any more: another has begun, or an update failed."""
        return era != self._era or self._error is not None

    def snapshot(self, era: int, known: int, worker: int, slot: int) -> Snapshot:
        """All rows, if there is a newer version than the one known: in a slot of memory that is shared with the worker,
        or published once a version.
        """
        server = self._server
        if server is None or era != self._era:
            return Snapshot(False, -1, 0.0)
        if server.version <= known:
            return Snapshot(True, known, self._step_size(known))
        shared = self._shared.get(worker)
        if shared is not None:
            version = server.copy_to(shared[slot][server.features.start : server.features.stop])
            return Snapshot(True, version, self._step_size(version), slot=slot)
        if server.Lt.nbytes <= _SENT_DIRECTLY:
            version, rows = self._rows(server)
        else:
            version, rows = self._publish(server)
        return Snapshot(True, version, self._step_size(version), rows)

    def newer(self, era: int, features: NDArray[np.int32], known: NDArray[np.int64]) -> NewerRows:
        """The rows of some features that changed since the versions known."""
        server = self._server
        if server is None or era != self._era:
            return NewerRows(False, -1, 0.0, features[:0], np.empty((0, 0), np.float32))
        changed, values, version = server.newer(features, known)
        return NewerRows(True, version, self._step_size(version), changed, shorten(values, self._precision))

    def _publish(self, server: Server) -> tuple[int, Any]:
        import ray  # noqa: PLC0415 - an extra

        with self._publishing:
            if self._published[0] < server.version:
                version, rows = self._rows(server)
                self._published = (version, [ray.put(rows)])
            return self._published

    def _rows(self, server: Server) -> tuple[int, NDArray[Any]]:
        features = np.arange(server.features.start, server.features.stop, dtype=np.int32)
        _, rows, version = server.newer(features, np.full(len(features), -1, np.int64))
        return version, shorten(rows, self._precision)

    # For the driver

    def applied(self, era: int, wait: float, gather: float) -> list[Applied]:
        """What was applied since this was asked last: waits a while for something, then a moment for more."""
        self._begun(era)
        with self._changed:
            self._changed.wait_for(lambda: self._applied or self._is_over(era), wait)
            if gather and self._applied:
                self._changed.wait_for(lambda: self._is_over(era), gather)
            if self._error is not None:
                raise self._error
            if era != self._era:
                return []
            taken, self._applied = self._applied, []
            return taken

    def join(self, era: int, worker: int, clock: int) -> None:
        """A worker takes part from now on."""
        self._begun(era)
        self._clocks.join(worker, clock)

    def retire(self, era: int, worker: int) -> None:
        """A worker has no further step to take: nobody waits for it, but what it pushed is applied."""
        self._begun(era)
        self._clocks.leave(worker)

    def leave(self, era: int, worker: int) -> PushNumbers:
        """A worker is gone: nothing is taken from it any more. Which of its pushes were taken is returned."""
        self._begun(era)
        with self._changed:
            self._gone.add(worker)
            self._shared.pop(worker, None)
            self._clocks.leave(worker)
            return self._taken[worker]

    def adjust(self, era: int, drops: int) -> None:
        """Make the steps smaller, by the plateau schedule."""
        self._begun(era)
        self._schedule.drops = drops

    def state(self, era: int, wait: float) -> dict[str, NDArray[Any]]:
        """All arrays, once nothing waits to be applied, nor is being applied."""
        server = self._begun(era)
        with self._changed:
            self._changed.wait_for(lambda: self._error or server.version + server.repeats >= self._to_apply, wait)
            return server.state()

    def _begun(self, era: int) -> Server:
        if self._server is None or era != self._era:
            raise WrongEra(f"asked in era {era}, being in {self._era}")
        return self._server

    def probe(self, payload: NDArray[Any]) -> int:
        """Take something, to see how fast it travels."""
        return payload.nbytes

    # Update side

    def _update(self, server: Server) -> None:
        try:
            while not self._stop.is_set():
                applied = server.update(timeout=_UPDATE_WAIT)
                if applied:
                    with self._changed:
                        self._applied += [_light(one) for one in applied]
                        self._changed.notify_all()
        except BaseException as error:  # the driver is to raise it
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _end_updates(self) -> None:
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
        with self._changed:
            self._era = -1  # from here on no push of that era is taken
            self._changed.notify_all()

    def _step_size(self, version: int) -> float:
        return self._schedule.at(version, self._budget.used(version))


def _apart(push: Push) -> Push:
    """With a gradient of its own, as what it was sent in is used again before it is applied."""
    assert isinstance(push.gradient, Gradient)
    return replace(push, gradient=replace(push.gradient, values=push.gradient.values.copy()))


def _light(one: Applied) -> Applied:
    """As it can travel: without the gradient."""
    return replace(one, push=replace(one.push, gradient=None, release=nothing))
