"""Cross-validation of what is learned from tuples: training and test tuples that share no point."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from nearfar.data.apart import points_apart, within
from nearfar.data.constraints import Indices
from nearfar.errors import InvalidConstraints, InvalidSettings


class ApartSplit:
    """Splits tuples so that no point of a test tuple stands in a training tuple; for ``cv=`` of scikit-learn.

    Tuples that share points, directly or over others, stay together where that is possible. Where nearly all hang
    together, points are parted instead, and tuples with points on both sides are in neither part.

    Parameters
    ----------
    n_splits : int
        How often to split, each time anew.
    test_size : float
        About which share of the tuples is for testing.
    random_state : int, RandomState or None
    """

    def __init__(self, n_splits: int = 5, *, test_size: float = 0.2, random_state: Any = None) -> None:
        if isinstance(n_splits, bool) or not isinstance(n_splits, int) or n_splits < 1:
            raise InvalidSettings(f"n_splits is {n_splits!r}; expected a whole number of 1 or more")
        if not 0 < test_size < 1:
            raise InvalidSettings(f"test_size is {test_size}; expected a share between 0 and 1")
        self.n_splits, self.test_size, self.random_state = n_splits, test_size, random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """How often tuples are split."""
        return self.n_splits

    def split(
        self, X: Any, y: ArrayLike | None = None, groups: Any = None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """For each split the numbers of training tuples, and of test tuples.

        Parameters
        ----------
        X : array of shape (n, t, d), or ids of shape (n, t)
        y, groups : ignored
        """
        indices, n_points = _numbered(X)
        rng = check_random_state(self.random_state)
        for _ in range(self.n_splits):
            aside = points_apart([indices], n_points, self.test_size, int(rng.randint(np.iinfo(np.int32).max)))
            training, test = np.flatnonzero(within(indices, ~aside)), np.flatnonzero(within(indices, aside))
            if not (len(training) and len(test)):
                raise InvalidConstraints(
                    f"{len(indices)} tuples cannot be parted so that no point is on both sides; give more of them"
                )
            yield training, test


def _numbered(tuples: Any) -> tuple[Indices, int]:
    """Tuples as numbers of their distinct points, and how many those are."""
    array = np.asarray(tuples)
    if array.ndim == 3:
        flat = np.ascontiguousarray(array).reshape(-1, array.shape[2])
        array = flat.view(np.dtype((np.void, flat.itemsize * flat.shape[1]))).reshape(array.shape[:2])
    if array.ndim != 2:
        raise InvalidConstraints(f"tuples have shape {array.shape}; expected ids (n, t), or points (n, t, d)")
    distinct, places = np.unique(array, return_inverse=True)
    return places.reshape(array.shape), len(distinct)
