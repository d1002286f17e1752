"""Builds the page of some runs, and writes it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nearfar.errors import InvalidFile, NearfarError
from nearfar.files import write_text
from nearfar.model.distance import Distance
from nearfar.model.euclidean import Euclidean
from nearfar.report.figure import Figure, Table
from nearfar.report.history_figures import history_figures, server_figures
from nearfar.report.measuring import measure
from nearfar.report.metric_figures import (
    Judged,
    class_switches,
    histogram_figure,
    map_figure,
    precision_recall_figure,
    roc_figure,
    spectrum_figure,
)
from nearfar.report.neighbours import Examples
from nearfar.report.page import MARK, Html, Page, Section, document
from nearfar.report.pictures import Looks
from nearfar.report.reading import ReportedRun, read_runs
from nearfar.report.run_tables import made_tables, progress_table, remarks
from nearfar.report.subject import Subject, Subjects

_EUCLID = "Euclid"
_MAP_TEXT = "The two principal components of x, and of Lx. Colour and shape tell the class."


@dataclass(frozen=True)
class Choices:
    """What a reader may choose of a report."""

    dataset: Path | None = None
    """Points to judge on; by default those that the runs held out."""
    neighbours: int = 3
    """How many neighbours vote; 0 leaves neighbours out."""
    seed: int = 0
    image_shape: tuple[int, ...] | None = None
    feature_names: Sequence[str] | None = None


@dataclass(frozen=True)
class MetricParts:
    """What a page says of metrics; made once, since a metric does not change any more."""

    summary: Sequence[Section]
    sections: Sequence[Section]
    notes: Sequence[str]


def write_report(paths: Sequence[Path | str], out: Path | str, choices: Choices | None = None) -> list[str]:
    """Write one self-contained HTML page of some runs, atomically; returns what the page notes as odd or missing.

    Parameters
    ----------
    paths : sequence of paths
        Run folders. Several are laid over each other.
    out : path
        The .html file. One that exists is replaced if it is a report.
    choices : Choices, optional
        What the runs are judged on, and how points are shown.
    """
    out = Path(out)
    check_out(out)
    runs = read_runs([Path(path) for path in paths])
    parts = metric_parts(runs, choices or Choices())
    page = build_page(runs, parts, f"made {datetime.now().astimezone():%Y-%m-%d %H:%M}")
    write_text(out, document(page))
    return list(page.notes)


def check_out(out: Path) -> None:
    """Raise unless a report may be written there."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise InvalidFile(f"{out} is no name of a page; expected one that ends in .html")
    if out.exists():
        with out.open("rb") as file:
            if MARK.encode() not in file.read(200):
                raise InvalidFile(f"{out} exists and is no report; choose another name or remove it")
    elif not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise InvalidFile(f"cannot write {out}: its folder is not there or not writable; choose another with --out")


def build_page(runs: Sequence[ReportedRun], metrics: MetricParts | None, status: str) -> Page:
    """The page of some runs; without what there is to say of their metrics where that is not made yet."""
    history, server = history_figures(runs), server_figures(runs)
    glance = [Section("runs", "At a glance", parts=[progress_table(runs)])]
    sections = [
        *glance,
        *(metrics.summary if metrics else ()),
        *([Section("progress", "Progress", parts=history)] if history else []),
        *(metrics.sections if metrics else ()),
        *([Section("server", "Workers and server", parts=server)] if server else []),
        Section("made", "How it was made", parts=made_tables(runs)),
    ]
    notes = [*(note for run in runs for note in run.notes), *remarks(runs), *(metrics.notes if metrics else ())]
    title = f"nearfar: {', '.join(run.name for run in runs)}"
    return Page(title, status, [run.name for run in runs], notes, sections)


def metric_parts(runs: Sequence[ReportedRun], choices: Choices) -> MetricParts:
    """Judge the runs' metrics, and make figures of it."""
    notes: list[str] = []
    subjects = Subjects(choices.dataset, choices.seed, notes.append)
    measured = [run for run in runs if run.metric is not None]
    subjects.check_given(measured)
    spectra = spectrum_figure(measured)
    spectra_section = [Section("spectrum", "The metric", parts=[spectra])] if spectra else []
    widths = sorted({run.metric.n_features for run in measured if run.metric is not None})
    if len(widths) > 1 and choices.dataset is None:
        listed = ", ".join(str(width) for width in widths)
        notes.append(
            f"The runs measure points of different widths ({listed}): figures of pairs and points are left out"
        )
        return MetricParts([], spectra_section, notes)
    judged, distances = _judge(measured, subjects, choices, notes)
    if not judged:
        return MetricParts([], spectra_section, notes)
    several = len({one.subject for one in judged}) > 1
    if several:
        notes.append(
            "The runs are judged on different points, so figures of pairs and points compare them only roughly"
        )
    told = [f"{one.name} on {one.subject.description}" for one in judged if one.run is not None]
    text = f"Judged on {judged[0].subject.description}." if not several else f"Judged: {'; '.join(told)}."
    pairs = [precision_recall_figure(judged), roc_figure(judged), *(histogram_figure(one) for one in judged)]
    sections = [
        Section("pairs", "Telling pairs apart", parts=pairs),
        Section("map", "Points before and after", _MAP_TEXT, _maps(judged)),
        *_neighbours(judged, distances, choices),
        *spectra_section,
    ]
    return MetricParts([Section("summary", "What it is worth", text, [_summary(judged)])], sections, notes)


def _judge(
    runs: Sequence[ReportedRun], subjects: Subjects, choices: Choices, notes: list[str]
) -> tuple[list[Judged], dict[Judged, Distance]]:
    """Each run on its subject, after Euclid's distance on the same one."""
    by_subject: dict[Subject, list[ReportedRun]] = {}
    for run in runs:
        subject = subjects.of(run)
        if subject is not None:
            by_subject.setdefault(subject, []).append(run)
    found: dict[Judged, Distance] = {}
    for number, (subject, its_runs) in enumerate(by_subject.items()):
        names = ", ".join(run.name for run in its_runs)
        distances: list[tuple[str, int | None, Distance]] = [
            (_EUCLID if len(by_subject) == 1 else f"{_EUCLID} ({names})", None, Euclidean())
        ]
        distances += [(run.name, run.number, run.metric) for run in its_runs if run.metric is not None]
        try:
            for name, run_number, distance in distances:
                measured = measure(distance, subject, k=choices.neighbours, seed=choices.seed)
                found[Judged(name, run_number, subject, measured, number)] = distance
        except NearfarError as error:
            notes.append(f"{names} could not be judged: {error}")
    return list(found), found


def _neighbours(judged: Sequence[Judged], distances: dict[Judged, Distance], choices: Choices) -> list[Section]:
    if not choices.neighbours:
        return []
    parts = []
    for number, subject in enumerate(dict.fromkeys(one.subject for one in judged)):
        looks = Looks.of(subject.asked.points, choices.image_shape, choices.feature_names)
        examples = Examples.choose(subject, looks, choices.seed)
        shown = [(one.name, one.run, distances[one]) for one in judged if one.subject is subject]
        parts.append(Html(f"neighbours-{number}", examples.html(shown)))
    text = "The nearest points of a few points chosen at random, the nearest first."
    return [Section("neighbours", "Nearest neighbours", text, parts)]


def _maps(judged: Sequence[Judged]) -> list[Figure | Html]:
    first_of = {one.subject: one for one in reversed(judged)}
    switches = [class_switches(one) for one in judged if first_of[one.subject] is one]
    return [*(part for part in switches if part is not None), *(map_figure(one) for one in judged)]


def _summary(judged: Sequence[Judged]) -> Table:
    """The figures of all distances side by side; a figure that one does not have stays empty."""
    columns = [dict(one.measured.summary.rows()) for one in judged]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [[name, *(column.get(name, "") for column in columns)] for name in names]
    return Table(["", *(one.name for one in judged)], rows)
