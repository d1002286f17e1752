"""Symmetric matrices by their eigenvalues: factors, inverses, principal directions."""

import numpy as np
import scipy.linalg

from nearfar.baselines.arguments import whole
from nearfar.baselines.progress import Matrix
from nearfar.errors import InvalidConstraints, InvalidPoints
from nearfar.model.run_sizes import machine_memory
from nearfar.sizes import memory_text


def factor(M: Matrix) -> Matrix:
    """L, (k, d), with ``LᵀL = M`` once M's negative eigenvalues are made 0; k of them are positive."""
    values, vectors = scipy.linalg.eigh(M)
    kept = np.flatnonzero(values > _negligible(values))[::-1]
    if not len(kept):
        return np.zeros((1, len(M)))
    return np.ascontiguousarray((vectors[:, kept] * np.sqrt(values[kept])).T)


def clipped(M: Matrix) -> Matrix:
    """The positive semi-definite matrix nearest to a symmetric one: its negative eigenvalues are made 0."""
    values, vectors = scipy.linalg.eigh(M, overwrite_a=False, check_finite=False, driver="evd")
    first = int(np.searchsorted(values, 0.0, side="right"))
    if first <= len(values) // 2:  # fewer to take away than to add up
        negative = vectors[:, :first]
        nearest = M - (negative * values[:first]) @ negative.T
    else:
        positive = vectors[:, first:]
        nearest = (positive * values[first:]) @ positive.T
    symmetric: Matrix = (nearest + nearest.T) / 2
    return symmetric


def principal_axes(covariance: Matrix, count: int | None) -> Matrix:
    """The directions of most variance as orthonormal rows, (count, d); by default all that have any."""
    values, vectors = scipy.linalg.eigh(covariance)
    rank = int(np.count_nonzero(values > _negligible(values)))
    if not rank:
        raise InvalidPoints("all points are equal; expected points that differ")
    if count is not None and whole("n_components", count, len(values)) > rank:
        raise InvalidPoints(
            f"n_components is {count}, but the points vary in {rank} directions only; expected {rank} or less, or "
            "more points"
        )
    return np.ascontiguousarray(vectors[:, ::-1][:, : count or rank].T)


def shrunk(covariance: Matrix, shrinkage: float) -> Matrix:
    """``(1 − shrinkage) C + shrinkage · (tr C / d) · I``."""
    d = len(covariance)
    mixed: Matrix = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / d * np.eye(d)
    return mixed


def inverse(covariance: Matrix, of: str, power: float = -1.0) -> Matrix:
    """The inverse of a covariance, or another negative power; one that is singular is an error that says of what."""
    values, vectors = scipy.linalg.eigh(covariance)
    rank = int(np.count_nonzero(values > _negligible(values)))
    if rank < len(values):
        raise InvalidConstraints(
            f"the covariance of {of} has rank {rank} in {len(values)} directions, so it has no inverse; "
            f"give more of them, fewer directions (n_components={max(1, rank)} or less) or shrinkage above 0"
        )
    product: Matrix = (vectors * values**power) @ vectors.T
    return product


def check_width(n_features: int, matrices: int, method: str) -> None:
    """Raise if so many matrices of d × d do not fit in the memory of this machine."""
    needed, there = 8.0 * matrices * n_features**2, machine_memory()
    if needed > there:
        raise InvalidPoints(
            f"points have {n_features:,} features; {method} holds {matrices} matrices of that size squared, "
            f"{memory_text(needed)}, and this machine has {memory_text(there)}: reduce the points first"
        )


def _negligible(values: Matrix) -> float:
    """What counts as 0 beside the largest of these eigenvalues."""
    return float(len(values) * np.finfo(np.float64).eps * max(values[-1], 0.0))
