"""Compiled update rules: each goes once over the rows of L that a gradient touches, and over that row's state with it.

``features[i]`` is the row of L that row i of the gradient belongs to, and ``moments[feature]`` are all of the rule's
rows for it, so that there is one place to go to. They change only when their row is touched, and bias is corrected by
how often that was, so a rare feature is treated as it would be alone.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.objective.packing import pack_row
from nearfar.objective.prefetch import bring_near

Array = NDArray[Any]
Number = Any
"""A float32, or in a compiled loop a vector of them."""

SGD, MOMENTUM, ADAGRAD, ADAM = range(4)
_KEEP_VELOCITY = np.float32(0.9)
_KEEP_MEAN, _KEEP_SQUARE = 0.9, 0.999
_EXACT = {"contract", "nsz"}  # two steps at once have the bits of one after the other
_SAFE = {"contract", "reassoc", "nsz", "arcp"}  # not nnan and ninf: what is not finite has to be seen
_TINY = np.float32(1e-12)
_AHEAD = 4
"""Rows that are asked for before their turn."""


@compiled(error_model="numpy", fastmath=_EXACT)
def sgd(Lt: Array, features: Array, gradient: Array, step_size: float) -> None:
    step = np.float32(step_size)
    for i in range(len(features)):
        _ask_for(Lt, features, i)
        row, g = Lt[features[i]], gradient[i]
        for u in range(len(row)):
            row[u] = _sgd(row[u], g[u], step)


@compiled(error_model="numpy", fastmath=_EXACT)
def momentum(Lt: Array, moments: Array, features: Array, gradient: Array, step_size: float) -> None:
    step = np.float32(step_size)
    for i in range(len(features)):
        _ask_for(Lt, features, i)
        _ask_for(moments, features, i)
        feature, g = features[i], gradient[i]
        row, v = Lt[feature], moments[feature, 0]
        for u in range(len(row)):
            row[u], v[u] = _momentum(row[u], v[u], g[u], step)


@compiled(error_model="numpy", fastmath=_EXACT)
def adagrad(Lt: Array, moments: Array, features: Array, gradient: Array, step_size: float) -> None:
    step = np.float32(step_size)
    for i in range(len(features)):
        _ask_for(Lt, features, i)
        _ask_for(moments, features, i)
        feature, g = features[i], gradient[i]
        row, q = Lt[feature], moments[feature, 0]
        for u in range(len(row)):
            row[u], q[u] = _adagrad(row[u], q[u], g[u], step)


@compiled(error_model="numpy", fastmath=_EXACT)
def adam(Lt: Array, moments: Array, counts: Array, features: Array, gradient: Array, step_size: float) -> None:
    for i in range(len(features)):
        _ask_for(Lt, features, i)
        _ask_for(moments, features, i)
        _ask_for(counts, features, i)
        feature, g = features[i], gradient[i]
        counts[feature] += 1
        step, bias = _unbiased(step_size, counts[feature])
        row, m, q = Lt[feature], moments[feature, 0], moments[feature, 1]
        for u in range(len(row)):
            row[u], m[u], q[u] = _adam(row[u], m[u], q[u], g[u], step, bias)


@njit(nogil=True, inline="always")
def _ask_for(rows: Array, features: Array, i: int) -> None:
    """Ask for the row that is used soon after row i, unless rows follow each other: the processor foresees those."""
    if i + _AHEAD < len(features) and features[i + _AHEAD] - features[i] > _AHEAD:
        bring_near(rows.ctypes.data + features[i + _AHEAD] * rows.strides[0], rows.strides[0])


@compiled(error_model="numpy", fastmath=_EXACT)
def twice(
    rule: int, Lt: Array, moments: Array, counts: Array, features: Array,
    places: Array, gradient: Array, step_size: float, more_places: Array, more: Array, more_step_size: float,
    copy_places: Array | None, copy: tuple[Array, int, int, int],
) -> None:  # fmt: skip
    """A step for each of two gradients, of rows that both touch: what lies between the steps is in no memory.

    ``places`` and ``more_places`` are where the rows of ``features`` are in each. With ``copy_places``, each row is
    packed into a copy of L as soon as it is new.
    """
    memory, n_rows, tile, number_bytes = copy
    last = np.zeros(tile, np.float32)
    first, second = np.float32(step_size), np.float32(more_step_size)
    for i in range(len(features)):
        feature, g, h = features[i], gradient[places[i]], more[more_places[i]]
        row = Lt[feature]
        if rule == SGD:
            for u in range(len(row)):
                row[u] = _sgd(_sgd(row[u], g[u], first), h[u], second)
        elif rule == MOMENTUM:
            v = moments[feature, 0]
            for u in range(len(row)):
                number, moment = _momentum(row[u], v[u], g[u], first)
                row[u], v[u] = _momentum(number, moment, h[u], second)
        elif rule == ADAGRAD:
            q = moments[feature, 0]
            for u in range(len(row)):
                number, moment = _adagrad(row[u], q[u], g[u], first)
                row[u], q[u] = _adagrad(number, moment, h[u], second)
        else:
            m, q = moments[feature, 0], moments[feature, 1]
            counts[feature] += 2
            step, bias = _unbiased(step_size, counts[feature] - 1)
            next_step, next_bias = _unbiased(more_step_size, counts[feature])
            for u in range(len(row)):
                number, mean, square = _adam(row[u], m[u], q[u], g[u], step, bias)
                row[u], m[u], q[u] = _adam(number, mean, square, h[u], next_step, next_bias)
        if copy_places is not None:
            pack_row(row, copy_places[feature], last, memory, n_rows, tile, number_bytes)


@compiled(error_model="numpy")
def places_of_both(features: Array, others: Array) -> tuple[Array, Array, Array, Array]:
    """Of two rising lists of features: the places in each of those that both have, and of those that only it has."""
    both, other_both = np.empty(len(features), np.uint32), np.empty(len(features), np.uint32)
    alone, other_alone = np.empty(len(features), np.uint32), np.empty(len(others), np.uint32)
    i, j, n = 0, 0, 0
    while i < len(features) or j < len(others):
        if j == len(others) or (i < len(features) and features[i] < others[j]):
            alone[i - n] = i
            i += 1
        elif i == len(features) or others[j] < features[i]:
            other_alone[j - n] = j
            j += 1
        else:
            both[n], other_both[n] = i, j
            i, j, n = i + 1, j + 1, n + 1
    return both[:n], other_both[:n], alone[: len(features) - n], other_alone[: len(others) - n]


# The rules, for one number of L: its new value, and that of its moments.


@njit(nogil=True, inline="always")
def _sgd(number: Number, slope: Number, step: Number) -> Number:
    return number - step * slope


@njit(nogil=True, inline="always")
def _momentum(number: Number, velocity: Number, slope: Number, step: Number) -> tuple[Number, ...]:
    velocity = _KEEP_VELOCITY * velocity + slope
    return number - step * velocity, velocity


@njit(nogil=True, inline="always")
def _adagrad(number: Number, square: Number, slope: Number, step: Number) -> tuple[Number, ...]:
    square = square + slope * slope
    return number - step * slope / (np.sqrt(square) + _TINY), square


@njit(nogil=True, inline="always")
def _adam(
    number: Number, mean: Number, square: Number, slope: Number, step: Number, bias: Number
) -> tuple[Number, ...]:
    mean = np.float32(_KEEP_MEAN) * mean + np.float32(1 - _KEEP_MEAN) * slope
    square = np.float32(_KEEP_SQUARE) * square + np.float32(1 - _KEEP_SQUARE) * slope * slope
    return number - step * mean / (np.sqrt(square * bias) + _TINY), mean, square


@njit(nogil=True, inline="always")
def _unbiased(step_size: float, count: int) -> tuple[Number, ...]:
    """Adam's step size, and what mean squares are multiplied by, for a row that is touched for the count-th time."""
    return np.float32(step_size / (1 - _KEEP_MEAN**count)), np.float32(1 / (1 - _KEEP_SQUARE**count))


@compiled(error_model="numpy", fastmath=_SAFE)
def row_scaled(Lt: Array, squares: Array, features: Array, gradient: Array, step_size: float) -> None:
    """A worker's own step where the server's rule is adaptive: one running mean square a row, not one an entry."""
    kept, new = np.float32(_KEEP_MEAN), np.float32(1 - _KEEP_MEAN)
    for i in range(len(features)):
        row, g = Lt[features[i]], gradient[i]
        total = np.float32(0)
        for u in range(len(row)):
            total += g[u] * g[u]
        mean = total / np.float32(len(row))
        before = squares[features[i]]
        squares[features[i]] = mean if before == 0 else kept * before + new * mean
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
