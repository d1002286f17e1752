"""Commands that repeat the paper's studies: reproduce."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nearfar.cli.options import note
from nearfar.display import print_table
from nearfar.experiments.found import COLUMNS
from nearfar.experiments.protocol import StudyName
from nearfar.experiments.reproduce import reproduce as reproduce_study

_NOT_IN_A_TERMINAL = ("95 % interval", "cut")
"""Columns for which a terminal is too narrow: the files have the first, the second is said below the table."""


def reproduce(
    study: Annotated[StudyName, typer.Argument(metavar="STUDY", help="mnist, imnet-63k or imnet-1m.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The study's folder; by default nearfar-STUDY.")
    ] = None,
    mnist: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An .npz with x_train, y_train, x_test, y_test; by default downloaded."),
    ] = None,
    dataset: Annotated[
        Path | None, typer.Option(metavar="DATASET", help="A dataset with labels for imnet; by default synthesized.")
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(help="Size, 1 being the paper's; by default 1 for mnist, 0.1 for imnet-63k, 0.02 for imnet-1m."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Most time for each method; by default 4, less if small.")
    ] = None,
) -> None:
    """Repeat a study of the paper. Every method and figure of it; begun again, it goes on where it was."""
    console = Console(stderr=True, highlight=False)

    def show(number: int, count: int, title: str) -> None:
        console.print(f"{number:2} of {count}  {title}", markup=False, soft_wrap=True)

    try:
        done = reproduce_study(
            study,
            out or Path(f"nearfar-{study}"),
            mnist=mnist,
            dataset=dataset,
            scale=scale,
            minutes=budget,
            on_part=show,
            on_remark=lambda remark: note([remark]),
        )
    except KeyboardInterrupt:
        print("stopped; what is done is kept: go on with the same command")
        raise typer.Exit(130) from None
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in done.found.rows()]
    shown = [column for column in COLUMNS if column not in _NOT_IN_A_TERMINAL]
    print_table(f"The study {study}", shown, [[row[column] for column in shown] for row in rows])
    for row in rows:
        if row["cut"]:
            print(f"{row['method']}: {row['cut']}.")
    for remark in done.found.remarks():
        print(remark)
    print(f"{done.page}: the page; open it in a browser")
    print(f"{done.text}: the table as Markdown")
