"""All that a study found, beside what the paper says."""

from dataclasses import dataclass

from nearfar.experiments.protocol import PAPER, Protocol
from nearfar.experiments.results import Courses, MethodResult
from nearfar.sizes import duration_text, memory_text

PAPER_AP = {"ours, hinge": 0.90, "KISS": 0.73}
PAPER_MINUTES = {"ours, hinge": 30.0, "Xing2002": 1440.0, "ITML": 180.0, "KISS": 2.0}
BASELINES = ("Xing2002", "ITML", "KISS", "KISS, fewer directions", "Euclid")
PAPER_OURS_AP = 0.90
"""Which, the paper says, no other method reaches."""
_BUSY = 0.5
"""Load average beside the work itself from which on times are not to be relied on."""
_CLEARLY = 0.005

COLUMNS = ("method", "AP here", "95 % interval", "AP in the paper", "minutes here", "minutes in the paper", "cut")


@dataclass(frozen=True)
class Found:
    """The results of all parts."""

    protocol: Protocol
    source: str
    n_points: int
    n_features: int
    n_test_points: int
    methods: tuple[MethodResult, ...]
    left_out: dict[str, float]
    """Methods that were not run, and the bytes that their matrices would take."""
    scaling: Courses
    workers: Courses
    consistency: Courses
    straggler: Courses

    @property
    def is_paper_size(self) -> bool:
        """Whether the points, pairs and settings are the paper's."""
        return self.protocol.scale == 1 and self.n_points == PAPER[self.protocol.study].points

    def rows(self) -> list[list[str]]:
        """The table of methods, with :data:`COLUMNS`."""
        rows = [self._row(method) for method in self.methods]
        for name, size in self.left_out.items():
            needed = f"left out: its {self.n_features:,} × {self.n_features:,} matrices would take {memory_text(size)}"
            rows.append([name, "—", "—", "—", "—", "—", needed])
        return rows

    def _row(self, method: MethodResult) -> list[str]:
        is_mnist = self.protocol.study == "mnist"
        ap, minutes = (known.get(method.name) if is_mnist else None for known in (PAPER_AP, PAPER_MINUTES))
        return [
            method.name,
            f"{method.ap:.4f}",
            "—" if method.interval is None else f"{method.interval[0]:.4f}–{method.interval[1]:.4f}",
            "—" if ap is None else f"{ap:.2f}",
            minutes_text(method.seconds),
            "—" if minutes is None else f"{minutes:,.0f}",
            method.cut or "",
        ]

    def goal_text(self) -> str:
        """Where more workers are to come to."""
        said = (
            f"To the held-out objective {self.scaling.goal:.4f}: what one simulated worker ends with, short of 2 % of "
            "its way down, where curves are flat. All take the same small steps, so that many workers can."
        )
        alone = self.scaling.alone_seconds
        if alone is None:
            return said
        return f"{said} With larger steps, best for one on MNIST, one worker is there in {duration_text(alone)}."

    def remarks(self) -> list[str]:
        """What a reader of the table is to know, a sentence each."""
        return [*self._sizes(), *self._no_gain(), *self._better_baselines(), *self._busy()]

    def _sizes(self) -> list[str]:
        protocol = self.protocol
        said = (
            f"Learned from {self.n_points:,} points of {self.n_features:,} features ({self.source}) with "
            f"{protocol.pairs:,} similar and as many dissimilar pairs, {protocol.batch_size:,} a batch; judged on "
            f"{protocol.test_pairs:,} + {protocol.test_pairs:,} pairs of {self.n_test_points:,} other points. "
            f"Every method ran on one thread, for {protocol.minutes:g} minutes at the most."
        )
        if self.is_paper_size:
            return [said]
        paper = PAPER[protocol.study]
        return [
            said,
            f"The paper has {paper.points:,} points, {paper.pairs:,} + {paper.pairs:,} pairs "
            f"and k = {paper.rank:,}, so these figures are not to be held against the paper's.",
        ]

    def _no_gain(self) -> list[str]:
        """Where a metric of ours is no better than none, as from a few points of many classes."""
        aps = {method.name: method.ap for method in self.methods}
        ours = [name for name, ap in aps.items() if name not in BASELINES and ap <= aps.get("Euclid", 0.0)]
        if not ours:
            return []
        more = "; a larger --scale has more points" if self.protocol.scale < 1 else ""
        return [
            f"No better than Euclid here: {'; '.join(ours)}. What {self.n_points:,} points teach about "
            f"{self.n_features:,} features does not hold for others{more}."
        ]

    def _better_baselines(self) -> list[str]:
        """Where a baseline does better here than the paper says."""
        if self.protocol.study != "mnist" or not self.is_paper_size:
            return []
        remarks = []
        for method in self.methods:
            if method.name not in BASELINES:
                continue
            told = PAPER_AP.get(method.name)
            if told is not None and method.ap > told + _CLEARLY:
                remarks.append(
                    f"{method.name} does better here than the paper says: {method.ap:.3f} against {told:.2f}."
                )
            if method.ap >= PAPER_OURS_AP:
                remarks.append(
                    f"The paper says that no baseline reaches an average precision of {PAPER_OURS_AP:.2f}; here "
                    f"{method.name} does, with {method.ap:.3f} ({method.how})."
                )
            minutes = PAPER_MINUTES.get(method.name)
            if minutes is not None and method.cut is None and method.seconds < 30 * minutes:
                remarks.append(
                    f"{method.name} is faster here than the paper says: {minutes_text(method.seconds)} minutes against "
                    f"{minutes:,.0f}."
                )
        return remarks

    def _busy(self) -> list[str]:
        parts: list[MethodResult | Courses] = [*self.methods, self.scaling, self.workers]
        loads = [part.load for part in parts if part.load is not None]
        if not loads or max(loads) < 1 + _BUSY:
            return []
        return [
            f"The machine was busy with other work (load average {min(loads):.1f} to {max(loads):.1f}), so times are "
            "longer than they would be on a machine of its own."
        ]


def minutes_text(seconds: float) -> str:
    """Seconds as minutes, with two significant digits where they are few."""
    minutes = seconds / 60
    if 0 < minutes < 0.01:
        return "< 0.01"
    return f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.1f}" if minutes >= 1 else f"{minutes:.2g}"
