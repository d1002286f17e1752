"""What the parts of a study find, as frozen values that go to JSON and back."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from nearfar.engine.simulated.cluster import Costs
from nearfar.experiments.simulation import Moment, seconds_to


@dataclass(frozen=True)
class MethodResult:
    """One method: what it learned, how long it took, and how well it does on the test pairs."""

    name: str
    how: str
    """What it learns from, and its settings, in words."""
    ap: float
    interval: tuple[float, float] | None
    """Of the average precision, 95 %."""
    seconds: float
    curve: tuple[tuple[float, float], ...]
    """(seconds, average precision) on the way."""
    curve_on: str
    """The pairs that the curve is judged on."""
    recall: tuple[float, ...]
    precision: tuple[float, ...]
    cut: str | None
    """What was left undone when the time was up."""
    load: float | None
    """The machine's load average when it began, without the method itself; None where there is none to be had."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "MethodResult":
        """What :meth:`to_json` gave."""
        own = dict(value)
        own["curve"] = tuple((float(seconds), float(ap)) for seconds, ap in own["curve"])
        own |= {name: tuple(map(float, own[name])) for name in ("recall", "precision")}
        if own["interval"] is not None:
            low, high = own["interval"]
            own["interval"] = (float(low), float(high))
        return cls(**own)


@dataclass(frozen=True)
class Course:
    """One training with some workers: its held-out objective on the way."""

    workers: int
    consistency: str
    curve: tuple[Moment, ...]
    bottleneck: str = ""
    """What was busiest, where that is known."""

    def seconds_to(self, goal: float) -> float:
        """Seconds until the objective falls to the goal; or ∞."""
        return seconds_to(self.curve, goal)

    @property
    def steps_per_second(self) -> float:
        """Of all workers together."""
        last = self.curve[-1]
        return last.step / last.seconds if last.seconds else math.inf

    @property
    def staleness(self) -> float:
        """Of the gradients, in the mean over the reports."""
        told = [moment.staleness for moment in self.curve[1:] or self.curve]
        return sum(told) / len(told)


@dataclass(frozen=True)
class Courses:
    """Trainings that are compared: on one machine, or on one simulated cluster."""

    goal: float
    """The held-out objective to reach."""
    courses: tuple[Course, ...]
    cluster: dict[str, str]
    """What they ran on, in words; what was declared and not real, if anything was."""
    load: float | None
    step_size: float
    """The step size that all of them began with."""
    costs: Costs | None = None
    """What a step cost, where that was declared."""
    alone_seconds: float | None = None
    """What one worker takes to the goal with larger steps, best for one on MNIST; None if not tried, or never there."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Courses":
        """What :meth:`to_json` gave."""
        own = dict(value)
        own["courses"] = tuple(
            Course(**{**course, "curve": tuple(Moment(**moment) for moment in course["curve"])})
            for course in own["courses"]
        )
        own["costs"] = None if own["costs"] is None else Costs(**own["costs"])
        return cls(**own)


Result = MethodResult | Courses


def speed_up(first: Course, own: Course, goal: float) -> float:
    """How much sooner than the first a course reaches the goal: the paper's t₁/tₙ; 0 if either never does."""
    before, after = first.seconds_to(goal), own.seconds_to(goal)
    return 0.0 if math.isinf(before) or math.isinf(after) else before / max(after, 1e-9)
