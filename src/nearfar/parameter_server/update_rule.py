"""Update rules and step size schedules: how gradients change L."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidSettings
from nearfar.objective.fast_gradient import Gradient
from nearfar.parameter_server import update_kernels

Floats = NDArray[np.float32]

_KEEP_VELOCITY = 0.9
_KEEP_MEAN, _KEEP_SQUARE = 0.9, 0.999
_CACHED_BYTES = 256 << 10
_LONG = 1000
"""Steps after which a training is long. At its full step size adam then breaks out now and again: with the gradients
the mean squares have become small, an oscillation grows, and the objective is several times as large for 200 steps."""
_STATE_OF = {"sgd": (), "momentum": ("velocity",), "adagrad": ("squares",), "adam": ("means", "squares")}


class UpdateRule:
    """Applies gradients to L one after the other, in one pass over the memory of L and of the rule's state.

    Many gradients act exactly as they would one by one: L is gone through in pieces that fit the cache, and each piece
    takes all gradients in turn.

    Parameters
    ----------
    name : {"sgd", "momentum", "adagrad", "adam"}
    n_features, rank : int
        The shape of Lᵀ.
    """

    def __init__(self, name: str, n_features: int, rank: int) -> None:
        if name not in _STATE_OF:
            raise InvalidSettings(f"update_rule is {name!r}; expected one of {', '.join(_STATE_OF)}")
        self.name = name
        names = _STATE_OF[name]
        self._moments = np.zeros((n_features, len(names), rank), np.float32)
        self._state: dict[str, NDArray[Any]] = {key: self._moments[:, i] for i, key in enumerate(names)}
        if name == "adam":
            self._state["counts"] = np.zeros(n_features, np.int32)
        self._rows_at_once = max(1, _CACHED_BYTES // (4 * rank))

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save and to restore with :meth:`restore`."""
        return self._state

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        for key, array in self._state.items():
            array[:] = state[key]

    def apply(self, Lt: Floats, gradients: list[Gradient], step_sizes: list[float]) -> None:
        """Take one step for each gradient, in order."""
        if len(gradients) == 1:
            self._step(Lt, gradients[0].features, gradients[0].values, step_sizes[0])
            return
        ends = np.arange(self._rows_at_once, len(Lt) + self._rows_at_once, self._rows_at_once, dtype=np.int32)
        places = [np.searchsorted(gradient.features, ends).tolist() for gradient in gradients]
        firsts: tuple[int, ...] = (0,) * len(gradients)
        for lasts in zip(*places, strict=True):
            for gradient, first, last, step_size in zip(gradients, firsts, lasts, step_sizes, strict=True):
                if last > first:
                    self._step(Lt, gradient.features[first:last], gradient.values[first:last], step_size)
            firsts = lasts

    def _step(self, Lt: Floats, features: NDArray[np.int32], values: Floats, step_size: float) -> None:
        state = self._state
        if self.name == "sgd":
            update_kernels.sgd(Lt, features, values, step_size)
        elif self.name == "momentum":
            update_kernels.momentum(Lt, state["velocity"], features, values, step_size, _KEEP_VELOCITY)
        elif self.name == "adagrad":
            update_kernels.adagrad(Lt, state["squares"], features, values, step_size)
        else:
            counts = state["counts"]
            update_kernels.adam(Lt, self._moments, counts, features, values, step_size, _KEEP_MEAN, _KEEP_SQUARE)


class LocalStep:
    """The step a worker takes on its own copy of L, before the server has seen the gradient.

    For sgd and momentum it is a plain gradient step. For the adaptive rules, whose state is on the server, it has the
    size such a step would have, from one running mean square a feature.
    """

    def __init__(self, rule: str, n_features: int) -> None:
        self._plain = rule in ("sgd", "momentum")
        self._squares = np.zeros(0 if self._plain else n_features, np.float32)

    def apply(self, local: Floats, gradient: Gradient, step_size: float) -> None:
        """Change the local copy, in place."""
        if self._plain:
            update_kernels.sgd(local, gradient.features, gradient.values, step_size)
        else:
            update_kernels.row_scaled(local, self._squares, gradient.features, gradient.values, step_size, _KEEP_MEAN)


@dataclass
class Schedule:
    """How the step size falls as training goes on.

    ``constant``; ``inverse-root``: ∝ 1/√(1 + step/settle); ``cosine``: from the full step size to a hundredth of it as
    the budget is used up; ``cosine-root``: that, and with the root of the steps beyond a thousand or so;
    ``plateau``: to a quarter at every drop, which who watches the objective decides.
    """

    name: str
    step_size: float
    settle: int = 100
    drops: int = 0

    def at(self, step: int, used: float) -> float:
        """The step size at a step, when this share of the budget is used."""
        if self.name == "cosine":
            return self.step_size * _cosine(used)
        if self.name == "cosine-root":
            return self.step_size * _cosine(used) / math.sqrt(1 + step / _LONG)
        if self.name == "inverse-root":
            return self.step_size / math.sqrt(1 + step / self.settle)
        if self.name == "plateau":
            return float(self.step_size / 4**self.drops)
        return self.step_size


def _cosine(used: float) -> float:
    """From 1 to a hundredth as the budget is used up."""
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, used)))
