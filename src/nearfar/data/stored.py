"""As which types points and labels go to disk: the smallest that lose nothing, or those asked for."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data.points import Rows, SparseRows, check_finite_rows, first_entry
from nearfar.errors import InvalidConstraints, InvalidPoints, InvalidSettings

DTypeChoice = Literal["auto", "float16", "float32"]

_WHOLE = (np.uint8, np.int16, np.uint16, np.int32)
_MOST_FEATURES = 2**31 - 1
_MOST_SHORT_COLUMNS = 1 << 16


@dataclass(frozen=True)
class Form:
    """The type and shape of an array."""

    dtype: str
    shape: tuple[int, ...]


class ValueType:
    """The type that holds all values seen so far.

    Asked for ``auto``, whole numbers, be they floats or not, take the smallest of uint8, int16, uint16 and int32 that
    holds them all; if there are fractions, all take float16 if every value came so, else float32.
    """

    def __init__(self, asked: str = "auto") -> None:
        if asked not in get_args(DTypeChoice):
            raise InvalidSettings(f"dtype is {asked!r}; expected one of {', '.join(get_args(DTypeChoice))}")
        self._asked = None if asked == "auto" else np.dtype(asked)
        self._whole, self._half = True, True
        self._low = self._high = 0.0

    def hold(self, values: NDArray[Any]) -> np.dtype[Any]:
        """The type, now that these values are to be held too."""
        if self._asked is not None:
            return self._asked
        self._whole = self._whole and _are_whole(values)
        self._half = self._half and (values.dtype.newbyteorder("=") == np.float16 or not values.size)
        if self._whole and values.size:
            self._low = min(self._low, values.min().item())
            self._high = max(self._high, values.max().item())
        for kind in _WHOLE:
            if self._whole and np.iinfo(kind).min <= self._low and self._high <= np.iinfo(kind).max:
                return np.dtype(kind)
        return np.dtype(np.float16 if self._half else np.float32)


def _are_whole(values: NDArray[Any]) -> bool:
    if values.dtype.kind != "f":
        return True
    return all(bool((np.rint(some) == some).all()) for some in (values[:4], values))  # most say no at once


def stored_values(values: NDArray[Any], dtype: np.dtype[Any], rows: sp.csr_matrix | None, first: int) -> NDArray[Any]:
    """The values of a block as the type they are stored in; raises if a point is not finite in it, and names it.

    ``rows`` is the sparse block that the values are of, or None; ``first`` is the number of its first point.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        stored = values.astype(dtype, copy=False)
        if dtype.kind != "f" or bool(np.isfinite(stored).all()):
            return stored
        plain = values.astype(np.float32)
    block: Rows = plain if rows is None else SparseRows(plain, rows.indices, rows.indptr, rows.shape[1])
    too_large = np.isfinite(values) & ~np.isfinite(stored)
    if not too_large.any():
        check_finite_rows(block, np.arange(first, first + (len(values) if rows is None else rows.shape[0])))
    row, feature = first_entry(block, too_large)
    value = values[too_large][0]
    wider = "store the points as float32, or " if np.isfinite(plain[too_large][0]) else ""
    raise InvalidPoints(
        f"point {first + row} has {value:g} in feature {feature}, too large for {dtype.name}; {wider}scale the feature"
    )


def column_type(n_features: int) -> np.dtype[Any]:
    """The type of the column numbers of sparse points."""
    if n_features > _MOST_FEATURES:
        raise InvalidPoints(f"points have {n_features} features; expected at most {_MOST_FEATURES}: hash them")
    return np.dtype(np.uint16 if n_features <= _MOST_SHORT_COLUMNS else np.int32)


def sound_matrix(points: Any) -> sp.csr_matrix:
    """The matrix with sorted indices, each once a row, every one looked at: compiled loops trust them."""
    matrix = sp.csr_matrix(points)
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise InvalidPoints(f"the sparse points are no sound CSR matrix: {error}") from error
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def storable_labels(labels: NDArray[Any], name: str = "labels") -> NDArray[Any]:
    """Labels, or ids, as whole numbers or text, or an error that says why they cannot be."""
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidConstraints(f"{name} have shape {array.shape}; expected one a point, shape (n,)")
    kind = array.dtype.kind
    if kind == "O" and all(isinstance(label, str) for label in array):
        array = array.astype(np.str_)
    elif kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    elif kind == "b":
        array = array.astype(np.uint8)
    elif kind == "f":
        if not (np.isfinite(array).all() and (array % 1 == 0).all()):
            raise InvalidConstraints(f"{name} hold NaN or fractions; expected one a point: whole numbers or text")
        array = array.astype(np.int64)
    elif kind not in "iuU":
        raise InvalidConstraints(f"{name} have type {array.dtype}; expected whole numbers or text")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def check_label_count(n_labels: int, n_points: int) -> None:
    """Raise unless there is one label a point."""
    if n_labels != n_points:
        raise InvalidConstraints(
            f"there are {n_labels} labels for {n_points} points; expected one a point"
            + (": is the first one a header?" if n_labels == n_points + 1 else "")
        )
