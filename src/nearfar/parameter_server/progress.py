"""Progress: what was done, counted as pushes are applied, and the reports made of it."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from nearfar.objective.judging import Judgement
from nearfar.parameter_server.messages import Applied

_EXACT_BINS, _BINS = 16, 32
"""Staleness is counted one by one up to 15, then by doubling up to half a million and beyond."""


@dataclass(frozen=True)
class Report:
    """How far training is: one line of history.jsonl."""

    step: int
    seconds: float
    pairs: int
    points: int
    objective: float
    ap: float | None
    pairs_per_second: float
    staleness_mean: float
    staleness_max: int
    queue_depth: float
    bytes: int
    workers: list[dict[str, Any]]
    used: float
    """The share of the budget that is used; 0 without one."""
    pulled_bytes: int = 0
    """Bytes of L that travelled to workers in other processes."""
    forms: dict[str, int] = field(default_factory=dict)
    """How many pushes travelled in which form."""
    lost: int = 0
    """Pushes that a server had taken, and that were lost with it; no part of ``step``."""
    staleness_counts: list[int] = field(default_factory=list)
    """How many pushes since the last report had each staleness, by :func:`staleness_bin`; trailing zeros left out."""
    judged: bool = True
    """Whether the objective is that of held-out constraints; else it is that of the batches since the last report."""

    @property
    def has_objective(self) -> bool:
        """Whether there is an objective: not where nothing is held out and no batch came since the last report."""
        return self.judged or bool(self.staleness_counts)

    @property
    def objective_name(self) -> str:
        """What the objective is of."""
        return "held-out objective" if self.judged else "objective of the last batches"

    @property
    def objective_text(self) -> str:
        """The objective as one reads it; a dash where there is none yet."""
        return f"{self.objective:.4f}" if self.has_objective else "–"

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def staleness_bin(staleness: int) -> int:
    """The place of a staleness in :attr:`Report.staleness_counts`: itself up to 15, then one place each doubling."""
    return min(staleness if staleness < _EXACT_BINS else _EXACT_BINS - 5 + staleness.bit_length(), _BINS - 1)


def staleness_of_bin(place: int) -> tuple[int, int | None]:
    """The smallest and the largest staleness that are counted at a place; the last place has no largest."""
    if place < _EXACT_BINS:
        return place, place
    lowest: int = 2 ** (place - _EXACT_BINS + 4)
    return lowest, None if place == _BINS - 1 else 2 * lowest - 1


@dataclass
class _Since:
    """Sums over the pushes since the last report."""

    seconds: float
    pushes: int = 0
    pairs: int = 0
    objective: float = 0.0
    staleness: int = 0
    staleness_max: int = 0
    waiting: int = 0
    steps: dict[int, int] = field(default_factory=dict)
    staleness_counts: list[int] = field(default_factory=lambda: [0] * _BINS)


class Progress:
    """Counts what is applied; makes reports. Its :attr:`state` goes into checkpoints."""

    def __init__(self) -> None:
        self.pairs = self.points = self.bytes = 0
        self.pulled_bytes = self.lost = 0
        self.forms: dict[str, int] = {}
        """How many pushes travelled in which form."""
        self.positions: dict[int, int] = {}
        """For each shard, the clock of the first batch that is not applied."""
        self._steps: dict[int, int] = {}
        self._since = _Since(0.0)

    def record(self, applied: Iterable[Applied]) -> None:
        """Count pushes that a server has applied."""
        since = self._since
        for one in applied:
            push = one.push
            self.pairs += push.n_pairs
            self.points += push.n_points
            self.bytes += push.nbytes
            self.forms[push.form] = self.forms.get(push.form, 0) + 1
            self.positions[push.shard] = max(self.positions.get(push.shard, 0), push.shard_clock + 1)
            self._steps[push.worker] = self._steps.get(push.worker, 0) + 1
            since.pushes += 1
            since.pairs += push.n_pairs
            since.objective += push.objective
            since.staleness += one.staleness
            since.staleness_max = max(since.staleness_max, one.staleness)
            since.staleness_counts[staleness_bin(one.staleness)] += 1
            since.waiting += one.waiting
            since.steps[push.worker] = since.steps.get(push.worker, 0) + 1

    def report(self, step: int, seconds: float, used: float, judgement: Judgement | None) -> Report:
        """Make a report, and begin counting for the next. Without a judgement the batches' mean objective stands in."""
        since, self._since = self._since, _Since(seconds)
        count = max(1, since.pushes)
        elapsed = max(1e-9, seconds - since.seconds)
        ap = None if judgement is None or math.isnan(judgement.ap) else judgement.ap
        return Report(
            step=step,
            seconds=round(seconds, 3),
            pairs=self.pairs,
            points=self.points,
            objective=since.objective / count if judgement is None else judgement.objective,
            ap=ap,
            pairs_per_second=round(since.pairs / elapsed, 1),
            staleness_mean=round(since.staleness / count, 3),
            staleness_max=since.staleness_max,
            queue_depth=round(since.waiting / count, 3),
            bytes=self.bytes,
            pulled_bytes=self.pulled_bytes,
            forms=dict(self.forms),
            lost=self.lost,
            workers=[
                {"worker": worker, "steps": steps, "steps_per_second": round(since.steps.get(worker, 0) / elapsed, 2)}
                for worker, steps in sorted(self._steps.items())
            ],
            used=round(used, 4),
            staleness_counts=_without_trailing_zeros(since.staleness_counts),
            judged=judgement is not None,
        )

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "pairs": self.pairs,
            "points": self.points,
            "bytes": self.bytes,
            "pulled_bytes": self.pulled_bytes,
            "forms": self.forms,
            "lost": self.lost,
            "positions": sorted(self.positions.items()),
            "steps": sorted(self._steps.items()),
            "since": {**asdict(self._since), "steps": sorted(self._since.steps.items())},
        }

    def restore(self, state: dict[str, Any], seconds: float) -> None:
        """Go on from a checkpoint."""
        self.pairs, self.points, self.bytes = state["pairs"], state["points"], state["bytes"]
        self.pulled_bytes, self.lost = state.get("pulled_bytes", 0), state.get("lost", 0)
        self.forms = dict(state.get("forms", {}))
        self.positions = dict(state["positions"])
        self._steps = dict(state["steps"])
        self._since = _Since(seconds)
        if "since" in state:
            self._since = _Since(**{**state["since"], "steps": dict(state["since"]["steps"])})


def _without_trailing_zeros(counts: list[int]) -> list[int]:
    last = max((place for place, count in enumerate(counts) if count), default=-1)
    return counts[: last + 1]
