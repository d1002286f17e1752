"""Figures of what distances do on points: curves of pairs, histograms, maps, spectra. One function a figure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.constraints import Labels
from nearfar.evaluation.verification import precision_recall, roc
from nearfar.report.figure import (
    EUCLID,
    Figure,
    Series,
    Table,
    axis,
    lines,
    numbers,
    plain,
    run_style,
    shared_layout,
    table_of,
)
from nearfar.report.measuring import Measured, spectrum
from nearfar.report.page import Html, switch_html
from nearfar.report.reading import ReportedRun
from nearfar.report.subject import Subject

_BINS = 60
_CLASS_COLOURS = 10
_SYMBOLS = {"circle": "●", "diamond": "◆", "square": "■", "triangle-up": "▲", "cross": "✚"}
"""The marks of classes: Plotly's names, and the same in text."""
_MOST_CLASSES = 40
_UNMARKED = {"showticklabels": False, "zeroline": False, "automargin": False}


@dataclass(frozen=True, eq=False)
class Judged:
    """A distance on the page: Euclid's, or that of a run."""

    name: str
    run: int | None
    """The number of the run; None for Euclid's."""
    subject: Subject
    measured: Measured
    subject_number: int
    """Tells Euclid's distance on one subject from that on another."""

    @property
    def style(self) -> dict[str, Any]:
        """The look of its lines."""
        return {"colour": EUCLID, "dash": "2px,2px", "run": None} if self.run is None else run_style(self.run)

    @property
    def slug(self) -> str:
        """For names of figures."""
        return f"euclid-{self.subject_number}" if self.run is None else f"run-{self.run}"


def precision_recall_figure(judged: Sequence[Judged]) -> Figure:
    """Precision against recall."""
    series = []
    for one in judged:
        precision, recall, _ = precision_recall(one.measured.near, one.measured.far)
        series.append(Series(one.name, recall, precision, **one.style, extra={"mode": "lines"}))
    caption = (
        "Pairs at or below a threshold count as similar. Precision: the share of those that are; "
        "recall: the share of similar pairs found. "
        + _listed("Average precision", judged, lambda one: one.measured.summary.verification.average_precision)
    )
    layout = shared_layout(axis("recall", range=[0, 1.01], hoverformat=".3f"), axis("precision", range=[0, 1.02]))
    traces = lines(series, ".3f")
    table = table_of(series, "recall", "precision")
    return Figure("precision-recall", "Precision and recall", caption, traces, layout, table)


def roc_figure(judged: Sequence[Judged]) -> Figure:
    """The share of similar pairs found against the share of dissimilar pairs taken for similar."""
    series = []
    for one in judged:
        false_alarms, hits, _ = roc(one.measured.near, one.measured.far)
        series.append(Series(one.name, false_alarms, hits, **one.style, extra={"mode": "lines"}))
    caption = "The farther to the upper left, the better. " + _listed(
        "Area under the curve", judged, lambda one: one.measured.summary.verification.roc_auc
    )
    layout = shared_layout(
        axis("dissimilar taken for similar", range=[0, 1.01], hoverformat=".3f"),
        axis("similar found", range=[0, 1.02]),
    )
    traces = lines(series, ".3f")
    table = table_of(series, "dissimilar taken for similar", "similar found")
    return Figure("roc", "ROC curve", caption, traces, layout, table)


def histogram_figure(one: Judged) -> Figure:
    """The distances of similar and of dissimilar pairs."""
    near, far, threshold = one.measured.near, one.measured.far, one.measured.threshold
    top = float(max(near.max(), far.max())) or 1.0
    edges = np.linspace(0.0, top, _BINS + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    traces, rows = [], []
    for name, distances, colour, dash in (
        ("similar", near, "--near", "solid"),
        ("dissimilar", far, "--far", "5px,2px"),
    ):
        shares = 100 * np.histogram(distances, edges)[0] / len(distances)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": numbers(centres),
                "y": numbers(shares),
                "line": {"color": colour, "width": 2, "shape": "hvh", "dash": dash},
                "fill": "tozeroy",
                "fillcolor": f"{colour}-fill",
                "hovertemplate": f"%{{y:.2f}} %<extra>{name}</extra>",
            }
        )
        low, middle, high = np.quantile(distances, (0.05, 0.5, 0.95))
        rows.append([name, f"{low:.4g}", f"{middle:.4g}", f"{high:.4g}"])
    layout = shared_layout(
        axis("distance", range=[0, top], hoverformat=".3g"), axis("share of pairs, %", rangemode="tozero")
    )
    overlap = 100 * float(np.minimum(*(np.histogram(kind, edges)[0] / len(kind) for kind in (near, far))).sum())
    caption = f"{overlap:.0f} % of the two areas overlap."
    if threshold is not None and threshold <= top:
        layout["shapes"] = [_upright(threshold)]
        caption += f" The upright line is the threshold {threshold:.4g}: nearer pairs count as similar."
    table = Table(["pairs", "5 % nearer than", "median distance", "5 % farther than"], rows)
    title = f"Distances of pairs: {one.name}"
    return Figure(f"histogram-{one.slug}", title, caption, traces, layout, table, one.run)


def map_figure(one: Judged) -> Figure:
    """Points in the plane of their two principal components, coloured by class."""
    point_map, asked = one.measured.map, one.subject.asked
    names = [str(name) for name in (point_map.rows if asked.ids is None else np.asarray(asked.ids)[point_map.rows])]
    traces: list[dict[str, Any]] = []
    for group in _class_groups(one):
        chosen = np.flatnonzero(group.members)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(group.name),
                "x": numbers(point_map.places[chosen, 0], 4),
                "y": numbers(point_map.places[chosen, 1], 4),
                "text": [plain(names[i]) for i in chosen],
                "marker": {"color": group.colour, "symbol": group.symbol, "size": 6, "opacity": 0.75},
                "hovertemplate": f"point %{{text}}<extra>{plain(group.name)}</extra>",
                "meta": {"group": group.key},
            }
        )
    caption = f"{len(names):,} points; the plane shows {100 * point_map.share:.0f} % of the variance."
    layout = {
        "xaxis": axis("first component", **_UNMARKED),
        "yaxis": axis("second component", **_UNMARKED, scaleanchor="x"),
        "height": 400,
        "showlegend": False,
    }
    return Figure(f"map-{one.slug}", f"Points: {one.name}", caption, traces, layout, None, one.run)


def class_switches(one: Judged) -> Html | None:
    """The legend of the maps of a subject, each class a button that shows and hides it in all of them."""
    if one.subject.asked.labels is None:
        return None
    buttons = "".join(
        switch_html(group.key, group.name, group.colour, _SYMBOLS[group.symbol]) for group in _class_groups(one)
    )
    content = f'<div class="switches" role="group" aria-label="Classes to show">{buttons}</div>'
    return Html(f"classes-{one.subject_number}", content)


def spectrum_figure(runs: Sequence[ReportedRun]) -> Figure | None:
    """The eigenvalues of M, the largest first."""
    series, told = [], []
    for run in runs:
        if run.metric is not None:
            values = spectrum(run.metric)
            held = np.cumsum(values) / max(values.sum(), 1e-300)
            told.append(f"{run.name}: {int(np.searchsorted(held, 0.9)) + 1} of {len(values)} hold 90 % of the sum")
            positive = values[values > values[0] * 1e-12]
            if not len(positive):  # L is 0, and has no logarithm to show
                continue
            series.append(Series(run.name, np.arange(1, len(positive) + 1), positive, **run_style(run.number)))
    if not series:
        return None
    caption = f"How much each direction counts. {'; '.join(told)}."
    decades = np.log10(max(np.max(one.y) for one in series) / min(np.min(one.y) for one in series))
    ticks = 1 if decades >= 2 else "D2"
    most = max(len(np.atleast_1d(one.y)) for one in series)
    layout = shared_layout(
        axis("number", range=[0, most + 1]),
        axis("eigenvalue", type="log", exponentformat="power", dtick=ticks),
    )
    traces = lines(series, ".4g")
    table = table_of(series, "number", "eigenvalue")
    return Figure("spectrum", "Eigenvalues of M", caption, traces, layout, table)


@dataclass(frozen=True, eq=False)
class _ClassGroup:
    key: str
    name: str
    members: NDArray[np.bool_]
    """Which points of the map are of it."""
    colour: str
    symbol: str


def _class_groups(one: Judged) -> list[_ClassGroup]:
    """The classes on a map and their looks; of very many classes only the largest have their own."""
    rows = one.measured.map.rows
    if one.subject.asked.labels is None:
        return [_ClassGroup("class-all", "points", np.ones(len(rows), np.bool_), "--class-0", "circle")]
    known = Labels(np.asarray(one.subject.asked.labels)[rows])
    largest = np.sort(np.argsort(-np.bincount(known.codes), kind="stable")[:_MOST_CLASSES])
    symbols, prefix = list(_SYMBOLS), f"class-{one.subject_number}"
    groups = [
        _ClassGroup(
            f"{prefix}-{i}", str(known.classes[code]), known.codes == code,
            f"--class-{i % _CLASS_COLOURS}", symbols[(i // _CLASS_COLOURS) % len(symbols)],
        )
        for i, code in enumerate(largest)
    ]  # fmt: skip
    rest = ~np.isin(known.codes, largest)
    if rest.any():
        groups.append(_ClassGroup(f"{prefix}-other", "other classes", rest, EUCLID, "circle"))
    return groups


def _upright(x: float) -> dict[str, Any]:
    return {
        "type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": "--text", "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def _listed(what: str, judged: Sequence[Judged], value: Any) -> str:
    return f"{what}: {'; '.join(f'{one.name} {value(one):.4f}' for one in judged)}."
