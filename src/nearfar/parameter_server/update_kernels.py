"""Compiled update rules: each goes once over the rows of L that a gradient touches, and over that row's state with it.

``features[i]`` is the row of L that row i of the gradient belongs to. A rule's moments change only when their row is
touched, and bias is corrected by how often that was, so a rare feature is treated as it would be alone.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.objective.prefetch import bring_near

Array = NDArray[Any]

_SAFE = {"contract", "reassoc", "nsz", "arcp"}  # not nnan and ninf: what is not finite has to be seen
_TINY = np.float32(1e-12)
_AHEAD = 4
"""Rows that are asked for before their turn."""


@njit(nogil=True, inline="always")
def _ask_for(rows: Array, features: Array, i: int) -> None:
    """Ask for the row that is used soon after row i, unless rows follow each other: the processor foresees those."""
    if i + _AHEAD < len(features) and features[i + _AHEAD] - features[i] > _AHEAD:
        bring_near(rows.ctypes.data + features[i + _AHEAD] * rows.strides[0], rows.strides[0])


@compiled(error_model="numpy", fastmath=_SAFE)
def sgd(Lt: Array, features: Array, gradient: Array, step_size: float) -> None:
    step = np.float32(step_size)
    for i in range(len(features)):
        _ask_for(Lt, features, i)
        row, g = Lt[features[i]], gradient[i]
        for u in range(len(row)):
            row[u] -= step * g[u]


@compiled(error_model="numpy", fastmath=_SAFE)
def momentum(Lt: Array, velocity: Array, features: Array, gradient: Array, step_size: float, keep: float) -> None:
    step, kept = np.float32(step_size), np.float32(keep)
    for i in range(len(features)):
        for rows in (Lt, velocity):
            _ask_for(rows, features, i)
        row, v, g = Lt[features[i]], velocity[features[i]], gradient[i]
        for u in range(len(row)):
            v[u] = kept * v[u] + g[u]
            row[u] -= step * v[u]


@compiled(error_model="numpy", fastmath=_SAFE)
def adagrad(Lt: Array, squares: Array, features: Array, gradient: Array, step_size: float) -> None:
    step = np.float32(step_size)
    for i in range(len(features)):
        for rows in (Lt, squares):
            _ask_for(rows, features, i)
        row, q, g = Lt[features[i]], squares[features[i]], gradient[i]
        for u in range(len(row)):
            q[u] += g[u] * g[u]
            row[u] -= step * g[u] / (np.sqrt(q[u]) + _TINY)


@compiled(error_model="numpy", fastmath=_SAFE)
def adam(
    Lt: Array, moments: Array, counts: Array, features: Array, gradient: Array,
    step_size: float, keep_mean: float, keep_square: float,
) -> None:  # fmt: skip
    """``moments[feature]`` are two rows, of means and of mean squares: one place to go to, not two."""
    one = np.float32(1)
    b1, b2 = np.float32(keep_mean), np.float32(keep_square)
    for i in range(len(features)):
        _ask_for(Lt, features, i)
        _ask_for(moments, features, i)
        _ask_for(counts, features, i)
        feature = features[i]
        counts[feature] += 1
        step = np.float32(step_size / (1 - keep_mean ** counts[feature]))
        square_bias = np.float32(1 / (1 - keep_square ** counts[feature]))
        row, m, q, g = Lt[feature], moments[feature, 0], moments[feature, 1], gradient[i]
        for u in range(len(row)):
            m[u] = b1 * m[u] + (one - b1) * g[u]
            q[u] = b2 * q[u] + (one - b2) * g[u] * g[u]
            row[u] -= step * m[u] / (np.sqrt(q[u] * square_bias) + _TINY)


@compiled(error_model="numpy", fastmath=_SAFE)
def row_scaled(Lt: Array, squares: Array, features: Array, gradient: Array, step_size: float, keep: float) -> None:
    """A worker's own step where the server's rule is adaptive: one running mean square a row, not one an entry."""
    for i in range(len(features)):
        row, g = Lt[features[i]], gradient[i]
        total = np.float32(0)
        for u in range(len(row)):
            total += g[u] * g[u]
        mean = total / np.float32(len(row))
        before = squares[features[i]]
        squares[features[i]] = mean if before == 0 else np.float32(keep) * before + np.float32(1 - keep) * mean
        step = np.float32(step_size) / (np.sqrt(squares[features[i]]) + _TINY)
        for u in range(len(row)):
            row[u] -= step * g[u]


@compiled(error_model="numpy")
def stamp(versions: Array, features: Array, version: int) -> None:
    """Note that the rows of ``features`` changed at this version."""
    for i in range(len(features)):
        versions[features[i]] = version


@compiled(error_model="numpy")
def copy_newer(Lt: Array, versions: Array, features: Array, first_feature: int, local: Array, known: Array) -> None:
    """Copy the rows of ``features`` that changed since they were last copied; ``Lt`` begins at ``first_feature``."""
    for i in range(len(features)):
        feature = features[i]
        row = feature - first_feature
        if versions[row] > known[feature]:
            local[feature] = Lt[row]
            known[feature] = versions[row]


@compiled(error_model="numpy")
def all_finite(Lt: Array) -> bool:
    """Whether L holds no NaN and no infinity."""
    for i in range(len(Lt)):
        row = Lt[i]
        for u in range(len(row)):
            if not np.isfinite(row[u]):
                return False
    return True
