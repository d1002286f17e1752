"""The page: sections of figures, tables and words, put into one HTML document that needs nothing beside it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

from plotly.offline import get_plotlyjs

from nearfar.report.figure import Figure, Table, run_group, run_style

MARK = "<!-- a report of nearfar -->"
"""Stands in every page, so that one is told from other files."""

_LONGEST_FIGURE = 32
"""Characters; a column with a longer text is prose, not figures."""
_TEMPLATE_FILES = ("page.html", "page.css", "page.js")
_OFFLINE = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "form-action 'none'; base-uri 'none'"
)
_LIVE = f"{_OFFLINE}; connect-src 'self'"


@dataclass(frozen=True)
class Html:
    """A part of a section that is HTML already, all text in it escaped."""

    name: str
    content: str


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading."""

    name: str
    title: str
    text: str = ""
    parts: Sequence[Figure | Table | Html] = ()


@dataclass(frozen=True)
class Page:
    """All that a reader sees."""

    title: str
    status: str
    runs: Sequence[str]
    """The names of the runs, in the order of their colours."""
    notes: Sequence[str]
    sections: Sequence[Section] = field(default_factory=list)

    @property
    def figures(self) -> dict[str, dict[str, Any]]:
        """What the page's script draws, by the names of the figures."""
        return {
            part.name: {"data": part.traces, "layout": part.layout}
            for section in self.sections
            for part in section.parts
            if isinstance(part, Figure)
        }


def document(page: Page, *, live_version: str | None = None) -> str:
    """The whole HTML document; with a version, one that asks its server for newer ones."""
    html, css, js = ((files("nearfar.report") / name).read_text(encoding="utf-8") for name in _TEMPLATE_FILES)
    parts = {
        "policy": _OFFLINE if live_version is None else _LIVE,
        "mark": MARK,
        "title": escape(page.title),
        "css": css,
        "live": "" if live_version is None else f' data-version="{escape(live_version)}"',
        "switches": _switches(page.runs),
        **page_parts(page),
        "figures": to_json(page.figures),
        "plotly": get_plotlyjs(),
        "js": js,
    }
    pieces = html.split("@@")  # text and names by turns; what is put in is never looked at again
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def page_parts(page: Page) -> dict[str, str]:
    """The parts of the page that change while a run goes on, as HTML."""
    links = "".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in page.sections)
    notes = "".join(f"<li>{escape(note)}</li>" for note in page.notes)
    return {
        "status": escape(page.status),
        "notes": f"<ul>{notes}</ul>" if notes else "",
        "links": links,
        "sections": "".join(_section(section) for section in page.sections),
    }


def to_json(value: Any) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _switches(runs: Sequence[str]) -> str:
    """A button a run, to show and hide it in all figures; nothing for a run alone."""
    if len(runs) < 2:
        return ""
    buttons = [switch_html(f"run-{i}", name, run_style(i)["colour"]) for i, name in enumerate(runs)]
    return f'<div class="switches runs" role="group" aria-label="Runs to show">{"".join(buttons)}</div>'


def switch_html(group: str, name: str, colour: str, symbol: str = "●") -> str:
    """A button that shows and hides all that is of a group."""
    return (
        f'<button type="button" class="switch" data-switch="{group}" aria-pressed="true">'
        f'<span class="swatch" aria-hidden="true" style="color: var({colour})">{symbol}</span>{escape(name)}</button>'
    )


def _section(section: Section) -> str:
    figures = "".join(_figure(part) for part in section.parts if isinstance(part, Figure))
    rest = "".join(_part(section, i, part) for i, part in enumerate(section.parts) if not isinstance(part, Figure))
    text = f'<p id="text-{section.name}" data-text>{escape(section.text)}</p>' if section.text else ""
    grid = f'<div class="grid">{figures}</div>' if figures else ""
    return (
        f'<section id="{section.name}" aria-labelledby="heading-{section.name}">'
        f'<h2 id="heading-{section.name}">{escape(section.title)}</h2>{text}{rest}{grid}</section>'
    )


def _part(section: Section, number: int, part: Table | Html) -> str:
    if isinstance(part, Html):
        return f'<div id="part-{part.name}" data-text>{part.content}</div>'
    name, content = f"{section.name}-{number}", table_html(part)
    if not part.folded:
        return f'<div id="part-{name}" data-text>{content}</div>'
    return _details(name, part.title, content)


def _figure(figure: Figure) -> str:
    name, caption = figure.name, escape(figure.caption)
    of_run = "" if figure.run is None else f' data-group="{run_group(figure.run)}"'
    table = "" if figure.table is None else _details(name, f"{figure.title} as a table", table_html(figure.table))
    height = figure.layout.get("height", 340)
    return (
        f'<figure id="figure-{name}"{of_run}><h3>{escape(figure.title)}</h3>'
        f'<div class="plot" id="plot-{name}" role="img" style="height: {height}px" '
        f'aria-label="{escape(figure.title)}" aria-describedby="caption-{name}"></div>'
        f'<figcaption id="caption-{name}" data-text>{caption}</figcaption>{table}</figure>'
    )


def _details(name: str, title: str, content: str) -> str:
    return f'<details><summary>{escape(title)}</summary><div id="table-{name}" data-text>{content}</div></details>'


def table_html(table: Table) -> str:
    """A table that scrolls by itself where it is wider than the page."""
    lengths = [max(map(len, column)) for column in zip(*table.rows, strict=True)] or [0] * len(table.columns)
    kinds = ["", *(' class="prose"' if length > _LONGEST_FIGURE else "" for length in lengths[1:])]
    columns = zip(kinds, table.columns, strict=True)
    head = "".join(f'<th scope="col"{kind}>{escape(column)}</th>' for kind, column in columns)
    rows = []
    for i, (first, *rest) in enumerate(table.rows):
        cells = "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds[1:], rest, strict=True))
        marked = ' class="marked"' if i in table.marked else ""
        rows.append(f'<tr{marked}><th scope="row">{escape(first)}</th>{cells}</tr>')
    caption = f"<caption>{escape(table.title)}</caption>" if table.title and not table.folded else ""
    label = escape(table.title or "table")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>{caption}'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
