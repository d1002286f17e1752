"""What all learners share: their arguments, the training, and the use of what was learned."""

import contextlib
import copy
import numbers
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from nearfar.data.constraints import Constraints
from nearfar.data.points import Floats, Points
from nearfar.errors import InvalidPoints, InvalidSettings
from nearfar.learners.arguments import ARGUMENTS, LEFT_OUT
from nearfar.learners.callbacks import ProgressBar
from nearfar.learners.distance_function import DistanceFunction
from nearfar.learners.named_points import NamedPoints
from nearfar.learners.tuples import Tuples, check_preprocessor, chosen_points, float_type, read_tuples
from nearfar.model.distance import places
from nearfar.model.metric import Metric
from nearfar.model.training import train
from nearfar.parameter_server.progress import Report
from nearfar.settings import BUDGET, TrainingSettings

_SHARED = ("preprocessor", "callbacks")
"""The arguments that a clone shares: points may be larger than memory, and a callback is to be called itself."""
_PARTIAL_STEPS = 10
"""The fewest steps a call of ``partial_fit`` takes."""


class Learner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """The base of all learners; see those."""

    _tuple_size: int | None = None
    """How many points a tuple has, for those that learn from tuples."""
    metric_: Metric
    components_: NDArray[Any]
    history_: list[Report]
    n_iter_: int
    n_features_in_: int

    def __init__(
        self,
        *,
        preprocessor: Any = None,
        n_components: int | str | None = None,
        lift: str = "none",
        lift_dim: int = 4096,
        lift_width: float | None = None,
        loss: str = "auto",
        margin: float | None = None,
        dissimilar_weight: float = 1.0,
        start: str = "random",
        scale_features: bool = True,
        centre: bool = False,
        batch_size: int = 1000,
        block_size: int | None = None,
        per_class: int | None = None,
        update_rule: str = "adam",
        step_size: float | None = None,
        schedule: str = "auto",
        staleness_scaling: bool = False,
        engine: str = "auto",
        n_workers: int = 1,
        threads_per_worker: int = 1,
        consistency: str = "asp",
        queue_capacity: int = 8,
        memory: str | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        minutes: float | None = None,
        patience: int | None = None,
        random_state: Any = None,
        held_out: int = 2000,
        held_out_apart: bool = False,
        report_every: int | None = None,
        warm_start: bool = False,
        verbose: bool = False,
        callbacks: Sequence[Callable[[Report], None]] | None = None,
    ) -> None:
        self.preprocessor = preprocessor
        self.n_components = n_components
        self.lift = lift
        self.lift_dim = lift_dim
        self.lift_width = lift_width
        self.loss = loss
        self.margin = margin
        self.dissimilar_weight = dissimilar_weight
        self.start = start
        self.scale_features = scale_features
        self.centre = centre
        self.batch_size = batch_size
        self.block_size = block_size
        self.per_class = per_class
        self.update_rule = update_rule
        self.step_size = step_size
        self.schedule = schedule
        self.staleness_scaling = staleness_scaling
        self.engine = engine
        self.n_workers = n_workers
        self.threads_per_worker = threads_per_worker
        self.consistency = consistency
        self.queue_capacity = queue_capacity
        self.memory = memory
        self.steps = steps
        self.epochs = epochs
        self.minutes = minutes
        self.patience = patience
        self.random_state = random_state
        self.held_out = held_out
        self.held_out_apart = held_out_apart
        self.report_every = report_every
        self.warm_start = warm_start
        self.verbose = verbose
        self.callbacks = callbacks

    def __sklearn_clone__(self) -> "Learner":
        bare = copy.copy(self)
        for name in _SHARED:
            setattr(bare, name, None)
        cloned: Learner = super(Learner, bare).__sklearn_clone__()
        for name in _SHARED:
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

    def _settings(self) -> TrainingSettings:
        """The arguments as settings of a training."""
        given = {
            setting.name: getattr(self, ARGUMENTS.get(setting.name, setting.name))
            for setting in fields(TrainingSettings)
            if setting.name not in LEFT_OUT and setting.name != "seed"
        }
        compact = isinstance(self.n_components, str) and self.n_components == "auto"
        if compact:
            given["rank"] = None
        elif isinstance(self.n_components, str):
            raise InvalidSettings(f'n_components is {self.n_components!r}; expected a whole number, "auto" or None')
        return TrainingSettings(**given, compact=compact, seed=self._seed())

    def _seed(self) -> int:
        if isinstance(self.random_state, numbers.Integral):
            check_random_state(self.random_state)  # says what is wrong with a negative one
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _goes_on(self, partial: bool) -> bool:
        """Whether the next training starts from what was learned, so on points of the same features."""
        return self.__sklearn_is_fitted__() and (partial or self.warm_start)

    def _learn(self, points: Any, constraints: Constraints, kind: np.dtype[Any], *, partial: bool) -> None:
        """Train, and keep what was learned; a partial fit goes on from there by a few steps."""
        goes_on = self._goes_on(partial)
        settings = self._settings()
        steps_before = self.n_iter_ if goes_on else 0
        if partial:
            settings = _partial(settings, len(constraints), steps_before)
        with contextlib.ExitStack() as stack:
            watching = list(self.callbacks or ())
            if self.verbose:
                watching.append(stack.enter_context(ProgressBar()))
            start = self.metric_ if goes_on else None
            result = train(points, constraints, settings, start=start, on_report=watching)
        self.metric_ = result.metric
        self.components_ = np.array(result.metric.components, kind, order="C")
        self.history_ = result.history
        self.n_iter_ = steps_before + result.history[-1].step

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


def _partial(settings: TrainingSettings, n_constraints: int, steps_before: int) -> TrainingSettings:
    """The settings of one call of ``partial_fit``: a few steps on all that is given, drawn anew each time."""
    steps = max(_PARTIAL_STEPS, -(-n_constraints // settings.batch_size))
    budget: dict[str, Any] = {**dict.fromkeys(BUDGET), "steps": steps}
    return replace(settings, held_out=0, compact=False, seed=settings.seed + steps_before, **budget)
