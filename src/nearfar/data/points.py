"""Points: one row-access view over dense, memory-mapped and sparse matrices.

Whatever the storage, a gather gives float32: a dense block (an array), or sparse rows (:class:`SparseRows`). Only the
rows asked for are read, so points may be larger than memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar import cost
from nearfar.data import gather
from nearfar.data.scratch import Scratch
from nearfar.errors import InvalidPoints

Floats = NDArray[np.float32]
Indices = NDArray[np.integer[Any]]

_UNSCALED = np.empty(0, np.float32)
_HALVES: Floats = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
"""What each of the bit patterns of a half float means."""


@dataclass(frozen=True)
class SparseRows:
    """Some rows in CSR form, float32. A column may stand more than once in a row; its values then add up."""

    values: Floats
    columns: NDArray[np.int32]
    starts: NDArray[np.int64]
    n_features: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def to_scipy(self) -> sp.csr_matrix:
        """The same rows as a SciPy matrix, which shares the memory."""
        return sp.csr_matrix((self.values, self.columns, self.starts), shape=(len(self), self.n_features))


Rows = Floats | SparseRows


class Points(ABC):
    """Row access to n points of d features. Made by :func:`as_points`; immutable."""

    n_features: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def rows(self, indices: Indices, scratch: Scratch | None = None) -> Rows:
        """The points with these indices, as float32. With ``scratch``, valid until its next gather."""

    @abstractmethod
    def differences(self, left: Indices, right: Indices, scratch: Scratch | None = None) -> Rows:
        """``rows(left) - rows(right)`` in one pass. With ``scratch``, valid until its next gather."""

    @abstractmethod
    def scaled(self, scale: NDArray[np.floating[Any]]) -> "Points":
        """The same points with each feature divided by its scale, at the time a row is gathered."""

    def chosen(self, indices: Indices) -> "Points":
        """Only these points, in this order; nothing is copied."""
        return ChosenPoints(self, indices)

    @property
    @abstractmethod
    def is_sparse(self) -> bool: ...

    @property
    @abstractmethod
    def mapped_bytes(self) -> int:
        """Bytes of the files that rows are read from; 0 for points in memory."""

    @property
    @abstractmethod
    def stored_per_point(self) -> float:
        """Mean number of entries of a gathered row that cost work: d, or the non-zeros of a sparse row."""

    def blocks(self, indices: Indices | None = None) -> Iterator[tuple[slice, Rows]]:
        """All points (or those given), in blocks of bounded size, each with its place in the whole."""
        count = len(self) if indices is None else len(indices)
        size = max(1, int(cost.BLOCK_ENTRIES / max(1.0, self.stored_per_point)))
        for start in range(0, count, size):
            place = slice(start, min(count, start + size))
            chosen = np.arange(place.start, place.stop) if indices is None else indices[place]
            yield place, self.rows(chosen)

    def check_finite(self, indices: Indices | None = None) -> None:
        """Raise if a point (of those given) has NaN or infinity in it, and name it."""
        for place, block in self.blocks(indices):
            check_finite_rows(block, np.arange(place.start, place.stop) if indices is None else indices[place])


class DensePoints(Points):
    """Points in a two-dimensional array of any real type, in memory or memory-mapped."""

    is_sparse = False

    def __init__(self, stored: NDArray[Any], inverse_scale: Floats = _UNSCALED) -> None:
        self.n_features = stored.shape[1]
        self._stored, self._inverse_scale = stored, inverse_scale
        self._compiled = _compiles(stored.dtype)
        self._readable = _readable(stored)

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def mapped_bytes(self) -> int:
        return _mapped_bytes(self._stored)

    @property
    def stored_per_point(self) -> float:
        return float(self.n_features)

    def rows(self, indices: Indices, scratch: Scratch | None = None) -> Floats:
        out = (scratch or Scratch()).array("rows", (len(indices), self.n_features))
        if self._compiled:
            gather.dense_rows(*self._readable, indices, self._inverse_scale, out)
        else:
            with np.errstate(over="ignore"):  # check_finite names what float32 cannot hold
                out[:] = self._stored[indices]
            self._scale(out)
        return out

    def differences(self, left: Indices, right: Indices, scratch: Scratch | None = None) -> Floats:
        out = (scratch or Scratch()).array("rows", (len(left), self.n_features))
        if self._compiled:
            gather.dense_differences(*self._readable, left, right, self._inverse_scale, out)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                out[:] = self._stored[left]
                out -= self._stored[right]
            self._scale(out)
        return out

    def check_finite(self, indices: Indices | None = None) -> None:
        if indices is not None or len(self._inverse_scale) or self._stored.dtype != np.float32:
            super().check_finite(indices)
        elif not gather.all_finite(self._stored.T if self._stored.flags.f_contiguous else self._stored):
            super().check_finite()

    def scaled(self, scale: NDArray[np.floating[Any]]) -> "DensePoints":
        return DensePoints(self._stored, _combined(self._inverse_scale, scale))

    def _scale(self, rows: Floats) -> None:
        if len(self._inverse_scale):
            rows *= self._inverse_scale


class SparsePoints(Points):
    """Points as the three arrays of a CSR matrix, in memory or memory-mapped; never made dense."""

    is_sparse = True

    def __init__(
        self,
        data: NDArray[Any],
        columns: NDArray[Any],
        indptr: NDArray[Any],
        n_features: int,
        inverse_scale: Floats = _UNSCALED,
    ) -> None:
        self.n_features = n_features
        self._arrays = (data, columns, indptr)
        self._inverse_scale = inverse_scale

    def __len__(self) -> int:
        return len(self._arrays[2]) - 1

    @property
    def mapped_bytes(self) -> int:
        return sum(_mapped_bytes(array) for array in self._arrays)

    @property
    def stored_per_point(self) -> float:
        return len(self._arrays[0]) / max(1, len(self))

    def rows(self, indices: Indices, scratch: Scratch | None = None) -> SparseRows:
        indices = np.asarray(indices)
        out = self._empty(indices, len(indices), scratch or Scratch())
        data, columns, indptr = self._arrays
        gather.sparse_rows(
            *_readable(data), columns, indptr, indices, self._inverse_scale, out.starts, out.values, out.columns
        )
        return out

    def differences(self, left: Indices, right: Indices, scratch: Scratch | None = None) -> SparseRows:
        left, right = np.asarray(left), np.asarray(right)
        scratch = scratch or Scratch()
        out = self._empty(np.concatenate((left, right)), len(left), scratch)
        data, columns, indptr = self._arrays
        seen = scratch.lasting("columns seen", self.n_features + 1, np.uint32)
        size = gather.sparse_differences(
            *_readable(data), columns, indptr, left, right, self._inverse_scale, seen,
            out.starts, out.values, out.columns,
        )  # fmt: skip
        return SparseRows(out.values[:size], out.columns[:size], out.starts, self.n_features)

    def scaled(self, scale: NDArray[np.floating[Any]]) -> "SparsePoints":
        return SparsePoints(*self._arrays, self.n_features, _combined(self._inverse_scale, scale))

    def _empty(self, stored: Indices, n_rows: int, scratch: Scratch) -> SparseRows:
        """Rows to be filled with all entries of these points."""
        size = gather.count_stored(self._arrays[2], stored)
        values, columns = scratch.array("values", (size,)), scratch.array("columns", (size,), np.int32)
        return SparseRows(values, columns, scratch.array("starts", (n_rows + 1,), np.int64), self.n_features)


class ChosenPoints(Points):
    """Some of other points, as points of their own."""

    def __init__(self, base: Points, indices: Indices) -> None:
        self.n_features = base.n_features
        self._base, self._indices = base, np.asarray(indices)

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def is_sparse(self) -> bool:
        return self._base.is_sparse

    @property
    def mapped_bytes(self) -> int:
        return self._base.mapped_bytes

    @property
    def stored_per_point(self) -> float:
        return self._base.stored_per_point

    def rows(self, indices: Indices, scratch: Scratch | None = None) -> Rows:
        return self._base.rows(self._indices[indices], scratch)

    def differences(self, left: Indices, right: Indices, scratch: Scratch | None = None) -> Rows:
        return self._base.differences(self._indices[left], self._indices[right], scratch)

    def scaled(self, scale: NDArray[np.floating[Any]]) -> "Points":
        return ChosenPoints(self._base.scaled(scale), self._indices)

    def check_finite(self, indices: Indices | None = None) -> None:
        """Raise if a point has NaN or infinity in it, and name it by its number among the points it was chosen from."""
        self._base.check_finite(self._indices if indices is None else self._indices[indices])


def check_finite_rows(rows: Rows, numbers: Indices) -> None:
    """Raise if one of these rows has NaN or infinity in it, and name it by its number."""
    values = rows.values if isinstance(rows, SparseRows) else rows
    if gather.all_finite(np.atleast_2d(values)):
        return
    wrong = ~np.isfinite(values)
    row, feature = first_entry(rows, wrong)
    mend = "fill or drop such rows"
    if not np.isnan(values[wrong][0]):  # it may be finite as something wider
        mend += ", or scale the feature if float32 cannot hold it"
    raise InvalidPoints(f"point {numbers[row]} has NaN or infinity in feature {feature}; points must be finite: {mend}")


def first_entry(rows: Rows, chosen: NDArray[np.bool_]) -> tuple[int, int]:
    """Row and feature of the first of the stored values that is chosen."""
    if isinstance(rows, SparseRows):
        entry = int(np.flatnonzero(chosen)[0])
        return int(np.searchsorted(rows.starts, entry, "right")) - 1, int(rows.columns[entry])
    row, feature = np.argwhere(chosen)[0]
    return int(row), int(feature)


def as_points(X: Any) -> Points:
    """Row access to what a user has: an array, a memory-mapped .npy, a SciPy sparse matrix, or points already.

    Arrays are not copied. What is wrong with the shape or the type is said here; whether values are finite is checked
    by :meth:`Points.check_finite`.
    """
    if isinstance(X, Points):
        return X
    if sp.issparse(X):
        check_shape(X.shape, X.dtype)
        _check_sparse(X)
        matrix = sp.csr_matrix(X)
        if not _compiles(matrix.dtype):
            matrix = matrix.astype(np.float32)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # what was given stays as it is
            matrix.sum_duplicates()
        return SparsePoints(_plain(matrix.data), matrix.indices, matrix.indptr, matrix.shape[1])
    try:
        array = X if isinstance(X, np.ndarray) else np.asarray(X)
    except ValueError as error:
        raise InvalidPoints("points are rows of unequal length; expected as many features in each") from error
    check_shape(array.shape, array.dtype)
    return DensePoints(_plain(array))


def _check_sparse(X: Any) -> None:
    """Raise if entries lie outside the matrix: compiled loops go where an index says, SciPy's own among them."""
    form = {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "bsr": sp.bsr_matrix, "coo": sp.coo_matrix}.get(X.format)
    if form is None:
        return
    try:
        view = form(X)  # what was given stays as it is; of coordinates, this is the check
        if X.format != "coo":
            view.check_format(full_check=True)
    except ValueError as error:
        raise InvalidPoints(f"points are a sparse matrix whose indices do not fit its shape: {error}") from error


def _compiles(dtype: np.dtype[Any]) -> bool:
    """Whether compiled loops can read the type: not a long float, nor another byte order."""
    return dtype.isnative and dtype.itemsize <= 8


def _readable(stored: NDArray[Any]) -> tuple[NDArray[Any], Floats | None]:
    """The array as compiled loops take it, and the table to read it by if it holds half floats."""
    return (stored.view(np.uint16), _HALVES) if stored.dtype == np.float16 else (stored, None)


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """A plain view: a memory map stays mapped, and booleans become bytes, which arithmetic takes."""
    plain = np.asarray(array)
    return plain.view(np.uint8) if plain.dtype == np.bool_ else plain


def _mapped_bytes(array: NDArray[Any]) -> int:
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    return 0 if base is None else array.nbytes


def _combined(inverse_scale: Floats, scale: NDArray[np.floating[Any]]) -> Floats:
    inverse = (1.0 / np.asarray(scale, np.float64)).astype(np.float32)
    return inverse * inverse_scale if len(inverse_scale) else inverse


def check_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise unless an array of this shape and type can be points."""
    if len(shape) != 2:
        raise InvalidPoints(
            f"points have shape {shape}; expected two dimensions: one row a point, one column a feature"
        )
    if 0 in shape:
        raise InvalidPoints(f"points have shape {shape}; expected at least one point and one feature")
    if dtype.kind not in "fiub":
        raise InvalidPoints(f"points have type {dtype}; expected real numbers: convert or encode other columns first")
