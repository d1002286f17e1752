"""The methods that a study compares, each on one thread: ours in three settings, and the paper's baselines."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nearfar.baselines import ITML, KISS, Xing2002
from nearfar.baselines.base import PairBaseline
from nearfar.data.constraints import Labels
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.evaluation.bootstrap import Resampling
from nearfar.evaluation.curves import Curves
from nearfar.evaluation.verification import judge_ranking, rank_pairs
from nearfar.experiments.problem import Problem
from nearfar.experiments.protocol import PAPER
from nearfar.experiments.results import MethodResult
from nearfar.model.distance import Distance
from nearfar.model.euclidean import Euclidean
from nearfar.model.metric import Metric
from nearfar.model.training import train
from nearfar.parameter_server.progress import Report
from nearfar.settings import TrainingSettings

_MOST_CURVE_POINTS = 200
_LOOKS = 20
"""At a method on its way, in its whole time."""
_STEPS_BEFORE = 30
"""Steps of a training before the one that is timed, with a report on the way."""
_PATIENCE, _LIFTED_PATIENCE = 4, 2
"""Reports without progress after which ours end, as they do by default."""
_FEWER_DIRECTIONS = (10, 20, 30, 40, 50, 75, 100, 150, 200, 300)
_ITML_GAMMA = 0.001
_OTHER_SEED = 7
"""Of pairs of training points that choose between settings, so that test pairs do not."""
TEST_PAIRS, HELD_OUT_PAIRS = "test pairs", "pairs of training points that it held out"


@dataclass(frozen=True)
class Learned:
    """What a method learned, and how it went."""

    distance: Distance
    seconds: float = 0.0
    curve: tuple[tuple[float, float], ...] = ()
    curve_on: str = TEST_PAIRS
    cut: str | None = None
    remark: str = ""
    """More to be said of how it learned."""


@dataclass(frozen=True)
class Method:
    """A method that can be measured."""

    key: str
    name: str
    how: str
    learn: Callable[[Problem], Learned]

    def measure(self, problem: Problem) -> MethodResult:
        """Learn on one thread, then judge on the test pairs."""
        load = load_average()
        with threadpool_limits(1):
            learned = self.learn(problem)
        ranking = rank_pairs(learned.distance, problem.test_points, problem.test_pairs)
        verification = judge_ranking(ranking, None, Resampling(seed=problem.protocol.seed))
        curve = Curves.of(ranking, _MOST_CURVE_POINTS).precision_recall
        return MethodResult(
            name=self.name,
            how=f"{self.how}{learned.remark}",
            ap=verification.average_precision,
            interval=verification.intervals.get("average_precision"),
            seconds=learned.seconds,
            curve=learned.curve,
            curve_on=learned.curve_on,
            recall=tuple(np.round(curve.x, 5).tolist()),
            precision=tuple(np.round(curve.y, 5).tolist()),
            cut=learned.cut,
            load=load,
        )


def methods_of(problem: Problem) -> list[Method]:
    """The methods that apply: those that hold matrices of d × d are for the narrow points of MNIST only."""
    k, d = problem.protocol.rank, problem.points.n_features
    rank = min(k, d)
    as_paper = ": the paper's setting" if rank == PAPER[problem.protocol.study].rank else ""
    hinge = Method("hinge", "ours, hinge", f"pairs, hinge, k = {rank}, λ = c = 1{as_paper}", partial(_ours, _hinge))
    euclid = Method("euclid", "Euclid", "nothing is learned", lambda _: Learned(Euclidean()))
    if problem.protocol.study != "mnist":
        return [hinge, euclid]
    reduced = f"PCA to {rank}" if rank < d else "no PCA: there are not more features"
    return [
        hinge,
        Method("logistic", "ours, logistic", "labels, all defaults", partial(_ours, _logistic)),
        Method("lifted", "ours, lifted", "labels, logistic, lift rbf, all defaults", partial(_ours, _lifted)),
        Method("xing2002", "Xing2002", "pairs, full matrix", _xing2002),
        Method("itml", "ITML", f"pairs, γ = {_ITML_GAMMA:g}", _itml),
        Method("kiss", "KISS", f"pairs, {reduced}", partial(_kiss, rank if rank < d else None)),
        *([Method("kiss-fewer", "KISS, fewer directions", "pairs", _kiss_of_fewer)] if _fewer(problem) else []),
        euclid,
    ]


def left_out(problem: Problem) -> dict[str, float]:
    """The baselines that do not apply, each with the bytes that its d × d matrices would take."""
    if problem.protocol.study == "mnist":
        return {}
    d = problem.points.n_features
    return {kind.__name__: float(kind._matrices * d * d * 8) for kind in (Xing2002, ITML, KISS)}


def load_average() -> float | None:
    """Of the last minute; None where the system has none."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def hinge_settings(problem: Problem, **more: Any) -> TrainingSettings:
    """The paper's: the hinge with λ = c = 1, its rank and its batches."""
    protocol = problem.protocol
    given = {"rank": min(protocol.rank, problem.points.n_features), "batch_size": protocol.batch_size}
    return TrainingSettings(**{**given, "loss": "hinge", "seed": protocol.seed, **more})


def _hinge(problem: Problem) -> tuple[Any, TrainingSettings]:
    return problem.pairs, hinge_settings(problem, patience=_PATIENCE)


def _logistic(problem: Problem) -> tuple[Any, TrainingSettings]:
    return Labels(problem.labels), TrainingSettings(patience=_PATIENCE, seed=problem.protocol.seed)


def _lifted(problem: Problem) -> tuple[Any, TrainingSettings]:
    return Labels(problem.labels), TrainingSettings(lift="rbf", patience=_LIFTED_PATIENCE, seed=problem.protocol.seed)


def _ours(chosen: Callable[[Problem], tuple[Any, TrainingSettings]], problem: Problem) -> Learned:
    """Train as by default, until there is no more progress, but no longer than the time allows."""
    constraints, settings = chosen(problem)
    few_steps = _with(settings, schedule="plateau", steps=_STEPS_BEFORE)
    train(problem.points, constraints, few_steps, labels=problem.labels)  # compiles what is to be compiled
    curve: list[tuple[float, float]] = []
    began = time.perf_counter()

    def note(report: Report) -> None:
        if report.ap is not None:
            curve.append((time.perf_counter() - began, report.ap))

    timed = _with(settings, schedule="plateau", minutes=problem.protocol.minutes)
    result = train(problem.points, constraints, timed, labels=problem.labels, on_report=[note])
    seconds = time.perf_counter() - began
    step = result.history[-1].step
    cut = f"the time was up at step {step:,}" if "budget" in result.ended else None
    remark = f"; {step:,} steps"
    return Learned(result.metric, seconds, tuple(curve), HELD_OUT_PAIRS, cut, remark)


def _with(settings: TrainingSettings, **more: Any) -> TrainingSettings:
    return TrainingSettings(**{**vars(settings), **more})


def _xing2002(problem: Problem) -> Learned:
    return _baseline(
        problem, lambda **given: Xing2002(max_seconds=60 * problem.protocol.minutes, **_every(problem, given))
    )


def _itml(problem: Problem) -> Learned:
    seed, seconds = problem.protocol.seed, 60 * problem.protocol.minutes
    return _baseline(
        problem,
        lambda **given: ITML(gamma=_ITML_GAMMA, max_seconds=seconds, random_state=seed, **_every(problem, given)),
    )


def _kiss(directions: int | None, problem: Problem) -> Learned:
    return _baseline(problem, lambda **given: KISS(n_components=directions, **given))


def _fewer(problem: Problem) -> list[int]:
    return [count for count in _FEWER_DIRECTIONS if count < min(problem.protocol.rank, problem.points.n_features)]


def _kiss_of_fewer(problem: Problem) -> Learned:
    """KISS with as many directions as do best on other pairs of training points."""
    tried = _fewer(problem)
    count = problem.protocol.test_pairs
    others = draw_pairs(LabelDraws(Labels(problem.labels)), count, count, problem.protocol.seed + _OTHER_SEED)

    def precision(learned: Learned) -> float:
        return rank_pairs(learned.distance, problem.points, others).average_precision()

    found = [(directions, _kiss(directions, problem)) for directions in tried]
    directions, best = max(found, key=lambda one: precision(one[1]))
    remark = f", PCA to {directions}, the best of {', '.join(map(str, tried))} on other pairs of training points"
    return Learned(best.distance, best.seconds, best.curve, remark=remark)


def _every(problem: Problem, given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "progress_every": 60 * problem.protocol.minutes / _LOOKS}


def _baseline(problem: Problem, make: Callable[..., PairBaseline]) -> Learned:
    """Fit a baseline to the pairs, and judge it on the way; its clock stands still meanwhile."""
    pairs, test_pairs = problem.pairs, problem.test_pairs
    curve: list[tuple[float, float]] = []

    def look(seconds: float, components: NDArray[np.float64]) -> None:
        ranking = rank_pairs(Metric(components), problem.test_points, test_pairs)
        curve.append((seconds, ranking.average_precision()))

    estimator = make(preprocessor=problem.points, on_progress=look)
    signs = np.repeat([1, -1], [len(pairs.similar), len(pairs.dissimilar)])
    estimator.fit(np.concatenate((pairs.similar, pairs.dissimilar)), signs)
    return Learned(
        estimator.metric_, estimator.history_[-1][0], tuple(curve), cut=_plain(getattr(estimator, "cut_", None))
    )


def _plain(cut: str | None) -> str | None:
    """What a baseline says was cut, without the name of its argument."""
    if cut is None or not cut.startswith("max_seconds="):
        return cut
    return f"the time {cut.split(' ', 1)[1]}"
