"""What several commands share: arguments, one option for each training setting, and remarks."""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from nearfar.data.constraints import Constraints, Labels
from nearfar.data.dataset import Dataset
from nearfar.data.formats import FORMATS
from nearfar.errors import InvalidConstraints

DatasetFolder = Annotated[Path, typer.Argument(metavar="DATASET", help="A dataset folder, made by nearfar ingest.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a metric.safetensors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
FromLabels = Annotated[bool, typer.Option("--from-labels", help="Learn from labels though constraints are stored.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the draws.")]

FormatName = Annotated[
    str | None,
    typer.Option("--format", help=f"The format, if the suffix does not say it: {', '.join(FORMATS)}."),
]
PointsKey = Annotated[str | None, typer.Option(help="The array of points in an .npz.")]
LabelColumn = Annotated[str | None, typer.Option(help="The column of labels in a table: name or number.")]
IdColumn = Annotated[str | None, typer.Option(help="The column of ids in a table: name or number.")]


def with_options(*kinds: type, without: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option for each field of these dataclasses, in place of its parameters of those types.

    Fields named in ``without`` get none: the command decides on them itself.
    """

    def expand(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())
        name_of = {parameter.annotation: parameter.name for parameter in own if parameter.annotation in kinds}
        options = {
            kind: [
                _option(field, get_type_hints(kind)) for field in dataclasses.fields(kind) if field.name not in without
            ]
            for kind in kinds
        }

        def expanded(**given: Any) -> None:
            for kind, of_kind in options.items():
                given[name_of[kind]] = kind(**{option.name: given.pop(option.name) for option in of_kind})
            command(**given)

        kept = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own if p.annotation not in kinds]
        every = [option for kind in kinds for option in options[kind]]
        expanded.__signature__ = inspect.Signature([*kept, *every])  # type: ignore[attr-defined]
        expanded.__name__, expanded.__doc__ = command.__name__, command.__doc__
        return expanded

    return expand


def _option(field: "dataclasses.Field[Any]", hints: dict[str, Any]) -> inspect.Parameter:
    text = _sentence(field.metadata["help"], hints[field.name])
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default,
        annotation=Annotated[hints[field.name], typer.Option(help=text)],
    )


def _sentence(text: str, hint: Any) -> str:
    """A help text as a sentence; a value of the option, or a name before a colon, stays as it is written."""
    first = text.split(maxsplit=1)[0]
    is_name = first.endswith(":") or first in get_args(hint)
    return (text if is_name else text[0].upper() + text[1:]) + "."


def labels_of(dataset: Dataset) -> Labels:
    """The labels of a dataset that has to have some."""
    if dataset.labels is None:
        found = "neither constraints nor labels" if dataset.constraints is None else "constraints, but no labels"
        raise InvalidConstraints(f"{dataset.folder} has {found}; ingest it again with --labels or --pairs")
    return Labels(dataset.labels)


def constraints_of(dataset: Dataset, from_labels: bool) -> Constraints:
    """What a dataset trains with: its stored constraints if there are any, else its labels."""
    stored = None if from_labels else dataset.constraints
    return labels_of(dataset) if stored is None else stored


def note(remarks: Sequence[str]) -> None:
    """Remarks, on standard error."""
    for remark in remarks:
        print(f"note: {remark}", file=sys.stderr)
