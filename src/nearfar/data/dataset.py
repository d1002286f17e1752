"""The dataset folder: points, labels, ids and constraints as .npy files, and ``dataset.json`` to describe them.

``dataset.json`` lists every array with its type and shape, so a file that is missing, cut short or of another
dataset is found when the folder is opened. Everything is opened memory-mapped: opening costs no memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data.constraints import Comparisons, Groups, Pairs
from nearfar.data.description import (
    CONSTRAINT_WIDTHS,
    DESCRIPTION_FILE,
    Description,
    array_file,
    fingerprint,
    points_of,
    sample_fingerprint,
)
from nearfar.data.points import Points, check_shape
from nearfar.data.stored_constraints import ConstraintWriter, arrays_of, constraints_of
from nearfar.data.writer import DatasetWriter
from nearfar.errors import InvalidConstraints, InvalidFile

_WRITE_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset folder, opened. Its arrays are memory-mapped and read-only."""

    folder: Path
    points: Points
    labels: NDArray[Any] | None
    constraints: Pairs | Comparisons | None
    name: str
    fingerprint: str
    ids: NDArray[Any] | None = None
    """The points' names, where they are not just the row numbers."""
    drawn: bool = False
    """Whether the constraints were drawn from the labels by ``nearfar sample``; otherwise they are the user's own."""

    @classmethod
    def open(cls, folder: Path) -> "Dataset":
        """Open a folder that :class:`~nearfar.data.writer.DatasetWriter` made, or say what is wrong with it.

        Promises that every file is there, whole, and of the type and shape it was written with, and that a
        sample of points and labels is what was written. The indices of constraints are not looked at.
        """
        description = Description.read(folder)
        arrays = description.open_arrays(folder)
        shape = (description.n_points, description.n_features)
        points = points_of(description.kind, arrays, shape)
        if points is None:
            raise InvalidFile(
                f"the points in {folder} do not form a matrix of {shape[0]} points by {shape[1]} features, as "
                f"{DESCRIPTION_FILE} says; ingest the source again"
            )
        labels, ids = (_one_a_point(folder, name, arrays.get(name), len(points)) for name in ("labels", "ids"))
        if fingerprint(points, labels) != description.fingerprint:
            raise InvalidFile(
                f"the points or labels in {folder} are not those it was made with; ingest the source again"
            )
        constraints = _open_constraints(folder, arrays)
        name = folder.resolve().name
        return cls(folder, points, labels, constraints, name, description.fingerprint, ids, description.drawn)


def write_dataset(
    out: Path,
    points: NDArray[Any] | sp.csr_matrix,
    labels: NDArray[Any] | None = None,
    constraints: Pairs | Comparisons | None = None,
    source: str = "",
    dtype: str = "auto",
) -> Dataset:
    """Write a dataset folder of what is in memory or mapped; it appears at ``out`` complete or not at all.

    Points are stored as small whole numbers or floats, see :class:`~nearfar.data.stored.ValueType`, labels as
    whole numbers or text. An ``out`` that exists is an error.
    """
    sparse = sp.issparse(points)
    whole = sp.csr_matrix(points) if sparse else np.asarray(points)
    check_shape(whole.shape, whole.dtype)
    with DatasetWriter(out, n_features=whole.shape[1], sparse=sparse, source=source, dtype=dtype) as writer:
        for rows in _blocks(whole):
            writer.append(rows)
        if labels is not None:
            for block in _blocks(np.asarray(labels)):
                writer.append_labels(block)
        for name, indices in ({} if constraints is None else arrays_of(constraints)).items():
            for block in _blocks(indices):
                writer.append_constraints(name, block)
    return Dataset.open(out)


def store_constraints(folder: Path, constraints: Pairs | Comparisons, *, drawn: bool = False) -> list[str]:
    """Put constraints into a dataset folder, in place of all it had; return what is odd about them.

    ``drawn`` notes that they were drawn from the labels. As safe as
    :class:`~nearfar.data.stored_constraints.ConstraintWriter`, whatever happens meanwhile.
    """
    with ConstraintWriter(folder, drawn=drawn) as writer:
        for name, indices in arrays_of(constraints).items():
            for block in _blocks(indices):
                writer.append(name, block)
    return writer.remarks


def constraints_fingerprint(constraints: Pairs | Comparisons | Groups) -> str:
    """16 hex digits that tell constraints apart, from how many they are and a few of them; always cheap."""
    if isinstance(constraints, Groups):
        membership = constraints.membership
        return sample_fingerprint({"indptr": membership.indptr, "indices": membership.indices})
    return sample_fingerprint(arrays_of(constraints))


def _blocks(rows: Any) -> Iterator[Any]:
    """An array or a sparse matrix in pieces of bounded size, at least one."""
    n_rows = rows.shape[0] if rows.ndim else 0
    entry_bytes = rows.dtype.itemsize + 4 if sp.issparse(rows) else rows.dtype.itemsize
    entries = rows.nnz if sp.issparse(rows) else rows.size
    size = max(1, int(_WRITE_BYTES * n_rows / max(1, entries * entry_bytes)))
    for start in range(0, max(1, n_rows), size):
        yield rows[start : start + size] if rows.ndim else rows


def _one_a_point(folder: Path, name: str, array: NDArray[Any] | None, n_points: int) -> NDArray[Any] | None:
    if array is not None and array.shape != (n_points,):
        raise InvalidFile(
            f"{array_file(folder, name)} has shape {array.shape}, but there are {n_points} points; "
            f"expected one of the {name} a point: ingest the source again"
        )
    return array


def _open_constraints(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> Pairs | Comparisons | None:
    on_disk = {name for name in CONSTRAINT_WIDTHS if array_file(folder, name).exists()}
    unlisted = sorted(on_disk - arrays.keys())
    if unlisted:
        raise InvalidFile(
            f"{array_file(folder, unlisted[0])} is not listed in {DESCRIPTION_FILE}: its writing was cut short, "
            "or it was copied there; remove it, then run `nearfar sample`, or ingest with your constraints"
        )
    for name in CONSTRAINT_WIDTHS.keys() & arrays.keys():
        if arrays[name].ndim != 2 or arrays[name].shape[1] != CONSTRAINT_WIDTHS[name]:
            raise InvalidFile(
                f"{array_file(folder, name)} has shape {arrays[name].shape}; expected (n, {CONSTRAINT_WIDTHS[name]})"
            )
    try:
        return constraints_of(arrays)
    except InvalidConstraints as error:
        raise InvalidFile(f"{folder}: {error}; ingest the source again") from error
