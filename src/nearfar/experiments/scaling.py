"""What more workers are worth: real ones on this machine, and more of them on simulated clusters."""

import math
import os
from collections.abc import Sequence
from dataclasses import replace

from nearfar.data.constraints import Labels
from nearfar.engine.simulated.cluster import Costs, SimulatedCluster, Stragglers
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
from nearfar.experiments.simulation import Moment, SimulatedRun, planned_costs, simulate
from nearfar.model.preparation import prepare
from nearfar.model.training import train
from nearfar.parameter_server.progress import Report
from nearfar.settings import TrainingSettings

_REPORTS = 30
"""Of one worker, in its whole training."""
_NEARLY = 0.02
"""The share of one worker's way down that the goal is short of its end, where curves are flat."""
_SPREAD = 0.05
"""No two steps take the same time on a real machine either."""
_STEP_SHARE, _ALONE_SHARE = 0.1, 0.4
"""Of the default step size, which is for a schedule that falls with the budget; here it falls with the steps, so that
it does not depend on who takes them. The first is small enough for gradients that are dozens of steps stale; with the
second, of the shares tried, one worker on MNIST comes furthest down."""
STRAGGLER = Stragglers(4.0, count=1)


def simulated_scaling(problem: Problem) -> Courses:
    """One worker sets the goal; more of them run until they reach it."""
    load, step_size = load_average(), _step_size(problem)
    settings = _settings(problem, step_size)
    costs = planned_costs(problem.points, problem.pairs, settings, shape=problem.protocol.study)
    cluster = _cluster(problem, costs)
    first = _simulated(problem, settings, cluster, SIMULATED_WORKERS[:1], ("asp",))
    start, end = first[0].curve[0].objective, first[0].curve[-1].objective
    goal = end + _NEARLY * (start - end)
    longer = replace(settings, steps=AT_MOST * problem.protocol.steps)
    more = _simulated(problem, longer, cluster, SIMULATED_WORKERS[1:], ("asp",), goal)
    larger = replace(settings, step_size=step_size * _ALONE_SHARE / _STEP_SHARE)
    alone = _simulated(problem, larger, cluster, (1,), ("asp",), goal)[0].seconds_to(goal)
    return Courses(
        goal, (*first, *more), _described(problem, cluster), load, step_size, costs,
        alone_seconds=alone if math.isfinite(alone) else None,
    )  # fmt: skip


def compared_consistencies(problem: Problem, scaling: Courses, stragglers: Stragglers | None) -> Courses:
    """16 workers in step, nearly in step, and without waiting, to the goal and with the costs of the scaling."""
    settings = replace(_settings(problem, scaling.step_size), steps=AT_MOST * problem.protocol.steps)
    load, cluster = load_average(), replace(_cluster(problem, scaling.costs), stragglers=stragglers)
    courses = _simulated(problem, settings, cluster, (COMPARED_WORKERS,), CONSISTENCIES, scaling.goal)
    return replace(scaling, courses=courses, cluster=_described(problem, cluster), load=load)


def real_scaling(problem: Problem, scaling: Courses) -> Courses:
    """The same training on threads of this machine, in real time, to the same goal."""
    load, courses = load_average(), []
    for workers in REAL_WORKERS:
        settings = replace(
            _settings(problem, scaling.step_size), engine="threads", workers=workers, steps=2 * problem.protocol.steps
        )
        reports: list[Report] = []
        train(problem.points, problem.pairs, settings, labels=problem.labels, on_report=[reports.append])
        curve = tuple(Moment(one.seconds, one.step, one.objective, one.ap, one.staleness_mean) for one in reports)
        courses.append(Course(workers, settings.consistency, curve))
    machine = {"machine": f"this one, {os.cpu_count()} cores; all real"}
    return replace(scaling, courses=tuple(courses), cluster=machine, load=load, costs=None)


def _settings(problem: Problem, step_size: float | None = None) -> TrainingSettings:
    protocol = problem.protocol
    return hinge_settings(
        problem,
        rank=min(protocol.simulated_rank, problem.points.n_features),
        steps=protocol.steps,
        step_size=step_size,
        schedule="inverse-root",
        report_every=max(1, protocol.steps // _REPORTS),
    )


def _step_size(problem: Problem) -> float:
    labels = Labels(problem.labels)
    prepared = prepare(problem.points, problem.pairs, _settings(problem), labels=labels, loss=None, start=None)
    return _STEP_SHARE * prepared.step_size


def _cluster(problem: Problem, costs: Costs | None) -> SimulatedCluster:
    """The paper's machines, each core of which is a worker."""
    protocol = problem.protocol
    return SimulatedCluster(
        machine_cores=PAPER[protocol.study].machine_cores,
        servers=protocol.servers,
        costs=costs,
        pulls="behind",
        spread=_SPREAD,
        seed=protocol.seed,
    )


def _simulated(
    problem: Problem,
    settings: TrainingSettings,
    cluster: SimulatedCluster,
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


def _described(problem: Problem, cluster: SimulatedCluster) -> dict[str, str]:
    """What was real and what declared, in words."""
    protocol, settings = problem.protocol, _settings(problem)
    paper = PAPER[protocol.study]
    measured = f"measured or counted here for the paper's size: k = {paper.rank:,}, {paper.batch_size:,} pairs a batch"
    known = {
        "gradients": f"real: {len(problem.points):,} points, {problem.source}, k = {settings.rank}, "
        f"{protocol.batch_size:,} pairs a batch",
        "time": "virtual",
        "step size": f"{_STEP_SHARE:g} of the default, falling with the root of the steps: small enough for the stale "
        f"gradients of many workers; best for one on MNIST, by the held-out objective, is {_ALONE_SHARE:g}",
    }
    of_costs = (
        "computing a batch",
        "gathering the next one",
        "updating by a push",
        "with all cores busy",
        "a push",
        "a pull, at most",
    )
    return known | {
        name: f"{text} ({measured if name in of_costs else 'declared'})" for name, text in cluster.describe().items()
    }
