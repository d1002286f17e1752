"""Training against a clock that stands still while the metric is judged."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Chase:
    """Seconds of training to each goal: the average precision that test pairs are to reach.

    After every step, or every tenth of the steps so far once they are many, the clock is stopped and the metric judged.
    """

    goals: tuple[float, ...]
    judge: Callable[[np.ndarray], float]
    limit: float
    """Seconds of training after which to give up."""
    seconds: float = 0.0
    steps: int = 0
    best: float = 0.0
    """The highest average precision seen."""
    reached: dict[float, float] = field(default_factory=dict)
    """For each goal that was reached, the seconds of training until then."""
    _next_look: int = 1
    _since: float = 0.0

    def begin(self) -> None:
        """Start the clock."""
        self._since = time.perf_counter()

    def step_taken(self, L: Callable[[], np.ndarray]) -> bool:
        """Count a step; ``L`` gives the components to judge. True if there is nothing left to chase."""
        self.seconds += time.perf_counter() - self._since
        self.steps += 1
        if self.steps >= self._next_look:
            self._next_look = self.steps + max(1, self.steps // 10)
            precision = self.judge(L())
            self.best = max(self.best, precision)
            for goal in self.goals:
                if precision >= goal:
                    self.reached.setdefault(goal, self.seconds)
        ended = self.seconds > self.limit or len(self.reached) == len(self.goals)
        self._since = time.perf_counter()
        return ended

    def to(self, goal: float) -> float:
        """Seconds to a goal; infinite if it was not reached."""
        return self.reached.get(goal, float("inf"))
