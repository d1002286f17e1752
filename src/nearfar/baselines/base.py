"""What all baselines share: reading what they are given, and keeping what they found."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from nearfar.baselines.progress import Matrix, Progress
from nearfar.baselines.spectra import check_width
from nearfar.baselines.wide_rows import WideRows
from nearfar.data.constraints import Indices, Pairs
from nearfar.errors import InvalidConstraints
from nearfar.learners.estimator import MetricEstimator
from nearfar.learners.labels import labelled_points
from nearfar.learners.thresholds import check_calibration
from nearfar.learners.tuples import chosen_tuples, read_pair_labels
from nearfar.learners.verifier import PairVerifier
from nearfar.model.metric import Metric, Setting


class Baseline(MetricEstimator):
    """The base of all baselines; see those."""

    _shared = ("preprocessor", "on_progress")
    _matrices: ClassVar[int]
    """How many matrices of d × d are held at once."""
    on_progress: Any
    history_: list[tuple[float, float | None]]

    def _progress(self) -> Progress:
        """A stopwatch that starts now."""
        return Progress(
            self.on_progress, getattr(self, "progress_every", 1.0), max_seconds=getattr(self, "max_seconds", None)
        )

    def _check_width(self) -> None:
        check_width(self.n_features_in_, self._matrices, type(self).__name__)

    def _keep(self, components: Matrix, kind: np.dtype[Any], progress: Progress) -> None:
        """Keep L as what was learned, and as what a closed form has to report."""
        if not progress.history:
            progress.report(None, lambda: components)
        arguments = {name: value for name, value in self.get_params().items() if isinstance(value, Setting)}
        self.metric_ = Metric(components, settings={"method": type(self).__name__, **arguments})
        self.components_ = np.array(components, kind, order="C")
        self.history_ = progress.history


@dataclass(frozen=True)
class GivenPairs:
    """Pairs to learn from, in the order in which they were given."""

    rows: WideRows
    indices: Indices
    """(n, 2)."""
    is_similar: NDArray[np.bool_]

    @property
    def similar(self) -> Indices:
        return chosen_tuples(self.indices, self.is_similar)

    @property
    def dissimilar(self) -> Indices:
        return chosen_tuples(self.indices, ~self.is_similar)

    @property
    def distinct(self) -> Indices:
        """The points that stand in a pair, each once, in ascending order."""
        used = np.zeros(len(self.rows), np.bool_)
        used[self.indices.ravel()] = True
        return np.flatnonzero(used)

    def check_kinds(self, method: str) -> None:
        """Raise unless there are similar and dissimilar pairs."""
        for kind, some in (("similar", self.is_similar.any()), ("dissimilar", not self.is_similar.all())):
            if not some:
                raise InvalidConstraints(
                    f"there are no {kind} pairs; {method} takes both kinds: +1 for similar, -1 for dissimilar ones"
                )

    def check_apart(self, method: str) -> None:
        """Raise if the points of a dissimilar pair are equal: no distance can tell them apart."""
        places = np.flatnonzero(~self.is_similar)
        equal = np.flatnonzero(self.rows.squared_distances(self.indices[places]) == 0)
        if len(equal):
            raise InvalidConstraints(
                f"{len(equal)} dissimilar pairs join equal points, the first is pair {places[equal[0]]}; no distance "
                f"can part them, so {method} has no solution: drop such pairs"
            )


class PairBaseline(Baseline, PairVerifier):
    """A baseline that learns from pairs."""

    def fit(self, pairs: Any, y: ArrayLike, calibration_params: dict[str, Any] | None = None) -> "PairBaseline":
        """Learn the distance, then set the threshold on the same pairs (a million of them, if there are more).

        Parameters
        ----------
        pairs : array of shape (n, 2, d), or ids of shape (n, 2) with a preprocessor
        y : array of shape (n,)
            +1 for similar pairs, -1 for dissimilar ones.
        calibration_params : dict, optional
            Arguments for :meth:`calibrate_threshold`; by default the accuracy is made highest.
        """
        calibration = calibration_params or {}
        check_calibration(**calibration)
        known = self._read_tuples(pairs, 2, reset=True)
        similar = read_pair_labels(y, known.indices)
        given = GivenPairs(WideRows(known.points), known.indices, similar)
        Pairs(given.similar, given.dissimilar).check(len(given.rows))
        self._check_width()
        progress = self._progress()
        self._keep(self._solve(given, progress), known.float_type, progress)
        self._calibrate_on(known, similar, calibration)
        return self

    @abstractmethod
    def _solve(self, given: GivenPairs, progress: Progress) -> Matrix:
        """L, (k, d)."""


@dataclass(frozen=True)
class GivenClasses:
    """Points to learn from, each of a class."""

    rows: WideRows
    classes: NDArray[np.intp]
    """Of each point, counted from 0."""

    @property
    def sizes(self) -> NDArray[np.intp]:
        """How many points each class has."""
        return np.bincount(self.classes)

    def means(self) -> Matrix:
        """The mean of each class, (n_classes, d)."""
        sizes = self.sizes
        totals = np.zeros((len(sizes), self.rows.n_features))
        for place in self.rows.blocks(len(self.rows)):
            chosen = np.arange(place.start, place.stop)
            ones = (np.ones(len(chosen)), (self.classes[place], chosen - place.start))
            totals += sp.csr_matrix(ones, shape=(len(sizes), len(chosen))) @ self.rows.rows(chosen)
        means: Matrix = totals / sizes[:, np.newaxis]
        return means

    def scatter_within(self) -> Matrix:
        """The sum of ``(x − m)(x − m)ᵀ`` over all points x, with m the mean of x's class, (d, d)."""
        means = self.means()
        total = np.zeros((self.rows.n_features, self.rows.n_features))
        for place in self.rows.blocks(len(self.rows)):
            centred = self.rows.rows(np.arange(place.start, place.stop)) - means[self.classes[place]]
            total += centred.T @ centred
        return total


class LabelBaseline(Baseline):
    """A baseline that learns from class labels."""

    unlabelled: Any

    def fit(self, X: Any, y: ArrayLike) -> "LabelBaseline":
        """Learn the distance.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), or nf.Points
            With a preprocessor also ids of points, of shape (n,).
        y : array of shape (n,)
            The class of each point.
        """
        if y is None:
            raise InvalidConstraints(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give a label for each point"
            )
        points, kind = self._read_points(X, reset=True)
        points, labels = labelled_points(points, y, self.unlabelled, type(self).__name__)
        self._check_width()
        progress = self._progress()
        classes = np.unique(labels, return_inverse=True)[1]
        self._keep(self._solve(GivenClasses(WideRows(points), classes), progress), kind, progress)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @abstractmethod
    def _solve(self, given: GivenClasses, progress: Progress) -> Matrix:
        """L, (k, d)."""
