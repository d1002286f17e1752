"""Consistency: one rule with one number, apart from any server.

A worker's clock counts the steps of it that are applied. A worker may begin its step t while the slowest worker's clock
is at least t - slack: with slack 0 all go in step (BSP), with an infinite slack no one ever waits (ASP), between the
two is stale-synchronous (SSP).
"""

import threading
from collections.abc import Callable, Iterable

from nearfar.parameter_server.messages import Push


class Clocks:
    """The clocks of all workers that take part; safe between threads."""

    def __init__(self, slack: float) -> None:
        self.slack = slack
        self._applied: dict[int, int] = {}
        self._changed = threading.Condition()

    def join(self, worker: int, clock: int | None = None) -> int:
        """A worker takes part from now on, by default at the clock of the slowest; where it begins is returned."""
        with self._changed:
            self._applied[worker] = min(self._applied.values(), default=0) if clock is None else clock
            return self._applied[worker]

    def leave(self, worker: int) -> None:
        """A worker is done or gone; nobody waits for it any more."""
        with self._changed:
            self._applied.pop(worker, None)
            self._changed.notify_all()

    @property
    def workers(self) -> list[int]:
        """Those that take part, in order."""
        with self._changed:
            return sorted(self._applied)

    def applied(self, worker: int, clock: int) -> None:
        """The server has applied this worker's step ``clock``."""
        with self._changed:
            if worker in self._applied:
                self._applied[worker] = max(self._applied[worker], clock + 1)
                self._changed.notify_all()

    def may_begin(self, clock: int) -> bool:
        """The rule."""
        return min(self._applied.values(), default=clock) >= clock - self.slack

    def wait_to_begin(self, clock: int, given_up: Callable[[], bool]) -> bool:
        """Wait until a step with this clock may begin; False if ``given_up`` turned true before (see :meth:`wake`)."""
        with self._changed:
            self._changed.wait_for(lambda: given_up() or self.may_begin(clock))
            return not given_up()

    def wake(self) -> None:
        """Let those who wait look again whether to give up."""
        with self._changed:
            self._changed.notify_all()

    def ready(self, waiting: Iterable[Push]) -> tuple[list[Push], list[Push]]:
        """Split what waits into what to apply now, in order, and what to keep waiting.

        With a slack everything is applied as it came. In step, a round is applied when every worker that takes part has
        pushed it, in the order of the workers, so that the result does not depend on who was faster. What comes after
        its round is applied at once: its worker is gone, and the round was whole without it.
        """
        pushes = list(waiting)
        if self.slack > 0:
            return pushes, []
        pushes.sort(key=lambda push: (push.clock, push.worker))
        round_now = pushes[0].clock if pushes else 0
        first = [push for push in pushes if push.clock == round_now]
        with self._changed:
            slowest = min(self._applied.values(), default=round_now)
            is_whole = self._applied.keys() <= {push.worker for push in first}
        is_ready = round_now < slowest or (round_now == slowest and is_whole)
        return (first, pushes[len(first) :]) if is_ready else ([], pushes)
