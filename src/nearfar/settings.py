"""What can be set: declared, validated and explained once; the command line, run.toml and the learners follow."""

import math
import numbers
import tomllib
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

from nearfar.errors import InvalidFile, InvalidSettings
from nearfar.sizes import memory_bytes

LossName = Literal["auto", "hinge", "logistic", "comparison", "neighbour"]
StartName = Literal["random", "identity", "pca"]
LiftName = Literal["none", "rbf"]
PrecisionName = Literal["mixed", "float32"]
RuleName = Literal["sgd", "momentum", "adagrad", "adam"]
ScheduleName = Literal["auto", "constant", "inverse-root", "cosine", "cosine-root", "plateau"]
EngineName = Literal["auto", "serial", "threads", "ray", "simulated"]

BUDGET = ("steps", "epochs", "minutes", "patience")
"""The settings that say when to stop; they may change when a run is resumed."""


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TrainingSettings:
    """Everything that decides how a metric is learned. Every default is meant to be left alone."""

    rank: int | None = _setting(None, "rows of L; by default the number of features, at most 256, or 128 with a lift")
    compact: bool = _setting(
        False, "after training, drop the directions of L that the held-out objective can do without"
    )
    loss: LossName = _setting(
        "auto",
        "auto is logistic for pairs and labels, comparison for triplets and quadruplets; the paper's is hinge",
    )
    margin: float | None = _setting(
        None,
        "c: the squared distance that dissimilar pairs are to keep; by default 1, and 5 for the logistic loss",
    )
    dissimilar_weight: float = _setting(1.0, "λ: the weight of dissimilar pairs against similar ones")
    start: StartName = _setting("random", "the starting L")
    scale_features: bool = _setting(
        True,
        "divide each feature by the typical size of its differences while learning; folded into L afterwards",
    )
    centre: bool = _setting(False, "let the metric's transform subtract the mean point; distances stay the same")

    lift: LiftName = _setting(
        "none", "a fixed non-linear map before L; rbf is random Fourier features of a Gaussian kernel"
    )
    lift_dim: int = _setting(4096, "features that a lift makes of a point")
    lift_width: float | None = _setting(
        None,
        "width of the lift's kernel, in units of the scaled features; by default from the distances between points",
    )

    batch_size: int = _setting(1000, "constraints a step, half of them similar and half dissimilar")
    block_size: int | None = _setting(
        None,
        "points a step when learning from labels, all pairs among them used; by default 1000, neighbour loss 2000; "
        "without a budget in steps, fewer in the first 48",
    )
    per_class: int | None = _setting(
        None, "points of one class in a block; by default so that a block has many classes"
    )

    precision: PrecisionName = _setting(
        "mixed",
        "mixed: sparse batches that use their columns often are multiplied with numbers rounded to bfloat16; sums, L, "
        "updates and evaluations are float32 in any case",
    )
    update_rule: RuleName = _setting("adam", "how the server applies a gradient")
    step_size: float | None = _setting(
        None,
        "step size; by default a share of the typical entry of a starting L",
    )
    schedule: ScheduleName = _setting(
        "auto",
        "how the step size falls; auto is cosine-root over a budget; without one plateau: by 4 when patience ends",
    )
    staleness_scaling: bool = _setting(False, "divide a gradient's step size by 1 + its staleness")

    engine: EngineName = _setting(
        "auto",
        "serial for one worker with one thread, threads otherwise; ray: a cluster; simulated: on a virtual clock",
    )
    workers: int = _setting(1, "number of workers")
    threads_per_worker: int = _setting(1, "computing threads that share one worker's copy of L")
    consistency: str = _setting("asp", "asp: no worker ever waits; bsp: all go in step; ssp:S: at most S steps ahead")
    queue_capacity: int = _setting(8, "pushes that may wait at the server for each worker")
    memory: str | None = _setting(None, "most memory to allocate, as in 8GB; too little is refused before work starts")

    steps: int | None = _setting(None, "stop after this many steps, counted over all workers")
    epochs: float | None = _setting(
        None, "stop after this many passes over the constraints, or over the labelled points"
    )
    minutes: float | None = _setting(None, "stop after this many minutes")
    patience: int | None = _setting(
        None,
        "stop after this many reports without a better held-out objective; with no budget 4 by default, 2 with a lift",
    )

    seed: int = _setting(0, "seed of every random choice")
    held_out: int = _setting(
        2000, "most points (or constraints, without labels) kept apart to judge progress; 0 for none"
    )
    held_out_apart: bool = _setting(
        False,
        "let no training constraint touch a point of a held-out one, at the cost of some; with labels none ever does",
    )
    report_every: int | None = _setting(
        None, "steps between reports; by default so that judging costs 1/30 of the work, or less in a long run"
    )
    checkpoint_every: float = _setting(
        10.0, "seconds between checkpoints; of a large L, a hundred times what writing one takes"
    )
    keep_checkpoints: int = _setting(3, "newest checkpoints kept")

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for setting in fields(self):
            object.__setattr__(
                self, setting.name, _checked(setting.name, getattr(self, setting.name), hints[setting.name])
            )
        slack(self.consistency)
        if self.memory is not None:
            memory_bytes(self.memory)
        if self.engine == "ray" and self.threads_per_worker > 1:
            raise InvalidSettings("engine ray has one computing thread a worker; for more, ask for more workers")
        if self.engine == "serial" and self.workers * self.threads_per_worker > 1:
            raise InvalidSettings("engine serial has one worker with one thread; for more, use engine threads")

    @property
    def chosen_engine(self) -> EngineName:
        """The engine, with auto decided."""
        if self.engine != "auto":
            return self.engine
        return "serial" if self.workers * self.threads_per_worker == 1 else "threads"

    @property
    def has_budget(self) -> bool:
        """Whether training is told when to end, other than by patience."""
        return any(getattr(self, name) is not None for name in ("steps", "epochs", "minutes"))

    def differences(self, other: "TrainingSettings", *, ignore: tuple[str, ...] = ()) -> list[str]:
        """The settings that differ, one phrase each: ``rank: 64 here, 32 there``."""
        return [
            f"{name}: {getattr(self, name)} now, {getattr(other, name)} before"
            for name in (setting.name for setting in fields(self))
            if name not in ignore and getattr(self, name) != getattr(other, name)
        ]

    def to_toml(self) -> str:
        """One line a setting, with its explanation above; a setting without a value is a comment."""
        lines = []
        for setting in fields(self):
            value = getattr(self, setting.name)
            lines.append(f"# {setting.metadata['help']}")
            lines.append(f"# {setting.name} =" if value is None else f"{setting.name} = {_toml_value(value)}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str, source: str) -> "TrainingSettings":
        """The settings in a TOML text; ``source`` names it in errors."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidFile(f"{source} is not valid TOML: {error}") from error
        unknown = values.keys() - {setting.name for setting in fields(cls)}
        if unknown:
            raise InvalidSettings(f"{source} has the unknown setting {min(unknown)}")
        return cls(**values)


_POSITIVE = {
    "rank", "margin", "dissimilar_weight", "lift_dim", "lift_width", "batch_size", "block_size", "per_class",
    "step_size", "workers", "threads_per_worker", "queue_capacity", "steps", "epochs", "minutes", "patience",
    "report_every", "checkpoint_every", "keep_checkpoints",
}  # fmt: skip
_AT_LEAST = {"seed": 0, "held_out": 0, "batch_size": 2, "block_size": 4, "per_class": 2}
_AT_MOST = {"seed": 2**62}  # compiled draws count in 64 bits


def slack(consistency: str) -> float:
    """How many steps a worker may be ahead of the slowest: 0 for bsp, S for ssp:S, infinite for asp."""
    if consistency == "asp":
        return float("inf")
    if consistency == "bsp":
        return 0
    name, _, number = consistency.partition(":")
    if name == "ssp" and number.isdecimal():
        return int(number)
    raise InvalidSettings(
        f"consistency is {consistency!r}; expected asp, bsp or ssp:S with a whole number S, as in ssp:3"
    )


def _checked(name: str, value: Any, hint: Any) -> Any:
    """The value in its declared type, or an error that says what was expected."""
    options = get_args(hint)
    if value is None and type(None) in options:
        return None
    kinds = [kind for kind in (options or (hint,)) if kind is not type(None)]
    if all(isinstance(kind, str) for kind in kinds):
        if value not in kinds:
            raise InvalidSettings(f"{name} is {value!r}; expected one of {', '.join(kinds)}")
        return value
    kind = kinds[0]
    if kind is bool or kind is str:
        if not isinstance(value, kind):
            raise InvalidSettings(f"{name} is {value!r}; expected {'true or false' if kind is bool else 'text'}")
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidSettings(f"{name} is {value!r}; expected a {'whole ' if kind is int else ''}number")
    try:
        number = kind(value)
    except (OverflowError, ValueError):  # infinite, NaN or too large
        number = math.nan
    if number != value or (kind is float and math.isinf(number)):
        raise InvalidSettings(f"{name} is {value!r}; expected a {'whole' if kind is int else 'finite'} number")
    if name in _POSITIVE and number <= 0:
        raise InvalidSettings(f"{name} is {value}; expected more than 0")
    if number < _AT_LEAST.get(name, number):
        raise InvalidSettings(f"{name} is {value}; expected at least {_AT_LEAST[name]}")
    if number > _AT_MOST.get(name, number):
        raise InvalidSettings(f"{name} is {value}; expected at most {_AT_MOST[name]}")
    return number


def _toml_value(value: bool | float | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)
