"""Tables of runs: how far they are, how they were made; and what stands in the way of comparing them."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from nearfar.report.figure import Table
from nearfar.report.reading import ReportedRun
from nearfar.settings import TrainingSettings

_DATA = {"learns_from": "learned from", "points_fingerprint": "points", "constraints_fingerprint": "constraints"}


def progress_table(runs: Sequence[ReportedRun]) -> Table:
    """How far each run is."""
    columns = [_progress(run) for run in runs]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return Table(["", *(run.name for run in runs)], [row for row in rows if any(row[1:])])


def made_tables(runs: Sequence[ReportedRun]) -> list[Table]:
    """Settings, data and versions; what differs between runs is stressed."""
    names = [setting.name for setting in fields(TrainingSettings)]
    settings = [[name, *(_shown(getattr(run.settings, name)) for run in runs)] for name in names]
    data = [["dataset", *(Path(run.source.get("dataset", "")).name for run in runs)]]
    data += [[words, *(run.source.get(key, "") for run in runs)] for key, words in _DATA.items()]
    places = dict.fromkeys(name for run in runs for name in run.made_with)
    made = [[name, *(run.made_with.get(name, "") for run in runs)] for name in places]
    columns = ["", *(run.name for run in runs)]
    defaults = TrainingSettings()
    chosen = [row for row in settings if any(value != _shown(getattr(defaults, row[0])) for value in row[1:])]
    return [
        *([_table("Settings other than the defaults", columns, chosen)] if chosen else []),
        _table("Data, with fingerprints", columns, data),
        *([_table("Versions and machine", columns, made)] if made else []),
        _table("All settings", columns, settings, folded=True),
    ]


def remarks(runs: Sequence[ReportedRun]) -> list[str]:
    """What a reader has to know before comparing the runs."""
    said = []
    if len({run.data for run in runs}) > 1:
        said.append("The runs learned from different data: objectives and average precisions are not comparable")
    if len({(run.loss, run.settings.margin, run.settings.dissimilar_weight) for run in runs}) > 1:
        losses = ", ".join(dict.fromkeys(run.loss for run in runs))
        said.append(f"The runs have different losses or margins ({losses}): their objectives are not comparable")
    for run in runs:
        if run.reports and not (run.reports[-1].judged and run.settings.held_out):
            said.append(f"{run.name} held nothing out: its objective is that of the batches it learned from")
        if run.reports and run.reports[-1].step and not any(report.staleness_counts for report in run.reports):
            said.append(f"{run.name} was made by an older nearfar, which did not count staleness: it has no histogram")
    return said


def _progress(run: ReportedRun) -> dict[str, str]:
    last = run.reports[-1] if run.reports else None
    rank = run.settings.rank if run.metric is None else run.metric.rank
    return {
        "state": "ended" if run.has_ended else "has not ended",
        "steps": "" if last is None else f"{last.step:,}",
        "seconds": "" if last is None else f"{last.seconds:,.1f}",
        "held-out objective": "" if last is None else last.objective_text,
        "held-out average precision": "" if last is None or last.ap is None else f"{last.ap:.4f}",
        "pairs a second": "" if last is None else f"{last.pairs / max(last.seconds, 1e-9):,.0f}",
        "loss": run.loss,
        "rank": "" if rank is None else str(rank),
        "workers": str(run.settings.workers),
        "consistency": run.settings.consistency,
    }


def _table(title: str, columns: list[str], rows: list[list[str]], *, folded: bool = False) -> Table:
    marked = frozenset(i for i, (_, *values) in enumerate(rows) if len(set(values)) > 1)
    return Table(columns, rows, title, marked, folded)


def _shown(value: object) -> str:
    if value is None:
        return "–"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
