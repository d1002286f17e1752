"""Tuples of points as users give them, checked, as points and indices.

Index tuples stay indices; formed tuples (n, t, d) are looked at as n·t points, numbered in order. Nothing is expanded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_consistent_length, column_or_1d

from nearfar.data.constraints import Indices
from nearfar.data.points import Points, as_points
from nearfar.errors import InvalidConstraints, InvalidInput, InvalidPoints
from nearfar.learners.named_points import NamedPoints

_CALL_IDS = 4096
"""How many ids a callable preprocessor is asked for at once."""
_COPY_ROWS = 1 << 18
_SHORT = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Tuples:
    """Points, and which of them stand together: indices of shape (n, t)."""

    points: Any
    """An array, a sparse matrix or Points, as nf.train takes them."""
    indices: Indices
    float_type: np.dtype[Any]
    """The type to answer in."""
    of_preprocessor: bool

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def n_features(self) -> int:
        return self.points.n_features if isinstance(self.points, Points) else int(self.points.shape[1])


def read_tuples(tuples: Any, size: int, preprocessor: Any, learner: str) -> Tuples:
    """The tuples of ``size`` points that were given to ``learner``; what is wrong with them is said here."""
    check_preprocessor(preprocessor)
    array = _array(tuples, learner)
    _check_dimensions(array, preprocessor, learner)
    if array.shape[1] != size:
        raise InvalidConstraints(
            f"Tuples of {size} element(s) expected by {learner}. Got tuples of {array.shape[1]} element(s) instead "
            f"(shape={array.shape})."
        )
    if not len(array):
        raise InvalidConstraints(
            f"Found array with 0 sample(s) (shape={array.shape}) while a minimum of 1 is required by {learner}."
        )
    if array.ndim == 2:
        points, indices = gathered(array, preprocessor)
        return Tuples(points, indices, float_type(points), of_preprocessor=True)
    if not array.shape[2]:
        raise InvalidConstraints(
            f"Found array with 0 feature(s) (shape={array.shape}) while a minimum of 1 is required by {learner}."
        )
    array = _numeric(array)
    numbers: Indices = np.arange(len(array) * size, dtype=_index_type(len(array) * size)).reshape(-1, size)
    return Tuples(array.reshape(-1, array.shape[2]), numbers, float_type(array), of_preprocessor=False)


def gathered(ids: NDArray[Any], preprocessor: Any) -> tuple[Any, Indices]:
    """The points that a preprocessor has, and ids as indices into them, in the same shape."""
    if isinstance(preprocessor, NamedPoints):
        return gathered(preprocessor.rows(ids), preprocessor.points)
    if not callable(preprocessor) or _is_array_like(preprocessor):
        points = preprocessor if sp.issparse(preprocessor) else as_points_or_array(preprocessor)
        return points, _as_indices(ids)
    distinct, places = np.unique(ids, return_inverse=True)
    return _called(preprocessor, distinct), places.reshape(ids.shape)


def chosen_points(ids: NDArray[Any], preprocessor: Any) -> tuple[Points, np.dtype[Any]]:
    """The points with these ids, not copied if the preprocessor has them, and the float type to answer in."""
    held, indices = gathered(ids, preprocessor)
    points = as_points(held)
    if len(indices) and not 0 <= indices.min() <= indices.max() < len(points):
        raise InvalidConstraints(
            f"ids go from {indices.min()} to {indices.max()}, but there are {len(points)} points; "
            f"indices go from 0 to {len(points) - 1}"
        )
    return points.chosen(indices), float_type(held)


def read_pair_labels(y: ArrayLike, tuples: Any) -> NDArray[np.bool_]:
    """Whether each pair is similar, from labels +1 and -1."""
    if y is None:
        raise InvalidConstraints(
            "requires y to be passed, but the target y is None: +1 for similar pairs, -1 for others"
        )
    labels = column_or_1d(y, warn=True)
    check_consistent_length(tuples, labels)
    similar: NDArray[np.bool_] = labels == 1
    wrong = ~(similar | (labels == -1))
    if wrong.any():
        raise InvalidConstraints(
            "When training on pairs, the labels (y) should contain only values in [-1, 1]. "
            f"Found {labels[wrong][0]!r}: use +1 for similar and -1 for dissimilar pairs"
        )
    return similar


def read_weights(weights: ArrayLike, tuples: Tuples) -> NDArray[np.float64]:
    """One weight a tuple, 0 or more, some above 0."""
    try:
        array = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidConstraints(f"sample_weight is not an array of numbers: {error}") from error
    if array.shape != (len(tuples),):
        raise InvalidConstraints(f"sample_weight has shape {array.shape}; expected one a tuple: ({len(tuples)},)")
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        raise InvalidConstraints(f"sample_weight holds {array[wrong][0]}; expected finite numbers of 0 or more")
    if not array.any():
        raise InvalidConstraints("sample_weight is 0 everywhere; expected some above 0")
    return array


def chosen_tuples(indices: Indices, chosen: NDArray[np.bool_]) -> Indices:
    """Some of the tuples, in four bytes an index if that will do: there may be many."""
    places = np.flatnonzero(chosen)
    shorten = indices.dtype.kind in "iu" and indices.min() >= 0 and indices.max() <= _SHORT
    out = np.empty((len(places), indices.shape[1]), np.int32 if shorten else indices.dtype)
    for start in range(0, len(places), _COPY_ROWS):
        out[start : start + _COPY_ROWS] = indices[places[start : start + _COPY_ROWS]]
    return out


def check_preprocessor(preprocessor: Any) -> None:
    """Raise unless it is None, something like an array, Points or a callable."""
    known = preprocessor is None or callable(preprocessor) or _is_array_like(preprocessor)
    if not known or isinstance(preprocessor, str | bytes | dict | type):
        raise InvalidInput(
            f"Invalid type for the preprocessor: {type(preprocessor)}. Expected None, an array of points, nf.Points, "
            "or a callable that gives the points of some ids"
        )


def as_points_or_array(X: Any) -> Any:
    """Points as they are; of anything else an array, not copied if it is one."""
    if isinstance(X, Points):
        return X
    array = X if isinstance(X, np.ndarray) else np.asarray(X)
    as_points(array)  # says what is wrong with its shape or type
    return array


def float_type(X: Any) -> np.dtype[Any]:
    """The float type to answer in: the input's own, float64 for whole numbers, float32 for Points."""
    if isinstance(X, Points):
        return np.dtype(np.float32)
    return np.dtype(np.float32 if X.dtype in (np.float16, np.float32) else np.float64)


def _is_array_like(X: Any) -> bool:
    return isinstance(X, Points) or any(hasattr(X, name) for name in ("__len__", "shape", "__array__"))


def _array(tuples: Any, learner: str) -> NDArray[Any]:
    if sp.issparse(tuples):
        raise InvalidConstraints(f"tuples of {learner} are sparse; give indices, and the sparse points as preprocessor")
    try:
        return np.asarray(tuples)
    except ValueError as error:
        raise InvalidConstraints(f"tuples of {learner} have unequal lengths; expected an array") from error


def _check_dimensions(array: NDArray[Any], preprocessor: Any, learner: str) -> None:
    if array.ndim == 3 or (array.ndim == 2 and preprocessor is not None):
        return
    if preprocessor is not None:
        expected = "2D array of indicators or 3D array of formed tuples"
        where, remedy = " when using a preprocessor", "Reshape your data."
    else:
        expected, where = "3D array of formed tuples", ""
        remedy = "Reshape your data and/or use a preprocessor." if array.ndim == 2 else "Reshape your data."
    raise InvalidConstraints(
        f"{expected} expected by {learner}{where}. Found {array.ndim}D array instead (shape={array.shape}). {remedy}"
    )


def _numeric(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidPoints(f"formed tuples hold what is not a number: {error}") from error
    if array.dtype.kind not in "fiub":
        raise InvalidPoints(f"formed tuples have type {array.dtype}; expected real numbers")
    return array


def _as_indices(ids: NDArray[Any]) -> Indices:
    if ids.dtype.kind in "iu":
        return ids
    problem: Exception | None = None
    if ids.dtype.kind in "fO":
        try:
            with np.errstate(invalid="ignore"):  # of NaN, which is no index
                whole = ids.astype(np.int64)
            if (whole == ids).all():
                return whole
        except (TypeError, ValueError, OverflowError) as error:
            problem = error
    raise InvalidConstraints(
        f"ids have type {ids.dtype}, and are not all whole numbers; the preprocessor is an array of points, "
        "so they must be the indices of its rows: for ids of your own, use nf.NamedPoints(points, ids)"
    ) from problem


def _called(preprocessor: Callable[[NDArray[Any]], Any], ids: NDArray[Any]) -> Any:
    """The points of these distinct ids, asked for in blocks, from this thread."""
    blocks: list[Any] = []
    for start in range(0, len(ids), _CALL_IDS):
        asked = ids[start : start + _CALL_IDS]
        try:
            block = preprocessor(asked)
        except Exception as error:
            raise InvalidInput(f"An error occurred when trying to use the preprocessor: {error!r}") from error
        block = block if sp.issparse(block) else np.asarray(block)
        if block.ndim != 2 or block.shape[0] != len(asked):
            raise InvalidPoints(
                "2D array of formed points expected after the preprocessor has been applied. "
                f"Found {block.ndim}D array instead (shape={block.shape}): "
                f"the preprocessor was asked for {len(asked)} points, one row each"
            )
        if blocks and block.shape[1] != blocks[0].shape[1]:
            raise InvalidPoints(
                f"the preprocessor gave points of {blocks[0].shape[1]} features, then of {block.shape[1]}; "
                "expected as many each time"
            )
        blocks.append(block)
    if sp.issparse(blocks[0]):
        return sp.vstack(blocks, format="csr")
    return as_points_or_array(_numeric(blocks[0] if len(blocks) == 1 else np.concatenate(blocks)))


def _index_type(count: int) -> Any:
    return np.int32 if count <= _SHORT else np.int64
