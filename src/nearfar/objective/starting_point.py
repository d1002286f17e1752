"""Where learning starts: the scale of features, and the first L.

Features come in any unit, and one data set may mix units that differ by many orders. Learning on features divided by
their typical difference, from an L whose typical distance is a given number, makes step sizes and margins mean the same
everywhere. Both are folded into the learned L.
"""

import math

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data.points import Floats, Points, SparseRows
from nearfar.data.sampling import Batch, Block
from nearfar.errors import InvalidSettings
from nearfar.objective.fast_gradient import squared_distances

_SAMPLED_PAIRS = 16_000
_PAIRS_AT_ONCE = 250
_DISTANCE_PAIRS = 4000
_BLOCK_PAIRS = 250
"""Far pairs of a block that the mean of their distances is taken of: it need not be exact."""
_SHRINK = 10.0
"""How many differences of median size each feature is credited with before any is seen."""
_LEFT_ALONE = np.log(2.0)
"""Scales within this factor of the median are taken for equal: among like features the differences say something."""
_PCA_POINTS = 5000


def feature_scale(points: Points, seed: int) -> NDArray[np.float64]:
    """For each feature the typical size of a difference between points that differ in it.

    That is the root mean square of its non-zero differences over sampled pairs of points. Unlike a standard deviation
    it does not call a feature small for being mostly zero (a pixel at the border, a rare word), and unlike a maximum it
    does not call it large for an offset. Features seldom seen to differ are drawn towards the median of all, and what
    lies within a factor of two of the median counts as the median: equalising like features (words by their weight)
    only loses what their size says.
    """
    rng = np.random.default_rng([seed, 2])
    total, count = np.zeros(points.n_features), np.zeros(points.n_features)
    for _ in range(0, _SAMPLED_PAIRS, _PAIRS_AT_ONCE):
        left, right = rng.integers(len(points), size=(2, _PAIRS_AT_ONCE))
        rows = _differences(points, left, right)
        if isinstance(rows, np.ndarray):
            total += np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
            count += np.count_nonzero(rows, axis=0)
        else:
            total += np.bincount(rows.indices, np.square(rows.data, dtype=np.float64), points.n_features)
            count += np.bincount(rows.indices, minlength=points.n_features)
    seen = (count > 0) & (total > 0)
    if not seen.any():
        return np.ones(points.n_features)
    typical = np.median(total[seen] / count[seen])
    own = np.where(seen, total / np.maximum(count, 1), typical)
    away = np.log(own / typical) / 2 * (count / (count + _SHRINK))
    beyond = np.sign(away) * np.maximum(0, np.abs(away) - _LEFT_ALONE)
    return np.asarray(np.sqrt(typical) * np.exp(beyond))


def starting_metric(
    start: str | NDArray[np.floating], points: Points, rank: int, scale: NDArray[np.float64] | None, seed: int
) -> Floats:
    """The first L, transposed, for scaled points: random, identity, pca, or an array given for unscaled points."""
    d = points.n_features
    if not isinstance(start, str):
        return _given(np.asarray(start), d, rank, scale)
    if start == "identity":
        return np.eye(d, rank, dtype=np.float32)
    rng = np.random.default_rng([seed, 3])
    Lt = rng.standard_normal((d, rank), dtype=np.float32)
    if start == "pca":
        directions = _principal_directions(points, rank, rng)
        Lt *= np.float32(0.01 / np.sqrt(d))
        Lt[:, : directions.shape[1]] = directions
    return Lt


def rescale(Lt: Floats, points: Points, batch: Batch | Block, target: float) -> None:
    """Multiply L, in place, so that the mean squared distance of the batch's far pairs is ``target``."""
    far = _far_pairs(batch)
    mean = float(squared_distances(Lt, points, far).sum(dtype=np.float64)) / max(1, len(far))
    if 0 < mean < np.inf:
        Lt *= np.float32(np.sqrt(target / mean))


def mean_squared_difference(points: Points, batch: Batch | Block) -> float:
    """The mean of ‖x - y‖² over the batch's far pairs."""
    far = _far_pairs(batch)
    total = float(_squared_lengths(points, far).sum())
    return max(total / max(1, len(far)), float(np.finfo(np.float32).tiny))


def median_distance(points: Points, seed: int) -> float:
    """The median distance between sampled points that differ; 1 if none do."""
    pairs = np.random.default_rng([seed, 6]).integers(len(points), size=(_DISTANCE_PAIRS, 2))
    squares = _squared_lengths(points, pairs)
    return math.sqrt(np.median(squares[squares > 0])) if squares.any() else 1.0


def _squared_lengths(points: Points, pairs: NDArray[np.integer]) -> NDArray[np.float64]:
    """‖x - y‖² for each pair, some pairs at a time."""
    squares = np.empty(len(pairs))
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        rows = _differences(points, pairs[part, 0], pairs[part, 1])
        if isinstance(rows, np.ndarray):
            squares[part] = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
        else:
            squares[part] = np.asarray(rows.astype(np.float64).power(2).sum(axis=1)).ravel()
    return squares


def _differences(points: Points, left: NDArray[np.integer], right: NDArray[np.integer]) -> Floats | sp.csr_matrix:
    """Differences of points; unlike in ``points.differences``, a feature that both points have stands there once."""
    a, b = points.rows(left), points.rows(right)
    if isinstance(a, SparseRows) and isinstance(b, SparseRows):
        return a.to_scipy() - b.to_scipy()
    assert isinstance(a, np.ndarray)
    assert isinstance(b, np.ndarray)
    return a - b


def _far_pairs(batch: Batch | Block) -> NDArray[np.integer]:
    if isinstance(batch, Block):
        pairs = np.column_stack((batch.indices, np.roll(batch.indices, len(batch.indices) // 2)))
        return pairs[:: max(1, len(pairs) // _BLOCK_PAIRS)]
    return batch.far if len(batch.far) else batch.near


def _given(start: NDArray[np.floating], d: int, rank: int, scale: NDArray[np.float64] | None) -> Floats:
    if start.shape != (rank, d):
        raise InvalidSettings(f"the starting L has shape {start.shape}; expected (rank, features) = ({rank}, {d})")
    if not np.isfinite(start).all():
        raise InvalidSettings("the starting L holds NaN or infinity")
    Lt = start.T if scale is None else start.T * scale[:, None]
    return np.array(Lt, np.float32, order="C")  # of its own: it is trained in place


def _principal_directions(points: Points, rank: int, rng: np.random.Generator) -> Floats:
    """The directions of largest variance of a sample of points, (d, at most rank)."""
    chosen = rng.choice(len(points), min(_PCA_POINTS, len(points)), replace=False)
    sample = points.rows(chosen)
    matrix: sp.csr_matrix | Floats = (
        sample.to_scipy() if isinstance(sample, SparseRows) else sample - sample.mean(axis=0)
    )
    from sklearn.utils.extmath import randomized_svd  # noqa: PLC0415 - takes a second to import, and few need it

    found = min(rank, *matrix.shape)
    _, _, directions = randomized_svd(matrix, found, random_state=int(rng.integers(1 << 31)))
    return np.ascontiguousarray(directions.T, np.float32)
