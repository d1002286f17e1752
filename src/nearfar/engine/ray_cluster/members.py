"""The workers, as the driver deals with them: who takes part, with which shards, and who is to join."""

import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayTaskError

from nearfar.engine.engine import Job
from nearfar.engine.ray_cluster import cluster
from nearfar.engine.ray_cluster.options import RayOptions
from nearfar.engine.ray_cluster.parcel import pack
from nearfar.engine.ray_cluster.remote_servers import LOST
from nearfar.engine.ray_cluster.server_group import ServerGroup
from nearfar.engine.ray_cluster.worker_actor import Done, Grant, WorkerPart
from nearfar.errors import NearfarError, WorkerFailed
from nearfar.parameter_server.messages import Push
from nearfar.parameter_server.worker import Shard

_ASSUMED_BANDWIDTH = 1.25e9
"""10 Gbit/s, where runs have to be reproducible and nothing is declared."""
_MOST_FAILED_STARTS = 3
"""Workers in a row that fail to start, and as many more as there are to be, after which one is given up: processes may
die while they start, too, and all at once."""


@dataclass(eq=False)
class Member:
    """One worker."""

    number: int
    actor: Any
    clock: int = 0
    """Of the next step to grant."""
    shards: list[int] = field(default_factory=list)
    grants: deque[Any] = field(default_factory=deque)
    """Answers to grants, oldest first."""
    granted: int = 0
    """Steps, in this era."""
    taken: int = 0
    """Its pushes of this era that servers took, as far as it or they have told: either may die before it tells."""
    taken_at_cut: int = 0
    applied: int = 0
    """Its pushes of this era that every server has told to have applied."""
    pulled_bytes: int = 0
    step_seconds: float | None = None
    last_sign: float = field(default_factory=time.monotonic)
    has_joined: bool = False
    retired: bool = False

    def grant(self, grant: Grant) -> None:
        """Let it take some steps."""
        if not self.grants:
            self.last_sign = time.monotonic()
        self.grants.append(self.actor.run.remote(grant))
        self.clock += grant.steps
        self.granted += grant.steps

    def answered(self, done: Done) -> int:
        """It has done with its oldest grant. The bytes it pulled meanwhile are returned."""
        self.grants.popleft()
        self.last_sign = time.monotonic()
        self.taken = max(self.taken, done.taken)
        if done.steps and not done.is_over:
            self.step_seconds = done.seconds / done.steps
        pulled = done.pulled_bytes - self.pulled_bytes
        self.pulled_bytes = done.pulled_bytes
        return pulled


class Members:
    """Who takes part. As many as asked for are kept up, as far as the cluster has room."""

    def __init__(self, job: Job, options: RayOptions, servers: ServerGroup) -> None:
        self._job, self._options, self._servers = job, options, servers
        self.active: dict[int, Member] = {}
        self.positions = {shard.number: shard.clock for shard in job.shards}
        """For each shard, the clock of the first batch that is not applied."""
        self._joining: dict[Any, Member] = {}
        self._arrived: list[Member] = []
        self._next_number = 0
        self._orphans: list[int] = []
        self._lost_with_gone = 0
        self._failed_starts = 0
        self._first_error: BaseException | None = None
        """Since a worker was last well."""
        self._alone_since = math.inf

    @property
    def asked(self) -> dict[Any, Member]:
        """Answers that are waited for, with the worker that is to give them."""
        return self._joining | {member.grants[0]: member for member in self.active.values() if member.grants}

    def are_busy(self) -> bool:
        """Whether any has not answered to a grant."""
        return any(member.grants for member in self.active.values())

    def clocks(self) -> dict[int, int]:
        return {member.number: member.clock for member in self.active.values()}

    def place(self) -> None:
        """Start the workers' processes; the first ones needed are waited for."""
        self._parcel = ray.put(pack(self._part()))
        for _ in range(self._job.workers):
            self._ask_for_one()
        needed = min(self._job.workers, self._options.min_workers or self._job.workers)
        deadline = time.monotonic() + self._options.start_timeout
        while len(self._arrived) < needed:
            left = deadline - time.monotonic()
            ready, _ = ray.wait(list(self._joining), num_returns=1, timeout=max(0.0, left))
            if not ready:
                raise cluster.not_placed(f"{needed - len(self._arrived)} of {needed} workers", self._options)
            self.answered(ready[0], self._joining[ready[0]])
            if not self._joining and len(self._arrived) < needed:
                self._raise_failure()
        self._arrived.sort(key=lambda member: member.number)
        for i, member in enumerate(self._arrived):
            self._take(member, [shard.number for shard in self._job.shards[i :: len(self._arrived)]])
        self._arrived.clear()

    def answered(self, answer: Any, member: Member) -> None:
        """A worker's process is there, or has failed to start."""
        self._joining.pop(answer)
        try:
            ray.get(answer)
        except (RayTaskError, *LOST) as error:
            cause = error.cause if isinstance(error, RayTaskError) else error
            self._first_error = self._first_error or cause
            self._failed_starts += 1
            if self._failed_starts < _MOST_FAILED_STARTS + self._job.workers:
                self._ask_for_one()
            return
        self._failed_starts, self._first_error = 0, None
        self._arrived.append(member)

    def applied(self, push: Push) -> None:
        """Every server has applied it."""
        self.positions[push.shard] = max(self.positions[push.shard], push.shard_clock + 1)
        if member := self.active.get(push.worker):
            member.applied += 1
            member.taken = max(member.taken, member.applied)

    def take_in(self) -> list[Member]:
        """Let those join that have arrived, with a fair share of the shards."""
        joined, self._arrived = self._arrived, []
        for member in joined:
            shards, self._orphans = self._orphans, []
            if not shards and self.active:
                shards = self._fair_share()
            self._take(member, shards)
        return joined

    def remove(self, member: Member, error: BaseException, *, again: bool) -> None:
        """A worker is gone; another is asked for, unless that would fail again."""
        self.active.pop(member.number, None)
        cluster.end([member.actor])
        self._first_error = self._first_error or error
        self._lost_with_gone += member.taken - member.taken_at_cut
        if again:
            self._ask_for_one()
        others = list(self.active.values())
        if not others:
            self._orphans += member.shards
            self._alone_since = time.monotonic()
        for i, other in enumerate(others):
            self._hand_over(other, member.shards[i :: len(others)])

    def silent(self) -> list[Member]:
        """Those that have had a grant for too long."""
        now = time.monotonic()
        return [
            member
            for member in self.active.values()
            if member.grants and now - member.last_sign > self._options.hang_after
        ]

    def check_any_left(self) -> None:
        """Raise when there is no worker, and none comes."""
        if self.active or self._arrived:
            self._alone_since = math.inf
            return
        if not self._joining or time.monotonic() - self._alone_since > self._options.start_timeout:
            self._raise_failure()

    def keep_cut(self) -> None:
        """All that was taken so far is in the cut."""
        self._lost_with_gone = 0
        for member in self.active.values():
            member.taken_at_cut = member.taken

    def went_back(self, clock: int) -> int:
        """A new era begins at this clock. How many pushes were taken since the last cut, and are lost, is returned."""
        lost = self._lost_with_gone
        self._lost_with_gone = 0
        for member in self.active.values():
            lost += member.taken - member.taken_at_cut
            member.taken = member.taken_at_cut = member.applied = member.granted = 0
            member.clock, member.retired = clock, False
        return lost

    def end(self) -> None:
        """Leave nothing on the cluster."""
        everyone = [*self.active.values(), *self._joining.values(), *self._arrived]
        cluster.end(member.actor for member in everyone)

    def _ask_for_one(self) -> None:
        number, self._next_number = self._next_number, self._next_number + 1
        actor = cluster.place_worker(self._options, number, self._parcel, self._servers.handles)
        self._joining[actor.ready.remote()] = Member(number, actor)

    def _take(self, member: Member, shards: list[int]) -> None:
        member.clock = self._job.clocks.join(member.number)
        member.has_joined = True
        member.last_sign = time.monotonic()
        self.active[member.number] = member
        self._hand_over(member, shards)

    def _hand_over(self, member: Member, shards: list[int]) -> None:
        if shards:
            member.shards += shards
            member.actor.take_over.remote([Shard(number, self.positions[number]) for number in shards])

    def _fair_share(self) -> list[int]:
        """Shards that others give up: as many as they have more than their share."""
        share = len(self.positions) // (len(self.active) + 1)
        found: list[int] = []
        for other in sorted(self.active.values(), key=lambda one: -len(one.shards)):
            spare = min(len(other.shards) - 1, share - len(found), max(0, len(other.shards) - share))
            if spare > 0:
                found += other.shards[:spare]
                other.shards = other.shards[spare:]
                other.actor.give_up.remote(spare)
        return found

    def _part(self) -> WorkerPart:
        job, options = self._job, self._options
        reproducible = job.clocks.slack == 0
        bandwidth = options.bytes_a_second or (_ASSUMED_BANDWIDTH if reproducible else None)
        return WorkerPart(
            job.points, job.sampler, job.loss, job.rank, job.rounded, job.update_rule, job.slots, self._servers.ranges,
            options.wire, bandwidth, pulls_with_pushes=math.isinf(job.clocks.slack),
        )  # fmt: skip

    def _raise_failure(self) -> None:
        error = self._first_error
        if isinstance(error, NearfarError):
            raise error
        why = cluster.reason(error) if error else "none could be placed"
        raise WorkerFailed(f"every worker failed; the first with: {why}") from error
