"""The study as Markdown: ours against the paper's numbers."""

import math
from collections.abc import Sequence

from nearfar.experiments.found import COLUMNS, Found
from nearfar.experiments.results import Courses, speed_up
from nearfar.sizes import duration_text

SCALING_COLUMNS = ("workers", "time to the goal", "speed-up", "steps/s", "staleness", "bottleneck")


def study_markdown(found: Found) -> str:
    """Tables and sentences."""
    title = f"# The study {found.protocol.study}, by nearfar"
    how = [f"- {method.name}: {method.how}" for method in found.methods]
    sections = [
        title,
        "\n".join(found.remarks()),
        _table(COLUMNS, found.rows()),
        "\n".join(how),
        f"## More workers\n\n{found.goal_text()}",
        _table(SCALING_COLUMNS, [*scaling_rows(found.workers, "real"), *scaling_rows(found.scaling, "simulated")]),
        "## Consistency, 16 simulated workers",
        _table(("", *SCALING_COLUMNS[1:2], *SCALING_COLUMNS[3:]), consistency_rows(found)),
        "## What was real and what declared",
        "\n".join(f"- {name}: {text}" for name, text in found.scaling.cluster.items()),
    ]
    return "\n\n".join(sections) + "\n"


def scaling_rows(courses: Courses, kind: str) -> list[list[str]]:
    """One row for each number of workers."""
    first = courses.courses[0]
    return [
        [
            f"{course.workers} {kind}",
            time_text(course.seconds_to(courses.goal)),
            f"{speed_up(first, course, courses.goal):.2f}" if speed_up(first, course, courses.goal) else "—",
            f"{course.steps_per_second:.3g}",
            f"{course.staleness:.1f}",
            course.bottleneck or "—",
        ]
        for course in courses.courses
    ]


def consistency_rows(found: Found) -> list[list[str]]:
    """One row for each consistency, without and with the straggler."""
    return [
        [
            f"{course.consistency}, {what}",
            time_text(course.seconds_to(courses.goal)),
            f"{course.steps_per_second:.3g}",
            f"{course.staleness:.1f}",
            course.bottleneck or "—",
        ]
        for courses, what in ((found.consistency, "all alike"), (found.straggler, "one slower by 4"))
        for course in courses.courses
    ]


def time_text(seconds: float) -> str:
    """A duration, or a dash for never."""
    return duration_text(seconds) if math.isfinite(seconds) else "—"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
