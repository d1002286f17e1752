"""A run while it goes on, in the terminal."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nearfar.display import TrainingDisplay
from nearfar.report.history_figures import staleness_shares
from nearfar.report.reading import ReportedRun, read_runs

_SECONDS = 0.5
_BLOCKS = "▁▂▃▄▅▆▇█"
_SPARKS = 48
_BAR = 24


def watch_in_terminal(path: Path, *, until_done: bool) -> None:
    """Show a run's newest reports: a live view on a terminal, else a line now and then."""
    console = Console(highlight=False)
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            _follow(path, until_done, lambda run: live.update(view(run), refresh=True))
        return
    workers = read_runs([path], live=True)[0].settings.workers
    with TrainingDisplay(workers, sys.stdout) as display:
        _follow(path, until_done, lambda run: display(run.reports[-1]) if run.reports else None)


def _follow(path: Path, until_done: bool, show: Callable[[ReportedRun], None]) -> None:
    shown = None
    while True:
        began = time.monotonic()
        run = read_runs([path], live=True)[0]
        if shown != (len(run.reports), run.has_ended):
            show(run)
        shown = (len(run.reports), run.has_ended)
        if until_done and run.has_ended:
            return
        time.sleep(max(_SECONDS, 20 * (time.monotonic() - began)))


def view(run: ReportedRun) -> Panel:
    """How far a run is: objective and average precision, workers, staleness, the queue."""
    if not run.reports:
        return Panel(Text("The run has begun; there is no report yet."), title=Text(run.name))
    last = run.reports[-1]
    figures = Table.grid(padding=(0, 2))
    figures.add_column(justify="right")
    figures.add_column(justify="right")
    figures.add_column()
    share = f"{100 * last.used:.0f} % of the budget" if last.used else ""
    figures.add_row("step", f"{last.step:,}", Text(f"{last.seconds:,.1f} s  {share}"))
    figures.add_row("objective", last.objective_text, sparkline(_objectives(run)))
    if last.ap is not None:
        precisions = [report.ap for report in run.reports if report.ap is not None]
        figures.add_row("AP", f"{last.ap:.4f}", sparkline(precisions))
    figures.add_row("pairs/s", f"{last.pairs_per_second:,.0f}", sparkline(r.pairs_per_second for r in run.reports[1:]))
    figures.add_row("staleness", f"{last.staleness_mean:.2f}", _staleness(run))
    figures.add_row("queue", f"{last.queue_depth:.2f}", sparkline(report.queue_depth for report in run.reports[1:]))
    state = "ended" if run.has_ended else "Ctrl-C ends the watch, not the run"
    return Panel(Group(figures, _workers(run)), title=Text(run.name), subtitle=state, expand=False)


def _objectives(run: ReportedRun) -> list[float]:
    return [report.objective for report in run.reports if report.has_objective]


def sparkline(values: Iterable[float]) -> str:
    """A line of blocks, the newest value last; of many values, the mean of each stretch."""
    known = np.array([value for value in values if np.isfinite(value)], np.float64)
    if not len(known):
        return ""
    if len(known) > _SPARKS:
        known = np.array([stretch.mean() for stretch in np.array_split(known, _SPARKS)])
    low, high = known.min(), known.max()
    heights = np.zeros(len(known)) if high == low else (known - low) / (high - low)
    return "".join(_BLOCKS[round(height * (len(_BLOCKS) - 1))] for height in heights)


def _staleness(run: ReportedRun) -> str:
    """The share of pushes of each staleness, as blocks, over the whole run."""
    names, shares = staleness_shares(run)
    if not names:
        return f"at most {run.reports[-1].staleness_max}"
    blocks = "".join(_BLOCKS[round(share / 100 * (len(_BLOCKS) - 1))] for share in shares)
    return f"{blocks} from 0 to {names[-1]}" if len(names) > 1 else "always 0"


def _workers(run: ReportedRun) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("worker", "steps", "steps/s"):
        table.add_column(title, justify="right")
    table.add_column("")
    workers: Sequence[dict[str, float]] = run.reports[-1].workers
    fastest = max((one["steps_per_second"] for one in workers), default=0.0)
    for one in workers[:16]:
        bar = "█" * round(_BAR * one["steps_per_second"] / fastest) if fastest else ""
        table.add_row(str(one["worker"]), f"{one.get('steps', 0):,}", f"{one['steps_per_second']:.1f}", bar)
    if len(workers) > 16:
        table.add_row("…", "", "", f"{len(workers) - 16} more")
    return table
