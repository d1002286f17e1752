"""Learning from class labels."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from nearfar.data.constraints import Groups, Labels
from nearfar.data.points import as_points
from nearfar.errors import InvalidConstraints
from nearfar.learners.arguments import documented
from nearfar.learners.base import Learner
from nearfar.parameter_server.progress import Report

_SETS = (set, frozenset, list, tuple)
"""What the groups of one point may come in."""


@documented
class LabelLearner(Learner):
    """Learns a distance from labelled points: those with equal labels are similar, the others dissimilar.

    Parameters
    ----------
    {parameters}
    unlabelled : label, optional
        Points with this label are used for nothing; by default all points are labelled.

    Attributes
    ----------
    {attributes}
    """

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
        precision: str = "mixed",
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
        unlabelled: Any = None,
    ) -> None:
        super().__init__(
            preprocessor=preprocessor,
            n_components=n_components,
            lift=lift,
            lift_dim=lift_dim,
            lift_width=lift_width,
            loss=loss,
            margin=margin,
            dissimilar_weight=dissimilar_weight,
            start=start,
            scale_features=scale_features,
            centre=centre,
            batch_size=batch_size,
            block_size=block_size,
            per_class=per_class,
            precision=precision,
            update_rule=update_rule,
            step_size=step_size,
            schedule=schedule,
            staleness_scaling=staleness_scaling,
            engine=engine,
            n_workers=n_workers,
            threads_per_worker=threads_per_worker,
            consistency=consistency,
            queue_capacity=queue_capacity,
            memory=memory,
            steps=steps,
            epochs=epochs,
            minutes=minutes,
            patience=patience,
            random_state=random_state,
            held_out=held_out,
            held_out_apart=held_out_apart,
            report_every=report_every,
            warm_start=warm_start,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.unlabelled = unlabelled

    def fit(self, X: Any, y: ArrayLike) -> "LabelLearner":
        """Learn the distance.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d), or nf.Points
            With a preprocessor also ids of points, of shape (n,).
        y : array of shape (n,), or array or sparse matrix of shape (n, n_groups), or a sequence of sets
            The class of each point; or which groups it belongs to, which may overlap: points are then similar if they
            share a group, and dissimilar if they do not.
        """
        return self._fit(X, y, partial=False)

    def partial_fit(self, X: Any, y: ArrayLike) -> "LabelLearner":
        """Go on learning from a further batch of labelled points, by a few steps. See :meth:`fit`."""
        return self._fit(X, y, partial=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _fit(self, X: Any, y: ArrayLike, *, partial: bool) -> "LabelLearner":
        if y is None:
            raise InvalidConstraints(
                f"{type(self).__name__} requires y to be passed, but the target y is None: give a label for each point"
            )
        points, kind = self._read_points(X, reset=not self._goes_on(partial))
        groups = _groups(y)
        if groups is not None:
            self._learn(points, groups, kind, partial=partial)
            return self
        points, labels = labelled_points(points, y, self.unlabelled, type(self).__name__)
        self._learn(points, Labels(labels), kind, partial=partial)
        return self


def labelled_points(points: Any, y: ArrayLike, unlabelled: Any, learner: str) -> tuple[Any, NDArray[Any]]:
    """The points that have a label, not copied, and their labels; what is wrong with those is said here.

    Parameters
    ----------
    points : array, sparse matrix or Points
    y : array of shape (n,)
    unlabelled : label, optional
        The label of points without one; None if all have one.
    learner : str
        Who asks, for the errors.
    """
    labels = column_or_1d(y, warn=True)
    check_consistent_length(points if hasattr(points, "shape") else range(len(points)), labels)
    if len(labels) < 2:
        raise InvalidConstraints(
            f"Found array with {len(labels)} sample(s) while a minimum of 2 is required by {learner}."
        )
    labelled = _labelled(labels, unlabelled)
    if labelled is not None:
        if not len(labelled):
            raise InvalidConstraints(f"all points have the label {unlabelled!r} of those without one")
        points, labels = as_points(points).chosen(labelled), labels[labelled]
    check_array(labels, ensure_2d=False, dtype=None, input_name="y")
    check_classification_targets(labels)
    return points, labels


def _labelled(labels: NDArray[Any], unlabelled: Any) -> NDArray[np.intp] | None:
    """Where the points with a label are; None if that is everywhere."""
    if unlabelled is None:
        return None
    if isinstance(unlabelled, float) and math.isnan(unlabelled):
        return np.flatnonzero([label == label for label in labels])  # noqa: PLR0124 - only NaN differs from itself
    return np.flatnonzero(labels != unlabelled)


def _groups(y: Any) -> Groups | None:
    """Overlapping groups, if that is what ``y`` says: a matrix of several columns, or a set of groups a point."""
    if sp.issparse(y):
        return Groups(y)
    try:
        array = np.asarray(y)
    except ValueError:  # lists of unequal length
        return _of_sets(y)
    if array.ndim == 1 and array.dtype.kind == "O" and any(isinstance(groups, _SETS) for groups in array):
        return _of_sets(array)
    return Groups(array) if array.ndim == 2 and array.shape[1] > 1 else None


def _of_sets(groups: Any) -> Groups:
    for point, of_point in enumerate(groups):
        if not isinstance(of_point, _SETS):
            raise InvalidConstraints(f"y is {of_point!r} for point {point}; expected a set of groups, as for others")
    return Groups(MultiLabelBinarizer(sparse_output=True).fit_transform(groups))
