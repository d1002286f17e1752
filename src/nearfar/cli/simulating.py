"""The command that says what more machines would be worth: simulate."""

import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from nearfar.cli.options import AsJson, DatasetFolder, FromLabels, constraints_of, with_options
from nearfar.data.dataset import Dataset
from nearfar.display import print_table
from nearfar.engine.simulated.cluster import Costs, Death, Pause, Pulls, SimulatedCluster, Stragglers
from nearfar.errors import InvalidSettings
from nearfar.experiments.protocol import StudyName
from nearfar.experiments.simulation import SimulatedRun, Simulation, check, planned_costs
from nearfar.experiments.simulation import simulate as simulate_training
from nearfar.settings import TrainingSettings
from nearfar.sizes import bandwidth_bytes, duration_seconds, duration_text

_SHARES_OF_TIME = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 1)
"""Moments at which the table of curves has columns, as shares of the first run's time."""


@with_options(TrainingSettings, without=("workers", "consistency", "engine"))
def simulate(
    dataset: DatasetFolder,
    workers: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of workers; 1,2,4,...,256 doubles up to the last.")
    ] = "1,2,4,8,16",
    consistency: Annotated[
        str, typer.Option(metavar="C,C,...", help="What to try each with: asp, bsp and ssp:S, as in asp,ssp:4,bsp.")
    ] = "asp",
    machine_cores: Annotated[int, typer.Option(min=1, help="Cores of a machine; workers fill one after another.")] = 16,
    bandwidth: Annotated[str, typer.Option(help="Of a machine's link, each way, as in 10Gbit.")] = "10Gbit",
    latency: Annotated[str, typer.Option(help="Of a message, beside its bytes, as in 50us.")] = "50us",
    server_bandwidth: Annotated[str | None, typer.Option(help="Of a server's link; by default as a machine's.")] = None,
    servers: Annotated[int, typer.Option(min=1, help="Servers, each with a share of the features of L.")] = 1,
    server_inside: Annotated[
        bool, typer.Option("--server-inside", help="The server shares the first machine's cores and link.")
    ] = False,
    pulls: Annotated[
        Pulls, typer.Option(help="Rows of L come behind computing, before each step, or with the last push.")
    ] = "behind",
    spread: Annotated[float, typer.Option(min=0, help="Relative standard deviation of computing times.")] = 0.0,
    straggler: Annotated[
        str | None, typer.Option(metavar="NxF", help="N workers are slower by F, as in 1x4.0; or 10%x2.")
    ] = None,
    pause: Annotated[
        list[str] | None, typer.Option(metavar="W:AT:LENGTH", help="Worker W stands still, as in 3:10s:5s.")
    ] = None,
    death: Annotated[list[str] | None, typer.Option(metavar="W:AT", help="Worker W is gone from then on.")] = None,
    compute: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="A batch on a core; by default measured on this machine.")
    ] = None,
    server_seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="An update by one push; by default measured.")
    ] = None,
    push_bytes: Annotated[float | None, typer.Option(help="Of a push; by default as it is.")] = None,
    pull_bytes: Annotated[float | None, typer.Option(help="Of a pull of all rows; by default as it is.")] = None,
    as_: Annotated[
        StudyName | None,
        typer.Option("--as", help="Take the costs of this problem of the paper instead of those of the dataset."),
    ] = None,
    goal: Annotated[
        float | None, typer.Option(help="Held-out objective to reach; by default what the fewest workers end with.")
    ] = None,
    at_most: Annotated[
        float, typer.Option(min=1, help="Times the steps of the fewest workers that more of them may take.")
    ] = 4.0,
    step_factors: Annotated[
        str, typer.Option(metavar="F,F,...", help="Times the default step size to try; the best of them counts.")
    ] = "1",
    from_labels: FromLabels = False,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep each run as a run folder in here.")] = None,
    as_json: AsJson = False,
    *,
    settings: TrainingSettings,
) -> None:
    """Say what more workers would be worth: train on simulated machines, with real gradients on a virtual clock."""
    described = SimulatedCluster(
        machine_cores=machine_cores,
        bandwidth=bandwidth_bytes(bandwidth),
        latency=duration_seconds(latency, "latency"),
        server_bandwidth=None if server_bandwidth is None else bandwidth_bytes(server_bandwidth),
        servers=servers,
        server_apart=not server_inside,
        pulls=pulls,
        spread=spread,
        stragglers=None if straggler is None else Stragglers.parse(straggler),
        pauses=tuple(_pause(text) for text in pause or ()),
        deaths=tuple(_death(text) for text in death or ()),
        seed=settings.seed,
    )
    counts, consistencies = _counts(workers), [part.strip() for part in consistency.split(",")]
    factors = _factors(step_factors)
    check(counts, consistencies, settings, goal, at_most, factors)
    opened = Dataset.open(dataset)
    constraints = constraints_of(opened, from_labels)
    given = _Given(compute, server_seconds, push_bytes, pull_bytes)
    measured = None if given.is_enough(as_) else planned_costs(opened.points, constraints, settings, shape=as_)
    simulation = simulate_training(
        opened.points,
        constraints,
        settings,
        replace(described, costs=given.costs(measured, as_)),
        workers=counts,
        consistencies=consistencies,
        goal=goal,
        at_most=at_most,
        step_factors=factors,
        labels=opened.labels,
        out=out,
        source={"dataset": str(dataset.resolve())},
        on_run=_announce,
    )
    if as_json:
        print(json.dumps(simulation.to_json() | {"costs_are": given.sources(as_)}, indent=2))
    else:
        _print_cluster(simulation, given.sources(as_), f"real, of {dataset}")
        _print_runs(simulation)


@dataclass(frozen=True)
class _Given:
    """The costs that were given by hand."""

    compute: float | None
    server_seconds: float | None
    push_bytes: float | None
    pull_bytes: float | None

    def is_enough(self, shape: StudyName | None) -> bool:
        """Whether nothing has to be measured."""
        needed = [self.compute, self.server_seconds] + ([self.push_bytes, self.pull_bytes] if shape else [])
        return None not in needed

    def costs(self, measured: Costs | None, shape: StudyName | None) -> Costs:
        """What was given, and what was measured where nothing was; messages of the dataset itself are as they are."""
        found = measured or Costs(0.0, 0.0)
        return Costs(
            found.compute_seconds if self.compute is None else self.compute,
            found.update_seconds if self.server_seconds is None else self.server_seconds,
            found.push_bytes if self.push_bytes is None and shape else self.push_bytes,
            found.pull_bytes if self.pull_bytes is None and shape else self.pull_bytes,
            *((found.crowding, found.gather_seconds) if self.compute is None else ()),
        )

    def sources(self, shape: StudyName | None) -> dict[str, str]:
        """Where each cost comes from."""
        of = f", at the size of {shape}" if shape else ""
        sent = f"counted{of}" if shape else "real"
        return {
            "computing a batch": f"measured here{of}" if self.compute is None else "given",
            "gathering the next one": f"measured here{of}" if self.compute is None else "as given",
            "updating by a push": f"measured here{of}" if self.server_seconds is None else "given",
            "with all cores busy": f"measured here{of}" if self.compute is None else "as given",
            "a push": sent if self.push_bytes is None else "given",
            "a pull, at most": sent if self.pull_bytes is None else "given",
        }


def _counts(text: str) -> list[int]:
    """Numbers with commas between; three dots between two of them stand for doubling."""
    counts: list[int] = []
    parts = [part.strip() for part in text.split(",")]
    try:
        for before, part in zip(["", *parts], parts, strict=False):
            if part == "...":
                continue
            count = int(part)
            while before == "..." and counts[-1] and 2 * counts[-1] < count:
                counts.append(2 * counts[-1])
            counts.append(count)
        if parts[-1] == "...":
            raise ValueError
    except (ValueError, IndexError) as error:
        raise InvalidSettings(
            f"workers is {text!r}; expected whole numbers with commas between, as in 1,2,4 or 1,2,4,...,256"
        ) from error
    return counts


def _factors(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InvalidSettings(f"step-factors is {text!r}; expected numbers with commas between, as in 1,2,4") from error


def _pause(text: str) -> Pause:
    try:
        worker, at, length = text.split(":")
        return Pause(int(worker), duration_seconds(at), duration_seconds(length))
    except ValueError as error:
        raise InvalidSettings(f"pause is {text!r}; expected worker:at:length, as in 3:10s:5s") from error


def _death(text: str) -> Death:
    try:
        worker, at = text.split(":")
        return Death(int(worker), duration_seconds(at))
    except ValueError as error:
        raise InvalidSettings(f"death is {text!r}; expected worker:at, as in 3:10s") from error


def _announce(workers: int, consistency: str) -> None:
    print(f"simulating {workers} worker{'s' if workers > 1 else ''}, {consistency}", file=sys.stderr)


def _print_cluster(simulation: Simulation, sources: dict[str, str], gradients: str) -> None:
    rows = [["gradients", gradients]]
    for name, value in simulation.cluster.describe().items():
        rows.append([name, f"{value} ({sources[name]})" if name in sources else value])
    print_table("the cluster", ["", ""], rows)


def _print_runs(simulation: Simulation) -> None:
    first = simulation.runs[0]
    length = first.seconds_to(simulation.goal)
    length = first.usage.seconds if math.isinf(length) else length
    names = [f"{run.workers} {run.consistency}" for run in simulation.runs]
    times = [share * length for share in _SHARES_OF_TIME]
    curves = [[f"{run.objective_at(time):.4f}" for time in times] for run in simulation.runs]
    print_table(
        "held-out objective after",
        ["workers", *(duration_text(time) for time in times)],
        [[name, *curve] for name, curve in zip(names, curves, strict=True)],
    )
    shares = [[f"{part:.0%}" for part in run.usage.parts.values()] for run in simulation.runs]
    print_table(
        "busy, share of the time",
        ["workers", *first.usage.parts],
        [[name, *parts] for name, parts in zip(names, shares, strict=True)],
    )
    figures = [_figures(simulation, run) for run in simulation.runs]
    print_table(
        f"to the objective {simulation.goal:.4f}",
        ["workers", *figures[0]],
        [[name, *row.values()] for name, row in zip(names, figures, strict=True)],
    )
    if any(math.isinf(run.seconds_to(simulation.goal)) for run in simulation.runs):
        print("—: the objective was not reached; more steps (--at-most), a larger --goal or other settings may do it")


def _figures(simulation: Simulation, run: SimulatedRun) -> dict[str, str]:
    seconds, speed_up = run.seconds_to(simulation.goal), simulation.speed_up(run)
    tried = {other.step_factor for other in simulation.runs}
    return {
        "time": f"{seconds:.4g} s" if math.isfinite(seconds) else "—",
        "speed-up": f"{speed_up:.2f}" if 0 < speed_up < math.inf else "—",
        "steps/s": f"{run.steps_per_second:.4g}" if math.isfinite(run.steps_per_second) else "—",
        "stale": f"{run.staleness:.1f}",
        **({"step": f"×{run.step_factor:g}"} if tried != {1.0} else {}),
        "bottleneck": run.usage.bottleneck,
    }
