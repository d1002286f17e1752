"""Readers, one module a format: any supported file becomes blocks of points, each a :class:`Table`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import scipy.sparse as sp

from nearfar.data.formats import comma_separated, npy, npz, parquet, petuum, svmlight
from nearfar.data.formats.joining import joined_dense, joined_sparse
from nearfar.data.formats.table import Choice, Table, flat_shape, user_array
from nearfar.data.points import Points, as_points
from nearfar.errors import InvalidFile, InvalidPoints, InvalidSettings
from nearfar.files import open_file

__all__ = ["FORMATS", "Choice", "Format", "Table", "format_of", "read_blocks", "read_points"]


@dataclass(frozen=True)
class Format:
    """One way of keeping points in a file."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, Choice], Iterator[Table]]
    has_keys: bool = False
    has_columns: bool = False
    base_unknown: bool = False
    """Whether the columns of sparse points may count from 1."""
    open_width: bool = False
    """Whether the number of features is only known when all is read."""


FORMATS = {
    kind.name: kind
    for kind in (
        Format("npy", (".npy",), npy.read),
        Format("npz", (".npz",), npz.read, has_keys=True),
        Format("svmlight", (".svm", ".svmlight", ".libsvm"), svmlight.read, base_unknown=True, open_width=True),
        Format("petuum", (".petuum",), petuum.read, open_width=True),
        Format("csv", (".csv",), comma_separated.read_commas, has_columns=True),
        Format("tsv", (".tsv",), comma_separated.read_tabs, has_columns=True),
        Format("parquet", (".parquet",), parquet.read, has_columns=True),
    )
}


def format_of(source: Path, name: str | None = None) -> Format:
    """The format of this name, else the one that the suffix of the file's name says."""
    if name is not None and name not in FORMATS:
        raise InvalidSettings(f"format is {name!r}; expected one of {', '.join(FORMATS)}")
    if source.is_dir():
        raise InvalidFile(f"{source} is a folder; give its files, as in {source / '*.npy'}")
    suffix = source.suffix.lower()
    found = FORMATS[name] if name else next((kind for kind in FORMATS.values() if suffix in kind.suffixes), None)
    if found is None:
        known = ", ".join(suffix for kind in FORMATS.values() for suffix in kind.suffixes)
        raise InvalidFile(
            f"{source} has {f'the suffix {suffix}' if suffix else 'no suffix'}; expected one of {known}: "
            "rename the file to what it holds, say it with --format, or convert it"
        )
    if not source.exists():
        raise InvalidFile(f"{source} is missing; expected a {found.suffixes[0]} file")
    open_file(source).close()
    return found


def read_blocks(source: Path, choice: Choice | None = None, format_name: str | None = None) -> Iterator[Table]:
    """Read the points of one file in blocks, with its labels and ids if it has any.

    What is wrong with the file, or the shape or type of its points, raises an
    :class:`~nearfar.errors.InvalidInput` that names the file; whether values are finite is only looked at in
    sparse text, which may count features from 1.
    """
    found, choice = format_of(source, format_name), choice or Choice()
    if (choice.points_key or choice.labels_key) and not found.has_keys:
        raise InvalidSettings(f"{source} is no .npz file: leave out --points-key and --labels-key")
    if (choice.label_column or choice.id_column) and not found.has_columns:
        raise InvalidSettings(f"{source} has no columns with names: leave out --label-column and --id-column")
    try:
        yield from found.read(source, choice)
    except OSError as error:
        raise InvalidFile(f"{source} cannot be read: {error.strerror}") from error
    except InvalidPoints as error:
        raise InvalidPoints(f"{source}: {error}") from error


def read_points(source: Path, choice: Choice | None = None, format_name: str | None = None) -> Points:
    """All points of one file: memory-mapped if it is .npy, else in memory, read block by block.

    No number takes more than four bytes then, but in a sparse .npz: wider ones become float32, as which points are
    gathered anyway.
    """
    kind = format_of(source, format_name)
    blocks = (block.points for block in read_blocks(source, choice, format_name))
    first = next(blocks)  # says what is wrong with the file
    if kind.name == "npy":
        array = user_array(source)
        return as_points(array.reshape(flat_shape(array.shape)))
    if kind.open_width:
        return joined_sparse(chain([first], blocks), base_unknown=kind.base_unknown)
    return as_points(first) if sp.issparse(first) else joined_dense(chain([first], blocks))
