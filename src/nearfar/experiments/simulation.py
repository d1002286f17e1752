"""Simulations: one training on simulated clusters of many sizes, and what more workers are worth.

The measure is the paper's: how long n workers take to the held-out objective that the fewest end with.
"""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearfar.data.constraints import Constraints, Labels
from nearfar.data.stand_in import Shape, stand_in
from nearfar.engine.simulated import SimulatedEngine
from nearfar.engine.simulated.cluster import Costs, SimulatedCluster
from nearfar.engine.simulated.usage import Usage
from nearfar.errors import Diverged, InvalidRun, InvalidSettings
from nearfar.experiments.protocol import PAPER, StudyName
from nearfar.files import make_folder, write_text
from nearfar.model.preparation import prepare
from nearfar.model.training import train
from nearfar.parameter_server.progress import Report
from nearfar.planning import plan
from nearfar.settings import TrainingSettings, slack

_MOST_BUSY = 4
"""Cores that are kept busy to see how much they slow each other down: each takes memory for an L of its own."""


@dataclass(frozen=True)
class Moment:
    """A report, at its exact virtual time."""

    seconds: float
    step: int
    objective: float
    ap: float | None
    staleness: float


def seconds_to(curve: Sequence[Moment], goal: float) -> float:
    """Seconds until the objective falls to the goal, between two reports on a straight line; or ∞."""
    if curve[0].objective <= goal:
        return 0.0
    for before, after in pairwise(curve):
        if after.objective <= goal:
            share = (before.objective - goal) / (before.objective - after.objective)
            return before.seconds + share * (after.seconds - before.seconds)
    return math.inf


@dataclass(frozen=True)
class SimulatedRun:
    """One training on one cluster."""

    workers: int
    consistency: str
    step_factor: float
    """Times the step size that training would take by itself."""
    curve: tuple[Moment, ...]
    usage: Usage

    def seconds_to(self, goal: float) -> float:
        """Virtual seconds until the objective falls to the goal, between two reports on a straight line; or ∞."""
        return seconds_to(self.curve, goal)

    def objective_at(self, seconds: float) -> float:
        """The objective of the last report up to this moment."""
        return [moment.objective for moment in self.curve if moment.seconds <= seconds][-1]

    @property
    def steps_per_second(self) -> float:
        """Of all workers together; ∞ if nothing took any time."""
        return self.usage.steps / self.usage.seconds if self.usage.seconds else math.inf

    @property
    def staleness(self) -> float:
        """Of the gradients, in the mean."""
        return float(np.mean([moment.staleness for moment in self.curve[1:] or self.curve]))


@dataclass(frozen=True)
class Simulation:
    """Runs of one training with more and more workers; the first has the fewest, and the others are measured by it."""

    cluster: SimulatedCluster
    goal: float
    runs: tuple[SimulatedRun, ...]

    def speed_up(self, run: SimulatedRun) -> float:
        """How much sooner than the first a run reaches the goal: the paper's t₁/tₙ; 0 if it never does."""
        first, own = self.runs[0].seconds_to(self.goal), run.seconds_to(self.goal)
        return 0.0 if math.isinf(own) else first / own if own > 0 else math.inf

    def to_json(self) -> dict[str, Any]:
        """All of it; what was never reached is null."""
        return {
            "cluster": self.cluster.to_json(),
            "goal": self.goal,
            "runs": [
                {
                    "workers": run.workers,
                    "consistency": run.consistency,
                    "step_factor": run.step_factor,
                    "seconds_to_goal": _finite(run.seconds_to(self.goal)),
                    "speed_up": _finite(self.speed_up(run)) or None,
                    "seconds": run.usage.seconds,
                    "steps": run.usage.steps,
                    "steps_per_second": _finite(run.steps_per_second),
                    "staleness": run.staleness,
                    "usage": run.usage.parts,
                    "bottleneck": run.usage.bottleneck,
                    "curve": [asdict(moment) for moment in run.curve],
                }
                for run in self.runs
            ],
        }


def simulate(
    points: Any,
    constraints: Constraints,
    settings: TrainingSettings,
    cluster: SimulatedCluster,
    *,
    workers: Sequence[int],
    consistencies: Sequence[str] = ("asp",),
    goal: float | None = None,
    at_most: float = 4.0,
    step_factors: Sequence[float] = (1.0,),
    labels: ArrayLike | None = None,
    out: Path | None = None,
    source: dict[str, str] | None = None,
    on_run: Callable[[int, str], None] | None = None,
) -> Simulation:
    """Train on simulated clusters of several sizes, each until the objective that the smallest ends with.

    Parameters
    ----------
    points, constraints, settings, labels
        As for :func:`~nearfar.train`; the budget is that of the fewest workers. The schedule auto is here constant
        where there is a budget, since one over the budget would be another for each run.
    cluster : SimulatedCluster
    workers : sequence of int
    consistencies : sequence of str
        Each number of workers is tried with each; the fewest workers with the first one set the goal.
    goal : float, optional
        A held-out objective to reach, in place of that.
    at_most : float
        Times the budget of the fewest workers that others may use before they are taken never to reach the goal.
    step_factors : sequence of float
        Factors of the step size to try each with; the run that reaches the goal first is kept, or, of those that set
        the goal, the one that ends lowest. A run that diverges is left out, unless all do.
    out : path, optional
        A folder to make, with a run folder for each run and ``simulation.json``.
    source : dict of str, optional
        What the runs learn from, noted in each run.toml.
    on_run : function, optional
        Called before each run with its workers and its consistency.
    """
    check(workers, consistencies, settings, goal, at_most, step_factors)
    if settings.schedule == "auto" and settings.has_budget:
        settings = replace(settings, schedule="constant")
    if out is not None:
        if out.exists():
            raise InvalidRun(f"{out} exists already; choose another folder")
        make_folder(out)
    problem = _Problem(points, constraints, labels, source, cluster)
    runs: list[SimulatedRun] = []
    for count, consistency in product(sorted(set(workers)), consistencies):
        if on_run is not None:
            on_run(count, consistency)
        own = replace(_longer(settings, at_most) if runs else settings, workers=count, consistency=consistency)
        name = f"{consistency.replace(':', '-')}-{count}"
        tried = []
        for factor in step_factors:
            folder = out and out / (name if len(step_factors) == 1 else f"{name}-step-{factor:g}")
            tried.append(problem.run(own, factor, -math.inf if goal is None else goal, folder))
        reach = -math.inf if goal is None else goal
        runs.append(min(_sane(tried), key=lambda run: (run.seconds_to(reach), run.curve[-1].objective)))
        goal = runs[0].curve[-1].objective if goal is None else goal
    assert goal is not None
    simulation = Simulation(cluster, goal, tuple(runs))
    if out is not None:
        write_text(out / "simulation.json", json.dumps(simulation.to_json(), indent=2) + "\n")
    return simulation


@dataclass(frozen=True)
class _Problem:
    """What all runs learn from, and where."""

    points: Any
    constraints: Constraints
    labels: ArrayLike | None
    source: dict[str, str] | None
    cluster: SimulatedCluster

    def run(
        self, settings: TrainingSettings, step_factor: float, goal: float, folder: Path | None
    ) -> SimulatedRun | Diverged:
        """One run, which ends when it has reached the goal, or diverges."""
        engine, curve = SimulatedEngine(self.cluster), []

        def note(report: Report) -> None:
            curve.append(Moment(engine.now(), report.step, report.objective, report.ap, report.staleness_mean))
            if report.objective <= goal:
                engine.stop()

        try:
            train(
                self.points, self.constraints, self._stepping(settings, step_factor), engine=engine, labels=self.labels,
                run=folder, source=self.source, on_report=[note],
            )  # fmt: skip
        except Diverged as error:
            return error
        assert engine.usage is not None
        return SimulatedRun(settings.workers, settings.consistency, step_factor, tuple(curve), engine.usage)

    def _stepping(self, settings: TrainingSettings, factor: float) -> TrainingSettings:
        """The same with a step size that is larger by a factor."""
        if factor == 1:
            return settings
        labels = None if self.labels is None else Labels(self.labels)
        own = replace(settings, engine="simulated")
        prepared = prepare(self.points, self.constraints, own, labels=labels, loss=None, start=None)
        return replace(settings, step_size=factor * prepared.step_size)


def _sane(tried: Sequence[SimulatedRun | Diverged]) -> list[SimulatedRun]:
    """The runs that did not diverge; there is one, or the error is raised."""
    runs = [run for run in tried if isinstance(run, SimulatedRun)]
    if not runs:
        assert isinstance(tried[0], Diverged)
        raise tried[0]
    return runs


def planned_costs(
    points: Any, constraints: Constraints, settings: TrainingSettings, *, shape: StudyName | None = None
) -> Costs:
    """What a step costs on a core of a machine like this one, by itself and with others busy, as it is measured.

    Parameters
    ----------
    points, constraints, settings
        As for :func:`~nearfar.train`.
    shape : str, optional
        Costs of this problem of the paper instead: random points of its shape, its rank and its batches of pairs.
    """
    given = (points, constraints)
    if shape is not None:
        as_in = PAPER[shape]
        given = stand_in(Shape(as_in.points, as_in.features, as_in.nonzeros), pairs=True)
        settings = replace(
            settings, rank=as_in.rank, batch_size=as_in.batch_size, loss="hinge", block_size=None, per_class=None
        )
    settings = replace(settings, engine="ray", workers=2, threads_per_worker=1, consistency="asp")
    busy = min(os.cpu_count() or 1, _MOST_BUSY)
    alone = plan(*given, settings, busy=1)
    crowded = plan(*given, settings, busy=busy) if busy > 1 else alone
    took = [sum(planned.compute_seconds.values()) + planned.update_seconds for planned in (alone, crowded)]
    size = alone.sizes.gradient_bytes
    counted = Costs.counted(alone.sizes, alone.rates)
    return replace(counted, push_bytes=size, pull_bytes=size, crowding=max(1.0, took[1] / took[0]))


def check(
    workers: Sequence[int],
    consistencies: Sequence[str],
    settings: TrainingSettings,
    goal: float | None = None,
    at_most: float = 1.0,
    step_factors: Sequence[float] = (1.0,),
) -> None:
    """Raise if this cannot be simulated, before anything is measured for it."""
    if not workers or min(workers) < 1:
        raise InvalidSettings(f"workers is {', '.join(map(str, workers))}; expected whole numbers, each at least 1")
    if not consistencies:
        raise InvalidSettings("there is no consistency; expected asp, bsp or ssp:S")
    for consistency in consistencies:
        slack(consistency)
    if goal is not None and not math.isfinite(goal):
        raise InvalidSettings(f"goal is {goal}; expected a finite objective")
    if not 1 <= at_most < math.inf:
        raise InvalidSettings(f"at_most is {at_most}; expected at least 1, and finite")
    if not step_factors or not all(0 < factor < math.inf for factor in step_factors):
        raise InvalidSettings(f"step_factors is {list(step_factors)}; expected finite numbers above 0")
    if settings.held_out == 0:
        raise InvalidSettings("held_out is 0, but the goal is a held-out objective; expected more than 0")


def _longer(settings: TrainingSettings, times: float) -> TrainingSettings:
    """The same with so many times the budget."""
    return replace(
        settings,
        steps=None if settings.steps is None else math.ceil(settings.steps * times),
        epochs=None if settings.epochs is None else settings.epochs * times,
        minutes=None if settings.minutes is None else settings.minutes * times,
    )


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
