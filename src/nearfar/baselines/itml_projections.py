"""Bregman projections of ITML, a block of constraints at a time.

One projection changes M by ``β (M v)(M v)ᵀ``: two passes over a matrix that does not stay in cache. Here the
projections of a block act, one after the other as ever, on the small matrix ``K = V M Vᵀ`` of the block's differences
V alone: it holds every number that they depend on. What they do to M is then made up for by three matrix products. The
result is the same up to rounding, at the rate of BLAS.
"""

import math
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nearfar.baselines.progress import Matrix
from nearfar.compiled import compiled

Array = NDArray[Any]


@compiled(error_model="numpy")
def project_in_turn(
    K: Array, signs: Array, gamma: float, multipliers: Array, slacks: Array, turns: Array, lower: Array
) -> None:
    """Project onto each constraint of a block in turn, by the matrix of their products alone.

    Parameters
    ----------
    K : array (b, b)
        ``V M Vᵀ``; overwritten.
    signs : array (b,)
        1 for a similar pair, -1 for a dissimilar one.
    gamma : float
    multipliers, slacks : arrays (b,)
        λ and ξ; changed in place.
    turns : array (b,)
        Takes β of each projection.
    lower : array (b, b)
        Takes, below its diagonal, how much of each earlier projection is in a later one's ``M v``.
    """
    share = 1.0 if math.isinf(gamma) else gamma / (gamma + 1.0)
    n = len(K)
    for i in range(n):
        p = K[i, i]
        turns[i] = 0.0
        if p <= 0.0:  # equal points: at distance 0 whatever M is
            continue
        sign = signs[i]
        alpha = min(multipliers[i], sign * share * (1.0 / p - 1.0 / slacks[i]))
        if alpha == 0.0:
            continue
        multipliers[i] -= alpha
        slacks[i] = 1.0 / (1.0 / slacks[i] + sign * alpha / gamma)
        beta = sign * alpha / (1.0 - sign * alpha * p)
        turns[i] = beta
        for r in range(i + 1, n):
            times = beta * K[i, r]
            lower[r, i] = times
            for c in range(r, n):
                K[r, c] += times * K[i, c]


def project_block(M: Matrix, V: Matrix, signs: Matrix, gamma: float, multipliers: Matrix, slacks: Matrix) -> None:
    """Project M, in place, onto the constraints of a block of differences V (b, d), one after the other."""
    W = V @ M
    turns, lower = np.empty(len(V)), np.zeros((len(V), len(V)))
    project_in_turn(W @ V.T, signs, gamma, multipliers, slacks, turns, lower)
    if turns.any():  # row i of U is (M v_i), with the M that projection i met
        U = scipy.linalg.solve_triangular(-lower, W, lower=True, unit_diagonal=True, check_finite=False)
        M += (U * turns[:, np.newaxis]).T @ U


def project_plainly(M: Matrix, V: Matrix, signs: Matrix, gamma: float, multipliers: Matrix, slacks: Matrix) -> None:
    """The same as :func:`project_block`, as Davis et al. wrote it down: the reference for tests."""
    share = 1.0 if math.isinf(gamma) else gamma / (gamma + 1.0)
    for i, v in enumerate(V):
        p = v @ M @ v
        if p <= 0:
            continue
        alpha = min(multipliers[i], signs[i] * share * (1 / p - 1 / slacks[i]))
        multipliers[i] -= alpha
        slacks[i] = 1 / (1 / slacks[i] + signs[i] * alpha / gamma)
        M += signs[i] * alpha / (1 - signs[i] * alpha * p) * np.outer(M @ v, v @ M)
