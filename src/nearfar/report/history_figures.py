"""Figures of what happened while runs trained, from their histories alone. One function a figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.parameter_server.progress import Report, staleness_of_bin
from nearfar.report.figure import (
    SERIES,
    Figure,
    Series,
    Table,
    axis,
    lines,
    numbers,
    plain,
    run_group,
    run_style,
    shared_layout,
    table_of,
)
from nearfar.report.reading import ReportedRun

_MOST_WORKERS = 8
_MOST_REPORTS = 1000
"""Of so many reports at most, evenly spread, the speeds of all workers are looked at."""
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def staleness_shares(run: ReportedRun) -> tuple[list[str], NDArray[np.float64]]:
    """The staleness that pushes had, each value or range of values by name, and the share of pushes with it in %."""
    total = np.zeros(max((len(report.staleness_counts) for report in run.reports), default=0))
    for report in run.reports:
        total[: len(report.staleness_counts)] += report.staleness_counts
    return [_bin_name(place) for place in range(len(total))], 100 * total / max(1.0, total.sum())


@dataclass(frozen=True)
class _Axis:
    title: str
    format: str
    """How a value is written where the pointer is, in d3's terms."""
    from_zero: bool = False

    @property
    def layout(self) -> dict[str, Any]:
        return axis(self.title, hoverformat=self.format, rangemode="tozero" if self.from_zero else "normal")


_STEPS = _Axis("steps, all workers", ",d", from_zero=True)
_SECONDS = _Axis("seconds", ".1f", from_zero=True)
_OBJECTIVE = _Axis("objective", ".4f")
_AP = _Axis("average precision", ".4f")


def history_figures(runs: Sequence[ReportedRun]) -> list[Figure]:
    """How good the metric was, by steps and by time."""
    return _some([objective_by_steps(runs), objective_by_seconds(runs), ap_by_steps(runs), ap_by_seconds(runs)])


def server_figures(runs: Sequence[ReportedRun]) -> list[Figure]:
    """What workers and server did."""
    return _some([staleness(runs), worker_speeds(runs), bytes_pushed(runs), queue_depth(runs)])


def objective_by_steps(runs: Sequence[ReportedRun]) -> Figure | None:
    """The held-out objective against steps."""
    series = _series(runs, lambda report: report.step, _objective)
    caption = _ends(runs, "objective", "objective")
    return _curve("objective-steps", "Held-out objective by steps", caption, series, _STEPS, _OBJECTIVE)


def objective_by_seconds(runs: Sequence[ReportedRun]) -> Figure | None:
    """The held-out objective against time."""
    series = _series(runs, lambda report: report.seconds, _objective)
    caption = "The same by time: what a step costs counts too."
    return _curve("objective-seconds", "Held-out objective by time", caption, series, _SECONDS, _OBJECTIVE)


def _objective(report: Report) -> float | None:
    return report.objective if report.has_objective else None


def ap_by_steps(runs: Sequence[ReportedRun]) -> Figure | None:
    """The held-out average precision against steps."""
    series = _series(runs, lambda report: report.step, lambda report: report.ap)
    caption = _ends(runs, "ap", "average precision")
    return _curve("ap-steps", "Held-out average precision by steps", caption, series, _STEPS, _AP)


def ap_by_seconds(runs: Sequence[ReportedRun]) -> Figure | None:
    """The held-out average precision against time."""
    series = _series(runs, lambda report: report.seconds, lambda report: report.ap)
    return _curve("ap-seconds", "Held-out average precision by time", "The same by time.", series, _SECONDS, _AP)


def bytes_pushed(runs: Sequence[ReportedRun]) -> Figure | None:
    """Gradients that went to the server, in bytes, against time."""
    most = max((report.bytes for run in runs for report in run.reports), default=0)
    size, unit = next(((size, unit) for size, unit in _UNITS if most >= size), _UNITS[-1])
    series = _series(runs, lambda report: report.seconds, lambda report: report.bytes / size)
    totals = [f"{run.name} {run.reports[-1].bytes / size:.3g} {unit}" for run in runs if run.reports]
    caption = f"Gradients that the server applied: {'; '.join(totals)}."
    return _curve("bytes", "Pushed to the server", caption, series, _SECONDS, _Axis(unit, ".3g", from_zero=True))


def queue_depth(runs: Sequence[ReportedRun]) -> Figure | None:
    """Pushes that waited at the server, against time."""
    series = _series(runs, lambda report: report.seconds, lambda report: report.queue_depth, after_start=True)
    caption = "How many pushes the server found waiting when it took one, on average since the report before."
    depth = _Axis("pushes", ".2f", from_zero=True)
    return _curve("queue", "Pushes waiting at the server", caption, series, _SECONDS, depth)


def worker_speeds(runs: Sequence[ReportedRun]) -> Figure | None:
    """Steps a second of each worker against time; of many workers the fastest, the median and the slowest."""
    series = [one for run in runs for one in _speeds(run, alone=len(runs) == 1)]
    caption = "Steps a second of each worker since the report before. One that stays below the others is a straggler."
    speed = _Axis("steps a second", ".2f", from_zero=True)
    return _curve("workers", "Speed of the workers", caption, series, _SECONDS, speed)


def staleness(runs: Sequence[ReportedRun]) -> Figure | None:
    """How many pushes had which staleness."""
    counted = [(run, *staleness_shares(run)) for run in runs]
    counted = [(run, names, shares) for run, names, shares in counted if names]
    if not counted:
        return None
    all_names = max((names for _, names, _ in counted), key=len)
    traces, rows, means = [], [], []
    for run, names, shares in counted:
        traces.append(
            {
                "type": "bar",
                "name": plain(run.name),
                "x": names,
                "y": numbers(shares),
                "marker": {"color": run_style(run.number)["colour"]},
                "hovertemplate": f"staleness %{{x}}: %{{y:.2f}} %<extra>{plain(run.name)}</extra>",
                "meta": {"group": run_group(run.number)},
            }
        )
        rows += [[run.name, name, f"{share:.2f} %"] for name, share in zip(names, shares, strict=True) if share]
        means.append(f"{run.name} {_mean_staleness(run):.2f}")
    caption = (
        "Versions between the L that a gradient was computed on and the L that it was applied to. "
        f"On average: {'; '.join(means)}."
    )
    layout = {
        "xaxis": axis("staleness", type="category", categoryorder="array", categoryarray=all_names),
        "yaxis": axis("share of pushes, %", rangemode="tozero"),
        "barmode": "group",
    }
    return Figure("staleness", "Staleness", caption, traces, layout, Table(["", "staleness", "share"], rows))


def _curve(name: str, title: str, caption: str, series: list[Series], x: _Axis, y: _Axis) -> Figure | None:
    """Lines, if there are any."""
    if not series:
        return None
    layout = shared_layout(x.layout, y.layout)
    return Figure(name, title, caption, lines(series, y.format), layout, table_of(series, x.title, y.title))


def _series(
    runs: Sequence[ReportedRun],
    x: Callable[[Report], float],
    y: Callable[[Report], float | None],
    *,
    after_start: bool = False,
) -> list[Series]:
    """A line for each run that has such values; ``after_start`` leaves out the report before the first step."""
    series = []
    for run in runs:
        known = [(x(report), y(report)) for report in run.reports if report.step > 0 or not after_start]
        known = [(at, value) for at, value in known if value is not None]
        if known:
            xs, ys = np.array(known, np.float64).T
            series.append(Series(run.name, xs, ys, **run_style(run.number)))
    return series


def _ends(runs: Sequence[ReportedRun], field: str, what: str) -> str:
    """From where to where a figure went, in words."""
    told = []
    for run in runs:
        values = [getattr(report, field) for report in run.reports if getattr(report, field) is not None]
        if values:
            told.append(f"{run.name} from {values[0]:.4f} to {values[-1]:.4f}")
    return f"The {what} on what was held out: {'; '.join(told)}."


def _speeds(run: ReportedRun, *, alone: bool) -> list[Series]:
    with_workers = [report for report in run.reports if report.workers]
    reports = with_workers[:: -(-len(with_workers) // _MOST_REPORTS) or 1]
    workers = sorted({one["worker"] for report in reports for one in report.workers})
    place = {worker: i for i, worker in enumerate(workers)}
    speeds = np.full((len(workers), len(reports)), np.nan)
    for i, report in enumerate(reports):
        for one in report.workers:
            speeds[place[one["worker"]], i] = one["steps_per_second"]
    seconds = np.array([report.seconds for report in reports])
    style = run_style(run.number)
    if len(workers) > _MOST_WORKERS:
        named = _ranked(speeds).items()
        dashes = ("3px,3px", "solid", "9px,3px")
        return [
            Series(f"{run.name}: {name} of {len(workers)}", seconds, speed, **{**style, "dash": dash})
            for (name, speed), dash in zip(named, dashes, strict=True)
        ]
    series = []
    for worker, speed in zip(workers, speeds, strict=True):
        there = ~np.isnan(speed)
        own = {**style, "colour": f"--series-{place[worker] % SERIES}"} if alone else style
        name = f"worker {worker}" if alone else f"{run.name}: worker {worker}"
        series.append(Series(name, seconds[there], speed[there], **own))
    return series


def _ranked(speeds: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Of each column the largest, the median and the smallest of what is a number."""
    ordered, counts = np.sort(speeds, axis=0), (~np.isnan(speeds)).sum(axis=0)  # what is no number comes last
    column = np.arange(len(counts))
    median = (ordered[(counts - 1) // 2, column] + ordered[counts // 2, column]) / 2
    return {"fastest": ordered[counts - 1, column], "median": median, "slowest": ordered[0]}


def _mean_staleness(run: ReportedRun) -> float:
    """The mean over pushes; a report's mean is over the steps since the report before."""
    steps = np.diff([0, *(report.step for report in run.reports)])
    means = np.array([report.staleness_mean for report in run.reports])
    return float((steps * means).sum() / max(1, steps.sum()))


def _bin_name(place: int) -> str:
    low, high = staleness_of_bin(place)
    if high is None:
        return f"{low} or more"
    return str(low) if low == high else f"{low} to {high}"


def _some(figures: list[Figure | None]) -> list[Figure]:
    return [figure for figure in figures if figure is not None]
