"""What a report reads of a run folder, and what it has to say of a folder that is not whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.errors import InvalidFile, InvalidRun
from nearfar.model.metric import Metric, load_metric
from nearfar.model.run import RunFolder
from nearfar.parameter_server.progress import Report
from nearfar.settings import BUDGET, TrainingSettings

_NUMBERS = (
    "step", "seconds", "pairs", "points", "objective", "pairs_per_second", "staleness_mean", "staleness_max",
    "queue_depth", "bytes",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """One run as far as it can be read."""

    number: int
    """Its place among the runs of the page, from 0; decides its colour."""
    name: str
    path: Path
    settings: TrainingSettings
    source: dict[str, str]
    """What it learned from."""
    made_with: dict[str, str]
    reports: list[Report]
    metric: Metric | None
    notes: list[str]
    """What could not be read."""

    @property
    def has_ended(self) -> bool:
        """Whether its metric is of the budget it has now: a run that is resumed with a larger one goes on."""
        return self.metric is not None and all(
            self.metric.settings.get(name) == getattr(self.settings, name) for name in BUDGET
        )

    @property
    def loss(self) -> str:
        """The loss it learned by, with auto decided."""
        if self.settings.loss != "auto":
            return self.settings.loss
        return "comparison" if self.source.get("learns_from") == "comparisons" else "logistic"

    @property
    def data(self) -> tuple[str, ...]:
        """Tells what the run learned from."""
        return tuple(self.source.get(key, "") for key in ("points_fingerprint", "constraints_fingerprint"))


def read_runs(paths: Sequence[Path], *, live: bool = False) -> list[ReportedRun]:
    """Read run folders; with ``live`` they may be in the making, and hold nothing yet.

    Raises
    ------
    InvalidRun
        A path is no run folder, is given twice, or there is nothing in it to show.
    """
    resolved = [path.resolve() for path in paths]
    for i, path in enumerate(paths):
        if resolved[i] in resolved[:i]:
            raise InvalidRun(f"{path} is given twice; name each run once")
    names = _names(resolved)
    return [_read(number, names[number], path, live) for number, path in enumerate(paths)]


def _read(number: int, name: str, path: Path, live: bool) -> ReportedRun:
    if path.is_file():
        raise InvalidRun(f"{path} is a file; expected a run folder, as nearfar train makes it")
    folder = RunFolder(path)
    settings, source = folder.read()
    notes: list[str] = []
    reports = _reports(folder, name, live, notes)
    metric = _metric(folder, name, live, notes)
    if not live and not reports and metric is None:
        raise InvalidRun(f"{path} has neither a history nor a metric that can be read; train it with --resume first")
    return ReportedRun(number, name, path, settings, source, folder.made_with(), reports, metric, notes)


def _reports(folder: RunFolder, name: str, live: bool, notes: list[str]) -> list[Report]:
    try:
        reports = list(folder.reports())
        text = folder.history.read_text() if folder.history.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        notes.append(f"{name}: its history cannot be read ({error})")
        return []
    sound = [report for report in reports if _is_sound(report)]
    n_lines = text.count("\n") if live else len(text.splitlines())  # a last line may be in the making
    if not text and not live:
        notes.append(f"{name} has no history, so there are no curves of its training")
    elif len(sound) < n_lines:
        notes.append(
            f"{name}: its history is cut short or damaged; {len(sound)} of {n_lines} lines could be read and are shown"
        )
    return sound


def _is_sound(report: Report) -> bool:
    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    return (
        all(is_number(getattr(report, name)) for name in _NUMBERS)
        and (report.ap is None or is_number(report.ap))
        and isinstance(report.workers, list)
        and all(isinstance(one, dict) and {"worker", "steps_per_second"} <= one.keys() for one in report.workers)
        and isinstance(report.staleness_counts, list)
        and all(is_number(count) for count in report.staleness_counts)
    )


def _metric(folder: RunFolder, name: str, live: bool, notes: list[str]) -> Metric | None:
    if not folder.metric.exists():
        if not live:
            notes.append(f"{name} has no metric yet, as it has not ended: only its history is shown")
        return None
    try:
        return load_metric(folder.metric)
    except InvalidFile as error:
        notes.append(f"{name}: its metric cannot be read ({error}), so only its history is shown")
        return None


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
