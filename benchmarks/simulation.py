"""How well the simulated engine predicts real ones on this machine: steps a second, and what a second worker is worth.

Costs are measured before each round, by the rules of ``nearfar plan``; for Ray also what messages and copies take of
all processes, from steps of two pairs each. None is taken from the runs that are predicted. The simulated machine has
as many cores as this one, and the server's update takes its share of them, as here, and so does the judging of
progress.
"""

import os
import statistics
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from benchmarks.problems import Paired, nearly, paired
from benchmarks.ray_cluster import local_cluster
from benchmarks.soak import actors
from nearfar.cost import REPORT_SHARE
from nearfar.engine.simulated import Costs, SimulatedEngine
from nearfar.engine.simulated.cluster import SimulatedCluster
from nearfar.experiments.simulation import planned_costs
from nearfar.parameter_server.progress import Report

ROUNDS = 3
FEW: dict[str, Any] = {"batch_size": 2, "workers": 1, "steps": 800, "held_out": 0, "report_every": 100}
"""How to train so that a step is messages and little else."""
SPREAD = 0.05
"""No two steps take the same time here either; else workers would push at the same moment for ever."""
Name = Literal["threads", "ray"]
Figures = dict[str, float]


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    steps, rounds, problem = 600, 1 if small else ROUNDS, paired(small=small)
    yield from _engine(problem, "threads", steps, rounds)
    if not small:
        with local_cluster():
            yield from _engine(problem, "ray", steps, rounds)


def _engine(problem: Paired, engine: Name, steps: int, rounds: int) -> Iterator[dict[str, Any]]:
    found = [_round(problem, engine, steps, seed) for seed in range(rounds)]
    one, two = ([both[workers] for both in found] for workers in (1, 2))
    for name, of_all in (("1 worker", one), ("2 workers", two)):
        for what in ("steps_per_second", "seconds_to_objective"):
            said = f"{what.replace('_', ' ')}, {name}, {engine}, {problem.name}"
            yield _compared(said, [real[what] for real, _ in of_all], [told[what] for _, told in of_all])
    worth = [
        [more[i]["steps_per_second"] / fewer[i]["steps_per_second"] for fewer, more in zip(one, two, strict=True)]
        for i in (0, 1)
    ]
    yield _compared(f"steps a second of 2 workers against 1, {engine}, {problem.name}", *worth)


def _compared(what: str, real: list[float], simulated: list[float]) -> dict[str, Any]:
    ratios = [told / max(1e-9, seen) for seen, told in zip(real, simulated, strict=True)]
    return {
        "what": what,
        "real": [round(value, 3) for value in real],
        "simulated": [round(value, 3) for value in simulated],
        "ratio": round(statistics.median(ratios), 3),
    }


def _round(problem: Paired, engine: Name, steps: int, seed: int) -> dict[int, tuple[Figures, Figures]]:
    """What is real and what is simulated for 1 and 2 workers, by costs that are measured once, before all of it."""
    costs = planned_costs(problem.X, problem.pairs, problem.training_settings(engine="threads", steps=steps))
    judging = REPORT_SHARE * costs.compute_seconds
    if engine == "ray":
        costs = _with_messages(costs, problem)
    costs = replace(costs, update_seconds=costs.update_seconds + judging)
    cluster = SimulatedCluster(
        machine_cores=os.cpu_count() or 1, latency=0.0, server_apart=False, costs=costs, spread=SPREAD, seed=seed,
        pulls="before" if engine == "threads" else "behind",
    )  # fmt: skip
    return {workers: _both(problem, engine, cluster, workers, steps) for workers in (1, 2)}


def _both(
    problem: Paired, engine: Name, cluster: SimulatedCluster, workers: int, steps: int
) -> tuple[Figures, Figures]:
    real = problem.train(engine=engine, workers=workers, steps=steps)
    simulated = problem.train(on=SimulatedEngine(cluster), workers=workers, steps=steps)
    worst = max(real[-1].objective, simulated[-1].objective)
    goal = nearly(real[0].objective, worst)
    return _figures(real, goal), _figures(simulated, goal)


def _with_messages(costs: Costs, problem: Paired) -> Costs:
    """With what steps on as good as nothing take more of each process on Ray than on threads: messages and copies."""
    on_threads, on_ray = _Used(), _Used()
    for engine, used in (("threads", on_threads), ("ray", on_ray)):
        problem.train(engine=engine, watched_by=[used], **FEW)
    all_on_threads, _ = on_threads.a_step()
    all_on_ray, of_worker = on_ray.a_step()
    return replace(
        costs,
        compute_seconds=costs.compute_seconds + max(0.0, of_worker - (all_on_threads - costs.update_seconds)),
        update_seconds=max(costs.update_seconds, all_on_ray - of_worker),
    )


class _Used:
    """Notes at each report what this machine's cores have done so far, and what of it the worker's process has."""

    def __init__(self) -> None:
        self._noted: list[tuple[int, float, float]] = []

    def __call__(self, report: Report) -> None:
        ticks = os.sysconf("SC_CLK_TCK")
        user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
        of_workers = (
            Path(f"/proc/{worker}/stat").read_text().split(")")[1].split() for worker in actors("WorkerActor")
        )
        worker = sum(int(fields[11]) + int(fields[12]) for fields in of_workers)
        self._noted.append((report.step, (user + nice + system) / ticks, worker / ticks))

    def a_step(self) -> tuple[float, float]:
        """Seconds of all cores, and of the worker, from the first report after the start to the last."""
        (first, *before), (last, *after) = self._noted[1], self._noted[-1]
        whole, worker = ((end - start) / (last - first) for start, end in zip(before, after, strict=True))
        return whole, worker


def _figures(history: list[Any], goal: float) -> Figures:
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
