"""What a study measures, and at which size: the paper's figures, and how they shrink with the scale."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from nearfar.errors import InvalidSettings

StudyName = Literal["mnist", "imnet-63k", "imnet-1m"]

REAL_WORKERS = (1, 2)
SIMULATED_WORKERS = (1, 2, 4, 8, 16, 32, 64)
CONSISTENCIES = ("bsp", "ssp:4", "asp")
COMPARED_WORKERS = 16
"""Workers at which the consistencies are compared."""
AT_MOST = 4
"""Times the steps of one worker that others may take to the same objective."""

_MINUTES = 4.0
_FEWEST_POINTS, _FEWEST_PAIRS, _FEWEST_TEST_PAIRS, _FEWEST_STEPS = 500, 2000, 1000, 40
_FEWEST_OF_MANY_CLASSES = 100_000
"""Pairs, where there are a thousand classes; with fewer, most classes would be seen in a few pairs only."""
_SIMULATED_RANK = 64
"""Of wide points: every simulated worker has a copy of L."""


@dataclass(frozen=True)
class _Paper:
    """A study as the paper has it."""

    points: int
    features: int
    nonzeros: int | None
    """Of a point; None where points are dense."""
    rank: int
    batch_size: int
    pairs: int
    test_pairs: int
    machine_cores: int
    usual_scale: float
    """The scale at which it takes minutes here."""
    steps: int
    """Steps of one worker in the study of scaling, at the usual scale."""
    servers: int
    """Of the simulated clusters: where L takes hundreds of megabytes, one server would be in everyone's way."""


PAPER: dict[StudyName, _Paper] = {
    "mnist": _Paper(60_000, 784, None, 600, 1000, 100_000, 10_000, 16, 1.0, 1200, 1),
    "imnet-63k": _Paper(63_000, 21_504, 1075, 10_000, 100, 100_000, 10_000, 64, 0.1, 600, 8),
    "imnet-1m": _Paper(1_000_000, 21_504, 1075, 1000, 1000, 100_000_000, 100_000, 64, 0.02, 200, 8),
}


@dataclass(frozen=True)
class Protocol:
    """A study at one size. All counts of pairs are of either kind."""

    study: StudyName
    scale: float
    minutes: float
    """The most that any one method may take to learn."""
    points: int
    rank: int
    simulated_rank: int
    batch_size: int
    pairs: int
    test_pairs: int
    steps: int
    """Steps of one worker in the study of scaling."""
    servers: int
    """Of the simulated clusters."""
    seed: int = 0

    @classmethod
    def of(cls, study: StudyName, scale: float | None = None, minutes: float | None = None) -> "Protocol":
        """The study at this scale, 1 being the paper's size, with this many minutes for each method."""
        if study not in get_args(StudyName):
            raise InvalidSettings(f"the study is {study!r}; expected one of {', '.join(get_args(StudyName))}")
        paper = PAPER[study]
        scale = paper.usual_scale if scale is None else scale
        if not 0 < scale <= 1:
            raise InvalidSettings(f"scale is {scale}; expected a number above 0 and up to 1, which is the paper's size")
        if minutes is not None and not 0 < minutes < float("inf"):
            raise InvalidSettings(f"budget is {minutes}; expected minutes, more than 0")
        share = min(1.0, scale / paper.usual_scale)
        rank = paper.rank if study == "mnist" else max(2 * _SIMULATED_RANK, round(paper.rank * scale))
        fewest_pairs = _FEWEST_PAIRS if study == "mnist" else _FEWEST_OF_MANY_CLASSES
        return cls(
            study=study,
            scale=scale,
            minutes=max(0.02, _MINUTES * share) if minutes is None else minutes,
            points=max(_FEWEST_POINTS, round(paper.points * scale)),
            rank=rank,
            simulated_rank=rank if study == "mnist" else _SIMULATED_RANK,
            batch_size=paper.batch_size,
            pairs=max(fewest_pairs, round(paper.pairs * scale)),
            test_pairs=max(_FEWEST_TEST_PAIRS, round(paper.test_pairs * scale)),
            steps=max(_FEWEST_STEPS, round(paper.steps * share)),
            servers=paper.servers,
        )

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)
