"""What a report computes of a distance: its summary, its distances of pairs, a map of points, a spectrum."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data.constraints import Pairs
from nearfar.evaluation.summary import Summary, summarise
from nearfar.model.distance import Distance, places
from nearfar.model.metric import Metric
from nearfar.objective.ranking import Distances
from nearfar.report.subject import Subject

_MAP_POINTS = 1000


@dataclass(frozen=True, eq=False)
class PointMap:
    """Points in the plane: their two principal components, as a distance sees them."""

    rows: NDArray[np.integer[Any]]
    """Which of the asked points they are."""
    places: NDArray[np.float64]
    """Their places, (n, 2)."""
    share: float
    """The share of the variance that the plane shows."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What a distance does on a subject."""

    summary: Summary
    near: Distances
    far: Distances
    threshold: float | None
    map: PointMap


def measure(distance: Distance, subject: Subject, *, k: int, seed: int) -> Measured:
    """Judge a distance on a subject; ``k`` neighbours vote, or none are searched if it is 0."""
    asked, pairs = subject.asked, subject.asked.constraints
    assert isinstance(pairs, Pairs)
    return Measured(
        summary=summarise(distance, asked, subject.known, k=k, seed=seed),
        near=distance.pair_distances(asked.points, pairs.similar),
        far=distance.pair_distances(asked.points, pairs.dissimilar),
        threshold=distance.threshold,
        map=_map(distance, subject, seed),
    )


def spectrum(metric: Metric) -> NDArray[np.float64]:
    """The eigenvalues of M = LᵀL that need not be 0, the largest first: the squared singular values of L."""
    L = metric.components if metric.components.shape[0] <= metric.components.shape[1] else metric.components.T
    total = np.zeros((len(L), len(L)))
    for place in places(L.shape[1], 2 * len(L)):
        block = L[:, place].astype(np.float64)
        total += block @ block.T
    values: NDArray[np.float64] = np.maximum(np.linalg.eigvalsh(total)[::-1], 0.0)
    return values


def _map(distance: Distance, subject: Subject, seed: int) -> PointMap:
    """By the products of the points with each other, so that sparse points of any width stay sparse."""
    points, rng = subject.asked.points, np.random.default_rng([seed, 13])
    rows = np.sort(rng.permutation(len(points))[:_MAP_POINTS]) if len(points) > _MAP_POINTS else np.arange(len(points))
    projected = distance.projected(distance.points(points), rows)
    products: Any = projected @ projected.T
    gram = np.asarray(products.toarray() if sp.issparse(products) else products, np.float64)
    means = gram.mean(axis=0)
    gram += means.mean() - means - means[:, np.newaxis]
    values, vectors = np.linalg.eigh(gram)
    values, vectors = np.maximum(values[:-3:-1], 0.0), vectors[:, :-3:-1]
    vectors = vectors * np.where(np.abs(vectors.min(axis=0)) > vectors.max(axis=0), -1.0, 1.0)
    return PointMap(rows, vectors * np.sqrt(values), float(values.sum() / max(np.trace(gram), 1e-300)))
