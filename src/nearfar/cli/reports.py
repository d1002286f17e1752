"""Commands that show runs: report, watch."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from nearfar.cli.options import Seed, note
from nearfar.report.building import Choices, write_report
from nearfar.report.pictures import image_shape, read_names
from nearfar.report.terminal import watch_in_terminal
from nearfar.report.watching import WatchServer

JudgedOn = Annotated[
    Path | None,
    typer.Option(metavar="DATASET", help="Points to judge on; by default those that the runs held out."),
]
ImageShape = Annotated[
    str | None,
    typer.Option("--image-shape", metavar="HxW", help="Show points as images of this shape: 28x28, or 32x32x3."),
]
FeatureNames = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Names of the features, one a line, to show points by.")
]
Voters = Annotated[int, typer.Option(min=0, help="k of the k-nearest-neighbour error; 0 leaves neighbours out.")]


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run folders; several are laid over each other.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The .html file to make.")],
    dataset: JudgedOn = None,
    neighbours: Voters = 3,
    image_shape_: ImageShape = None,
    feature_names: FeatureNames = None,
    seed: Seed = 0,
) -> None:
    """Make one HTML page of runs. It needs nothing beside it: curves, maps, neighbours, settings, in one file."""
    choices = Choices(dataset, neighbours, seed, image_shape(image_shape_), read_names(feature_names))
    note(write_report(runs, out, choices))
    print(f"{out}: {len(runs)} run{'s' if len(runs) > 1 else ''}, {out.stat().st_size / 1e6:.1f} MB")


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, of a training that goes on or has ended.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 0,
    until_done: Annotated[bool, typer.Option("--until-done", help="End when the run has its metric.")] = False,
    terminal: Annotated[bool, typer.Option("--terminal", help="Show it in the terminal instead of a page.")] = False,
    dataset: JudgedOn = None,
    neighbours: Voters = 3,
    image_shape_: ImageShape = None,
    feature_names: FeatureNames = None,
    seed: Seed = 0,
) -> None:
    """Show a run while it trains. The page of a report, live and on this machine only, until Ctrl-C."""
    choices = Choices(dataset, neighbours, seed, image_shape(image_shape_), read_names(feature_names))
    with contextlib.suppress(KeyboardInterrupt):
        if terminal:
            watch_in_terminal(run, until_done=until_done)
            return
        with WatchServer(run, port, choices) as server:
            print(f"{run}: {server.address} (Ctrl-C ends it)", flush=True)
            server.wait(until_done)
