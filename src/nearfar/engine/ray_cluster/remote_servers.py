"""The servers as a worker sees them: one source of L, and one place to push to."""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError, WorkerCrashedError

from nearfar import cost
from nearfar.data.points import Floats
from nearfar.engine.ray_cluster.server_actor import NewerRows, Receipt, Snapshot, WrongEra
from nearfar.engine.ray_cluster.shared_slots import SharedSlots
from nearfar.engine.ray_cluster.wire import Precision, lengthened, nothing, send
from nearfar.objective.fast_gradient import Gradient
from nearfar.parameter_server.messages import Push

LOST = (RayActorError, WorkerCrashedError, OutOfMemoryError, NodeDiedError, ObjectLostError, WrongEra)
"""What a call raises whose server is gone, for good or until it is started again, or is there again and blank."""

_SHARED = 2
"""Pushes under way through shared memory; each has a slot that its gradient is computed in, and one for L on its way
back."""
_MOST_SHARED = 512 << 20
"""Bytes of memory that a worker shares with servers at the most."""


class EraOver(Exception):
    """A server is lost, or has begun another era."""


@dataclass
class _Sent:
    """A push that is under way to every server."""

    answers: list[Any]
    pulls: bool
    """Whether all that is new comes back with the receipts."""
    release: Callable[[], None]
    """Gives the gradient's memory back, if a server reads it where it is; called with the receipts."""


class RemoteServers:
    """Each owns a range of features; pushes and pulls go to those that own what they touch. For one thread at a time.

    Parameters
    ----------
    handles : actors
        In the order of their ranges.
    ranges : list of range
        The features that each owns.
    worker : int
        The number of the worker.
    rank : int
        Rows of L.
    slots : int
        Pushes that may be under way; who wants to push one more waits.
    precision : {"float32", "bfloat16"}
    """

    def __init__(
        self, handles: Sequence[Any], ranges: list[range], worker: int, rank: int, slots: int, precision: Precision
    ) -> None:
        self._handles, self._ranges, self._slots, self._precision = list(handles), ranges, slots, precision
        self._worker, self._n_features = worker, ranges[-1].stop
        self.pulled_bytes = 0
        """Since the worker began."""
        shares = precision == "float32" and 8 * _SHARED * self._n_features * rank <= _MOST_SHARED
        self._own = SharedSlots.make(2 * _SHARED, (self._n_features, rank)) if shares else None
        self._pushes = [handle.push.options(concurrency_group="push") for handle in handles]
        self._under_way: deque[_Sent] = deque()
        self._reset(-1)

    @property
    def memory(self) -> list[Floats]:
        """Where gradients are to be written so that near servers have them at once; nowhere if none may be near."""
        return [self._own[slot] for slot in range(_SHARED)] if self._own else []

    def begin(self, era: int) -> None:
        """Take part in an era: share memory with those servers that are on this machine."""
        self._reset(era)
        try:
            if self._own:
                place = self._own.place
                attach = [handle.attach.options(concurrency_group="pull") for handle in self._handles]
                self._near = ray.get([ask.remote(self._worker, place) for ask in attach])
        except LOST as error:
            raise EraOver from error

    def _reset(self, era: int) -> None:
        self.era = era
        self._near = [False] * len(self._handles)
        while self._under_way:
            self._under_way.popleft().release()
        self.version = -1
        """The newest version that is known of."""
        self.step_size = 0.0
        """At the version pulled last."""
        self.taken = 0
        """Pushes that every server has taken in this era."""
        self._brought: list[Snapshot] | None = None
        self._have = [-1] * len(self._handles)

    # Pull

    def pull(self, features: NDArray[np.int32], local: Floats, known: NDArray[np.int64]) -> int:
        """Bring rows of a worker's copy up to date; the oldest version among the servers' is returned."""
        try:
            if cost.are_most_features(len(features), self._n_features):
                versions = self._pull_all(local, known)
            else:
                versions = self._pull_some(features, local, known)
        except LOST as error:
            raise EraOver from error
        self.version = max(self.version, min(versions))
        return min(versions)

    def _pull_all(self, local: Floats, known: NDArray[np.int64]) -> list[int]:
        versions = []
        for i, (features, answer) in enumerate(zip(self._ranges, self._snapshots(), strict=True)):
            self._check(answer.is_current)
            rows = self._rows(i, answer)
            if rows is not None and answer.version > self._have[i]:  # else a later answer has overtaken this one
                local[features.start : features.stop] = lengthened(rows)
                known[features.start : features.stop] = answer.version
                self.pulled_bytes += rows.nbytes
                self._have[i] = answer.version
            self.step_size = answer.step_size
            versions.append(self._have[i])
        return versions

    def _rows(self, server: int, answer: Snapshot) -> NDArray[Any] | None:
        """The rows of an answer, wherever they are; valid until the next push."""
        if answer.slot is not None and self._own:
            features = self._ranges[server]
            return self._own[answer.slot][features.start : features.stop]
        rows: NDArray[Any] | None = ray.get(answer.rows[0]) if isinstance(answer.rows, list) else answer.rows
        return rows

    def _snapshots(self) -> list[Snapshot]:
        """What came with a push, the last or the one before, whose answer need not be waited for; else an answer."""
        while len(self._under_way) > 1 or (self._under_way and _is_answered(self._under_way[0])):
            self._confirm()
        brought, self._brought = self._brought, None
        if brought is not None:
            return brought
        if self._under_way and self._under_way[0].pulls and min(self._have) >= 0:
            return [Snapshot(True, have, self.step_size) for have in self._have]
        pull = [handle.snapshot.options(concurrency_group="pull") for handle in self._handles]
        asks = [ask.remote(self.era, have, self._worker, _SHARED) for ask, have in zip(pull, self._have, strict=True)]
        return list(ray.get(asks))

    def _pull_some(self, features: NDArray[np.int32], local: Floats, known: NDArray[np.int64]) -> list[int]:
        bounds = np.searchsorted(features, [*(one.start for one in self._ranges), self._n_features])
        parts = [features[a:b] for a, b in itertools.pairwise(bounds)]
        asked = [
            handle.newer.options(concurrency_group="pull").remote(self.era, part, known[part])
            for handle, part in zip(self._handles, parts, strict=True)
        ]
        versions = []
        answers: list[NewerRows] = ray.get(asked)
        for part, answer in zip(parts, answers, strict=True):
            self._check(answer.is_current)
            local[answer.features] = lengthened(answer.values)
            known[answer.features] = answer.version
            self.pulled_bytes += answer.values.nbytes + 3 * part.nbytes + answer.features.nbytes
            self.step_size = answer.step_size
            versions.append(answer.version)
        return versions

    # Push

    def push(self, push: Push, *, pull: bool = False) -> None:
        """Send a push to every server; waits while too many are under way.

        With ``pull``, all that is new comes back with the receipts, to be taken by the next pull of all features.
        """
        try:
            while len(self._under_way) >= min(self._slots, _SHARED if any(self._near) else self._slots):
                self._confirm()
            slot = self._slot_of(push)
            parts = [
                send(push, features, self._precision, slot if near else None)
                for features, near in zip(self._ranges, self._near, strict=True)
            ]
            answers = [
                remote.remote(self.era, part, have if pull else None, _SHARED + (slot or 0))
                for remote, part, have in zip(self._pushes, parts, self._have, strict=True)
            ]
        except (EraOver, *LOST) as error:
            push.release()
            raise EraOver from error
        is_read_there = any(part.slot is not None for part in parts)
        self._under_way.append(_Sent(answers, pull, push.release if is_read_there else nothing))
        if not is_read_there:
            push.release()

    def _slot_of(self, push: Push) -> int | None:
        """Where in its own memory the gradient is, if that is of all features."""
        if self._own is None or not isinstance(push.gradient, Gradient):
            return None
        return self._own.slot_of(push.gradient.values)

    def settle(self) -> None:
        """Wait until every push is taken."""
        try:
            while self._under_way:
                self._confirm()
        except LOST as error:
            raise EraOver from error

    def _confirm(self) -> None:
        """Wait for the receipts of the oldest push under way."""
        sent = self._under_way[0]
        receipts: list[Receipt] = ray.get(sent.answers)
        self._under_way.popleft().release()
        for receipt in receipts:
            self._check(receipt.taken)
        self.taken += 1
        self.version = max(self.version, min(receipt.version for receipt in receipts))
        if sent.pulls:
            self._brought = [receipt.snapshot for receipt in receipts if receipt.snapshot is not None]

    def _check(self, is_current: bool) -> None:
        if not is_current:
            raise EraOver


def _is_answered(sent: _Sent) -> bool:
    return len(ray.wait(sent.answers, num_returns=len(sent.answers), timeout=0)[0]) == len(sent.answers)
