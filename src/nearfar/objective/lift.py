"""Lifted points: a fixed non-linear map before L, so that a linear metric learns non-linear structure.

Random Fourier features (Rahimi and Recht, 2007): with Gaussian W of width w and phases b uniform on a circle,
φ(x) = √(2/D) · cos(Wx + b) has inner products ⟨φ(x), φ(y)⟩ ≈ exp(−‖x − y‖² / 2w²). L then acts on φ(x). Points are
lifted as they are gathered, batch by batch; the lifted set is never held as a whole.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.data.points import Floats, Indices, Points, Rows, SparseRows
from nearfar.data.scratch import Scratch
from nearfar.errors import InvalidInput
from nearfar.objective import kernels

_RAW_BYTES = 32 << 20
"""Raw rows gathered at once: wide points are lifted some at a time."""
_WEIGHTS_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Lift:
    """The map φ(x) = √(2/D) · cos(Wx + b), from points of d features to D. Immutable."""

    weights: Floats
    """Wᵀ, (d, D): the scale of features and the width of the kernel are in it, so it takes raw points."""
    phases: Floats
    """b, (D,)."""

    def __post_init__(self) -> None:
        for name, ndim in (("weights", 2), ("phases", 1)):
            array = np.asarray(getattr(self, name))
            if array.dtype.kind not in "fiu" or array.ndim != ndim:
                raise InvalidInput(
                    f"lift {name} have shape {array.shape} and type {array.dtype}; "
                    f"expected {ndim} dimension(s) of real numbers"
                )
            view = np.ascontiguousarray(array, np.float32).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)
        if 0 in self.weights.shape or self.phases.shape != (self.dim,):
            raise InvalidInput(
                f"lift weights have shape {self.weights.shape} and phases {self.phases.shape}; "
                "expected (features, D) and (D,), not empty"
            )
        if not all(np.isfinite(array.sum(dtype=np.float64)) for array in (self.weights, self.phases)):
            raise InvalidInput("lift weights or phases hold NaN or infinity; expected finite numbers")

    def __repr__(self) -> str:
        return f"Lift(n_features={self.n_features}, dim={self.dim})"

    @property
    def n_features(self) -> int:
        """d, the width of raw points."""
        return int(self.weights.shape[0])

    @property
    def dim(self) -> int:
        """D, the width of lifted points."""
        return int(self.weights.shape[1])

    def apply(self, rows: Rows, out: Floats | None = None) -> Floats:
        """φ of each row, dense or sparse: (n, D), written to ``out`` where given."""
        lifted: Floats = np.empty((len(rows), self.dim), np.float32) if out is None else out
        with np.errstate(over="ignore", invalid="ignore"):  # a point that is not finite is named by who asked
            if isinstance(rows, SparseRows):
                kernels.weighted_sums(rows.starts, rows.columns, rows.values, self.weights, lifted)
            else:
                np.matmul(rows, self.weights, out=lifted)
        _waves(lifted, self.phases, np.float32(math.sqrt(2 / self.dim)))
        return lifted


class LiftedPoints(Points):
    """Other points, lifted as they are gathered."""

    mapped_bytes = 0  # lifting is computing: it is not to be done ahead, beside the products

    is_sparse = False

    def __init__(self, base: Points, lift: Lift, inverse_scale: Floats | None = None) -> None:
        self.n_features = lift.dim
        self.base, self.lift, self._inverse_scale = base, lift, inverse_scale

    def __len__(self) -> int:
        return len(self.base)

    @property
    def stored_per_point(self) -> float:
        return float(self.n_features)

    def rows(self, indices: Indices, scratch: Scratch | None = None) -> Floats:
        scratch = scratch or Scratch()
        out: Floats = scratch.array("lifted", (len(indices), self.n_features))
        at_once = max(1, int(_RAW_BYTES / (8 * max(1.0, self.base.stored_per_point))))
        for start in range(0, len(indices), at_once):
            raw = self.base.rows(indices[start : start + at_once], scratch)
            self.lift.apply(raw, out[start : start + at_once])
        if self._inverse_scale is not None:
            out *= self._inverse_scale
        return out

    def differences(self, left: Indices, right: Indices, scratch: Scratch | None = None) -> Floats:
        """``rows(left) - rows(right)``, with each distinct point lifted once: a lift costs more than a gather."""
        scratch = scratch or Scratch()
        distinct, places = np.unique(np.concatenate((left, right)), return_inverse=True)
        lifted = self.rows(distinct, scratch)
        out: Floats = scratch.array("lifted_differences", (len(left), self.n_features))
        _subtract(lifted, places[: len(left)], places[len(left) :], out)
        return out

    def scaled(self, scale: NDArray[np.floating[Any]]) -> "LiftedPoints":
        inverse = (1.0 / np.asarray(scale, np.float64)).astype(np.float32)
        before = self._inverse_scale
        return LiftedPoints(self.base, self.lift, inverse if before is None else inverse * before)

    def chosen(self, indices: Indices) -> "LiftedPoints":
        return LiftedPoints(self.base.chosen(indices), self.lift, self._inverse_scale)

    def check_finite(self, indices: Indices | None = None) -> None:
        """Raise if a raw point has NaN or infinity in it: a cosine of anything else is finite."""
        self.base.check_finite(indices)

    @property
    def lifting_flops(self) -> float:
        """What it costs to lift one point."""
        return 2 * self.base.stored_per_point * self.n_features


def rbf_lift(n_features: int, dim: int, width: float, scale: NDArray[np.float64] | None, seed: int) -> Lift:
    """A lift whose inner products approximate a Gaussian kernel of this width on points divided by ``scale``."""
    rng = np.random.default_rng([seed, 5])
    phases = rng.uniform(0, 2 * math.pi, dim).astype(np.float32)
    weights = np.empty((n_features, dim), np.float32)
    inverse = np.full(n_features, 1 / width) if scale is None else 1 / (width * scale)
    for start in range(0, n_features, _WEIGHTS_AT_ONCE):
        part = weights[start : start + _WEIGHTS_AT_ONCE]
        rng.standard_normal(out=part, dtype=np.float32)
        part *= inverse[start : start + _WEIGHTS_AT_ONCE, None].astype(np.float32)
    return Lift(weights, phases)


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def _waves(sums: Floats, phases: Floats, height: np.float32) -> None:
    """``sums = height · cos(sums + phases)``, in place and in one pass, within about 2e-7 · height.

    In turns, cos is even about every whole number: what is left after rounding is at most half a turn, and a quarter
    of a turn less it is the argument of an odd polynomial of the sine.
    """
    turns_a_radian = np.float32(0.15915494309189535)
    for i in range(len(sums)):
        row = sums[i]
        for j in range(len(row)):
            turns = (row[j] + phases[j]) * turns_a_radian
            t = np.float32(0.25) - abs(turns - np.rint(turns))
            t2 = t * t
            sine = np.float32(39.53581371170003)
            sine = sine * t2 + np.float32(-76.5496568206745)
            sine = sine * t2 + np.float32(81.60099819261444)
            sine = sine * t2 + np.float32(-41.34165492934346)
            sine = sine * t2 + np.float32(6.283185159611165)
            row[j] = height * (sine * t)


@compiled(error_model="numpy")
def _subtract(rows: Floats, left: Indices, right: Indices, out: Floats) -> None:
    """``out[i] = rows[left[i]] - rows[right[i]]``."""
    for i in range(len(out)):
        a, b = rows[left[i]], rows[right[i]]
        for j in range(out.shape[1]):
            out[i, j] = a[j] - b[j]
