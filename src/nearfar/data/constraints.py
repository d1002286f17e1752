"""Constraints: which points are near each other and which are far, as immutable arrays of indices.

:class:`Pairs` says it absolutely (similar, dissimilar), :class:`Comparisons` relatively (this pair is nearer than that
one; a triplet is the case in which both pairs share the anchor), :class:`Labels` and :class:`Groups` say it of all
points at once. The arrays may be memory-mapped: they are checked in blocks and never copied.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nearfar.errors import InvalidConstraints

Indices = NDArray[np.integer[Any]]
Weights = NDArray[np.float32]

_CHECK_ROWS = 1 << 20
_COUNT_ROWS = 4 << 20
_CONTRADICTION_SAMPLE = 4 << 20
_MISSING = {"None", "nan", "NaT", "<NA>"}
"""What missing labels print as, those of pandas among them; a string of this name is a label like any other."""


@dataclass(frozen=True)
class Pairs:
    """Pairs known to be similar, and pairs known to be dissimilar: two arrays of shape (n, 2).

    Weights say how much a pair counts beside others of its kind: twice the weight is as good as the pair twice.
    """

    similar: Indices
    dissimilar: Indices
    similar_weights: Weights | None
    dissimilar_weights: Weights | None

    def __init__(
        self,
        similar: ArrayLike,
        dissimilar: ArrayLike,
        similar_weights: ArrayLike | None = None,
        dissimilar_weights: ArrayLike | None = None,
    ) -> None:
        object.__setattr__(self, "similar", index_array(similar, (2,), "similar pairs"))
        object.__setattr__(self, "dissimilar", index_array(dissimilar, (2,), "dissimilar pairs"))
        object.__setattr__(self, "similar_weights", weights_of(self.similar, similar_weights, "similar pairs"))
        object.__setattr__(
            self, "dissimilar_weights", weights_of(self.dissimilar, dissimilar_weights, "dissimilar pairs")
        )
        if not len(self):
            raise InvalidConstraints("there are no pairs; expected at least one similar or dissimilar pair")

    def __len__(self) -> int:
        return len(self.similar) + len(self.dissimilar)

    def check(self, n_points: int) -> list[str]:
        """Raise if an index has no point; return what is odd but can be trained on, one sentence each."""
        remarks = []
        selfs = 0
        for name, pairs in (("similar pairs", self.similar), ("dissimilar pairs", self.dissimilar)):
            _check_range(pairs, n_points, name)
            selfs += _count_equal(pairs, 0, 1)
        if selfs:
            remarks.append(f"{selfs} pairs join a point with itself: they teach nothing")
        contradictions = self.count_contradictions(n_points)
        if contradictions:
            remarks.append(f"{contradictions} pairs are both similar and dissimilar: they pull against each other")
        return remarks

    def count_contradictions(self, n_points: int) -> int:
        """How many pairs are in both sets, in either order. Beyond 4 million pairs, an estimate from a sample."""
        share = max(1, -(-len(self) // _CONTRADICTION_SAMPLE))
        similar = _sampled_codes(self.similar, n_points, share)
        dissimilar = _sampled_codes(self.dissimilar, n_points, share)
        return share * _count_common(similar, dissimilar)


@dataclass(frozen=True)
class Comparisons:
    """The first pair is nearer than the second: (n, 4), or as triplets (anchor, near, far): (n, 3).

    Weights say how much a comparison counts beside others.
    """

    indices: Indices
    weights: Weights | None

    def __init__(self, indices: ArrayLike, weights: ArrayLike | None = None) -> None:
        object.__setattr__(self, "indices", index_array(indices, (3, 4), "comparisons"))
        object.__setattr__(self, "weights", weights_of(self.indices, weights, "comparisons"))
        if not len(self):
            raise InvalidConstraints("there are no triplets or quadruplets; expected at least one")

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def near(self) -> Indices:
        """The pairs that are to be nearer, (n, 2)."""
        return self.indices[:, :2]

    @property
    def far(self) -> Indices:
        """The pairs that are to be farther, (n, 2)."""
        return self.indices[:, ::2] if self.indices.shape[1] == 3 else self.indices[:, 2:]

    def check(self, n_points: int) -> list[str]:
        """Raise if an index has no point; return what is odd but can be trained on, one sentence each."""
        _check_range(self.indices, n_points, "triplets" if self.indices.shape[1] == 3 else "quadruplets")
        impossible = _count_equal(self.indices, *((0, 2) if self.indices.shape[1] == 3 else (2, 3)))
        return [f"{impossible} comparisons have a far pair of one point with itself"] if impossible else []


@dataclass(frozen=True)
class Classes:
    """The classes of some labels, in order, and how many points each has."""

    names: NDArray[Any]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, labels: NDArray[Any]) -> "Classes":
        """Count in blocks, so that labels may be memory-mapped; memory grows with the classes only."""
        names, counts = np.unique(labels[:_COUNT_ROWS], return_counts=True)
        for start in range(_COUNT_ROWS, len(labels), _COUNT_ROWS):
            more = np.unique(labels[start : start + _COUNT_ROWS], return_counts=True)
            names, places = np.unique(np.concatenate((names, more[0])), return_inverse=True)
            counts = np.bincount(places, np.concatenate((counts, more[1]))).astype(np.int64)
        return cls(names, counts)

    def check(self) -> list[str]:
        """Raise if labels of these classes cannot teach; return what is odd but can be trained on."""
        if len(self.names) < 2:
            raise InvalidConstraints(
                f"all labels are {self.names[0]}; expected at least two classes, else nothing is dissimilar"
            )
        if self.counts.max() < 2:
            raise InvalidConstraints(
                "every class has one point; expected a class of two or more, else nothing is similar"
            )
        lonely = int((self.counts == 1).sum())
        return [f"{lonely} classes have one point each: such a point is only ever the far one"] if lonely else []

    def remarks(self) -> list[str]:
        """What is odd about labels that are kept in any case, since constraints may teach in their place."""
        try:
            return self.check()
        except InvalidConstraints as error:
            return [f"labels alone cannot be trained on: {error}"]


class Labels:
    """One class label a point; two points are similar if their labels are equal."""

    def __init__(self, labels: ArrayLike) -> None:
        array = np.asarray(labels)
        if array.ndim != 1:
            raise InvalidConstraints(f"labels have shape {array.shape}; expected one label a point, shape (n,)")
        if not len(array):
            raise InvalidConstraints("there are no labels; expected one a point")
        if _any_missing(array):
            raise InvalidConstraints("labels hold NaN or infinity; give every point a label, or drop those without")
        if array.dtype.kind == "O":
            array = array.astype(str)
        self.classes, codes = np.unique(array, return_inverse=True)
        self.codes: NDArray[np.int32] = codes.astype(np.int32)
        self.codes.setflags(write=False)

    def __len__(self) -> int:
        return len(self.codes)

    def check(self, n_points: int) -> list[str]:
        """Raise if these labels cannot teach; return what is odd but can be trained on, one sentence each."""
        if len(self) != n_points:
            raise InvalidConstraints(f"there are {len(self)} labels for {n_points} points; expected one a point")
        return Classes(self.classes, np.bincount(self.codes)).check()


class Groups:
    """Groups that points belong to, which may overlap: points are similar if they share one, dissimilar if they do not.

    Parameters
    ----------
    membership : array or sparse matrix of shape (n points, n groups)
        Non-zero where a point belongs to a group. A point in no group is used for nothing.
    """

    def __init__(self, membership: Any) -> None:
        try:
            matrix = sp.csr_matrix(membership, copy=True)
        except (TypeError, ValueError) as error:
            raise InvalidConstraints(
                "groups are not a matrix of numbers; expected one row a point and one column a group, "
                "as scikit-learn's MultiLabelBinarizer makes it"
            ) from error
        if 0 in matrix.shape:
            raise InvalidConstraints(f"groups have shape {matrix.shape}; expected at least one point and one group")
        if not np.isfinite(matrix.data).all():
            raise InvalidConstraints("groups hold NaN or infinity; expected 0 and 1")
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        self.membership: sp.csr_matrix = matrix

    def __len__(self) -> int:
        return int(self.membership.shape[0])

    def check(self, n_points: int) -> list[str]:
        """Raise if these groups cannot teach; return what is odd but can be trained on, one sentence each."""
        if len(self) != n_points:
            raise InvalidConstraints(f"there are groups of {len(self)} points, but {n_points} points")
        if not self.membership.nnz or np.bincount(self.membership.indices).max() < 2:
            raise InvalidConstraints("no group has two points; expected one of two or more, else nothing is similar")
        alone = int((np.diff(self.membership.indptr) == 0).sum())
        return [f"{alone} points are in no group, and used for nothing"] if alone else []


Constraints = Pairs | Comparisons | Labels | Groups


def weights_of(constraints: Indices, weights: ArrayLike | None, name: str) -> Weights | None:
    """One weight a constraint, their mean 1; None where all count the same."""
    if weights is None or not len(constraints):
        return None
    try:
        array = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidConstraints(f"weights of {name} are not numbers: {error}") from error
    if array.shape != (len(constraints),):
        raise InvalidConstraints(f"weights of {name} have shape {array.shape}; expected ({len(constraints)},)")
    if not np.isfinite(array).all() or array.min() < 0:
        wrong = array[~(np.isfinite(array) & (array >= 0))][0]
        raise InvalidConstraints(f"a weight of {name} is {wrong}; expected finite numbers of 0 or more")
    mean = float(array.mean())
    if mean == 0:
        raise InvalidConstraints(f"all weights of {name} are 0; expected some above 0")
    scaled: Weights = (array / mean).astype(np.float32)
    scaled.setflags(write=False)
    return None if (scaled == 1).all() else scaled


def _any_missing(labels: NDArray[Any]) -> bool:
    if labels.dtype.kind == "O":
        return any(not isinstance(label, str) and str(label) in _MISSING for label in labels)
    return labels.dtype.kind in "fcmM" and not bool(np.isfinite(labels).all())


def index_array(values: ArrayLike, widths: tuple[int, ...], name: str) -> Indices:
    """Indices of points, (n, one of ``widths``), not copied if they are whole numbers already, read-only."""
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    expected = " or ".join(f"(n, {width})" for width in widths)
    if array.size == 0:
        array = np.empty((0, widths[0]), np.int64)
    if array.ndim != 2 or array.shape[1] not in widths:
        raise InvalidConstraints(f"{name} have shape {array.shape}; expected {expected} indices of points")
    if array.dtype.kind == "f":
        array = _whole_numbers(array, name)
    if array.dtype.kind not in "iu":
        raise InvalidConstraints(f"{name} have type {array.dtype}; expected whole numbers, the indices of points")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # NumPy makes floats of uint64 and int64 together; an index too large for int64 turns negative, and is refused.
    view = np.asarray(array).view(np.int64 if array.dtype == np.uint64 else array.dtype)
    view.setflags(write=False)
    return view


def _whole_numbers(array: NDArray[Any], name: str) -> Indices:
    if not np.isfinite(array).all():
        raise InvalidConstraints(f"{name} hold NaN or infinity; expected whole numbers, the indices of points")
    with np.errstate(invalid="ignore"):  # of a number too large for an index
        whole = array.astype(np.int64)
    if not (np.floor(array) == array).all():
        raise InvalidConstraints(f"{name} hold fractions; expected whole numbers, the indices of points")
    return whole


def _check_range(indices: Indices, n_points: int, name: str) -> None:
    for start in range(0, len(indices), _CHECK_ROWS):
        block = indices[start : start + _CHECK_ROWS]
        low, high = int(block.min()), int(block.max())
        if low < 0 or high >= n_points:
            wrong = low if low < 0 else high
            raise InvalidConstraints(
                f"{name} have index {wrong}, but there are {n_points} points; indices go from 0 to {n_points - 1}"
            )


def _count_equal(indices: Indices, first: int, second: int) -> int:
    return sum(
        int((block[:, first] == block[:, second]).sum())
        for block in (indices[start : start + _CHECK_ROWS] for start in range(0, len(indices), _CHECK_ROWS))
    )


def _sampled_codes(pairs: Indices, n_points: int, share: int) -> NDArray[np.int64]:
    """One number a pair, the same in either order; of all possible pairs only one in ``share`` is looked at."""
    kept = [np.empty(0, np.int64)]
    for start in range(0, len(pairs), _CHECK_ROWS):
        left, right = pairs[start : start + _CHECK_ROWS].T.astype(np.int64)
        codes = np.minimum(left, right) * n_points + np.maximum(left, right)
        scrambled = codes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        kept.append(codes[scrambled % np.uint64(share) == 0])
    return np.concatenate(kept)


def _count_common(left: NDArray[np.int64], right: NDArray[np.int64]) -> int:
    """How many numbers stand in both, each counted once. By sorting, which NumPy does faster than hashing."""
    if not (len(left) and len(right)):
        return 0
    left, right = np.sort(left), np.sort(right)
    once = left[np.concatenate(([True], left[1:] != left[:-1]))]
    places = np.minimum(np.searchsorted(right, once), len(right) - 1)
    return int((right[places] == once).sum())
