"""How well the simulated engine predicts the threads engine on this machine: steps a second, and time to an objective.

Costs are measured before each pair of runs, by the rules of ``nearfar plan``. The simulated machine has as many cores
as this one, and the server's update takes its share of them, as here.
"""

import os
import statistics
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from benchmarks.problems import Paired, paired
from nearfar.engine.simulated import SimulatedEngine
from nearfar.engine.simulated.cluster import SimulatedCluster
from nearfar.experiments.simulation import planned_costs

ROUNDS = 3
SPREAD = 0.05
"""No two steps take the same time here either; else workers would push at the same moment for ever."""
NEARLY = 0.02
"""The share of the way down that the objective to reach is short of the end, where curves are flat."""


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    steps, rounds = (600, 1 if small else ROUNDS)
    for workers in (1, 2):
        problem = paired(small=small)
        pairs = [_round(problem, workers, steps, seed) for seed in range(rounds)]
        for what in ("steps_per_second", "seconds_to_objective"):
            yield {
                "what": f"{what.replace('_', ' ')}, {workers} worker{'s' * (workers > 1)}, {problem.name}",
                "real": [round(real[what], 3) for real, _ in pairs],
                "simulated": [round(simulated[what], 3) for _, simulated in pairs],
                "ratio": round(
                    statistics.median(simulated[what] / max(1e-9, real[what]) for real, simulated in pairs), 3
                ),
            }


def _round(problem: Paired, workers: int, steps: int, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    settings = problem.training_settings(engine="threads", workers=workers, steps=steps)
    costs = planned_costs(problem.X, problem.pairs, settings)
    cluster = SimulatedCluster(
        machine_cores=os.cpu_count() or 1, latency=0.0, server_apart=False, costs=costs, spread=SPREAD, seed=seed
    )
    real = problem.train(engine="threads", workers=workers, steps=steps)
    simulated = problem.train(on=SimulatedEngine(cluster), workers=workers, steps=steps)
    worst = max(real[-1].objective, simulated[-1].objective)
    goal = worst + NEARLY * (real[0].objective - worst)
    return _figures(real, goal), _figures(simulated, goal)


def _figures(history: list[Any], goal: float) -> dict[str, float]:
    """Steps a second after the first report, and the time to an objective that is reached, from that report on."""
    first, last = history[1], history[-1]
    for before, after in pairwise(history[1:]):
        if after.objective <= goal:
            share = (before.objective - goal) / max(1e-12, before.objective - after.objective)
            share = min(1.0, max(0.0, share))  # reached before, in a run as short as the small form
            reached = before.seconds + share * (after.seconds - before.seconds)
            break
    else:
        reached = last.seconds
    return {
        "steps_per_second": (last.step - first.step) / (last.seconds - first.seconds),
        "seconds_to_objective": reached - first.seconds,
    }
