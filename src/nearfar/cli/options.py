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
from nearfar.errors import InvalidConstraints
from nearfar.settings import TrainingSettings

DatasetFolder = Annotated[Path, typer.Argument(metavar="DATASET", help="A dataset folder, made by nearfar ingest.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a metric.safetensors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
FromLabels = Annotated[bool, typer.Option("--from-labels", help="Learn from labels though constraints are stored.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the draws.")]


def with_settings(command: Callable[..., None], own: Sequence[str] = ()) -> Callable[..., None]:
    """Give a command one option for each training setting, in place of its parameter ``settings``.

    Settings named in ``own`` get none: the command decides on them itself.
    """
    hints = get_type_hints(TrainingSettings)
    parameters = inspect.signature(command, eval_str=True).parameters.values()
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
        if field.name not in own
    ]

    def expanded(**given: Any) -> None:
        settings = TrainingSettings(**{option.name: given.pop(option.name) for option in options})
        command(**given, settings=settings)

    expanded.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters if p.name != "settings"), *options]
    )
    expanded.__name__, expanded.__doc__ = command.__name__, command.__doc__
    return expanded


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
