"""Do classes come apart? Judges a metric by k-means on its points, whose classes are known."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from nearfar.data.constraints import Labels
from nearfar.data.points import Points
from nearfar.errors import InvalidConstraints, InvalidSettings
from nearfar.model.distance import Distance

MOST_POINTS = 20_000
"""Points that are clustered, by default."""

_MOST_BYTES = 128 << 20
"""Of the projected points, and of the centres."""
_MOST_WORK = 4e9
"""Numbers of points multiplied with numbers of centres in one round of k-means; each sparse one counts as twenty."""
_SPARSE_COST = 20
_FEWEST_A_CLUSTER = 2
_STARTS, _ROUNDS = 3, 50

Codes = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Clusters:
    """How well clusters found without labels agree with the classes."""

    normalized_mutual_information: float
    """What clusters and classes tell about each other, from 0 (nothing) to 1 (all)."""
    adjusted_rand_index: float
    """The share of pairs on which clusters and classes agree, so scaled that chance gives 0 and full agreement 1."""
    n_clusters: int
    n_points: int
    """How many points were clustered: a sample where there are more than allowed."""


def judge_clusters(
    metric: Distance,
    points: Any,
    labels: ArrayLike,
    *,
    n_clusters: int | None = None,
    most_points: int = MOST_POINTS,
    seed: int = 0,
) -> Clusters:
    """Cluster points by k-means where the metric is Euclidean distance, and compare with their classes.

    At most ``most_points`` points are clustered, fewer if they would take too much memory (128 MB) or time (about a
    minute): a random sample of all. Of three runs of k-means from different starts, the one with the lowest inertia
    counts.

    Parameters
    ----------
    metric : Metric or Euclidean
    points : points of shape (n, d)
    labels : array of shape (n,)
    n_clusters : int, optional
        By default the number of classes among the points that are clustered.
    most_points : int
    seed : int
        Decides the sample and the starts.
    """
    known = metric.points(points)
    codes = Labels(labels).codes
    if len(codes) != len(known):
        raise InvalidConstraints(f"there are {len(codes)} labels for {len(known)} points; expected one a point")
    if most_points < 2:
        raise InvalidSettings(f"most_points is {most_points}; expected 2 or more")
    most_clusters = int(codes.max()) + 1 if n_clusters is None else n_clusters
    chosen = _sample(len(known), min(most_points, _affordable(metric, known, most_clusters)), seed)
    truth = np.unique(codes[chosen], return_inverse=True)[1]
    if truth.max() == 0:
        raise InvalidConstraints("all points to cluster are of one class; expected at least two classes")
    n_clusters = int(truth.max()) + 1 if n_clusters is None else n_clusters
    if not 2 <= n_clusters <= len(chosen):
        raise InvalidSettings(f"n_clusters is {n_clusters}; expected from 2 to {len(chosen)}, the number of points")
    found = _k_means(metric.projected(known, chosen, metric.origin(known)), n_clusters, seed)
    return Clusters(
        normalized_mutual_information(truth, found), adjusted_rand_index(truth, found), n_clusters, len(chosen)
    )


def normalized_mutual_information(classes: ArrayLike, clusters: ArrayLike) -> float:
    """What two partitions of the same points tell about each other, over the mean of what each tells.

    Equal to scikit-learn's ``normalized_mutual_info_score``.

    Parameters
    ----------
    classes, clusters : arrays of shape (n,)
        To which part each point belongs, in either partition.
    """
    common, rows, columns = _contingency(classes, clusters)
    if len(rows) == len(columns) == 1:
        return 1.0
    total = int(rows.sum())
    entropies = [float(-(sizes / total) @ np.log(sizes / total)) for sizes in (rows, columns)]
    i, j, together = common
    mutual = float(together / total @ np.log(total * together / (rows[i] * columns[j])))
    mean = sum(entropies) / 2
    return max(0.0, mutual / mean) if mutual > 1e-14 else 0.0


def adjusted_rand_index(classes: ArrayLike, clusters: ArrayLike) -> float:
    """The share of pairs of points that two partitions treat alike, so scaled that chance gives 0 and equality 1.

    Equal to scikit-learn's ``adjusted_rand_score``.

    Parameters
    ----------
    classes, clusters : arrays of shape (n,)
        To which part each point belongs, in either partition.
    """
    (_, _, together), rows, columns = _contingency(classes, clusters)
    total = int(rows.sum())
    both, first, second = (float(sizes @ (sizes - 1)) / 2 for sizes in (together, rows, columns))
    expected = first * second / (total * (total - 1) / 2) if total > 1 else 0.0
    most = (first + second) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def _contingency(
    classes: ArrayLike, clusters: ArrayLike
) -> tuple[tuple[Codes, Codes, Codes], NDArray[np.int64], NDArray[np.int64]]:
    """The pairs of parts that have points in common and how many, and the sizes of the parts of either side."""
    first, second = np.asarray(classes), np.asarray(clusters)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise InvalidConstraints(
            f"classes and clusters have shapes {first.shape} and {second.shape}; expected one of each a point"
        )
    i, rows = np.unique(first, return_inverse=True, return_counts=True)[1:]
    j, columns = np.unique(second, return_inverse=True, return_counts=True)[1:]
    cells, together = np.unique(i * len(columns) + j, return_counts=True)
    return (cells // len(columns), cells % len(columns), together), rows, columns


def _sample(count: int, most: int, seed: int) -> NDArray[np.int64]:
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng([seed, 3]).choice(count, most, replace=False))


def _affordable(metric: Distance, known: Points, n_clusters: int) -> int:
    """How many points can be clustered without too much memory or time; raises if those are too few for clusters."""
    dense, width = metric.is_dense(known), metric.width(known)
    centre_bytes = 4 * n_clusters * (width if dense else known.n_features)
    a_point = n_clusters * width * (1 if dense else _SPARSE_COST)
    most = int(min(_MOST_BYTES / (4 * width), _MOST_WORK / a_point))
    if centre_bytes > _MOST_BYTES or most < min(len(known), _FEWEST_A_CLUSTER * n_clusters):
        raise InvalidSettings(
            f"k-means takes too long with {n_clusters} clusters of points with {width:.0f} numbers each; "
            "give fewer clusters, or a metric of lower rank"
        )
    return most


def _k_means(projected: Any, n_clusters: int, seed: int) -> Codes:
    # It takes half a second to import, and only clustering needs it.
    from sklearn.cluster import KMeans  # noqa: PLC0415
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

    means = KMeans(n_clusters, n_init=_STARTS, max_iter=_ROUNDS, random_state=seed, copy_x=False)
    with warnings.catch_warnings(), threadpool_limits(1):  # with more threads, sums depend on who was faster
        warnings.simplefilter("ignore", ConvergenceWarning)  # points that are equal make fewer clusters
        found: Codes = means.fit(projected).labels_
    return found
