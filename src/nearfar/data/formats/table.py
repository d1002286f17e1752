"""What readers yield: blocks of points, with labels and ids where the file has them."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.errors import InvalidFile, UnreadableFile
from nearfar.files import read_npy

BLOCK_BYTES = 8 << 20
"""About how large the blocks of points are that readers yield."""


@dataclass(frozen=True)
class Choice:
    """What to read of a file that holds several things, by the names the command line gives them."""

    points_key: str | None = None
    """The array of points in an .npz."""
    labels_key: str | None = None
    """The array of labels in an .npz."""
    label_column: str | None = None
    """The column of labels in CSV, TSV and Parquet: its name, or its number from 0."""
    id_column: str | None = None
    """The column of ids, likewise."""


@dataclass(frozen=True)
class Table:
    """Points, one row each (an array, maybe memory-mapped, or a CSR matrix), and a label and an id a point if any."""

    points: NDArray[Any] | sp.csr_matrix
    labels: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    size: int = 0
    """How many bytes of the source it stands for, about."""


def chosen_column(source: Path, names: list[str], wanted: str | None, option: str) -> int | None:
    """Which column is meant by a name, or by a number from 0 where no column has that name."""
    if wanted is None:
        return None
    if wanted in names:
        return names.index(wanted)
    if wanted.removeprefix("-").isdecimal() and -len(names) <= int(wanted) < len(names):
        return int(wanted) % len(names)
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    raise InvalidFile(f"{source} has no column {wanted!r}; it has {listed}: choose one, or its number, with {option}")


def user_array(path: Path) -> NDArray[Any]:
    """The array of a user's .npy file, memory-mapped, or an error that says how to mend the file."""
    try:
        return read_npy(path)
    except UnreadableFile:
        raise
    except InvalidFile as error:
        if "Python objects" in str(error):
            raise InvalidFile(
                f"{path} holds Python objects, which are never unpickled; save it as numbers or as text (.astype(str))"
            ) from error
        raise InvalidFile(f"{error}; expected an array that np.save wrote") from error


def flat_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of points of more than one dimension each, such as images, made flat: (n, 784) of (n, 28, 28)."""
    return (shape[0], math.prod(shape[1:])) if len(shape) > 2 else shape


def rows_at_once(n_features: int, dtype: np.dtype[Any]) -> int:
    """How many points make a block."""
    return max(1, BLOCK_BYTES // max(1, n_features * dtype.itemsize))
