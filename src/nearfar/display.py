"""What the command line shows: progress while work goes on, and tables when it is done."""

import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from nearfar.parameter_server.progress import Report
from nearfar.planning import Plan
from nearfar.sizes import duration_text, memory_text

_SECONDS_BETWEEN_LINES = 2.0
_SHARE_TO_TELL_BY = 0.01
"""The share of the budget to use before the time left is told."""


class TrainingDisplay:
    """Shows reports: a live bar on a terminal, plain lines otherwise. Used as ``with TrainingDisplay(...) as show``."""

    def __init__(self, workers: int, stream: TextIO | None = None) -> None:
        self._workers = workers
        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._progress: Progress | None = None
        self._next_line = 0.0
        self._last: Report | None = None
        self._shown: Report | None = None

    def __enter__(self) -> "TrainingDisplay":
        if self._console.is_terminal:
            self._progress = _bar(self._console)
            self._task = self._progress.add_task("", total=None, line="starting", ends=None)
            self._progress.start()
        return self

    def __call__(self, report: Report) -> None:
        """Show one report."""
        self._last = report
        if self._progress is not None:
            total = 1.0 if report.used else None
            ends = (
                time.monotonic() + report.seconds * (1 / report.used - 1) if report.used >= _SHARE_TO_TELL_BY else None
            )
            self._progress.update(self._task, total=total, completed=report.used, line=self._line(report), ends=ends)
        elif time.monotonic() >= self._next_line:
            self._print_line(report)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()
        elif self._last is not None and self._last is not self._shown:
            self._print_line(self._last)

    def _print_line(self, report: Report) -> None:
        self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
        self._shown = report
        self._console.print(f"{report.seconds:8.1f} s  {self._line(report)}", soft_wrap=True)

    def _line(self, report: Report) -> str:
        ap = "" if report.ap is None else f"  AP {report.ap:.4f}"
        workers = f"{self._workers} worker{'s' if self._workers > 1 else ''}"
        return (
            f"step {report.step}  objective {report.objective_text}{ap}  {_short(report.pairs_per_second)} pairs/s  "
            f"staleness {report.staleness_mean:.1f}  {workers}"
        )


class CopyingDisplay:
    """Shows how much of some work is done: a bar on a terminal, nothing otherwise. Called with (done, all)."""

    def __init__(self, doing: str, unit: str, stream: TextIO | None = None) -> None:
        self._doing, self._unit = doing, unit
        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._progress: Progress | None = None

    def __enter__(self) -> "CopyingDisplay":
        if self._console.is_terminal:
            self._progress = _bar(self._console)
            self._task = self._progress.add_task("", total=None, line=self._doing, ends=None)
            self._begun = time.monotonic()
            self._progress.start()
        return self

    def __call__(self, done: int, total: int) -> None:
        """Show that so much is done."""
        if self._progress is None:
            return
        share, now = done / max(1, total), time.monotonic()
        ends = now + (now - self._begun) * (1 / share - 1) if share >= _SHARE_TO_TELL_BY else None
        rate = _short(done / max(1e-9, now - self._begun))
        line = f"{self._doing}  {_short(done)} of {_short(total)} {self._unit}  {rate}/s"
        self._progress.update(self._task, total=total, completed=done, line=line, ends=ends)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()


class _TimeLeft(ProgressColumn):
    """The time that is left, by the share that is done and the seconds it took, those before a resume included."""

    def render(self, task: Task) -> Text:
        if task.fields["ends"] is None:
            return Text("")
        left = timedelta(seconds=max(0, round(task.fields["ends"] - time.monotonic())))
        return Text(f"{left} left", style="progress.remaining")


def _bar(console: Console) -> Progress:
    """The bar that all work is shown by: how far it is, a line of figures, the time it took and the time left."""
    return Progress(
        SpinnerColumn(),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[line]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        TimeElapsedColumn(),
        _TimeLeft(),
        console=console,
        expand=True,
    )


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output."""
    table = Table(title=title or None, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def print_plan(plan: Plan) -> None:
    """What a run will take, as a table on standard output."""
    batch, sizes = plan.sizes.batch, plan.sizes
    step = {**plan.compute_seconds, "update, on the server": plan.update_seconds}
    limits = sorted(plan.limits.items(), key=lambda limit: -limit[1])
    sections = {
        "memory of a process": [(name, memory_text(part)) for name, part in plan.memory.items() if part]
        + [("in all", memory_text(sum(plan.memory.values())))]
        + ([] if plan.fits else [("too much: training refuses more than", memory_text(plan.allowed))]),
        f"a step: {_short(batch.pairs)} pairs, {batch.rows} rows of {batch.entries:.0f} entries": [
            *((name, duration_text(seconds)) for name, seconds in step.items() if seconds),
            ("push", memory_text(sizes.gradient_bytes)),
            ("pull, at most", memory_text(sizes.pull_bytes / 2)),
        ],
        "time a step, all workers together, if only this were in the way": [
            (f"{name}: the bottleneck" if i == 0 else name, duration_text(seconds))
            for i, (name, seconds) in enumerate(limits)
        ],
        "in all": [
            ("steps a second", f"{1 / plan.step_seconds:.3g}"),
            ("pairs a second", _short(batch.pairs / plan.step_seconds)),
            ("one pass", duration_text(plan.pass_seconds)),
        ],
    }
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for title, rows in sections.items():
        table.add_row(f"[bold]{title}[/bold]", "")
        for name, value in rows:
            table.add_row(f"  {name}", value)
        table.add_section()
    Console(highlight=False).print(table)


def _short(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"
