"""The metric that a training ends with: L as users take it, and what is to know of it besides."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.points import Floats, Points, as_points
from nearfar.model.compacting import compacted
from nearfar.model.metric import Metric
from nearfar.model.preparation import Prepared
from nearfar.objective.fast_gradient import squared_distances
from nearfar.objective.ranking import best_threshold
from nearfar.settings import TrainingSettings

_CENTRE_POINTS = 20_000


def learned_metric(Lt: Floats, prepared: Prepared, settings: TrainingSettings, X: Any) -> Metric:
    """The metric of what was learned on prepared points; ``X`` are the points as given.

    ``Lt`` may be changed, as it may be too large for a copy.
    """
    if settings.compact and prepared.judge and prepared.held_out:
        Lt = compacted(Lt, prepared.points, prepared.held_out.pairs, prepared.judge)
    threshold = _threshold(Lt, prepared)
    if prepared.scale is not None:
        Lt /= prepared.scale.astype(np.float32)[:, None]
    made = asdict(settings) | {"lift_width": prepared.lift_width}
    centred = as_points(X) if prepared.lift is None else prepared.points  # of the space that L acts on
    return Metric.from_transposed(
        Lt,
        lift=prepared.lift,
        centre=_mean(centred, settings.seed) if settings.centre else None,
        threshold=threshold,
        settings={name: value for name, value in made.items() if value is not None},
    )


def _threshold(Lt: Floats, prepared: Prepared) -> float | None:
    """The distance that tells held-out pairs apart best; None where there are none of one kind."""
    if not prepared.held_out:
        return None
    pairs = prepared.held_out.pairs
    if not (len(pairs.near) and len(pairs.far)):
        return None
    near, far = (squared_distances(Lt, prepared.points, each) for each in (pairs.near, pairs.far))
    return math.sqrt(best_threshold(near, far))


def _mean(points: Points, seed: int) -> NDArray[np.float64]:
    """The mean of the points, or of a sample of them if they are many."""
    chosen = np.random.default_rng([seed, 4]).permutation(len(points))[:_CENTRE_POINTS]
    total = np.zeros(points.n_features)
    for _, rows in points.blocks(np.sort(chosen)):
        if isinstance(rows, np.ndarray):
            total += rows.sum(axis=0, dtype=np.float64)
        else:
            total += np.bincount(rows.columns, rows.values, points.n_features)
    return total / len(chosen)
