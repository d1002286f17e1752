"""The study as one HTML page: the paper's figures, made from what was found here."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from nearfar.experiments.found import COLUMNS, Found
from nearfar.experiments.methods import HELD_OUT_PAIRS, TEST_PAIRS
from nearfar.experiments.results import Course, Courses, MethodResult, speed_up
from nearfar.experiments.study_text import SCALING_COLUMNS, consistency_rows, scaling_rows
from nearfar.report.figure import EUCLID, Figure, Series, Table, axis, lines, run_style, shared_layout, table_of
from nearfar.report.page import Page, Section

_EARLIEST = 0.01
"""Seconds: where an axis of times begins that is logarithmic."""
_HEIGHT = 430
"""Pixels: legends of many lines need room."""
_ABOVE_START = 1.5
"""Objectives are shown up to so many times that at the start."""
_REAL_DASH, _LINEAR_DASH = "3px,3px", "9px,3px"
_FIGURES = {
    "mnist": {"time": "4a", "precision": "4b", "convergence": "2a", "speed-up": "3a"},
    "imnet-63k": {"time": "", "precision": "", "convergence": "2b", "speed-up": "3b"},
    "imnet-1m": {"time": "", "precision": "4c", "convergence": "2c", "speed-up": "3c"},
}


def study_page(found: Found) -> Page:
    """The page of a study."""
    study, names = found.protocol.study, [method.name for method in found.methods]
    how = Table(["method", "how"], [[one.name, one.how] for one in found.methods], "What each method did", folded=True)
    declared = Table(
        ["", ""], [list(item) for item in found.scaling.cluster.items()], "What was real and what declared", folded=True
    )
    sections = [
        Section(
            "methods", "Methods", parts=[Table(COLUMNS, found.rows()), how, ap_by_time(found), precision_recall(found)]
        ),
        Section(
            "workers",
            "More workers",
            found.goal_text(),
            [
                Table(
                    SCALING_COLUMNS, [*scaling_rows(found.workers, "real"), *scaling_rows(found.scaling, "simulated")]
                ),
                declared,
                convergence(found),
                speed_ups(found),
            ],
        ),
        Section(
            "consistency",
            "In step or not",
            "16 simulated workers: all in step (bsp), at most 4 steps ahead (ssp:4), without waiting (asp).",
            [
                Table(["", SCALING_COLUMNS[1], *SCALING_COLUMNS[3:]], consistency_rows(found)),
                consistencies("consistency-alike", "All workers alike", found.consistency),
                consistencies("consistency-straggler", "One worker slower by 4", found.straggler),
            ],
        ),
    ]
    status = f"made {datetime.now().astimezone():%Y-%m-%d %H:%M}"
    return Page(f"nearfar: the study {study}", status, names, found.remarks(), sections)


def ap_by_time(found: Found) -> Figure:
    """Average precision against running time: the paper's Figure 4a."""
    latest = max([_EARLIEST * 10, *(method.seconds for method in found.methods)])
    series = [_ap_series(number, method, latest) for number, method in enumerate(found.methods)]
    on_way = {
        kind: [m.name for m in found.methods if m.curve and m.curve_on == kind] for kind in (TEST_PAIRS, HELD_OUT_PAIRS)
    }
    caption = f"On one thread{_in_paper(found, 'time')}. "
    caption += " ".join(f"On {kind}: {', '.join(those)}." for kind, those in on_way.items() if those)
    caption += (
        " The last point of each line is on the test pairs. Ours is timed as a whole, with its preparation and its own "
        "judging; baselines from their first computation on, while nobody looks."
    )
    return _figure(
        "ap-time",
        "Average precision by running time",
        caption,
        series,
        "seconds",
        ("average precision", ".4f"),
        log_x=True,
    )


def _ap_series(number: int, method: MethodResult, latest: float) -> Series:
    style = run_style(number)
    if not method.curve:  # nothing is learned: a level to compare with
        return Series(method.name, [_EARLIEST, latest], [method.ap] * 2, **style)
    curve = [*method.curve, (method.seconds, method.ap)]
    seconds = [max(_EARLIEST, at) for at, _ in curve]
    return Series(method.name, seconds, [ap for _, ap in curve], **style)


def precision_recall(found: Found) -> Figure:
    """Precision against recall on the test pairs: the paper's Figures 4b and 4c."""
    series = [
        Series(one.name, one.recall, one.precision, **run_style(number), extra={"mode": "lines"})
        for number, one in enumerate(found.methods)
    ]
    listed = "; ".join(f"{one.name} {one.ap:.4f}" for one in found.methods)
    caption = f"On the test pairs{_in_paper(found, 'precision')}. Average precision: {listed}."
    return _figure("precision-recall", "Precision and recall", caption, series, "recall", ("precision", ".3f"))


def convergence(found: Found) -> Figure:
    """The held-out objective against time for more and more workers: the paper's Figures 2a to 2c."""
    real = [_course(f"{_workers(one)}, real", one, i, _REAL_DASH) for i, one in enumerate(found.workers.courses)]
    simulated = [_course(f"{_workers(one)}, simulated", one, i) for i, one in enumerate(found.scaling.courses)]
    caption = (
        f"Held-out objective{_in_paper(found, 'convergence')}. Real workers are threads of this machine in real time; "
        "simulated ones compute real gradients on a virtual clock and end at the goal."
    )
    figure = _figure(
        "convergence", "Convergence", caption, [*real, *simulated], "seconds", ("objective", ".4f"), log_x=True
    )
    return _up_to_the_start(figure, [*found.workers.courses, *found.scaling.courses])


def speed_ups(found: Found) -> Figure:
    """Speed-up against workers: the paper's Figures 3a to 3c."""
    counts = [course.workers for course in found.scaling.courses]
    series = [Series("linear", counts, counts, EUCLID, _LINEAR_DASH)]
    for number, (name, courses) in enumerate((("simulated", found.scaling), ("real", found.workers))):
        reached = [(one.workers, speed_up(courses.courses[0], one, courses.goal)) for one in courses.courses]
        reached = [(workers, value) for workers, value in reached if value]
        series.append(Series(name, [one for one, _ in reached], [value for _, value in reached], f"--series-{number}"))
    caption = (
        f"How much sooner than one worker the goal is reached{_in_paper(found, 'speed-up')}. A worker is a core. The "
        "paper reports 3.6 (ImageNet-63K) and 3.8 (ImageNet-1M) at 4 machines against 1."
    )
    figure = _figure("speed-up", "Speed-up", caption, series, "workers", ("speed-up", ".2f"), log_x=True)
    ticks = {"tickvals": counts, "ticktext": [str(count) for count in counts]}
    figure.layout["xaxis"] |= ticks
    figure.layout["yaxis"] |= {"type": "log", **ticks}
    return figure


def consistencies(name: str, title: str, courses: Courses) -> Figure:
    """The held-out objective against virtual time by consistency."""
    series = [_course(one.consistency, one, number) for number, one in enumerate(courses.courses)]
    caption = "Held-out objective by virtual time, up to the goal."
    figure = _figure(name, title, caption, series, "virtual seconds", ("objective", ".4f"))
    return _up_to_the_start(figure, courses.courses)


def _up_to_the_start(figure: Figure, courses: Sequence[Course]) -> Figure:
    """Show objectives up to those at the start: one run that gets far out of hand would hide all others."""
    start = max(course.curve[0].objective for course in courses)
    objectives = [moment.objective for course in courses for moment in course.curve]
    low, high = min(objectives), start * _ABOVE_START
    if max(objectives) <= high:
        return figure
    margin = (high - low) / 20
    figure.layout["yaxis"] |= {"range": [low - margin, high]}
    return replace(figure, caption=f"{figure.caption} What rises far above the start is cut off.")


def _course(name: str, course: Course, number: int, dash: str | None = None) -> Series:
    later = [moment for moment in course.curve if moment.seconds > 0]
    style: dict[str, Any] = {**run_style(number), "run": None}
    if dash is not None:
        style["dash"] = dash
    return Series(name, [moment.seconds for moment in later], [moment.objective for moment in later], **style)


def _workers(course: Course) -> str:
    return f"{course.workers} worker{'s' if course.workers > 1 else ''}"


def _in_paper(found: Found, figure: str) -> str:
    number = _FIGURES[found.protocol.study][figure]
    return f" (the paper's Figure {number})" if number else ""


def _figure(
    name: str,
    title: str,
    caption: str,
    series: Sequence[Series],
    x: str,
    y: tuple[str, str],
    *,
    log_x: bool = False,
) -> Figure:
    layout = shared_layout(axis(x, **({"type": "log"} if log_x else {})), axis(y[0])) | {"height": _HEIGHT}
    return Figure(name, title, caption, lines(series, y[1]), layout, table_of(series, x, y[0]))
