"""Calibration: the distance up to which a pair counts as similar."""

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidConstraints, InvalidSettings
from nearfar.objective.ranking import Distances, cumulative_counts, midway

_TINY = float(np.finfo(np.float64).tiny)
STRATEGIES = ("accuracy", "f_beta", "max_tpr", "max_tnr")


def check_calibration(strategy: str = "accuracy", min_rate: float | None = None, beta: float = 1.0) -> None:
    """Raise if these arguments of a calibration are out of their range."""
    if strategy not in STRATEGIES:
        raise InvalidSettings(
            f'Strategy can either be "accuracy", "f_beta" or "max_tpr" or "max_tnr". Got "{strategy}" instead.'
        )
    if strategy in ("max_tpr", "max_tnr") and not (_is_number(min_rate) and 0 <= min_rate <= 1):  # type: ignore[operator]
        raise InvalidSettings(
            f"Parameter min_rate must be a number in [0, 1]. Got {min_rate!r} instead; {strategy} takes the rate "
            "that the other kind of pair must keep"
        )
    if strategy == "f_beta" and not (_is_number(beta) and math.isfinite(beta) and beta >= 0):
        raise InvalidSettings(f"Parameter beta must be a real number. Got {beta!r} instead; expected 0 or more")


def calibrated_threshold(
    near: Distances,
    far: Distances,
    strategy: str = "accuracy",
    min_rate: float | None = None,
    beta: float = 1.0,
) -> float:
    """The threshold that is best on these distances; a pair at or below it counts as similar.

    It lies midway between two distances that occur, so that rounding moves no pair across it; below all of them if it
    is best to call nothing similar. Of several equally good ones the smallest is taken.

    Parameters
    ----------
    near, far : arrays of shape (n,) and (m,)
        Distances of the similar and of the dissimilar pairs.
    strategy : {"accuracy", "f_beta", "max_tpr", "max_tnr"}
        What is to be highest: the accuracy; the F score with ``beta``; the true positive rate among thresholds whose
        true negative rate is at least ``min_rate``; or the other way round.
    min_rate : float, optional
    beta : float
    """
    check_calibration(strategy, min_rate, beta)
    for kind, distances in (("similar", near), ("dissimilar", far)):
        if not len(distances) and strategy != "accuracy":
            raise InvalidConstraints(f"there are no {kind} pairs; the strategy {strategy} takes some of either kind")
    distances, nears, fars = cumulative_counts(near, far)
    true_positives, false_positives = np.append(0, nears), np.append(0, fars)
    scores = _scores(true_positives, false_positives, len(near), len(far), strategy, min_rate, beta)
    last = int(np.argmax(scores)) - 1
    return midway(distances, last) if last >= 0 else float(distances[0]) - 1.0


def _scores(
    true_positives: NDArray[np.int64],
    false_positives: NDArray[np.int64],
    n_near: int,
    n_far: int,
    strategy: str,
    min_rate: float | None,
    beta: float,
) -> NDArray[Any]:
    true_negatives = n_far - false_positives
    if strategy == "accuracy":
        return true_positives + true_negatives
    if strategy == "f_beta":
        called_similar = true_positives + false_positives
        f_score: NDArray[np.float64] = true_positives / np.maximum(called_similar + beta**2 * n_near, _TINY)
        return f_score
    sought, kept = true_positives / n_near, true_negatives / n_far
    if strategy == "max_tnr":
        sought, kept = kept, sought
    return np.where(kept >= (min_rate or 0.0), sought, -1.0)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
