"""The gradient, in plain NumPy: the reference that every fast kernel is held equal to. Read this first.

With differences Δ (one row a pair), Z = Δ Lᵀ and squared distances s = rowsum(Z²), a loss gives its slope w = ∂loss/∂s,
and the gradient is always G = 2 · (diag(w) Z)ᵀ Δ. The same gradient from points instead of differences: the weights act
on the projections of the distinct points as a graph Laplacian, G = 2 · (Lap Z_u)ᵀ X_u.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.sampling import Batch, Block
from nearfar.objective.losses import (
    BlockLoss,
    ComparisonLoss,
    PairLoss,
    block_value_and_slopes,
    value_and_slopes,
)

Floats = NDArray[np.floating[Any]]


def from_differences(L: Floats, X: Floats, batch: Batch, loss: PairLoss | ComparisonLoss) -> tuple[float, Floats]:
    """Objective and gradient (k, d) of a batch, through the differences of its pairs."""
    pairs, n_near = np.concatenate((batch.near, batch.far)), len(batch.near)
    differences = X[pairs[:, 0]] - X[pairs[:, 1]]
    Z = differences @ L.T
    s = (Z * Z).sum(axis=1)
    value, near_slopes, far_slopes = value_and_slopes(loss, s[:n_near], s[n_near:], batch.weights)
    w = np.concatenate((near_slopes, far_slopes))
    return value, 2 * (w[:, None] * Z).T @ differences


def from_points(L: Floats, X: Floats, batch: Batch, loss: PairLoss | ComparisonLoss) -> tuple[float, Floats]:
    """The same objective and gradient, through the distinct points of the batch."""
    pairs, n_near = np.concatenate((batch.near, batch.far)), len(batch.near)
    distinct, places = np.unique(pairs, return_inverse=True)
    a, b = places.reshape(pairs.shape).T
    Z = X[distinct] @ L.T
    s = ((Z[a] - Z[b]) ** 2).sum(axis=1)
    value, near_slopes, far_slopes = value_and_slopes(loss, s[:n_near], s[n_near:], batch.weights)
    W = np.zeros((len(distinct), len(distinct)), L.dtype)
    np.add.at(W, (a, b), np.concatenate((near_slopes, far_slopes)))
    return value, 2 * (laplacian(W) @ Z).T @ X[distinct]


def from_block(L: Floats, X: Floats, block: Block, loss: PairLoss | BlockLoss) -> tuple[float, Floats]:
    """Objective and gradient of all pairs among the points of a block."""
    points = X[block.indices]
    Z = points @ L.T
    s = ((Z[:, None] - Z[None, :]) ** 2).sum(axis=2)
    value, W = block_value_and_slopes(loss, s, block.sizes)
    return value, 2 * (laplacian(W) @ Z).T @ points


def laplacian(W: Floats) -> Floats:
    """The graph Laplacian of the weights of ordered pairs: rowsums + columnsums on the diagonal, minus W + Wᵀ."""
    both = W + W.T
    np.fill_diagonal(both, 0)
    return np.diag(both.sum(axis=1)) - both
