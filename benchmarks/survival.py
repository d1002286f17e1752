"""How many points a peer can learn from in a given time, and what nearfar does with as many."""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import nearfar as nf
from benchmarks.environments import surroundings
from benchmarks.problems import Labelled

SEARCH_SECONDS = 300.0
"""Seconds of fitting that a search for a peer's largest size may take in all."""
SCRIPT = Path(__file__).parent / "fit_peer.py"
_STARTING = 20.0
"""Seconds, at most, that a process may take to start and to read its problem, beside the fit."""


class PeerFailed(RuntimeError):
    """A peer ended with an error of its own."""


@dataclass(frozen=True)
class Fit:
    """A metric, and the seconds it took to learn."""

    seconds: float
    metric: nf.Metric


def fit_peer(python: Path, algorithm: str, problem: dict[str, Any], limit: float) -> Fit | None:
    """One fit in a process of its own, with one thread; None if it exceeds ``limit`` seconds, or memory.

    A peer that fails in any other way is an error: it would otherwise read as one that is slow.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, learned = Path(folder) / "problem.npz", Path(folder) / "components.npy"
        np.savez(given, **problem)
        command = [str(python), "-P", str(SCRIPT), str(given), algorithm, str(learned)]
        try:
            ended = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                env=surroundings(),
                timeout=limit + min(limit, _STARTING),
            )
        except subprocess.TimeoutExpired:
            return None
        if ended.returncode < 0 or "MemoryError" in ended.stderr:
            return None
        if ended.returncode:
            raise PeerFailed(f"{algorithm} failed: {ended.stderr.strip()[-1000:]}")
        seconds = float(json.loads(ended.stdout.splitlines()[-1])["seconds"])
        return Fit(seconds, nf.Metric(np.load(learned))) if seconds <= limit else None


def fit_ours(make: Callable[[], Any], *given: Any) -> Fit:
    """One fit of a learner of nearfar's in this process, with one thread, after one that is not counted."""
    with threadpool_limits(1):
        learner = make()
        learner.set_params(steps=2).fit(*given)  # compiled from here on
        began = time.perf_counter()
        learner = make().fit(*given)
        return Fit(time.perf_counter() - began, learner.metric_)


def largest_survived(
    python: Path, algorithm: str, loss: str, data: Labelled, sizes: Iterable[int], limit: float
) -> dict[str, Any]:
    """Fits of growing size until they exceed the limit, in all, or memory; of the last, figures of both sides."""
    survived: tuple[int, Fit] | None = None
    too_large, spent = None, 0.0
    for size in sizes:
        part = data.first(size)
        fit = fit_peer(python, algorithm, {"X": part.X, "y": part.y}, limit - spent)
        if fit is None:
            too_large = size
            break
        survived, spent = (size, fit), spent + fit.seconds
    line = {
        "algorithm": algorithm,
        "data": data.name,
        "search_limit_seconds": limit,
        "ours_loss": loss,
        "gave_up_at": too_large,
    }
    if survived is None:
        return {**line, "points": 0, "ratio": 0.0}
    size, fit = survived
    part = data.first(size)
    own = fit_ours(lambda: nf.LabelLearner(loss=loss, random_state=0), part.X, part.y)
    return {
        **line, "points": size, **judged("theirs", fit, part), **judged("ours", own, part),
        "ratio": round(fit.seconds / own.seconds, 2),
    }  # fmt: skip


def judged(side: str, fit: Fit, data: Labelled) -> dict[str, float]:
    """The figures of one side."""
    return {
        f"{side}_seconds": round(fit.seconds, 2),
        f"{side}_average_precision": round(data.average_precision(fit.metric), 4),
        f"{side}_3nn_error": round(data.neighbour_error(fit.metric), 4),
    }


def doubling(first: int, last: int) -> list[int]:
    """Sizes from the first, each twice the one before, with the last one at the end."""
    sizes = [first]
    while 2 * sizes[-1] < last:
        sizes.append(2 * sizes[-1])
    return [*sizes, last]
