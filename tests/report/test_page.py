"""The page: one file that holds the figures of the runs, escapes what is in the data, and opens anywhere."""

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from nearfar.cli import main
from nearfar.data.dataset import write_dataset
from nearfar.model.training import train
from nearfar.report import Choices, write_report
from nearfar.report.building import MetricParts, build_page, metric_parts
from nearfar.report.figure import Table
from nearfar.report.page import document, table_html
from nearfar.report.reading import read_runs
from nearfar.settings import TrainingSettings

MOST_BYTES = 8_000_000


class Outline(HTMLParser):
    """The ids, the images, the headings and the text of a page, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)


def figures_of(text: str) -> dict[str, dict]:
    return json.loads(re.search(r'<script type="application/json" id="figures">(.*?)</script>', text)[1])


@pytest.fixture(scope="module")
def page(place, tmp_path_factory) -> str:
    """A report of two runs on points that they have not seen."""
    out = tmp_path_factory.mktemp("pages") / "report.html"
    notes = write_report([place / "pairs", str(place / "paper")], str(out), Choices(dataset=str(place / "unseen")))
    assert len(notes) == 1
    return out.read_text()


def test_the_page_is_one_file_that_asks_for_nothing(page):
    outline = Outline(page)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    for tag, attributes in outline.tags:
        for name in ("src", "href"):
            assert re.match(r"data:|#", attributes.get(name, "#")), (tag, attributes)
    policy = next(tag["content"] for _, tag in outline.tags if tag.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy
    assert len(page.encode()) < MOST_BYTES


def test_everything_that_was_promised_is_on_the_page(page, place):
    assert figures_of(page).keys() == {
        "objective-steps", "objective-seconds", "ap-steps", "ap-seconds", "precision-recall", "roc",
        "histogram-euclid-0", "histogram-run-0", "histogram-run-1", "map-euclid-0", "map-run-0", "map-run-1",
        "spectrum", "staleness", "workers", "bytes", "queue",
    }  # fmt: skip
    outline = Outline(page)
    assert {f"plot-{name}" for name in figures_of(page)} <= set(outline.ids)
    words = " ".join(outline.words)
    told = "Judged on 597 points of unseen; neighbours among 1,200 of digits"
    fingerprint = read_runs([place / "pairs"])[0].source["points_fingerprint"]
    for text in (told, "different losses", "numpy", "block_size", "hinge", fingerprint):
        assert text in words
    assert sum(tag == "img" for tag, _ in outline.tags) == 6 * (1 + 3 * 8)
    assert all(attributes["alt"] for tag, attributes in outline.tags if tag == "img")


def test_every_picture_has_words_beside_it(page):
    outline = Outline(page)
    plots = [attributes for _, attributes in outline.tags if attributes.get("class") == "plot"]
    assert plots
    for plot in plots:
        assert plot["role"] == "img"
        assert plot["aria-label"]
        assert plot["aria-describedby"] in outline.ids
    for name in figures_of(page):
        if not name.startswith("map-"):
            assert f"table-{name}" in outline.ids


def test_the_summary_is_what_evaluate_says(page, place):
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()), pytest.raises(SystemExit):
        main(["evaluate", str(place / "pairs"), str(place / "unseen"), "--json"])
    said = json.loads(out.getvalue())
    table = re.search(r'<div id="part-summary-0".*?</table>', page)[0]
    rows = {
        cells[0]: cells[1:]
        for cells in (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr.*?</tr>", table))
    }
    assert rows[""] == ["Euclid", "pairs", "paper"]
    for said_of, shown in zip(("euclidean", "learned"), rows["average precision"], strict=False):
        assert shown.startswith(f"{said[said_of]['average_precision']:.4f}")
    for said_of, shown in zip(("euclidean", "learned"), rows["3-NN error"], strict=False):
        assert shown.startswith(f"{100 * said[said_of]['3nn_error']:.2f}")


def test_names_in_the_data_are_never_markup(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>"
    rng = np.random.default_rng(0)
    labels = np.array([evil, "b & <b>"])[rng.integers(0, 2, 300)]
    dataset = write_dataset(tmp_path / "d", rng.normal(size=(300, 5)), labels)
    run = tmp_path / "<i>run & co"
    settings = TrainingSettings(steps=3, rank=2, block_size=50)
    train(dataset.points, labels, settings, labels=labels, run=run, source={"dataset": str(tmp_path / "d")})
    write_report([run], tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text()
    outline = Outline(text)
    assert outline.open == []
    assert not any(tag in ("img", "i", "b") for tag, _ in outline.tags)
    assert "<i>run & co" in "".join(outline.words)
    assert evil in "".join(outline.words)
    names = {trace["name"] for trace in figures_of(text)["map-run-0"]["data"]}
    assert "b &amp; &lt;b&gt;" in names


def test_a_long_history_of_many_runs_stays_small(place, tmp_path):
    run = read_runs([place / "pairs"])[0]
    last = run.reports[-1]
    workers = [{"worker": i, "steps": 9, "steps_per_second": 1.0} for i in range(40)]
    reports = [replace(last, step=i, seconds=i / 3, objective=1 / (i + 1), workers=workers) for i in range(5000)]
    runs = [replace(run, number=number, name=f"run {number}", reports=reports) for number in range(6)]
    parts = metric_parts(runs, Choices(neighbours=0))
    assert len(document(build_page(runs, parts, "")).encode()) < MOST_BYTES


def test_a_report_is_replaced_but_no_other_file(place, tmp_path):
    out = tmp_path / "out.html"
    for _ in range(2):
        write_report([place / "pairs"], out, Choices(neighbours=0))
    out.write_text("<!doctype html> my own page")
    with pytest.raises(ValueError, match="exists and is no report"):
        write_report([place / "pairs"], out)
    assert out.read_text() == "<!doctype html> my own page"


def test_runs_of_different_data_are_noted_and_of_different_width_not_judged(place, tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 400)
    for name, width in (("other", 64), ("narrow", 9)):
        dataset = write_dataset(tmp_path / f"{name}-data", rng.normal(size=(400, width)), labels)
        settings = TrainingSettings(steps=3, rank=2, block_size=50)
        source = {"dataset": str(dataset.folder)}
        train(dataset.points, labels, settings, labels=labels, run=tmp_path / name, source=source)
    runs = read_runs([place / "pairs", tmp_path / "other"])
    parts = metric_parts(runs, Choices())
    notes = " ".join(build_page(runs, parts, "").notes)
    assert "learned from different data" in notes
    assert "judged on different points" in notes
    assert [section.name for section in parts.sections] == ["pairs", "map", "neighbours", "spectrum"]
    runs = read_runs([place / "pairs", tmp_path / "narrow"])
    parts = metric_parts(runs, Choices())
    assert "different widths (9, 64)" in " ".join(parts.notes)
    assert [section.name for section in parts.sections] == ["spectrum"]
    parts = metric_parts(runs, Choices(dataset=place / "unseen"))
    assert "narrow measures points of 9 features" in " ".join(parts.notes)
    assert parts.summary[0].parts[0].columns == ["", "Euclid", "pairs"]


def test_a_run_that_has_only_begun_makes_a_page(copied):
    path = copied("pairs")
    for name in ("history.jsonl", "metric.safetensors"):
        (path / name).unlink()
    runs = read_runs([path], live=True)
    page = build_page(runs, MetricParts([], [], []), "begun")
    assert [section.name for section in page.sections] == ["runs", "made"]
    Outline(document(page, live_version="1"))


def _contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_text_and_lines_stand_out_in_light_and_in_dark():
    css = (files("nearfar.report") / "page.css").read_text()
    light, dark = (dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", part)) for part in css.split("@media", 2)[:2])
    assert light.keys() == dark.keys()
    for colours in (light, dark):
        for name, colour in colours.items():
            least = 3.0 if re.match(r"--(series|class|near|far|euclid)", name) else 4.5
            if name in ("--page", "--panel", "--rule", "--grid"):
                continue
            for ground in ("--page", "--panel"):
                assert _contrast(colour, colours[ground]) >= least, (name, ground)


def test_a_column_of_sentences_is_set_as_prose_and_figures_are_not():
    said = "the time was up after 74 steps, before the objective stood still"
    html = table_html(Table(["method", "AP", "cut"], [["A", "0.91", said], ["B", "0.84", ""]]))
    assert f'<td>0.91</td><td class="prose">{said}</td>' in html
    assert '<th scope="col">AP</th><th scope="col" class="prose">cut</th>' in html
    assert "<tbody></tbody>" in table_html(Table(["method", "AP"], []))


def test_the_page_is_in_the_package():
    assert {"page.html", "page.css", "page.js"} <= {path.name for path in files("nearfar.report").iterdir()}
    listed = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert all(f'"report/page.{kind}"' in listed for kind in ("html", "css", "js"))
