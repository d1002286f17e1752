"""Checks of arguments that several baselines take."""

import numbers
from typing import Any

from nearfar.errors import InvalidSettings


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


def share(name: str, value: Any) -> float:
    """The value as a number from 0 to 1, or an error that names it."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 <= float(value) <= 1:
        return float(value)
    raise InvalidSettings(f"{name} is {value!r}; expected a number from 0 to 1")
