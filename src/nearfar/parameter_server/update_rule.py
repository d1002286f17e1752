"""Update rules and step size schedules: how gradients change L."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidSettings
from nearfar.objective.fast_gradient import Gradient
from nearfar.parameter_server import update_kernels
from nearfar.parameter_server.packed_copies import PackedCopy

Floats = NDArray[np.float32]

_LONG = 1000
"""Steps after which a training is long. At its full step size adam then breaks out now and again: with the gradients
the mean squares have become small, an oscillation grows, and the objective is several times as large for 200 steps."""
_WORTH_SHARING = 0.8
"""The share of features that both of two gradients touch from which on a pass for both is worth copying the others."""
_CODES = {
    "sgd": update_kernels.SGD,
    "momentum": update_kernels.MOMENTUM,
    "adagrad": update_kernels.ADAGRAD,
    "adam": update_kernels.ADAM,
}
_NO_COPY = (None, (np.empty(0, np.float32), 0, 0, 0))
_STATE_OF = {"sgd": (), "momentum": ("velocity",), "adagrad": ("squares",), "adam": ("means", "squares")}


class UpdateRule:
    """Applies gradients to L one after the other.

    Two that touch much the same features share a pass over the memory of L and of the rule's state, which is what takes
    the time where L is large. What comes of it is the same, bit for bit.

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
        self._counts = np.zeros(n_features if name == "adam" else 0, np.int32)
        if name == "adam":
            self._state["counts"] = self._counts

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays to save and to restore with :meth:`restore`."""
        return self._state

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        for key, array in self._state.items():
            array[:] = state[key]

    def apply(
        self, Lt: Floats, gradients: list[Gradient], step_sizes: list[float], copy: PackedCopy | None = None
    ) -> bool:
        """Take one step for each gradient, in order.

        The last pass, if it is one for two gradients, packs L into ``copy`` on its way; whether it did is returned.
        So of an odd number, the first goes alone.
        """
        alone = len(gradients) % 2
        if alone:
            self._step(Lt, gradients[0].features, gradients[0].values, step_sizes[0])
        is_packed = False
        for i in range(alone, len(gradients), 2):
            is_last = i + 2 == len(gradients)
            is_packed = self._two_steps(Lt, gradients[i : i + 2], step_sizes[i : i + 2], copy if is_last else None)
        return is_packed

    def _two_steps(
        self, Lt: Floats, gradients: list[Gradient], step_sizes: list[float], copy: PackedCopy | None
    ) -> bool:
        """Rows that both touch take both steps at once, the others one; in which order rows do is all the same."""
        first, second = gradients
        both, other_both, alone, other_alone = update_kernels.places_of_both(first.features, second.features)
        if len(both) < _WORTH_SHARING * max(len(first.features), len(second.features)):
            self._step(Lt, first.features, first.values, step_sizes[0])
            self._step(Lt, second.features, second.values, step_sizes[1])
            return False
        shared = first.features[both]
        update_kernels.twice(
            _CODES[self.name], Lt, self._moments, self._counts, shared,
            both, first.values, step_sizes[0], other_both, second.values, step_sizes[1],
            *((copy.places, copy.packed.target) if copy else _NO_COPY),
        )  # fmt: skip
        self._step(Lt, first.features[alone], first.values[alone], step_sizes[0])
        self._step(Lt, second.features[other_alone], second.values[other_alone], step_sizes[1])
        if copy is None:
            return False
        copy.pack(Lt, np.delete(np.arange(len(Lt), dtype=np.int32), shared))
        return True

    def _step(self, Lt: Floats, features: NDArray[np.int32], values: Floats, step_size: float) -> None:
        if self.name == "sgd":
            update_kernels.sgd(Lt, features, values, step_size)
        elif self.name == "momentum":
            update_kernels.momentum(Lt, self._moments, features, values, step_size)
        elif self.name == "adagrad":
            update_kernels.adagrad(Lt, self._moments, features, values, step_size)
        else:
            update_kernels.adam(Lt, self._moments, self._counts, features, values, step_size)


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
            update_kernels.row_scaled(local, self._squares, gradient.features, gradient.values, step_size)


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
