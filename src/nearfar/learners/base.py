"""What all learners share: their arguments, and the training."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from nearfar.data.constraints import Constraints
from nearfar.errors import InvalidSettings
from nearfar.learners.arguments import ARGUMENTS, LEFT_OUT, named_as_given
from nearfar.learners.callbacks import ProgressBar
from nearfar.learners.estimator import MetricEstimator
from nearfar.model.training import train
from nearfar.parameter_server.progress import Report
from nearfar.settings import BUDGET, TrainingSettings

_PARTIAL_STEPS = 10
"""The fewest steps a call of ``partial_fit`` takes."""


class Learner(MetricEstimator):
    """The base of all learners; see those."""

    _shared = ("preprocessor", "callbacks")
    history_: list[Report]
    n_iter_: int

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
        self.precision = precision
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
        with named_as_given():
            return TrainingSettings(**given, compact=compact, seed=self._seed())

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
            stack.enter_context(named_as_given())
            result = train(points, constraints, settings, start=start, on_report=watching)
        self.metric_ = result.metric
        self.components_ = np.array(result.metric.components, kind, order="C")
        self.history_ = result.history
        self.n_iter_ = steps_before + result.history[-1].step


def _partial(settings: TrainingSettings, n_constraints: int, steps_before: int) -> TrainingSettings:
    """The settings of one call of ``partial_fit``: a few steps on all that is given, drawn anew each time."""
    steps = max(_PARTIAL_STEPS, -(-n_constraints // settings.batch_size))
    budget: dict[str, Any] = {**dict.fromkeys(BUDGET), "steps": steps}
    return replace(settings, held_out=0, compact=False, seed=settings.seed + steps_before, **budget)
