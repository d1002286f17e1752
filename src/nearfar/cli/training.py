"""Commands that learn, or say what learning takes: demo, train, plan."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from nearfar.cli.options import DatasetFolder, FromLabels, constraints_of, note, with_options
from nearfar.data.dataset import Dataset
from nearfar.data.stand_in import Shape
from nearfar.display import TrainingDisplay, print_plan
from nearfar.engine.ray_cluster import RayEngine, RayOptions
from nearfar.errors import InvalidSettings
from nearfar.model.training import train as train_metric
from nearfar.planning import plan as plan_training
from nearfar.planning import plan_of_shape
from nearfar.settings import TrainingSettings


def demo(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The report to make.")] = Path("nearfar-demo.html"),
) -> None:
    """Learn metrics for scikit-learn's digits. Two workers train them; a table and a report show their worth."""
    from nearfar.demo import run_demo  # noqa: PLC0415 - the only command that needs scikit-learn's data

    run_demo(out)
    print(f"{out}: the report; open it in a browser")


@with_options(TrainingSettings, RayOptions)
def train(
    dataset: DatasetFolder,
    out: Annotated[Path, typer.Option(metavar="RUN", help="The run folder to make, or to go on with.")],
    from_labels: FromLabels = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    *,
    settings: TrainingSettings,
    cluster: RayOptions,
) -> None:
    """Learn a metric from a dataset. Stored constraints train where there are any, else the labels do."""
    if settings.engine != "ray" and cluster != RayOptions():
        raise InvalidSettings("servers, addresses and the like are for a cluster; add --engine ray")
    opened = Dataset.open(dataset)
    with TrainingDisplay(settings.workers) as display:
        result = train_metric(
            opened.points,
            constraints_of(opened, from_labels),
            settings,
            engine=RayEngine(cluster) if settings.engine == "ray" else None,
            labels=opened.labels,
            run=out,
            resume=resume,
            source={"dataset": str(dataset.resolve())},
            on_report=[display],
            stop_on_signals=True,
        )
    if result.interrupted:
        print(f"stopped at step {result.history[-1].step}, saved; go on with the same command and --resume")
        raise typer.Exit(130)
    kept = result.report
    if settings.held_out and not kept.judged:
        note([f"too little is given to hold any of it out: progress was judged by the {kept.objective_name}"])
    ap = "" if kept.ap is None else f", AP {kept.ap:.4f}"
    objective = f"{kept.objective_name} {kept.objective_text}"
    print(f"{out}: {result.history[-1].step} steps, {objective}{ap}; {result.ended}")


@with_options(TrainingSettings)
def plan(
    dataset: Annotated[
        Path | None, typer.Argument(metavar="[DATASET]", help="A dataset folder; without one, give sizes.")
    ] = None,
    points: Annotated[int | None, typer.Option(min=2, help="Points.")] = None,
    features: Annotated[int | None, typer.Option(min=1, help="Features of a point.")] = None,
    nonzeros: Annotated[
        int | None, typer.Option(min=1, help="Non-zeros of a point, evenly spread; without it, points are dense.")
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(min=1, help="Pairs to learn from; without it, labels and blocks.")
    ] = None,
    from_labels: FromLabels = False,
    machines: Annotated[int, typer.Option(min=1, help="Machines like this one, each with these workers.")] = 1,
    bandwidth: Annotated[float, typer.Option(min=1e-6, help="Gigabits a second between machines.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    *,
    settings: TrainingSettings,
) -> None:
    """Say what training will take of this machine.

    Memory, time a step and a pass, and what is in the way. Without a dataset it plans for random points of the sizes
    given; real sparse points share features more often, so that a step touches fewer of them and takes less.
    """
    beside: Any = {"machines": machines, "bandwidth": bandwidth * 1e9 / 8}
    if dataset is not None:
        if any(size is not None for size in (points, features, nonzeros, pairs)):
            raise InvalidSettings(f"both {dataset} and sizes are given; give a dataset, or --points and the like")
        opened = Dataset.open(dataset)
        planned = plan_training(opened.points, constraints_of(opened, from_labels), settings, **beside)
    elif points is None or features is None:
        raise InvalidSettings("there is nothing to plan; give a dataset, or --points and --features")
    else:
        planned = plan_of_shape(Shape(points, features, nonzeros), pairs, settings, **beside)
    if as_json:
        print(json.dumps(planned.to_json(), indent=2))
    else:
        print_plan(planned)
