"""The servers, as the driver deals with them: placed, begun, asked what they applied, fetched."""

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, RayTaskError

from nearfar.engine.engine import Job
from nearfar.engine.ray_cluster import cluster
from nearfar.engine.ray_cluster.mirror import Mirror
from nearfar.engine.ray_cluster.options import RayOptions
from nearfar.engine.ray_cluster.remote_servers import LOST
from nearfar.engine.ray_cluster.server_actor import NewerRows, ServerPart, WrongEra
from nearfar.engine.ray_cluster.wire import lengthened
from nearfar.errors import NearfarError, TrainingFailed
from nearfar.parameter_server.messages import Applied, PushNumbers

_APPLIED_WAIT = 1.0
"""Seconds that a server waits for something to tell."""
_GATHER = 0.1
"""Seconds that it then waits for more, where nobody waits for the driver to know."""


class ServerGroup:
    """Servers that own L together. A push counts as applied when every one of them has applied its part."""

    def __init__(self, job: Job, options: RayOptions, mirror: Mirror) -> None:
        self._job, self._options, self._mirror = job, options, mirror
        bounds = np.linspace(0, len(mirror.features), min(options.servers, len(mirror.features)) + 1).astype(int)
        self.ranges = [range(a, b) for a, b in zip(bounds.tolist(), bounds.tolist()[1:], strict=False)]
        self.handles: list[Any] = []
        self.era = -1
        self.asked: dict[Any, int] = {}
        """Answers that are waited for, with the server that is to give them."""
        self._parts: dict[tuple[int, int], list[Applied]] = {}
        self._known = np.full(len(mirror.features), -1, np.int64)
        self._looks = 0
        self._last_signs: list[float] = []

    def place(self) -> None:
        """Start the servers' processes."""
        self.handles = [cluster.place_server(self._options) for _ in self.ranges]
        waiting = [handle.ready.remote() for handle in self.handles]
        placed, _ = ray.wait(waiting, num_returns=len(waiting), timeout=self._options.start_timeout)
        if len(placed) < len(waiting):
            raise cluster.not_placed(f"{len(waiting) - len(placed)} of {len(waiting)} servers", self._options)
        ray.get(placed)

    def begin(self, clocks: dict[int, int]) -> None:
        """Begin an era from the last cut, with these workers."""
        self.era += 1
        deadline = time.monotonic() + self._options.start_timeout
        half = deadline - self._options.start_timeout / 2
        left = list(range(len(self.handles)))
        while left:
            begun = {i: self._call(i, "begin", self.era, self._part(self.ranges[i], clocks)) for i in left}
            now = time.monotonic()
            until = half if now < half else deadline
            ray.wait(list(begun.values()), num_returns=len(begun), timeout=max(0.1, until - now))
            for i, answer in begun.items():
                try:
                    _get(answer, 0.1)
                    left.remove(i)
                except (GetTimeoutError, *LOST) as error:
                    if time.monotonic() > deadline:
                        raise TrainingFailed(
                            f"server {i} did not come back within {self._options.start_timeout:g} s "
                            f"({cluster.reason(error)}); when the cluster has room for it, go on with --resume, or "
                            "begin again if there is no checkpoint yet"
                        ) from error
                    if isinstance(error, GetTimeoutError):
                        self._restart([i])
                    time.sleep(0.1)
        self._mirror.local.version = self._mirror.cut_version
        self._known[:] = -1
        self._parts.clear()
        self._last_signs = [time.monotonic()] * len(self.handles)
        self.asked = {self._ask(i): i for i in range(len(self.handles))}

    def close_era(self) -> None:
        """Wait for no answer of this era any more."""
        self.asked.clear()

    def answered(self, answer: Any) -> list[Applied]:
        """What an answer makes complete."""
        server = self.asked.pop(answer)
        applied: list[Applied] = _get(answer)
        self._last_signs[server] = time.monotonic()
        self.asked[self._ask(server)] = server
        complete = []
        for one in applied:
            key = (one.push.worker, one.push.number)
            parts = self._parts.setdefault(key, [])
            parts.append(one)
            if len(parts) == len(self.handles):
                complete.append(_whole(self._parts.pop(key)))
        self._mirror.local.version += len(complete)
        return complete

    def any_silent(self) -> bool:
        """Whether a server gave no sign for too long; those are ended, to be started again."""
        silent = self._silent_for(self._options.hang_after + _APPLIED_WAIT)
        self._restart(silent)
        return bool(silent)

    def all_well(self) -> bool:
        """Whether each of them gave a sign not long ago."""
        return not self._silent_for(3 * _APPLIED_WAIT)

    def _silent_for(self, seconds: float) -> list[int]:
        now = time.monotonic()
        return [i for i, last_sign in enumerate(self._last_signs) if now - last_sign > seconds]

    def _restart(self, servers: list[int]) -> None:
        for i in servers:
            ray.kill(self.handles[i], no_restart=False)

    def _all(self, answers: list[Any], timeout: float) -> list[Any]:
        """The answers of all servers; who gives none in time is ended, to be started again."""
        ready, _ = ray.wait(answers, num_returns=len(answers), timeout=timeout)
        if len(ready) < len(answers):
            self._restart([i for i, answer in enumerate(answers) if answer not in ready])
            raise GetTimeoutError(f"{len(answers) - len(ready)} servers gave no answer in {timeout:g} s")
        return list(ray.get(answers))

    def leave(self, worker: int) -> tuple[int, int]:
        """A worker is gone. How many of its pushes every server took, and how many only some did."""
        answers = [self._call(i, "leave", self.era, worker) for i in range(len(self.handles))]
        taken: list[PushNumbers] = self._all(answers, self._options.hang_after)
        by_all = min(one.next for one in taken)
        beyond = [one.from_(by_all) for one in taken]
        complete = beyond[0].intersection(*beyond)
        torn = beyond[0].union(*beyond) - complete
        self._parts = {key: parts for key, parts in self._parts.items() if key[0] != worker or key[1] not in torn}
        return by_all + len(complete), len(torn)

    def tell(self, what: str, *arguments: Any) -> None:
        """Tell every server something, and go on when all have heard it; a server that is lost is seen later."""
        for answer in [self._call(i, what, self.era, *arguments) for i in range(len(self.handles))]:
            try:
                ray.get(answer, timeout=self._options.hang_after)
            except (GetTimeoutError, *LOST):
                return

    def refresh(self) -> None:
        """Bring the mirror's L up to date; if a server is lost it is left as it was, not made part old and part new."""
        every = [np.arange(features.start, features.stop, dtype=np.int32) for features in self.ranges]
        try:
            asked = [
                handle.newer.options(concurrency_group="pull").remote(self.era, features, self._known[features])
                for handle, features in zip(self.handles, every, strict=True)
            ]
            answers: list[NewerRows] = ray.get(asked, timeout=self._options.hang_after)
        except (GetTimeoutError, *LOST):
            return
        if not all(newer.is_current for newer in answers):
            return
        self._looks += 1
        for newer in answers:
            self._mirror.local.overwrite(newer.features, lengthened(newer.values), self._looks)
            self._known[newer.features] = newer.version

    def fetch_state(self) -> None:
        """Write L and the rule's state into the mirror."""
        local, self._looks = self._mirror.local, self._looks + 1
        wait = self._options.hang_after
        answers = [self._call(i, "state", self.era, wait) for i in range(len(self.handles))]
        state = local.state()
        for features, arrays in zip(self.ranges, self._all(answers, 2 * wait), strict=True):
            for key, array in arrays.items():
                if key != "Lt":
                    state[key][features.start : features.stop] = array
            local.overwrite(np.arange(features.start, features.stop, dtype=np.int32), arrays["Lt"], self._looks)

    def end(self) -> None:
        """Leave nothing on the cluster."""
        cluster.end(self.handles)

    def _part(self, features: range, clocks: dict[int, int]) -> ServerPart:
        job, local = self._job, self._mirror.local
        return ServerPart(
            features=features,
            rank=job.rank,
            version=self._mirror.cut_version,
            arrays=self._mirror.cut_part(features),
            update_rule=job.update_rule,
            slack=job.clocks.slack,
            workers=clocks,
            capacity=local.inbound.capacity,
            staleness_scaling=job.staleness_scaling,
            schedule=job.schedule,
            steps=job.budget.steps,
            seconds=job.budget.seconds,
            elapsed=job.budget.elapsed,
        )

    def _ask(self, server: int) -> Any:
        gather = _GATHER if math.isinf(self._job.clocks.slack) else 0.0
        return self._call(server, "applied", self.era, _APPLIED_WAIT, gather)

    def _call(self, server: int, what: str, *arguments: Any) -> Any:
        return getattr(self.handles[server], what).options(concurrency_group="driver").remote(*arguments)


def _get(answer: Any, timeout: float | None = None) -> Any:
    """An answer, or the error that it is: ours where it is ours, so that who trains sees that one."""
    try:
        return ray.get(answer, timeout=timeout)
    except WrongEra:
        raise
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, NearfarError) else error from error


def _whole(parts: list[Applied]) -> Applied:
    """What the servers did with the parts of one push, as one; the stalest part counts."""
    first = parts[0]
    push = replace(first.push, nbytes=sum(one.push.nbytes for one in parts))
    return Applied(push, max(one.staleness for one in parts), max(one.waiting for one in parts))
