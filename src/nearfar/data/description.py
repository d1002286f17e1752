"""What ``dataset.json`` says of a dataset folder: every array with its type and shape."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.points import Points, SparsePoints, SparseRows, as_points
from nearfar.data.stored import Form
from nearfar.errors import InvalidFile, UnreadableFile
from nearfar.files import read_json, read_npy, write_json

FORMAT_VERSION = 1
DESCRIPTION_FILE = "dataset.json"
POINTS_ARRAYS = {"dense": ("points",), "sparse": ("points.data", "points.indices", "points.indptr")}
CONSTRAINT_WIDTHS = {"similar": 2, "dissimilar": 2, "triplets": 3, "quadruplets": 4}

_FINGERPRINT_ROWS = 64


@dataclass(frozen=True)
class Description:
    """What ``dataset.json`` says. The length of a constraint array is the number of constraints."""

    n_points: int
    n_features: int
    kind: str
    n_classes: int | None
    fingerprint: str
    source: str
    arrays: dict[str, Form]
    drawn: bool = False
    """Whether the constraints were drawn from the labels, so that drawing again loses nothing of the user's."""

    @classmethod
    def read(cls, folder: Path) -> "Description":
        """The description of a folder, or what is wrong with it."""
        path = folder / DESCRIPTION_FILE
        if not path.exists():
            found = f"has no {DESCRIPTION_FILE}, so is no dataset" if folder.exists() else "does not exist"
            raise InvalidFile(f"{folder} {found}; make one with `nearfar ingest SOURCE... --out {folder.name}`")
        fields = read_json(path)
        version = fields.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise InvalidFile(
                f"{path} has format version {version}, expected {FORMAT_VERSION}; ingest the source again"
            )
        try:
            arrays = {name: Form(form["dtype"], tuple(form["shape"])) for name, form in fields.pop("arrays").items()}
            missing = [name for name in POINTS_ARRAYS[fields["kind"]] if name not in arrays]
            if missing:
                raise KeyError(missing[0])
            return cls(**fields, arrays=arrays)
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidFile(f"{path} does not describe a dataset ({error}); ingest the source again") from error

    def write(self, folder: Path) -> None:
        """Write it, in place of the one before."""
        write_json(folder / DESCRIPTION_FILE, {"format_version": FORMAT_VERSION, **asdict(self)})

    def open_arrays(self, folder: Path) -> dict[str, NDArray[Any]]:
        """Every array listed, memory-mapped, of the type and shape listed."""
        return {name: _open_array(folder, name, form) for name, form in self.arrays.items()}


def array_file(folder: Path, name: str) -> Path:
    """Where an array of a dataset folder is."""
    return folder / f"{name}.npy"


def points_of(kind: str, arrays: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Points | None:
    """Row access to the points of a dataset's arrays, or None if those do not form a matrix of this shape."""
    if kind == "dense":
        points = as_points(arrays["points"])
        return points if (len(points), points.n_features) == shape else None
    data, columns, indptr = (np.asarray(arrays[name]) for name in POINTS_ARRAYS["sparse"])
    sound = (
        indptr.shape == (shape[0] + 1,)
        and data.shape == columns.shape == (len(data),)
        and (int(indptr[0]), int(indptr[-1])) == (0, len(data))
    )
    return SparsePoints(data, columns, indptr, shape[1]) if sound else None


def fingerprint(points: Points, labels: NDArray[Any] | None) -> str:
    """16 hex digits that tell datasets apart, from their shape and a few points and labels; always cheap."""
    chosen = np.unique(np.linspace(0, len(points) - 1, _FINGERPRINT_ROWS).astype(np.int64))
    digest = hashlib.sha256(repr((len(points), points.n_features, points.is_sparse)).encode())
    rows = points.rows(chosen)
    parts = (rows.values, rows.columns, rows.starts) if isinstance(rows, SparseRows) else (rows,)
    for part in parts:
        digest.update(part.tobytes())
    if labels is not None:
        digest.update(repr(labels[chosen].tolist()).encode())
    return digest.hexdigest()[:16]


def sample_fingerprint(arrays: Mapping[str, NDArray[Any]]) -> str:
    """16 hex digits that tell arrays apart, from their names and lengths and a few of their rows; always cheap."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        chosen = np.linspace(0, max(0, len(array) - 1), _FINGERPRINT_ROWS).astype(np.int64)
        sample = array[chosen].tolist() if len(array) else []
        digest.update(repr((name, len(array), sample)).encode())
    return digest.hexdigest()[:16]


def _open_array(folder: Path, name: str, expected: Form) -> NDArray[Any]:
    try:
        array = read_npy(array_file(folder, name))
    except UnreadableFile:
        raise
    except InvalidFile as error:
        raise InvalidFile(f"{error}; ingest the source again") from error
    if Form(array.dtype.str, array.shape) != expected:
        raise InvalidFile(
            f"{array_file(folder, name)} has type {array.dtype.str} and shape {array.shape}, but "
            f"{DESCRIPTION_FILE} says {expected.dtype} and {expected.shape}; ingest the source again"
        )
    return array
