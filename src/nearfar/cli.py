"""The command line: parses, calls, prints."""

import dataclasses
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args, get_type_hints

import typer
from rich.markup import escape

from nearfar.data.constraints import Constraints, Labels
from nearfar.data.dataset import Dataset, store_constraints
from nearfar.data.drawn import draw_to_dataset
from nearfar.data.formats import FORMATS, Choice
from nearfar.data.from_labels import LabelDraws
from nearfar.data.ingest import ConstraintFiles
from nearfar.data.ingest import ingest as ingest_sources
from nearfar.data.stored import DTypeChoice
from nearfar.data.synthesis import ShapeName
from nearfar.data.synthesis import synthesize as synthesize_dataset
from nearfar.demo import run_demo
from nearfar.display import CopyingDisplay, TrainingDisplay, print_plan, print_table
from nearfar.errors import InvalidConstraints, InvalidInput, InvalidRun, InvalidSettings, NearfarError
from nearfar.evaluation.neighbour_triplets import draw_neighbour_triplets
from nearfar.evaluation.search import Neighbours, check_free
from nearfar.evaluation.summary import Summary, summarise
from nearfar.model.euclidean import Euclidean
from nearfar.model.metric import Metric, load_metric
from nearfar.model.run import RunFolder
from nearfar.model.training import train as train_metric
from nearfar.model.transforming import open_points, transform_to_file
from nearfar.planning import plan as plan_training
from nearfar.planning import stand_in
from nearfar.settings import TrainingSettings

app = typer.Typer(
    help="Learn a distance from examples of what is near and what is far.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What typer raises on a command line that it cannot parse; it has no public name."""

_MOST_QUERIES_SHOWN = 100

DatasetFolder = Annotated[Path, typer.Argument(metavar="DATASET", help="A dataset folder, made by nearfar ingest.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a metric.safetensors.")]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each training setting, in place of its parameter ``settings``."""
    hints = get_type_hints(TrainingSettings)
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[
                hints[field.name], typer.Option(help=_sentence(field.metadata["help"], hints[field.name]))
            ],
        )
        for field in dataclasses.fields(TrainingSettings)
    ]

    def expanded(**given: Any) -> None:
        settings = TrainingSettings(**{option.name: given.pop(option.name) for option in options})
        command(**given, settings=settings)

    expanded.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *options]
    )
    expanded.__name__, expanded.__doc__ = command.__name__, command.__doc__
    return expanded


def _sentence(text: str, hint: Any) -> str:
    """A help text as a sentence; a value of the option, or a name before a colon, stays as it is written."""
    first = text.split(maxsplit=1)[0]
    is_name = first.endswith(":") or first in get_args(hint)
    return (text if is_name else text[0].upper() + text[1:]) + "."


@app.command()
def demo() -> None:
    """Learn a metric for scikit-learn's digits. Two asynchronous workers train it; a table shows what it is worth."""
    run_demo()


@app.command()
def ingest(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE...", help=".npy, .npz, svmlight, Petuum, CSV, TSV or Parquet files.")
    ],
    out: Annotated[Path, typer.Option(help="The dataset folder to make.")],
    format_: Annotated[
        str | None,
        typer.Option("--format", help=f"The format, if the suffix does not say it: {', '.join(FORMATS)}."),
    ] = None,
    points_key: Annotated[str | None, typer.Option(help="The array of points in an .npz.")] = None,
    labels_key: Annotated[str | None, typer.Option(help="The array of labels in an .npz.")] = None,
    label_column: Annotated[str | None, typer.Option(help="The column of labels in a table: name or number.")] = None,
    id_column: Annotated[str | None, typer.Option(help="The column of ids in a table: name or number.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Labels, one a point: .npy, or text with one a line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Pairs: i, j and 1 (similar) or -1 (dissimilar).")] = None,
    similar: Annotated[Path | None, typer.Option(help="Similar pairs: i, j.")] = None,
    dissimilar: Annotated[Path | None, typer.Option(help="Dissimilar pairs: i, j.")] = None,
    triplets: Annotated[Path | None, typer.Option(help="Triplets: anchor, near, far.")] = None,
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
            dtype=dtype,
            on_progress=display,
        )
    _note(remarks)
    kind = "sparse" if dataset.points.is_sparse else "dense"
    print(f"{out}: {len(dataset.points)} points of {dataset.points.n_features} features, {kind}")


@app.command()
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


@app.command()
def sample(
    dataset: DatasetFolder,
    similar: Annotated[int, typer.Option(min=0, help="Similar pairs to draw.")] = 0,
    dissimilar: Annotated[int, typer.Option(min=0, help="Dissimilar pairs to draw.")] = 0,
    triplets: Annotated[int, typer.Option(min=0, help="Triplets to draw.")] = 0,
    among_neighbours: Annotated[
        bool, typer.Option("--among-neighbours", help="Draw triplets among nearest points, for nearest neighbours.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
) -> None:
    """Draw constraints from labels, and store them in the dataset."""
    opened = Dataset.open(dataset)
    if bool(triplets) == bool(similar or dissimilar):
        raise InvalidSettings("say what to draw: --similar N --dissimilar N, or --triplets N")
    if among_neighbours and not triplets:
        raise InvalidSettings("--among-neighbours is for triplets; say how many with --triplets N")
    counts = {"triplets": triplets} if triplets else {"similar": similar, "dissimilar": dissimilar}
    if among_neighbours:
        drawn = draw_neighbour_triplets(opened.points, _labels(opened), triplets, seed=seed)
        _note(store_constraints(dataset, drawn))
    else:
        with CopyingDisplay("drawing", "constraints") as display:
            _note(draw_to_dataset(dataset, LabelDraws(_labels(opened)), counts, seed, display))
    counted = f"{triplets} triplets" if triplets else f"{similar} similar, {dissimilar} dissimilar pairs"
    print(f"{dataset}: {counted}")


@app.command()
@with_settings
def train(
    dataset: DatasetFolder,
    out: Annotated[Path, typer.Option(metavar="RUN", help="The run folder to make, or to go on with.")],
    from_labels: Annotated[
        bool, typer.Option("--from-labels", help="Learn from labels though constraints are stored.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    *,
    settings: TrainingSettings,
) -> None:
    """Learn a metric from a dataset. Stored constraints train where there are any, else the labels do."""
    opened = Dataset.open(dataset)
    stored = None if from_labels else opened.constraints
    constraints: Constraints = _labels(opened) if stored is None else stored
    with TrainingDisplay(settings.workers) as display:
        result = train_metric(
            opened.points,
            constraints,
            settings,
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
    ap = "" if kept.ap is None else f", AP {kept.ap:.4f}"
    print(f"{out}: {result.history[-1].step} steps, held-out objective {kept.objective:.4f}{ap}; {result.ended}")


@app.command()
@with_settings
def plan(
    dataset: Annotated[
        Path | None, typer.Argument(metavar="[DATASET]", help="A dataset folder; without one, give sizes.")
    ] = None,
    points: Annotated[int | None, typer.Option(min=2, help="Points.")] = None,
    features: Annotated[int | None, typer.Option(min=1, help="Features of a point.")] = None,
    nonzeros: Annotated[
        int | None, typer.Option(min=1, help="Non-zeros of a point; without it, points are dense.")
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(min=1, help="Pairs to learn from; without it, labels and blocks.")
    ] = None,
    from_labels: Annotated[
        bool, typer.Option("--from-labels", help="Learn from labels though constraints are stored.")
    ] = False,
    machines: Annotated[int, typer.Option(min=1, help="Machines like this one, each with these workers.")] = 1,
    bandwidth: Annotated[float, typer.Option(min=1e-6, help="Gigabits a second between machines.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    *,
    settings: TrainingSettings,
) -> None:
    """Say what training will take of this machine: memory, time a step and a pass, and what is in the way."""
    if dataset is not None:
        opened = Dataset.open(dataset)
        stored = None if from_labels else opened.constraints
        given: tuple[Any, Constraints] = (opened.points, _labels(opened) if stored is None else stored)
        count = len(given[1])
    elif points is None or features is None:
        raise InvalidSettings("there is nothing to plan; give a dataset, or --points and --features")
    else:
        given = stand_in(points, features, nonzeros, pairs is not None)
        count = pairs or points
    planned = plan_training(*given, settings, n_constraints=count, machines=machines, bandwidth=bandwidth * 1e9 / 8)
    if as_json:
        print(json.dumps(planned.to_json(), indent=2))
    else:
        print_plan(planned)


@app.command()
def evaluate(
    run: RunPath,
    dataset: DatasetFolder,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of each kind to draw where none are stored.")] = 10_000,
    neighbours: Annotated[
        int, typer.Option(min=0, help="k of the k-nearest-neighbour error; 0 leaves neighbours out.")
    ] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Judge a metric on a dataset, beside plain Euclidean distance."""
    metric, training = _metric(run), _training_data(run)
    opened = Dataset.open(dataset)
    judged = {
        name: summarise(distance, opened, training, n_pairs=pairs, k=neighbours, seed=seed)
        for name, distance in (("learned", metric), ("euclidean", Euclidean()))
    }
    if as_json:
        print(json.dumps({name: summary.to_json() for name, summary in judged.items()}, indent=2))
    else:
        _print_summaries(judged)


@app.command()
def transform(
    run: RunPath,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A dataset folder, or a file as for ingest.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The .npy file to make.")],
    points_key: Annotated[str | None, typer.Option(help="The array of points in an .npz.")] = None,
) -> None:
    """Write Lx for every point x. Euclidean distance between the results is the learned distance."""
    shape = transform_to_file(_metric(run), source, out, points_key)
    print(f"{out}: {shape[0]} points of {shape[1]} features")


@app.command()
def search(
    run: RunPath,
    dataset: DatasetFolder,
    query: Annotated[Path, typer.Option(metavar="FILE", help="What to search for: a dataset folder or a file.")],
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbours a query.")] = 10,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="An .npz to make instead of a table.")] = None,
    points_key: Annotated[str | None, typer.Option(help="The array of points in an .npz.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Find the points of a dataset that are nearest to given ones by a metric."""
    if out is not None:
        check_free(out)
    metric, opened = _metric(run), Dataset.open(dataset)
    queries = open_points(query, points_key)
    found = Neighbours.search(metric, opened, queries, k)
    if out is not None:
        found.write(out)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    elif out is not None:
        print(f"{out}: {k} neighbours of each of {len(found.indices)} queries")
    else:
        _print_neighbours(found)


def _labels(dataset: Dataset) -> Labels:
    if dataset.labels is None:
        found = "neither constraints nor labels" if dataset.constraints is None else "constraints, but no labels"
        raise InvalidConstraints(f"{dataset.folder} has {found}; ingest it again with --labels or --pairs")
    return Labels(dataset.labels)


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
        _note(["the dataset of the run is not there any more, so neighbours are searched in the dataset given"])
        return None


def _print_summaries(judged: dict[str, Summary]) -> None:
    names = list(judged)
    columns = [judged[name].rows() for name in names]
    rows = [[row[0], *(column[i][1] for column in columns)] for i, row in enumerate(columns[0])]
    print_table("", ["", *names], rows)


def _print_neighbours(found: Neighbours) -> None:
    rows = [[escape(cell) for cell in row] for row in found.rows(_MOST_QUERIES_SHOWN)]
    print_table("", found.columns(), rows)
    if len(found.indices) > _MOST_QUERIES_SHOWN:
        more = len(found.indices) - _MOST_QUERIES_SHOWN
        _note([f"{more} more queries are not shown; --json and --out give all"])


def _note(remarks: list[str]) -> None:
    for remark in remarks:
        print(f"note: {remark}", file=sys.stderr)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _note([str(message)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; what was wrong ends in one line and exit code 2, never in a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            sys.exit(app(given or ["--help"], prog_name="nearfar", standalone_mode=False))
        except NearfarError as error:
            _fail(str(error), 2 if isinstance(error, InvalidInput) else 1)
        except _UsageError as error:
            _fail(_usage_fault(error), 2)
        except OSError as error:  # a path that cannot even be looked at
            _fail(f"{error.filename}: {error.strerror}; choose a path that can be read and written", 2)


def _usage_fault(error: Any) -> str:
    fault = error.format_message().rstrip(".").replace("Value error, ", "")
    return f"{fault[:1].lower()}{fault[1:]}; see {error.ctx.command_path if error.ctx else 'nearfar'} --help"


def _fail(fault: str, code: int) -> NoReturn:
    print(f"error: {' '.join(fault.split())}", file=sys.stderr)
    sys.exit(code)
