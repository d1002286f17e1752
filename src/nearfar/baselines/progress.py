"""How far a fit is: its running time, what it had reached when, and whether its time is up."""

import math
import numbers
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def positive(name: str, value: Any) -> float:
    """The value as a number above 0, or an error that names it."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and float(value) > 0:
        return float(value)
    raise InvalidSettings(f"{name} is {value!r}; expected a number above 0")


def whole(name: str, value: Any, most: int | None = None) -> int:
    """The value as a whole number of 1 or more, and no more than ``most``, or an error that names it."""
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if is_whole and int(value) >= 1 and (most is None or int(value) <= most):
        return int(value)
    raise InvalidSettings(f"{name} is {value!r}; expected a whole number from 1" + (f" to {most}" if most else " up"))
