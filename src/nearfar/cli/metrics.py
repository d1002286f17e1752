"""Commands that use a learned metric: evaluate, transform, search."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from nearfar.cli.options import (
    AsJson,
    DatasetFolder,
    FormatName,
    IdColumn,
    LabelColumn,
    PointsKey,
    RunPath,
    Seed,
    note,
)
from nearfar.data.dataset import Dataset
from nearfar.data.formats import Choice
from nearfar.display import print_table
from nearfar.errors import InvalidRun, NearfarError
from nearfar.evaluation.clustering import MOST_POINTS
from nearfar.evaluation.search import Neighbours
from nearfar.evaluation.summary import Summary, summarise
from nearfar.files import check_free, write_json
from nearfar.model.euclidean import Euclidean
from nearfar.model.metric import Metric, load_metric
from nearfar.model.run import RunFolder
from nearfar.model.transforming import open_points, transform_to_file

_MOST_QUERIES_SHOWN = 100


def evaluate(
    run: RunPath,
    dataset: DatasetFolder,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of each kind to draw where none are stored.")] = 10_000,
    neighbours: Annotated[
        int, typer.Option(min=0, help="k of the k-nearest-neighbour error; 0 leaves neighbours out.")
    ] = 3,
    queries: Annotated[
        int | None,
        typer.Option(min=1, help="Points whose neighbours are searched; by default 10000, or fewer if it takes long."),
    ] = None,
    clusters: Annotated[
        int, typer.Option(min=0, help="Points to cluster by k-means, at most; 0 leaves clusters out.")
    ] = MOST_POINTS,
    resamples: Annotated[
        int | None,
        typer.Option(min=0, help="Resamples for 95 % intervals; by default 1000, or fewer if pairs are many."),
    ] = None,
    curves: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .json to make with precision–recall and ROC curves.")
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Judge a metric on a dataset, beside plain Euclidean distance."""
    if curves is not None:
        check_free(curves, ".json")
    metric, training = _metric(run), _training_data(run)
    opened = Dataset.open(dataset)
    judged = {
        name: summarise(
            distance,
            opened,
            training,
            n_pairs=pairs,
            k=neighbours,
            seed=seed,
            most_queries=queries,
            most_clustered=clusters,
            resamples=resamples,
        )
        for name, distance in (("learned", metric), ("euclidean", Euclidean()))
    }
    note([f"{name}: {remark}" for name, summary in judged.items() for remark in summary.remarks])
    if curves is not None:
        write_json(curves, {name: summary.curves.to_json() for name, summary in judged.items()})
    if as_json:
        print(json.dumps({name: summary.to_json() for name, summary in judged.items()}, indent=2))
    else:
        _print_summaries(judged)


def transform(
    run: RunPath,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A dataset folder, or a file as for ingest.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The .npy file to make.")],
    format_: FormatName = None,
    points_key: PointsKey = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
) -> None:
    """Write Lx for every point x. Euclidean distance between the results is the learned distance.

    Columns of labels and of ids in a table are left out.
    """
    choice = Choice(points_key, None, label_column, id_column)
    shape = transform_to_file(_metric(run), source, out, choice, format_)
    print(f"{out}: {shape[0]} points of {shape[1]} features")


def search(
    run: RunPath,
    dataset: DatasetFolder,
    query: Annotated[Path, typer.Option(metavar="FILE", help="What to search for: a dataset folder or a file.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbours a query.")] = 10,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="An .npz to make instead of a table.")] = None,
    format_: FormatName = None,
    points_key: PointsKey = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    as_json: AsJson = False,
) -> None:
    """Find the points of a dataset that are nearest to given ones by a metric."""
    if out is not None:
        check_free(out, ".npz")
    metric, opened = _metric(run), Dataset.open(dataset)
    queries = open_points(query, Choice(points_key, None, label_column, id_column), format_)
    found = Neighbours.search(metric, opened, queries, k)
    if out is not None:
        found.write(out)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    elif out is not None:
        print(f"{out}: {k} neighbours of each of {len(found.indices)} queries")
    else:
        _print_neighbours(found)


def _metric(run: Path) -> Metric:
    if run.is_file():
        return load_metric(run)
    folder = RunFolder(run)
    folder.read()
    if not folder.metric.exists():
        raise InvalidRun(f"{folder.metric} is missing: the run has not ended; go on with it by nearfar train --resume")
    return load_metric(folder.metric)


def _training_data(run: Path) -> Dataset | None:
    """What a run was trained on, where that is known and still there."""
    if run.is_file():
        return None
    _, source = RunFolder(run).read()
    try:
        return Dataset.open(Path(source["dataset"]))
    except (NearfarError, KeyError):
        note(["the dataset of the run is not there any more, so neighbours are searched in the dataset given"])
        return None


def _print_summaries(judged: dict[str, Summary]) -> None:
    names = list(judged)
    columns = [dict(judged[name].rows()) for name in names]
    figures = dict.fromkeys(figure for column in columns for figure in column)  # one may have what the other left out
    rows = [[figure, *(column.get(figure, "–") for column in columns)] for figure in figures]
    print_table(judged[names[0]].title(), ["", *names], rows)


def _print_neighbours(found: Neighbours) -> None:
    rows = [[escape(cell) for cell in row] for row in found.rows(_MOST_QUERIES_SHOWN)]
    print_table("", found.columns(), rows)
    if len(found.indices) > _MOST_QUERIES_SHOWN:
        more = len(found.indices) - _MOST_QUERIES_SHOWN
        note([f"{more} more queries are not shown; --json and --out give all"])
