"""What more workers are worth: real ones on this machine, and more of them on simulated clusters."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nearfar.engine.cluster import Cluster, Costs, Stragglers
from nearfar.experiments.methods import hinge_settings, load_average
from nearfar.experiments.problem import Problem
from nearfar.experiments.protocol import (
    AT_MOST,
    COMPARED_WORKERS,
    CONSISTENCIES,
    PAPER,
    REAL_WORKERS,
    SIMULATED_WORKERS,
)
from nearfar.experiments.results import Course, Courses
from nearfar.model.training import train
from nearfar.parameter_server.progress import Report
from nearfar.settings import TrainingSettings
from nearfar.simulation import Moment, SimulatedRun, planned_costs, simulate

_REPORTS = 30
"""Of one worker, in its whole training."""
_NEARLY = 0.02
"""The share of one worker's way down that the goal is short of its end, where curves are flat."""
_SPREAD = 0.05
"""No two steps take the same time on a real machine either."""
STRAGGLER = Stragglers(4.0, count=1)


def simulated_scaling(problem: Problem) -> Courses:
    """One worker sets the goal; more of them run until they reach it."""
    settings, load = _settings(problem), load_average()
    costs = planned_costs(problem.points, problem.pairs, settings, shape=problem.protocol.study)
    cluster = _cluster(problem, costs)
    first = _simulated(problem, settings, cluster, SIMULATED_WORKERS[:1], ("asp",))
    start, end = first[0].curve[0].objective, first[0].curve[-1].objective
    goal = end + _NEARLY * (start - end)
    longer = replace(settings, steps=AT_MOST * problem.protocol.steps)
    more = _simulated(problem, longer, cluster, SIMULATED_WORKERS[1:], ("asp",), goal)
    return Courses(goal, (*first, *more), _described(problem, cluster), load, costs)


def compared_consistencies(problem: Problem, scaling: Courses, stragglers: Stragglers | None) -> Courses:
    """16 workers in step, nearly in step, and without waiting, to the goal and with the costs of the scaling."""
    settings = replace(_settings(problem), steps=AT_MOST * problem.protocol.steps)
    load, cluster = load_average(), replace(_cluster(problem, scaling.costs), stragglers=stragglers)
    courses = _simulated(problem, settings, cluster, (COMPARED_WORKERS,), CONSISTENCIES, scaling.goal)
    return Courses(scaling.goal, courses, _described(problem, cluster), load, scaling.costs)


def real_scaling(problem: Problem, scaling: Courses) -> Courses:
    """The same training on threads of this machine, in real time, to the same goal."""
    load, courses = load_average(), []
    for workers in REAL_WORKERS:
        settings = replace(
            _settings(problem), engine="threads", workers=workers, steps=2 * problem.protocol.steps, schedule="constant"
        )
        reports: list[Report] = []
        train(problem.points, problem.pairs, settings, labels=problem.labels, on_report=[reports.append])
        curve = tuple(Moment(one.seconds, one.step, one.objective, one.ap, one.staleness_mean) for one in reports)
        courses.append(Course(workers, settings.consistency, curve))
    return Courses(scaling.goal, tuple(courses), {"machine": f"this one, {os.cpu_count()} cores; all real"}, load)


def _settings(problem: Problem) -> TrainingSettings:
    protocol = problem.protocol
    rank = min(protocol.simulated_rank, problem.points.n_features)
    return hinge_settings(
        problem, rank=rank, steps=protocol.steps, report_every=max(1, protocol.steps // _REPORTS), engine="auto"
    )


def _cluster(problem: Problem, costs: Costs | None) -> Cluster:
    """The paper's machines, each core of which is a worker."""
    protocol = problem.protocol
    cores = PAPER[protocol.study].machine_cores
    return Cluster(machine_cores=cores, costs=costs, pulls="behind", spread=_SPREAD, seed=protocol.seed)


def _simulated(
    problem: Problem,
    settings: TrainingSettings,
    cluster: Cluster,
    workers: Sequence[int],
    consistencies: Sequence[str],
    goal: float | None = None,
) -> tuple[Course, ...]:
    simulation = simulate(
        problem.points, problem.pairs, settings, cluster, workers=workers, consistencies=consistencies, goal=goal,
        at_most=1.0, labels=problem.labels,
    )  # fmt: skip
    return tuple(_course(run) for run in simulation.runs)


def _course(run: SimulatedRun) -> Course:
    return Course(run.workers, run.consistency, run.curve, run.usage.bottleneck)


def _described(problem: Problem, cluster: Cluster) -> dict[str, str]:
    """What was real and what declared, in words."""
    protocol, settings = problem.protocol, _settings(problem)
    paper = PAPER[protocol.study]
    gradients: dict[str, Any] = {
        "gradients": f"real: {len(problem.points):,} points, {problem.source}, k = {settings.rank}, "
        f"{protocol.batch_size:,} pairs a batch",
        "costs of a step": f"measured here at the paper's size: k = {paper.rank:,}, {paper.batch_size:,} pairs a batch",
        "time": "declared: a virtual clock",
    }
    return gradients | {f"declared: {name}": text for name, text in cluster.describe().items()}
