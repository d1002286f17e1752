"""The dataset folder: points, labels and constraints as .npy files, and ``dataset.json`` to describe them.

``dataset.json`` lists every array with its type and shape, so a file that is missing, cut short or of another
dataset is found when the folder is opened. Everything is opened memory-mapped: opening costs no memory.
"""

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data.constraints import Comparisons, Groups, Pairs
from nearfar.data.points import Points, SparsePoints, SparseRows, as_points
from nearfar.data.stored import Form, storable_constraints, storable_labels, storable_points
from nearfar.errors import InvalidFile
from nearfar.files import atomic_file, atomic_folder, read_json, read_npy, write_json

FORMAT_VERSION = 1

_DESCRIPTION_FILE = "dataset.json"
_POINTS_ARRAYS = {"dense": ("points",), "sparse": ("points.data", "points.indices", "points.indptr")}
_CONSTRAINT_WIDTHS = {"similar": 2, "dissimilar": 2, "triplets": 3, "quadruplets": 4}
_FINGERPRINT_ROWS = 64


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset folder, opened. Its arrays are memory-mapped and read-only."""

    folder: Path
    points: Points
    labels: NDArray[Any] | None
    constraints: Pairs | Comparisons | None
    name: str
    fingerprint: str

    @classmethod
    def open(cls, folder: Path) -> "Dataset":
        """Open a folder that :func:`write_dataset` made, or say what is wrong with it.

        Promises that every file is there, whole, and of the type and shape it was written with, and that a
        sample of points and labels is what was written. The indices of constraints are not looked at.
        """
        description = _Description.read(folder)
        arrays = {name: _open_array(folder, name, form) for name, form in description.arrays.items()}
        points = _open_points(folder, description, arrays)
        labels = arrays.get("labels")
        if labels is not None and labels.shape != (len(points),):
            raise InvalidFile(
                f"{_file(folder, 'labels')} has shape {labels.shape}, but there are {len(points)} points; "
                "expected one label a point: ingest the source again"
            )
        if fingerprint(points, labels) != description.fingerprint:
            raise InvalidFile(
                f"the points or labels in {folder} are not those it was made with; ingest the source again"
            )
        constraints = _open_constraints(folder, arrays)
        return cls(folder, points, labels, constraints, folder.resolve().name, description.fingerprint)


def write_dataset(
    out: Path,
    points: NDArray[Any] | sp.csr_matrix,
    labels: NDArray[Any] | None = None,
    constraints: Pairs | Comparisons | None = None,
    source: str = "",
) -> Dataset:
    """Validate everything, then write a dataset folder that appears at ``out`` complete or not at all.

    Points are stored as small whole numbers or float32, see :func:`~nearfar.data.stored.storable_points`,
    labels as whole numbers or text. An ``out`` that exists is an error.
    """
    arrays, rows = storable_points(points)
    kept_labels = None
    if labels is not None:
        arrays["labels"] = storable_labels(labels, len(rows))
        kept_labels = arrays["labels"].array
    if constraints is not None:
        constraints.check(len(rows))
        arrays |= storable_constraints(constraints, len(rows))
    description = _Description(
        n_points=len(rows),
        n_features=rows.n_features,
        kind="sparse" if rows.is_sparse else "dense",
        n_classes=None if kept_labels is None else len(np.unique(kept_labels)),
        fingerprint=fingerprint(rows, kept_labels),
        source=source,
        arrays={name: stored.form for name, stored in arrays.items()},
    )
    with atomic_folder(out) as folder:
        for name, stored in arrays.items():
            with atomic_file(_file(folder, name)) as file:
                stored.write(file)
        description.write(folder)
    return Dataset.open(out)


def store_constraints(folder: Path, constraints: Pairs | Comparisons) -> list[str]:
    """Put constraints into a dataset folder, in place of all it had; return what is odd about them.

    An error leaves the folder as it was. A kill leaves the old constraints, the new ones, or a folder that
    opens without any or says that its constraints are incomplete: never a mixture.
    """
    description = _Description.read(folder)
    remarks = constraints.check(description.n_points)
    new = storable_constraints(constraints, description.n_points)
    others = {name: form for name, form in description.arrays.items() if name not in _CONSTRAINT_WIDTHS}
    with ExitStack() as renamed_on_exit:
        for name, stored in new.items():
            stored.write(renamed_on_exit.enter_context(atomic_file(_file(folder, name))))
        replace(description, arrays=others).write(folder)
        for name in _CONSTRAINT_WIDTHS:
            _file(folder, name).unlink(missing_ok=True)
    replace(description, arrays=others | {name: stored.form for name, stored in new.items()}).write(folder)
    return remarks


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


def constraints_fingerprint(constraints: Pairs | Comparisons | Groups) -> str:
    """16 hex digits that tell constraints apart, from how many they are and a few of them; always cheap."""
    digest = hashlib.sha256()
    if isinstance(constraints, Groups):
        for part in (constraints.membership.indptr, constraints.membership.indices):
            digest.update(part.astype(np.int64).tobytes())
        return digest.hexdigest()[:16]
    for name, stored in storable_constraints(constraints, 0).items():
        chosen = np.linspace(0, max(0, len(stored.array) - 1), _FINGERPRINT_ROWS).astype(np.int64)
        sample = stored.array[chosen].tolist() if len(stored.array) else []
        digest.update(repr((name, len(stored.array), sample)).encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class _Description:
    """What ``dataset.json`` says. The length of a constraint array is the number of constraints."""

    n_points: int
    n_features: int
    kind: str
    n_classes: int | None
    fingerprint: str
    source: str
    arrays: dict[str, Form]

    @classmethod
    def read(cls, folder: Path) -> "_Description":
        path = folder / _DESCRIPTION_FILE
        if not path.is_file():
            found = f"has no {_DESCRIPTION_FILE}, so is no dataset" if folder.exists() else "does not exist"
            raise InvalidFile(f"{folder} {found}; make one with `nearfar ingest SOURCE... --out {folder.name}`")
        fields = read_json(path)
        version = fields.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise InvalidFile(
                f"{path} has format version {version}, expected {FORMAT_VERSION}; ingest the source again"
            )
        try:
            arrays = {name: Form(form["dtype"], tuple(form["shape"])) for name, form in fields.pop("arrays").items()}
            missing = [name for name in _POINTS_ARRAYS[fields["kind"]] if name not in arrays]
            if missing:
                raise KeyError(missing[0])
            return cls(**fields, arrays=arrays)
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidFile(f"{path} does not describe a dataset ({error}); ingest the source again") from error

    def write(self, folder: Path) -> None:
        write_json(folder / _DESCRIPTION_FILE, {"format_version": FORMAT_VERSION, **asdict(self)})


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _open_array(folder: Path, name: str, expected: Form) -> NDArray[Any]:
    try:
        array = read_npy(_file(folder, name))
    except InvalidFile as error:
        raise InvalidFile(f"{error}; ingest the source again") from error
    if Form(array.dtype.str, array.shape) != expected:
        raise InvalidFile(
            f"{_file(folder, name)} has type {array.dtype.str} and shape {array.shape}, but "
            f"{_DESCRIPTION_FILE} says {expected.dtype} and {expected.shape}; ingest the source again"
        )
    return array


def _open_points(folder: Path, description: _Description, arrays: Mapping[str, NDArray[Any]]) -> Points:
    shape = (description.n_points, description.n_features)
    if description.kind == "dense":
        points = as_points(arrays["points"])
        sound = (len(points), points.n_features) == shape
    else:
        data, columns, indptr = (np.asarray(arrays[name]) for name in _POINTS_ARRAYS["sparse"])
        sound = (
            indptr.shape == (shape[0] + 1,)
            and data.shape == columns.shape == (len(data),)
            and (int(indptr[0]), int(indptr[-1])) == (0, len(data))
        )
        points = SparsePoints(data, columns, indptr, shape[1])
    if not sound:
        raise InvalidFile(
            f"the points in {folder} do not form a matrix of {shape[0]} points by {shape[1]} features, as "
            f"{_DESCRIPTION_FILE} says; ingest the source again"
        )
    return points


def _open_constraints(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> Pairs | Comparisons | None:
    on_disk = {name for name in _CONSTRAINT_WIDTHS if _file(folder, name).exists()}
    unlisted = sorted(on_disk - arrays.keys())
    if unlisted:
        raise InvalidFile(
            f"{_file(folder, unlisted[0])} is not listed in {_DESCRIPTION_FILE}: its writing was cut short, "
            "or it was copied there; remove it, then run `nearfar sample`, or ingest with your constraints"
        )
    listed = [name for name in _CONSTRAINT_WIDTHS if name in arrays]
    for name in listed:
        if arrays[name].ndim != 2 or arrays[name].shape[1] != _CONSTRAINT_WIDTHS[name]:
            raise InvalidFile(
                f"{_file(folder, name)} has shape {arrays[name].shape}; expected (n, {_CONSTRAINT_WIDTHS[name]})"
            )
    if "similar" in listed and "dissimilar" in listed:
        return Pairs(arrays["similar"], arrays["dissimilar"])
    return Comparisons(arrays[listed[0]]) if listed else None
