"""Dataset folders written block by block: nothing in memory grows with the number of points or constraints."""

import shutil
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nearfar.data.constraints import Classes, Comparisons, Pairs
from nearfar.data.description import CONSTRAINT_WIDTHS, Description, array_file, fingerprint, points_of
from nearfar.data.ids import IdLookup, are_row_numbers
from nearfar.data.points import check_shape
from nearfar.data.stored import (
    Form,
    ValueType,
    check_label_count,
    column_type,
    sound_matrix,
    storable_labels,
    stored_values,
)
from nearfar.data.stored_constraints import constraints_of, index_type, stored_together
from nearfar.errors import InvalidConstraints, InvalidPoints
from nearfar.files import NpyAppender, atomic_folder, growing_npy


class DatasetWriter:
    """Makes a dataset folder of blocks of points; it appears at ``out`` complete, or after any error not at all.

    ``with DatasetWriter(out, sparse=True) as writer: writer.append(rows, labels=..., ids=...)``; a block is held in
    memory while it is written, so blocks of some megabytes are best. What is odd about the dataset is in ``remarks``
    once it is made, one sentence each.

    Parameters
    ----------
    out
        The folder to make; it must not exist.
    n_features
        Features of a point. None: those of the first block if dense, the largest column and one if sparse.
    sparse
        Whether blocks are sparse matrices; otherwise they are arrays.
    source
        What the dataset is made of, to be said in ``dataset.json``.
    dtype
        How values are stored: ``float16``, ``float32``, or ``auto``, see :class:`~nearfar.data.stored.ValueType`.
    base_unknown
        The columns of sparse blocks count from 1 unless a column 0 is among them, as in svmlight files.
    """

    def __init__(
        self,
        out: Path,
        *,
        n_features: int | None = None,
        sparse: bool = False,
        source: str = "",
        dtype: str = "auto",
        base_unknown: bool = False,
    ) -> None:
        self._out, self._kind, self._source = out, "sparse" if sparse else "dense", source
        self._given_features, self._n_features = n_features, n_features or 0
        self._value_type, self._base_unknown = ValueType(dtype), base_unknown
        self._lowest_column = np.inf
        self._made, self._files = ExitStack(), ExitStack()
        self._arrays: dict[str, NpyAppender] = {}
        self._is_complete, self._inode = False, 0
        self.n_points = 0
        self.remarks: list[str] = []

    def __enter__(self) -> "DatasetWriter":
        self._folder = self._made.enter_context(atomic_folder(self._out))
        self._inode = self._folder.stat().st_ino
        self._made.push(self._files)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._made.__exit__(kind, error, at)
            return
        with self._made:
            self.complete()

    def append(
        self,
        rows: NDArray[Any] | sp.csr_matrix,
        labels: ArrayLike | None = None,
        ids: ArrayLike | None = None,
    ) -> None:
        """Add some points, with a label and an id for each if points have such."""
        n_rows = self._append_sparse(rows) if self._kind == "sparse" else self._append_dense(rows)
        self.n_points += n_rows
        if labels is not None:
            self.append_labels(np.asarray(labels))
        if ids is not None:
            self._append_growing("ids", storable_labels(np.asarray(ids), "ids"))
            if self._arrays["ids"].n_rows != self.n_points:
                raise InvalidPoints(f"there are {self._arrays['ids'].n_rows} ids for {self.n_points} points")

    def append_labels(self, labels: NDArray[Any]) -> None:
        """Add labels of the points in their order, which need not come with the points."""
        self._append_growing("labels", storable_labels(labels))

    def append_constraints(self, kind: str, indices: NDArray[np.integer[Any]]) -> None:
        """Add constraints, after the points: kind ``similar``, ``dissimilar``, ``triplets`` or ``quadruplets``."""
        for name in stored_together(kind):
            self._opened(name, index_type(self.n_points), (CONSTRAINT_WIDTHS[name],))
        self._arrays[kind].append(indices)

    def id_lookup(self) -> IdLookup | None:
        """The way from ids to rows, if the points appended so far have ids; raises if one stands twice."""
        return IdLookup(self._arrays["ids"].mapped()) if "ids" in self._arrays else None

    def complete(self) -> None:
        """Check all, and see that it is on disk: only its name is missing then. The end of the block does it too."""
        if self._is_complete:
            return
        with self._files:
            self._settle_types()
            constraints = self._constraints()
            self.remarks += [] if constraints is None else constraints.check(self.n_points)
        self._describe()
        self._is_complete = True

    def withdraw(self) -> None:
        """Remove the folder if it has appeared at ``out``; one that somebody else made there stays."""
        with suppress(FileNotFoundError):
            if self._out.stat().st_ino == self._inode:
                shutil.rmtree(self._out, ignore_errors=True)

    def _append_dense(self, rows: Any) -> int:
        array = np.asarray(rows)
        check_shape(array.shape, array.dtype)
        self._n_features = self._n_features or array.shape[1]
        if array.shape[1] != self._n_features:
            raise InvalidPoints(
                f"points from {self.n_points} on have {array.shape[1]} features, but those before {self._n_features}"
            )
        dtype = self._value_type.hold(array)
        points = self._opened("points", dtype, (self._n_features,))
        points.retype(dtype)
        points.append(stored_values(array, dtype, None, self.n_points))
        return len(array)

    def _append_sparse(self, rows: Any) -> int:
        matrix = sound_matrix(rows)
        if matrix.dtype.kind not in "fiub":
            raise InvalidPoints(f"points have type {matrix.dtype}; expected real numbers: convert them first")
        width = int(matrix.indices.max()) + 1 if matrix.nnz else 0
        self._n_features = max(self._n_features, width)
        self._check_width(-1 if self._base_unknown else 0)
        if matrix.nnz:
            self._lowest_column = min(self._lowest_column, int(matrix.indices.min()))
        dtype = self._value_type.hold(matrix.data)
        data = self._opened("points.data", dtype)
        columns = self._opened("points.indices", column_type(self._n_features))
        starts = self._opened("points.indptr", np.int64)
        if not starts.n_rows:
            starts.append(np.zeros(1, np.int64))
        starts.append(matrix.indptr[1:].astype(np.int64) + data.n_rows)
        data.retype(dtype)
        data.append(stored_values(matrix.data, dtype, matrix, self.n_points))
        columns.retype(column_type(self._n_features))
        columns.append(matrix.indices)
        return int(matrix.shape[0])

    def _check_width(self, shift: int) -> None:
        """Columns may go beyond those that there are by as many as they are yet to be shifted down."""
        if self._given_features is not None and self._n_features + shift > self._given_features:
            raise InvalidPoints(
                f"points have a column {self._n_features - 1}; expected columns below {self._given_features - shift}"
                f"{', counted from 1' if shift else ''}, as --features {self._given_features} was given: "
                "give as many as there are"
            )

    def _append_growing(self, name: str, values: NDArray[Any]) -> None:
        """Add to labels or ids, whose type is what holds the old and the new: wider numbers, or text."""
        array = self._opened(name, values.dtype)
        common = np.promote_types(array.dtype, values.dtype)
        if common.kind == "f":  # of a signed and an unsigned one, both of 64 bits
            raise InvalidConstraints(f"{name} hold whole numbers too large for 64 bits; give them as text")
        array.retype(common)
        array.append(values)

    def _opened(self, name: str, dtype: Any, row_shape: tuple[int, ...] = ()) -> NpyAppender:
        if name not in self._arrays:
            file = growing_npy(array_file(self._folder, name), dtype, row_shape)
            self._arrays[name] = self._files.enter_context(file)
        return self._arrays[name]

    def _settle_types(self) -> None:
        """What is known only now that all points are there."""
        if not self.n_points:
            raise InvalidPoints("there are no points; expected at least one point and one feature")
        if "labels" in self._arrays:
            check_label_count(self._arrays["labels"].n_rows, self.n_points)
        if self._kind == "sparse":
            shift = -1 if self._base_unknown and 0 < self._lowest_column < np.inf else 0
            self._check_width(shift)
            self._n_features = self._given_features or self._n_features + shift
            if not self._n_features:
                raise InvalidPoints("no point has an entry, and the number of features was not given")
            self._arrays["points.indices"].retype(column_type(self._n_features), shift)
        ids = self.id_lookup()  # raises if one stands twice
        if ids is not None and are_row_numbers(self._arrays["ids"].mapped()):
            array_file(self._folder, "ids").unlink()
            del self._arrays["ids"]

    def _constraints(self) -> Pairs | Comparisons | None:
        return constraints_of(
            {name: array.mapped() for name, array in self._arrays.items() if name in CONSTRAINT_WIDTHS}
        )

    def _describe(self) -> None:
        description = Description(
            n_points=self.n_points,
            n_features=self._n_features,
            kind=self._kind,
            n_classes=None,
            fingerprint="",
            source=self._source,
            arrays={name: Form(array.dtype.str, array.shape) for name, array in self._arrays.items()},
        )
        arrays = description.open_arrays(self._folder)
        points = points_of(self._kind, arrays, (self.n_points, self._n_features))
        assert points is not None
        labels = arrays.get("labels")
        classes = None if labels is None else Classes.of(labels)
        if classes is not None:
            self.remarks += classes.remarks()
        replace(
            description,
            n_classes=None if classes is None else len(classes.names),
            fingerprint=fingerprint(points, labels),
        ).write(self._folder)
