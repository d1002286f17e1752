"""What four machines are worth against one at the paper's three shapes, simulated; the paper reports 3.6 and 3.8.

Every worker is a core. Gradients are real, of MNIST in batches of 200 pairs at rank 64, and the rule is the paper's,
plain SGD; the clock is that of the paper's shape. Computing takes what it takes on a core of this machine, or what it
took on the paper's: 200 million pairs in 15 hours of 256 cores are 69 s for a batch of 1,000 pairs at d = 21,504,
k = 1,000, so 4 b d k flops at 1.25 GFLOP/s. The speed-up is the time of one machine to an objective over that of four:
with one step size for both, small enough for the staleness of four, and with the best step size for each. One machine
takes 125 steps a worker to set the goal.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import nearfar as nf
from benchmarks.problems import Paired, paired
from nearfar.engine.simulated import SimulatedCluster, Stragglers
from nearfar.experiments.protocol import PAPER
from nearfar.experiments.simulation import Simulation, planned_costs, simulate
from nearfar.model.preparation import prepare

CONSISTENCIES = ("asp", "ssp:4", "bsp")
PAPER_RATE = 1.25e9
STRAGGLERS = Stragglers(4.0, share=1 / 16)
SPREAD = 0.1
NEARLY = 0.02
"""The share of one machine's way down that the objective to reach is short of its end, where curves are flat."""
STEPPING = {"one step size": (0.005,), "the best step size for each": (0.005, 0.01, 0.02, 0.04)}
"""Shares of the default step size that are tried in each run."""
MOVED_BY = {
    "computing": "more or faster cores",
    "waiting for others": "a looser consistency",
    "latency": "pulls further ahead, or a nearer network",
    "server's update": "more servers",
    "server's link": "more servers, faster links, or shorter messages (factors, bfloat16)",
    "a machine's link": "faster links, fewer workers a machine with more threads each, or shorter messages",
}


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    problem = paired(small=small)
    settings = _settings(problem, 1, small=small)
    shapes = dict(list(PAPER.items())[:1]) if small else PAPER
    all_measured = {shape: planned_costs(problem.X, problem.pairs, settings, shape=shape) for shape in shapes}
    for shape, paper in shapes.items():
        measured = all_measured[shape]
        flops = 4 * paper.batch_size * paper.features * paper.rank
        of_paper = replace(measured, compute_seconds=flops / PAPER_RATE, crowding=1.0, gather_seconds=0.0)
        cases = [
            ("the paper's", of_paper, None, "one step size"),
            ("the paper's", of_paper, STRAGGLERS, "one step size"),
            ("the paper's", of_paper, None, "the best step size for each"),
            ("this machine's", measured, None, "one step size"),
        ]
        for cores, costs, stragglers, stepping in cases[:1] if small else cases:
            cluster = SimulatedCluster(
                machine_cores=2 if small else paper.machine_cores, servers=paper.servers, costs=costs, spread=SPREAD,
                stragglers=stragglers,
            )  # fmt: skip
            compared = _compared(problem, cluster, STEPPING[stepping], small=small)
            yield {"shape": shape, "cores": cores, "stepping": stepping, **compared}


def _compared(
    problem: Paired, cluster: SimulatedCluster, step_shares: Sequence[float], *, small: bool
) -> dict[str, Any]:
    settings, machine = _settings(problem, cluster.machine_cores, small=small), cluster.machine_cores

    def run_on(workers: tuple[int, ...], consistency: str, goal: float | None = None) -> Simulation:
        return simulate(
            problem.X, problem.pairs, settings, cluster, workers=workers, consistencies=(consistency,), goal=goal,
            at_most=6.0, step_factors=step_shares, labels=problem.y,
        )  # fmt: skip

    stragglers = "none" if cluster.stragglers is None else "1 in 16, slower by 4"
    alone = run_on((machine,), "asp").runs[0]
    first = alone.curve
    if first[-1].objective >= first[0].objective:
        stale = f"gradients are {alone.staleness:.0f} steps stale ({alone.usage.bottleneck})"
        left_out = f"one machine does not learn: {stale}"
        return {"stragglers": stragglers, "left_out": left_out, "ratio": 0.0, "cluster": cluster.describe()}
    goal = first[-1].objective + NEARLY * (first[0].objective - first[-1].objective)
    found = {one: _worth(run_on((machine, 4 * machine), one, goal)) for one in CONSISTENCIES}
    bottleneck = found["asp"]["bottleneck"]
    return {
        "stragglers": stragglers,
        **found,
        "moved_by": MOVED_BY[bottleneck],
        "ratio": round(found["asp"]["speed_up"] / 4, 3),
        "cluster": cluster.describe(),
    }


def _worth(found: Simulation) -> dict[str, Any]:
    """Four machines against one: how much sooner, by how many times the steps a second and the steps."""
    one, four = found.runs
    return {
        "speed_up": round(found.speed_up(four), 2),
        "rate": round(four.steps_per_second / one.steps_per_second, 2),
        "steps": round(four.usage.steps / one.usage.steps, 2),
        "staleness": [round(run.staleness, 1) for run in found.runs],
        "bottleneck": four.usage.bottleneck,
    }


def _settings(problem: Paired, workers: int, *, small: bool) -> nf.TrainingSettings:
    """With the step size of one worker, whatever their number: the simulations choose among shares of it."""
    given = {"rank": 8, "steps": 30} if small else {"rank": 64, "steps": 125 * workers}
    settings = problem.training_settings(
        **given, batch_size=200, update_rule="sgd", schedule="constant", report_every=given["steps"] // 80 + 1
    )
    prepared = prepare(problem.X, problem.pairs, settings, labels=nf.Labels(problem.y), loss=None, start=None)
    return replace(settings, step_size=prepared.step_size)
