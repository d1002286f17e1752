"""The budget: how many steps are left, and who may take the next one."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from nearfar.parameter_server.clocks import Clocks


@dataclass
class Budget:
    """Steps and seconds that training may use; either may be unlimited. Seconds go on over a resume."""

    steps: int | None
    seconds: float | None
    seconds_before: float = 0.0
    now: Callable[[], float] = time.monotonic
    """The clock that seconds are counted by."""
    _began: float = 0.0
    _begun: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._began = self.now()

    def begin(self, steps_done: int) -> None:
        """Start the clock; ``steps_done`` steps were taken before."""
        self._began = self.now()
        self._begun = steps_done

    @property
    def elapsed(self) -> float:
        """Seconds of training, those before a resume included."""
        return self.seconds_before + self.now() - self._began

    def used(self, step: int) -> float:
        """The share of the budget that is used, 0 … 1; 0 without a budget."""
        by_steps = 0.0 if self.steps is None else step / self.steps
        by_time = 0.0 if self.seconds is None else self.elapsed / self.seconds
        return min(1.0, max(by_steps, by_time))

    def take(self, worker: int, clocks: Clocks, version: int) -> bool:
        """Whether this worker may take another step; if so, the step is counted as begun.

        In step (BSP) the answer depends only on the round, never on who asks first.
        """
        if self.steps is None:
            return True
        if clocks.slack == 0:
            workers = clocks.workers
            return worker in workers and version + workers.index(worker) < self.steps
        with self._lock:
            if self._begun >= self.steps:
                return False
            self._begun += 1
            return True

    def recount(self, steps_done: int) -> None:
        """Only so many of the steps that were begun are done, and the others will never be."""
        with self._lock:
            self._begun = steps_done

    def give_back(self) -> None:
        """A step that was begun will not be pushed."""
        with self._lock:
            self._begun -= 1
