"""Readers, one module a format: any supported file becomes a :class:`Table`."""

from collections.abc import Callable
from pathlib import Path

from nearfar.data.formats import npy, npz, svmlight
from nearfar.data.formats.table import Table
from nearfar.data.points import as_points
from nearfar.errors import InvalidFile, InvalidPoints, InvalidSettings

__all__ = ["Table", "read_points"]

_Reader = Callable[[Path, str | None, str | None], Table]


def _without_keys(read: Callable[[Path], Table]) -> _Reader:
    """A reader of a format whose arrays have no names."""

    def reader(source: Path, points_key: str | None, labels_key: str | None) -> Table:
        if points_key is not None or labels_key is not None:
            raise InvalidSettings(f"{source} is no .npz file: leave out --points-key and --labels-key")
        return read(source)

    return reader


_READERS: dict[str, _Reader] = {
    ".npy": _without_keys(npy.read),
    ".npz": npz.read,
    ".svm": _without_keys(svmlight.read),
    ".svmlight": _without_keys(svmlight.read),
    ".libsvm": _without_keys(svmlight.read),
}


def read_points(source: Path, points_key: str | None = None, labels_key: str | None = None) -> Table:
    """Read the points of one file, and its labels if it has any; the suffix of its name says the format.

    The keys name arrays of an .npz file. What is wrong with the file, or the shape or type of its points,
    raises an :class:`~nearfar.errors.InvalidInput` that names the file; whether values are finite is not
    looked at here.
    """
    suffix = source.suffix.lower()
    if suffix not in _READERS:
        raise InvalidFile(
            f"{source} has {f'the suffix {suffix}' if suffix else 'no suffix'}; expected one of "
            f"{', '.join(_READERS)}: rename the file to what it holds, or convert it"
        )
    if not source.is_file():
        wrong = "is not a file" if source.exists() else "is missing"
        raise InvalidFile(f"{source} {wrong}; expected a {suffix} file")
    try:
        table = _READERS[suffix](source, points_key, labels_key)
        as_points(table.points)
    except OSError as error:
        raise InvalidFile(f"{source} cannot be read: {error.strerror}") from error
    except InvalidPoints as error:
        raise InvalidPoints(f"{source}: {error}") from error
    return table
