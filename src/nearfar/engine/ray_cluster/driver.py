"""The driver: grants steps to workers, counts what the servers applied, and mends what breaks.

All that decides is here, in one thread and in plain objects: clocks, budget, who holds which shard. The driver waits
for answers of many actors at once, and an answer that is an error says who is gone.

- A worker that is gone, or silent for too long, leaves its shards to the others, and a new one is asked for. Those of
  its pushes that a server has taken are applied; none is applied twice.
- When a server is gone, all servers go back to the last cut and begin a new era. Pushes taken since that cut are lost,
  and counted; those of the era before that still come are refused.
"""

import contextlib
import math
import time
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayTaskError

from nearfar.engine.engine import Job, Supervisor
from nearfar.engine.ray_cluster import cluster
from nearfar.engine.ray_cluster.members import Member, Members
from nearfar.engine.ray_cluster.metrics import RunMetrics
from nearfar.engine.ray_cluster.mirror import Mirror
from nearfar.engine.ray_cluster.options import RayOptions
from nearfar.engine.ray_cluster.remote_servers import LOST
from nearfar.engine.ray_cluster.server_group import ServerGroup
from nearfar.engine.ray_cluster.worker_actor import Done, Grant
from nearfar.errors import TrainingFailed
from nearfar.parameter_server.messages import Applied

_LOOK_AROUND = 0.2
"""Seconds after which the driver looks for who is silent, though no answer came."""
_GRANT_SECONDS = 0.25
"""What a grant is to take, where consistency does not bound it: long beside a call, short beside a report."""
_MOST_STEPS_A_GRANT = 64
_CUT_AFTER = 1.5
"""Times the interval of checkpoints after which a cut is made, if no checkpoint has made one."""
_MOST_FAULTS = 10
"""Faults, and three more for each worker, after which training is given up if it got no further between them."""


class Driver:
    """One training on a cluster; used in a ``with``, after which nothing of it is left on the cluster."""

    def __init__(self, job: Job, supervisor: Supervisor, options: RayOptions, mirror: Mirror) -> None:
        self._job, self._supervisor, self._options, self._mirror = job, supervisor, options, mirror
        self._stack = contextlib.ExitStack()
        self._pending: list[Applied] = []
        self._open = 0
        """Steps granted that are neither applied nor given back."""
        self._paused = False
        self._faults = self._furthest = 0
        """Faults since training was last further than ever before, and how far that was."""
        self._next_cut = time.monotonic() + _CUT_AFTER * job.checkpoint_every
        self._drops = job.schedule.drops

    def __enter__(self) -> "Driver":
        try:
            self._stack.enter_context(cluster.connected(self._options, self._job.workers))
            self._metrics = RunMetrics()
            self._mirror.keep_cut()
            self._servers = ServerGroup(self._job, self._options, self._mirror)
            self._stack.callback(self._servers.end)
            self._members = Members(self._job, self._options, self._servers)
            self._stack.callback(self._members.end)
            self._servers.place()
            self._members.place()
            self._servers.begin(self._members.clocks())
            self._mirror.refresh, self._mirror.cut = self._servers.refresh, self._cut
            self._job.budget.begin(self._mirror.version)  # anew: to start processes is no training
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._mirror.refresh = self._mirror.cut = None
        self._stack.close()

    def until_done(self) -> None:
        """Grant steps until the budget is used up or the supervisor says stop; L is then in the mirror."""
        while True:
            self._grant()
            if self._is_used_up() or self._attend():
                era = self._servers.era
                self._cut()
                if self._servers.era == era:
                    return  # else a server was lost before the cut, and steps with it

    def _attend(self) -> bool:
        """Deal with what came, and let the supervisor see it; whether it says stop."""
        self._pump()
        applied, self._pending = self._pending, []
        if self._supervisor.attend(applied):
            return True
        self._metrics.show(self._mirror.version, len(self._members.active), self._supervisor.progress)
        self._pass_on_drops()
        if time.monotonic() > self._next_cut:
            self._cut()
        return False

    # Granting

    def _grant(self) -> None:
        if self._paused:
            return
        job, bounded = self._job, not math.isinf(self._job.clocks.slack)
        in_step = job.clocks.slack == 0
        if in_step and (self._open or self._members.are_busy()):
            return  # a round is granted to all at once: a cut in the middle of it would wait for the others for ever
        if in_step:
            self._take_back_retired()
        for member in self._members.take_in():
            self._servers.tell("join", member.number, member.clock)
        for member in list(self._members.active.values()):
            while len(member.grants) < (1 if in_step else 2) and job.clocks.may_begin(member.clock):
                steps = self._taken_from_budget(member, 1 if bounded else _steps_a_grant(member))
                if not steps:
                    if in_step and not member.retired:
                        member.retired = True  # nobody may wait for its part of a round that it has no step in
                        job.clocks.leave(member.number)
                        self._servers.tell("retire", member.number)
                    break
                member.grant(Grant(self._servers.era, member.clock, steps))
                self._open += steps

    def _take_back_retired(self) -> None:
        """Who had no step in the last round has one after all, where the worker that was to take it is gone."""
        if self._mirror.version >= (self._job.budget.steps or 0):
            return
        clock = max((member.clock for member in self._members.active.values()), default=0)
        for member in self._members.active.values():
            if member.retired:
                member.retired, member.clock = False, self._job.clocks.join(member.number, clock)
                self._servers.tell("join", member.number, clock)

    def _taken_from_budget(self, member: Member, most: int) -> int:
        steps = 0
        while steps < most and self._job.budget.take(member.number, self._job.clocks, self._mirror.version):
            steps += 1
        return steps

    def _is_used_up(self) -> bool:
        steps, is_idle = self._job.budget.steps, not (self._open or self._members.are_busy())
        return is_idle and steps is not None and self._mirror.version >= steps

    # Answers

    def _pump(self) -> None:
        """Wait for answers, a while, and deal with those that came."""
        waiting = {**self._servers.asked, **self._members.asked}
        ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_LOOK_AROUND) if waiting else ([], [])
        if ready:
            ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        for answer in ready:
            self._deal_with(answer, waiting[answer])
        if self._servers.any_silent():
            self._recover()
        while self._servers.all_well() and (silent := self._members.silent()):  # else it may wait for a server
            self._worker_gone(silent[0], TimeoutError(f"no sign of it for {self._options.hang_after:g} s"))
        self._members.check_any_left()

    def _deal_with(self, answer: Any, who: Any) -> None:
        if isinstance(who, int):
            if answer in self._servers.asked:
                self._server_answered(answer)
        elif answer in self._members.asked:
            if who.has_joined:
                self._worker_answered(answer, who)
            else:
                self._members.answered(answer, who)

    def _server_answered(self, answer: Any) -> None:
        try:
            complete = self._servers.answered(answer)
        except LOST:
            self._recover()
            return
        for one in complete:
            self._job.clocks.applied(one.push.worker, one.push.clock)
            self._members.applied(one.push)
            self._open -= 1
        self._pending += complete
        if self._mirror.version > self._furthest:
            self._furthest, self._faults = self._mirror.version, 0

    def _worker_answered(self, answer: Any, member: Member) -> None:
        try:
            done: Done = ray.get(answer)
        except RayTaskError as error:
            self._worker_gone(member, error.cause if isinstance(error.cause, Exception) else error, again=False)
            return
        except LOST as error:
            self._worker_gone(member, error)
            return
        self._supervisor.progress.pulled_bytes += member.answered(done)
        if done.is_over:
            self._recover()

    # Faults

    def _worker_gone(self, member: Member, error: BaseException, *, again: bool = True) -> None:
        """Whatever of its steps no server will ever apply goes back to the budget; its shards go to the others."""
        self._count_fault(error)
        self._job.clocks.leave(member.number)
        try:
            member.taken, torn = self._servers.leave(member.number)
        except (GetTimeoutError, *LOST):
            self._members.remove(member, error, again=again)
            self._recover()
        else:
            self._members.remove(member, error, again=again)
            self._give_back(member.granted - member.taken)
            self._supervisor.progress.lost += torn
        self._supervisor.worker_failed(member.number, RuntimeError(cluster.reason(error)), len(self._members.active))

    def _count_fault(self, error: BaseException | None = None) -> None:
        self._faults += 1
        if self._faults > _MOST_FAULTS + 3 * self._job.workers:
            last = f"; the last: {cluster.reason(error)}" if error else ""
            raise TrainingFailed(
                f"{self._faults} workers or servers were lost and training got no further than step "
                f"{self._furthest} meanwhile{last}"
            )

    def _give_back(self, steps: int) -> None:
        self._open -= steps
        for _ in range(steps):
            self._job.budget.give_back()

    def _recover(self) -> None:
        """Begin a new era from the last cut, with whoever is left."""
        self._count_fault()
        self._servers.close_era()
        deadline = time.monotonic() + self._options.hang_after
        for member in list(self._members.active.values()):
            while member.grants:
                try:
                    done: Done = ray.get(member.grants[0], timeout=max(0.0, deadline - time.monotonic()))
                    self._supervisor.progress.pulled_bytes += member.answered(done)
                except (GetTimeoutError, RayTaskError, *LOST) as error:
                    self._members.remove(member, error, again=True)
                    break
        clock = max((member.clock for member in self._members.active.values()), default=0)
        for number in self._job.clocks.workers:
            self._job.clocks.leave(number)
        self._supervisor.progress.lost += self._members.went_back(clock)
        for number in self._members.active:
            self._job.clocks.join(number, clock)
        self._servers.begin(self._members.clocks())
        self._count_pending()
        self._open = 0
        self._job.budget.recount(self._mirror.version)
        self._supervisor.servers_went_back(self._mirror.version)

    # Cuts

    def _cut(self) -> None:
        """Let everything under way be applied, then take all arrays of all servers: the same pushes are in each.

        They are counted at once: a checkpoint made of the cut has to know the batches that are in it, else a run that
        is resumed takes them again.
        """
        self._paused = True
        try:
            while True:
                while self._open:
                    self._pump()
                try:
                    self._servers.fetch_state()
                    break
                except (GetTimeoutError, *LOST):
                    self._recover()
        finally:
            self._paused = False
        self._mirror.keep_cut()
        self._members.keep_cut()
        self._count_pending()
        self._next_cut = time.monotonic() + _CUT_AFTER * self._job.checkpoint_every

    def _count_pending(self) -> None:
        self._supervisor.progress.record(self._pending)
        self._pending.clear()

    def _pass_on_drops(self) -> None:
        if self._job.schedule.drops != self._drops:
            self._drops = self._job.schedule.drops
            self._servers.tell("adjust", self._drops)


def _steps_a_grant(member: Member) -> int:
    if member.step_seconds is None:
        return 1
    return max(1, min(_MOST_STEPS_A_GRANT, round(_GRANT_SECONDS / member.step_seconds)))
