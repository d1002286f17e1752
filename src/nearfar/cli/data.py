"""Commands that make datasets: ingest, synthesize, sample."""

from pathlib import Path
from typing import Annotated

import typer

from nearfar.cli.options import (
    DatasetFolder,
    FormatName,
    IdColumn,
    LabelColumn,
    PointsKey,
    Seed,
    labels_of,
    note,
)
from nearfar.data.dataset import Dataset, store_constraints
from nearfar.data.drawn import draw_to_dataset
from nearfar.data.formats import Choice
from nearfar.data.from_labels import LabelDraws
from nearfar.data.ingest import ConstraintFiles
from nearfar.data.ingest import ingest as ingest_sources
from nearfar.data.stored import DTypeChoice
from nearfar.data.stored_constraints import arrays_of
from nearfar.data.synthesis import ShapeName
from nearfar.data.synthesis import synthesize as synthesize_dataset
from nearfar.display import CopyingDisplay
from nearfar.errors import InvalidConstraints, InvalidSettings
from nearfar.evaluation.neighbour_triplets import draw_neighbour_triplets


def ingest(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE...", help=".npy, .npz, svmlight, Petuum, CSV, TSV or Parquet files.")
    ],
    out: Annotated[Path, typer.Option(help="The dataset folder to make.")],
    format_: FormatName = None,
    points_key: PointsKey = None,
    labels_key: Annotated[str | None, typer.Option(help="The array of labels in an .npz.")] = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    labels: Annotated[Path | None, typer.Option(help="Labels, one a point: .npy, or text with one a line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Pairs: i, j and 1 (similar) or -1 (dissimilar).")] = None,
    similar: Annotated[Path | None, typer.Option(help="Similar pairs: i, j.")] = None,
    dissimilar: Annotated[Path | None, typer.Option(help="Dissimilar pairs: i, j.")] = None,
    triplets: Annotated[Path | None, typer.Option(help="Triplets: anchor, near, far.")] = None,
    features: Annotated[
        int | None,
        typer.Option(min=1, help="Features of a point; by default as many as the points of a sparse text file show."),
    ] = None,
    dtype: Annotated[
        DTypeChoice, typer.Option(help="How values are stored: auto keeps whole numbers small, the rest float32.")
    ] = "auto",
) -> None:
    """Make a dataset folder of points, labels and constraints."""
    with CopyingDisplay("reading", "bytes") as display:
        dataset, remarks = ingest_sources(
            sources,
            out,
            choice=Choice(points_key, labels_key, label_column, id_column),
            format_name=format_,
            labels=labels,
            constraints=ConstraintFiles(pairs, similar, dissimilar, triplets),
            n_features=features,
            dtype=dtype,
            on_progress=display,
        )
    note(remarks)
    kind = "sparse" if dataset.points.is_sparse else "dense"
    print(f"{out}: {len(dataset.points)} points of {dataset.points.n_features} features, {kind}")


def synthesize(
    shape: Annotated[ShapeName, typer.Argument(metavar="SHAPE", help="imnet-63k, imnet-1m or text-1m.")],
    out: Annotated[Path, typer.Option(help="The dataset folder to make; the points to test on go to OUT-test.")],
    points: Annotated[int | None, typer.Option(help="Points to train on; by default as many as in the name.")] = None,
    test_points: Annotated[int | None, typer.Option(help="Points to test on; by default up to a tenth.")] = None,
    features: Annotated[int | None, typer.Option(help="Different words in text-1m; by default 1000000.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides everything.")] = 0,
) -> None:
    """Make data with the shape of the paper's. A metric learns its classes; Euclid and PCA do not see them."""
    made = synthesize_dataset(shape, out, points=points, test_points=test_points, features=features, seed=seed)
    for dataset in made:
        print(f"{dataset.folder}: {len(dataset.points)} points of {dataset.points.n_features} features, sparse")


def sample(
    dataset: DatasetFolder,
    similar: Annotated[int, typer.Option(min=0, help="Similar pairs to draw.")] = 0,
    dissimilar: Annotated[int, typer.Option(min=0, help="Dissimilar pairs to draw.")] = 0,
    triplets: Annotated[int, typer.Option(min=0, help="Triplets to draw.")] = 0,
    among_neighbours: Annotated[
        bool, typer.Option("--among-neighbours", help="Draw triplets among nearest points, for nearest neighbours.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace stored constraints that were not drawn, but ingested.")
    ] = False,
    seed: Seed = 0,
) -> None:
    """Draw constraints from labels, and store them in the dataset.

    They replace all that were drawn before, of whatever kind. Constraints that were ingested are only replaced with
    --replace.
    """
    opened = Dataset.open(dataset)
    if bool(triplets) == bool(similar or dissimilar):
        raise InvalidSettings("say what to draw: --similar N --dissimilar N, or --triplets N")
    if among_neighbours and not triplets:
        raise InvalidSettings("--among-neighbours is for triplets; say how many with --triplets N")
    if not replace:
        _check_replaceable(opened)
    counts = {"triplets": triplets} if triplets else {"similar": similar, "dissimilar": dissimilar}
    if among_neighbours:
        drawn = draw_neighbour_triplets(opened.points, labels_of(opened), triplets, seed=seed)
        note(store_constraints(dataset, drawn, drawn=True))
    else:
        with CopyingDisplay("drawing", "constraints") as display:
            note(draw_to_dataset(dataset, LabelDraws(labels_of(opened)), counts, seed, display))
    counted = f"{triplets} triplets" if triplets else f"{similar} similar, {dissimilar} dissimilar pairs"
    print(f"{dataset}: {counted}")


def _check_replaceable(dataset: Dataset) -> None:
    if dataset.constraints is None or dataset.drawn:
        return
    stored = ", ".join(f"{len(indices)} {name}" for name, indices in arrays_of(dataset.constraints).items())
    raise InvalidConstraints(
        f"{dataset.folder} has constraints that are not noted as drawn ({stored}); drawn ones would replace them all: "
        "add --replace if that is meant, or ingest the points into another folder and draw there"
    )
