"""What a second worker is worth: steps a second against two independent runs, and time to one worker's objective."""

import multiprocessing
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.problems import Paired, nearly, paired
from nearfar.parameter_server.progress import Report

ROUNDS = 3


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    yield _rates(small, steps=40 if small else 400, rounds=1 if small else 2 * ROUNDS)
    yield _time_to_objective(paired(small=small), steps=40 if small else 1000, rounds=1 if small else ROUNDS)


def _rates(small: bool, steps: int, rounds: int) -> dict[str, Any]:
    """Two workers with one server, and two serial runs side by side that know nothing of each other, in turns."""
    together, apart = [], []
    for _ in range(rounds):
        together.append(_steps_per_second(small, 2, steps))
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            apart.append(sum(pool.starmap(_steps_per_second, [(small, 1, steps // 2)] * 2)))
    return {
        "what": f"steps a second, {paired(small=small).name}",
        "two_workers": round(statistics.median(together), 1),
        "two_serial_runs": round(statistics.median(apart), 1),
        "ratio": round(statistics.median(a / b for a, b in zip(together, apart, strict=True)), 3),
    }


def _steps_per_second(small: bool, workers: int, steps: int) -> float:
    """Steps a second between the first report after the start and the last."""
    history = paired(small=small).train(workers=workers, steps=steps, report_every=max(1, steps // 10))
    return (history[-1].step - history[1].step) / (history[-1].seconds - history[1].seconds)


def _time_to_objective(problem: Paired, steps: int, rounds: int) -> dict[str, Any]:
    """The paper's speed-up: how much sooner two workers come nearly as far as one that has ended.

    Two workers get a tenth more steps, as each of their gradients is worth a little less. What both end with is said
    too: it differs by noise, and one of them may never get to just where the other ended. So are the steps until then,
    as part of the ratio may be that the two took fewer.
    """
    ones, twos, ends = [], [], []
    for _ in range(rounds):
        one = problem.train(engine="threads", steps=steps)
        two = problem.train(workers=2, steps=steps + steps // 10)
        target = nearly(one[0].objective, one[-1].objective)
        ends.append([round(history[-1].objective, 4) for history in (one, two)])
        ones.append(_first(one, target))
        twos.append(_first(two, target))
    return {
        "what": f"seconds to nearly the held-out objective that one worker ends with, {problem.name}",
        "one_worker": [report and round(report.seconds, 2) for report in ones],
        "two_workers": [report and round(report.seconds, 2) for report in twos],
        "steps_of_one_worker": [report and report.step for report in ones],
        "steps_of_two_workers": [report and report.step for report in twos],
        "both_end_with": ends,
        "ratio": round(statistics.median(map(_sooner, ones, twos)), 2),
    }


def _first(history: list[Report], target: float) -> Report | None:
    """The first report of an objective as good as that."""
    return next((report for report in history if report.objective <= target), None)


def _sooner(one: Report | None, two: Report | None) -> float:
    """How many times as long one took as the other; 0 where the other never got there."""
    return one.seconds / two.seconds if one and two else 0.0
