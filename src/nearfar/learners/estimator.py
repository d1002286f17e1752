"""What any estimator of a metric can do once it has one, and how it reads points and tuples."""

import copy
import numbers
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from nearfar.data.points import Floats, Points
from nearfar.errors import InvalidPoints
from nearfar.learners.distance_function import DistanceFunction
from nearfar.learners.named_points import NamedPoints
from nearfar.learners.tuples import Tuples, check_preprocessor, chosen_points, float_type, read_tuples
from nearfar.model.distance import places
from nearfar.model.metric import Metric


class MetricEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """The base of all that learns a metric; a class of its own says how, in ``fit``."""

    _tuple_size: int | None = None
    """How many points a tuple has, for those that learn from tuples."""
    _shared: tuple[str, ...] = ("preprocessor",)
    """The arguments that a clone shares: points may be larger than memory, and a callback is to be called itself."""
    preprocessor: Any
    random_state: Any = 0  # of those that draw nothing
    metric_: Metric
    components_: NDArray[Any]
    n_features_in_: int

    def __sklearn_clone__(self) -> "MetricEstimator":
        bare = copy.copy(self)
        for name in self._shared:
            setattr(bare, name, None)
        cloned: MetricEstimator = super(MetricEstimator, bare).__sklearn_clone__()
        for name in self._shared:
            setattr(cloned, name, getattr(self, name))
        return cloned

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        of_tuples = self._tuple_size is not None
        tags.input_tags.sparse = not of_tuples  # sparse points of tuples stand in the preprocessor
        tags.input_tags.three_d_array = of_tuples
        tags.input_tags.two_d_array = not of_tuples or self.preprocessor is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def transform(self, X: Any) -> NDArray[Any]:
        """The points where the learned distance is Euclidean: ``X @ components_.T``, in X's own float type.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), or nf.Points
            With a preprocessor also ids of points, of shape (n,).

        Returns
        -------
        array of shape (n, n_components)
        """
        check_is_fitted(self)
        X, kind = self._read_points(X, reset=False)
        if isinstance(X, Points) or self.metric_.lift is not None:
            return np.asarray(self.metric_.transform(X), kind)
        transposed = self.components_.astype(kind, copy=False).T
        out = np.empty((X.shape[0], transposed.shape[1]), kind)
        for place in places(len(out), 2 * X.shape[1]):
            rows = X[place].astype(kind, copy=False)
            out[place] = rows @ transposed
        if self.metric_.centre is not None:
            out -= self.metric_.centre.astype(kind) @ transposed
        return out

    @available_if(lambda self: self._tuple_size is None)  # type: ignore[untyped-decorator]  # sklearn has no types
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> NDArray[Any]:
        """Learn from points, then transform them; a learner of tuples, which are no points, does not have it."""
        transformed: NDArray[Any] = super().fit_transform(X, y, **fit_params)
        return transformed

    def pair_distance(self, pairs: Any) -> Floats:
        """The learned distance of each pair.

        Parameters
        ----------
        pairs : array of shape (n, 2, d), or ids of shape (n, 2) with a preprocessor

        Returns
        -------
        array of shape (n,)
        """
        check_is_fitted(self)
        known = self._read_tuples(pairs, 2)
        distances: Floats = self.metric_.pair_distances(known.points, known.indices)
        return distances

    def pair_score(self, pairs: Any) -> Floats:
        """The negated distance of each pair: the higher, the more alike. See :meth:`pair_distance`."""
        return -self.pair_distance(pairs)

    def score_pairs(self, pairs: Any) -> Floats:
        """The distance of each pair, under its old name; use :meth:`pair_distance` or :meth:`pair_score`."""
        warnings.warn(
            "score_pairs will be deprecated in release 0.7.0 of the interface it comes from: "
            "use pair_distance for distances or pair_score for scores",
            FutureWarning,
            stacklevel=2,
        )
        return self.pair_distance(pairs)

    def get_metric(self) -> Callable[..., float]:
        """A function of two points (and ``squared=False``) that gives their distance; it knows no learner."""
        check_is_fitted(self)
        return DistanceFunction(self.metric_)

    def get_mahalanobis_matrix(self) -> NDArray[Any]:
        """``M = LᵀL``, a fresh array of shape (d, d)."""
        check_is_fitted(self)
        matrix: NDArray[Any] = self.components_.T @ self.components_
        return matrix

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _seed(self) -> int:
        if isinstance(self.random_state, numbers.Integral):
            check_random_state(self.random_state)  # says what is wrong with a negative one
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _read_points(self, X: Any, *, reset: bool) -> tuple[Any, np.dtype[Any]]:
        """Points as they were given or as the preprocessor has them, and the float type to answer in."""
        check_preprocessor(self.preprocessor)
        if self.preprocessor is not None and not isinstance(X, Points) and not sp.issparse(X) and np.ndim(X) == 1:
            X, kind = chosen_points(np.asarray(X), self.preprocessor)
            self._see_features(X.n_features, reset=reset, of_preprocessor=True)
            return X, kind
        if isinstance(X, Points):
            self._see_features(X.n_features, reset=reset)
        else:
            X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric")
        return X, float_type(X)

    def _read_tuples(self, tuples: Any, size: int, *, reset: bool = False) -> Tuples:
        known = read_tuples(tuples, size, self.preprocessor, type(self).__name__)
        self._see_features(known.n_features, reset=reset, of_preprocessor=known.of_preprocessor)
        return known

    def _see_features(self, n_features: int, *, reset: bool, of_preprocessor: bool = False) -> None:
        if reset:
            self.n_features_in_ = n_features
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            held = self.preprocessor.points if isinstance(self.preprocessor, NamedPoints) else self.preprocessor
            if of_preprocessor and hasattr(held, "columns"):
                validate_data(self, held, skip_check_array=True)
        elif n_features != self.n_features_in_:
            raise InvalidPoints(
                f"X has {n_features} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                "as input."
            )
