"""The pages in a real browser: drawn without an error on a desk and on a phone, in light and in dark, and live."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearfar.report.building import Choices, write_report
from nearfar.report.watching import WatchServer

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'nearfar[test]'")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator:
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip(f"needs a browser: one of {', '.join(NAMES)}")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(place, tmp_path_factory) -> Path:
    """A report of two runs."""
    out = tmp_path_factory.mktemp("browser") / "report.html"
    write_report([place / "pairs", place / "paper"], out, Choices(dataset=place / "unseen"))
    return out


@pytest.fixture
def opened(browser):
    """Opens an address; when the test ends, there must have been no error in the page's console."""
    contexts, faults = [], []

    def open_page(address: str, **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("requestfailed", lambda request: faults.append(request.url))
        page.goto(address)
        page.wait_for_selector("body[data-drawn]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


def traces(page, name: str) -> int:
    """How many traces of a figure are really drawn."""
    return page.locator(f"#plot-{name} :is(.trace, .slice, .point-group)").count()


def until(page, condition: str) -> None:
    """Wait for a condition; by hand, since the page's own policy forbids scripts that are made of text."""
    deadline = time.monotonic() + 60
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(50)


def drawn(name: str, count: int) -> str:
    return f"document.querySelectorAll('#plot-{name} .trace').length === {count}"


@pytest.mark.parametrize(
    ("size", "schemes"), [(DESK, ["light", "dark"]), (PHONE, ["dark", "light"])], ids=["desk", "phone"]
)
def test_every_figure_is_drawn_and_nothing_is_wider_than_the_page(opened, report, size, schemes):
    phone = size is PHONE
    page = opened(report.as_uri(), viewport=size, color_scheme=schemes[0], has_touch=phone, is_mobile=phone)
    names = page.evaluate("Object.keys(JSON.parse(document.getElementById('figures').textContent))")
    assert page.locator(".plot").count() == len(names) == 17
    for name in names:
        assert page.locator(f"#plot-{name} svg.main-svg").count() > 0, name
        shown = page.evaluate(f"document.getElementById('plot-{name}').data.length")
        assert traces(page, name) >= shown > 0, name
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    right = "[...document.querySelectorAll('.plot svg.main-svg')].map((one) => one.getBoundingClientRect().right)"
    assert max(page.evaluate(right)) <= size["width"]
    colours = {"light": ("rgb(255, 255, 255)", "rgb(11, 99, 181)"), "dark": ("rgb(20, 23, 28)", "rgb(108, 178, 255)")}
    for scheme in schemes:  # the second one while the page is open
        page.emulate_media(color_scheme=scheme)
        ground, line = colours[scheme]
        until(page, f"getComputedStyle(document.body).backgroundColor === '{ground}'")
        until(page, f"getComputedStyle(document.querySelector('#plot-queue .js-line')).stroke === '{line}'")


def test_a_reader_points_and_switches(opened, report):
    page = opened(report.as_uri(), viewport=DESK, color_scheme="light")
    plot = page.locator("#plot-precision-recall")
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    for x in (0.5, 0.51):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + box["height"] / 2)
    until(page, "document.querySelector('#plot-precision-recall .hoverlayer').textContent.includes('Euclid : 0.')")
    assert plot.locator(".modebar-btn").evaluate_all("(all) => all.map((one) => one.dataset.title.toLowerCase())") == [
        "download plot as a png", "zoom", "pan", "reset axes",
    ]  # fmt: skip

    page.locator("#plot-roc .legendtoggle").nth(1).click()  # in one figure
    until(page, drawn("roc", 2))
    assert traces(page, "precision-recall") == 3

    switch = page.get_by_role("button", name="paper")  # in all, and without a mouse
    switch.focus()
    page.keyboard.press("Enter")
    until(page, drawn("objective-steps", 1))
    assert switch.get_attribute("aria-pressed") == "false"
    assert page.locator("#figure-map-run-1").is_hidden()
    assert page.locator("#figure-map-run-0").is_visible()
    assert page.locator("h4[data-group='run-1']").first.is_hidden()
    switch.click()
    until(page, drawn("objective-steps", 2))
    assert page.locator("#figure-map-run-1").is_visible()

    page.get_by_role("button", name="7", exact=True).click()  # a class, in all maps
    until(page, drawn("map-run-0", 9))
    until(page, drawn("map-euclid-0", 9))


def test_without_scripts_the_numbers_are_there(browser, report):
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("noscript p").is_visible()
    page.locator("summary").first.click()
    assert page.locator("details table").first.is_visible()
    context.close()


def zoomed(page, name: str) -> list[float]:
    """Zoom into a figure with the mouse, as a reader does; the range of its x axis."""
    area = page.locator(f"#plot-{name} .nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
    page.mouse.up()
    until(page, f"document.getElementById('plot-{name}').layout.xaxis.autorange === false")
    return x_range(page, name)


def x_range(page, name: str) -> list[float]:
    return page.evaluate(f"document.getElementById('plot-{name}')._fullLayout.xaxis.range")


def steps(page) -> int:
    return int(page.locator("#part-runs-0 tr", has_text="steps").locator("td").inner_text().replace(",", ""))


def test_watching_a_training_shows_new_steps_and_keeps_the_zoom(opened, place, tmp_path):
    run = tmp_path / "run"
    command = [
        sys.executable, "-c", "from nearfar.cli import main; main()", "train", str(place / "digits"), "--out", str(run),
        "--minutes", "5", "--report-every", "10", "--workers", "2",
    ]  # fmt: skip
    training = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (run / "history.jsonl").exists() or (run / "history.jsonl").read_text().count("\n") < 3:
            assert training.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with WatchServer(run, 0, Choices()) as server:
            page = opened(server.address, viewport=DESK)
            begun = steps(page)
            page.locator("#figure-objective-steps summary").click()
            kept = zoomed(page, "objective-steps")
            page.get_by_text(f"Live: step {begun:,} ").wait_for(state="detached", timeout=60_000)
            points = "document.getElementById('plot-objective-steps').data[0].x"
            until(page, f"{points}[{points}.length - 1] > {begun}")
            assert x_range(page, "objective-steps") == kept
            assert page.locator("#table-objective-steps").is_visible()
            assert page.locator("#status").inner_text().startswith("Live: step ")
            page.close()
    finally:
        training.send_signal(signal.SIGTERM)
        training.wait()


def test_the_figures_of_the_metric_come_when_there_is_one(opened, place, copied):
    run = copied("pairs")
    metric = (run / "metric.safetensors").read_bytes()
    (run / "metric.safetensors").unlink()
    with WatchServer(run, 0, Choices()) as server:
        page = opened(server.address, viewport=PHONE)
        headings = page.locator("h2").all_inner_texts()
        assert headings == ["At a glance", "Progress", "Workers and server", "How it was made"]
        kept = zoomed(page, "bytes")
        (run / "metric.safetensors").write_bytes(metric)
        page.wait_for_selector("#plot-spectrum svg.main-svg", timeout=60_000)
        assert page.locator("h2").all_inner_texts() == [
            "At a glance", "What it is worth", "Progress", "Telling pairs apart", "Points before and after",
            "Nearest neighbours", "The metric", "Workers and server", "How it was made",
        ]  # fmt: skip
        assert x_range(page, "bytes") == kept
        assert page.locator("nav a").count() == 9
        assert page.locator("#status").inner_text() == "The run has ended."
        page.close()
