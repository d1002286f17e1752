"""A figure: traces and a layout as Plotly takes them, in plain JSON values, with words and a table beside it.

Colours are names of the page's own CSS variables (``--series-0``), so that a figure follows the reader's light or dark
mode; the page's script puts the values in their place.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

SERIES = 8
"""How many colours there are for runs and workers; then they come again, with another dash."""
EUCLID = "--euclid"

_MOST_POINTS = 400
_TABLE_ROWS = 6
_DASHES = ("solid", "9px,3px", "3px,3px", "11px,3px,3px,3px")


@dataclass(frozen=True)
class Table:
    """Text in rows; the first of a row names it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    marked: frozenset[int] = frozenset()
    """The rows to stress."""
    folded: bool = False
    """Whether a reader has to open it."""


@dataclass(frozen=True)
class Figure:
    """One picture of the page."""

    name: str
    """Tells it from all others of the page; letters, digits and hyphens."""
    title: str
    caption: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any]
    table: Table | None = None
    """The same in numbers, for those who do not see the picture."""
    run: int | None = None
    """The number of the run that it shows alone."""


@dataclass(frozen=True)
class Series:
    """One line of a figure."""

    name: str
    x: ArrayLike
    y: ArrayLike
    colour: str
    dash: str = "solid"
    run: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    """More for its trace."""


def run_group(run: int | None) -> str | None:
    """The name under which the page shows and hides all that is of a run."""
    return None if run is None else f"run-{run}"


def run_style(run: int) -> dict[str, Any]:
    """The colour and the dash of a run's lines: no two of the first 32 runs have both in common."""
    return {"colour": f"--series-{run % SERIES}", "dash": _DASHES[(run + run // SERIES) % len(_DASHES)], "run": run}


def lines(series: Iterable[Series], y_format: str) -> list[dict[str, Any]]:
    """Traces of lines, thinned; the format is d3's, for what shows at the pointer."""
    traces = []
    for one in series:
        x, y = thinned(one.x, one.y)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(x) <= 40 else "lines",
                "name": plain(one.name),
                "x": numbers(x),
                "y": numbers(y),
                "line": {"color": one.colour, "width": 2, "dash": one.dash},
                "marker": {"color": one.colour, "size": 5},
                "hovertemplate": f"%{{y:{y_format}}}<extra>{plain(one.name)}</extra>",
                "meta": {"group": run_group(one.run)},
                **one.extra,
            }
        )
    return traces


def table_of(series: Iterable[Series], x_name: str, y_name: str) -> Table:
    """A few values of each line, evenly spread, the first and the last among them."""
    rows = []
    for one in series:
        x, y = np.asarray(one.x, float), np.asarray(one.y, float)
        chosen = np.unique(np.linspace(0, len(x) - 1, min(len(x), _TABLE_ROWS)).astype(int))
        rows += [[one.name, f"{x[i]:.5g}", f"{y[i]:.4g}"] for i in chosen]
    return Table(["", x_name, y_name], rows)


def thinned(x: ArrayLike, y: ArrayLike, most: int = _MOST_POINTS) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most about so many points of a line: of each stretch its lowest and its highest, so that no peak is lost."""
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if len(xs) <= most:
        return xs, ys
    edges = np.linspace(0, len(xs), most // 2 + 1).astype(int)
    kept, known = [0, len(xs) - 1], np.nan_to_num(ys)
    for start, stop in pairwise(edges):
        kept += [start + int(known[start:stop].argmin()), start + int(known[start:stop].argmax())]
    chosen = np.unique(kept)
    return xs[chosen], ys[chosen]


def numbers(values: ArrayLike, digits: int = 5) -> list[float | None]:
    """The values with so many significant digits; None for what is no number, as JSON has none of those."""
    listed: list[float] = np.asarray(values, np.float64).tolist()
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in listed]


def plain(text: str) -> str:
    """Text that Plotly shows as it is: without this, it would take tags in it for its own."""
    return escape(text, quote=False)


def shared_layout(x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    """The layout of lines over one x axis: the pointer shows the values of all of them."""
    return {"xaxis": x, "yaxis": y, "hovermode": "x unified"}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with this title."""
    return {"title": {"text": title}, **more}
