"""Splitting constraints so that the two sides share no point: what is learned by heart on one side is no help there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearfar.data.constraints import Indices

_MOST_JOINED = 4 << 20
"""Constraints up to which connected components are looked for: among more there is as a rule one that holds all."""


def points_apart(constraints: Sequence[Indices], n_points: int, share: float, seed: int) -> NDArray[np.bool_]:
    """Choose points to set aside, so that about ``share`` of the constraints lie among them.

    Points that constraints join, directly or over others, are set aside together where that is possible: no constraint
    is lost then. Otherwise points are chosen one by one, and constraints between the two sides are lost.

    Parameters
    ----------
    constraints : arrays of shape (n, t)
        Indices of points that stand together.
    n_points : int
    share : float
    seed : int

    Returns
    -------
    array of bool, (n_points,)
    """
    rng = np.random.default_rng([seed, 5])
    n_constraints = sum(len(indices) for indices in constraints)
    if n_constraints <= _MOST_JOINED:
        component = _components(constraints, n_points)
        sizes = np.zeros(n_points, np.int64)
        for indices in constraints:
            sizes += np.bincount(component[indices[:, 0]], minlength=n_points)
        wanted = share * n_constraints
        order = rng.permutation(np.flatnonzero((sizes > 0) & (sizes <= max(1.0, wanted))))
        taken = order[: np.searchsorted(np.cumsum(sizes[order]), wanted) + 1]
        if sizes[taken].sum() >= wanted / 2:
            aside = np.zeros(n_points, np.bool_)
            aside[taken] = True
            return aside[component]
    width = constraints[0].shape[1]
    return rng.random(n_points) < float(share ** (1 / width))


def within(indices: Indices, points: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which constraints have all their points among these."""
    inside = points[indices[:, 0]]
    for column in range(1, indices.shape[1]):
        inside &= points[indices[:, column]]
    return inside


def _components(constraints: Sequence[Indices], n_points: int) -> NDArray[np.int32]:
    """For each point the number of its connected component."""
    joined = [indices[:, (0, column)] for indices in constraints for column in range(1, indices.shape[1])]
    edges = np.concatenate(joined)
    graph = coo_array((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(n_points, n_points))
    component: NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return component
