"""How far a fit is: its running time, what it had reached when, and whether its time is up."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.baselines.arguments import positive
from nearfar.errors import InvalidSettings

Matrix = NDArray[np.float64]
OnProgress = Callable[[float, Matrix], Any]


class Progress:
    """A stopwatch that keeps a history. It stands still while it reports, so being watched costs no running time.

    Parameters
    ----------
    on_progress : function of (seconds, components), optional
    every : float
        Seconds of running time between reports.
    max_seconds : float, optional
        The running time after which :attr:`is_over`.
    """

    def __init__(
        self, on_progress: OnProgress | None = None, every: float = 1.0, max_seconds: float | None = None
    ) -> None:
        if on_progress is not None and not callable(on_progress):
            raise InvalidSettings(f"on_progress is {on_progress!r}; expected a function of (seconds, components)")
        self._on_progress = on_progress
        self._every = positive("progress_every", every)
        self._max_seconds = math.inf if max_seconds is None else positive("max_seconds", max_seconds)
        self._standing, self._due = 0.0, 0.0
        self.history: list[tuple[float, float | None]] = []
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The running time up to now."""
        return time.perf_counter() - self._began - self._standing

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.seconds >= self._max_seconds

    @property
    def is_due(self) -> bool:
        """Whether it is time for a report."""
        return self.seconds >= self._due

    def report(self, objective: Callable[[], float] | None, components: Callable[[], Matrix]) -> None:
        """Add to the history, and call whoever watches.

        Parameters
        ----------
        objective : function, optional
            Gives the objective, for methods that have one.
        components : function
            Gives L, (k, d); only called if somebody watches.
        """
        seconds, stopped = self.seconds, time.perf_counter()
        self.history.append((seconds, None if objective is None else objective()))
        if self._on_progress is not None:
            self._on_progress(seconds, components())
        self._due = seconds + self._every
        self._standing += time.perf_counter() - stopped
