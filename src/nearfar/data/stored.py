"""What goes to disk, and as which type: points, labels and constraints as arrays that any NumPy reads."""

from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data.constraints import Comparisons, Pairs
from nearfar.data.points import Points, as_points
from nearfar.errors import InvalidConstraints, InvalidPoints
from nearfar.files import NpyAppender

_KEPT = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.float32))
_WHOLE = (np.dtype(np.uint8), np.dtype(np.int16), np.dtype(np.int32))
_MOST_FEATURES = 2**31 - 1
_WRITE_BYTES = 16 << 20


@dataclass(frozen=True)
class Form:
    """The type and shape of an array."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """An array, and the type that it gets on disk."""

    array: NDArray[Any]
    dtype: np.dtype[Any]

    @property
    def form(self) -> Form:
        """Its type and shape on disk."""
        return Form(self.dtype.str, self.array.shape)

    def write(self, file: IO[bytes]) -> None:
        """Write it as .npy, converted block by block, so that it may be larger than memory."""
        appender = NpyAppender(file, self.dtype, self.array.shape[1:])
        size = max(1, _WRITE_BYTES // max(1, self.array[:1].nbytes))
        for start in range(0, len(self.array), size):
            appender.append(self.array[start : start + size])
        appender.close()


def storable_points(points: NDArray[Any] | sp.csr_matrix) -> tuple[dict[str, Stored], Points]:
    """The arrays to store, by name, the values first, and row access to the same points.

    The types uint8, uint16 and float32 are kept; other whole numbers take the smallest of uint8, int16 and
    int32 that holds them, booleans uint8, all else float32. Raises if a point is not finite as float32.
    """
    if sp.issparse(points):
        matrix = _sound(sp.csr_matrix(points))
        rows = as_points(matrix)
        stored = {
            "points.data": Stored(matrix.data, _smallest_type(matrix.data)),
            "points.indices": Stored(matrix.indices, np.dtype(np.int32)),
            "points.indptr": Stored(matrix.indptr, np.dtype(np.int64)),
        }
    else:
        array = np.asarray(points)
        rows = as_points(array)
        stored = {"points": Stored(array, _smallest_type(array))}
    with np.errstate(over="ignore", invalid="ignore"):
        rows.check_finite()
    return stored, rows


def storable_labels(labels: NDArray[Any], n_points: int) -> Stored:
    """Labels as whole numbers or text, one a point, or an error that says why they cannot be."""
    array = np.asarray(labels)
    if array.shape == (n_points, 1):
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidConstraints(f"labels have shape {array.shape}; expected one label a point: ({n_points},)")
    if len(array) != n_points:
        raise InvalidConstraints(
            f"there are {len(array)} labels for {n_points} points; expected one a point"
            + (": is the first one a header?" if len(array) == n_points + 1 else "")
        )
    kind = array.dtype.kind
    if kind == "O" and all(isinstance(label, str) for label in array):
        array = array.astype(np.str_)
    elif kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    elif kind == "b":
        array = array.astype(np.uint8)
    elif kind == "f":
        if not (np.isfinite(array).all() and (array % 1 == 0).all()):
            raise InvalidConstraints("labels hold NaN or fractions; expected a class a point: whole numbers or text")
        array = array.astype(np.int64)
    elif kind not in "iuU":
        raise InvalidConstraints(f"labels have type {array.dtype}; expected whole numbers or text")
    return Stored(array, array.dtype.newbyteorder("="))


def storable_constraints(constraints: Pairs | Comparisons, n_points: int) -> dict[str, Stored]:
    """The index arrays to store, by name."""
    dtype = np.dtype(np.int32 if n_points < 2**31 else np.int64)
    if isinstance(constraints, Pairs):
        return {
            "similar": Stored(constraints.similar, dtype),
            "dissimilar": Stored(constraints.dissimilar, dtype),
        }
    name = "triplets" if constraints.indices.shape[1] == 3 else "quadruplets"
    return {name: Stored(constraints.indices, dtype)}


def _sound(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """The matrix with sorted indices, each once a row, every one looked at: compiled loops trust them."""
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise InvalidPoints(f"the sparse points are no sound CSR matrix: {error}") from error
    if matrix.shape[1] > _MOST_FEATURES:
        raise InvalidPoints(f"points have {matrix.shape[1]} features; expected at most {_MOST_FEATURES}: hash them")
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _smallest_type(values: NDArray[Any]) -> np.dtype[Any]:
    native = values.dtype.newbyteorder("=")
    if native in _KEPT:
        return native
    if native.kind not in "iub":
        return np.dtype(np.float32)
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    holding = (kind for kind in _WHOLE if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return next(holding, np.dtype(np.float32))
