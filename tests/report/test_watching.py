"""Watching: a page that follows the run, on this machine only, and a view of it in the terminal."""

import http.client
import io
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from nearfar.cli import main
from nearfar.errors import InvalidSettings
from nearfar.report.building import Choices
from nearfar.report.reading import read_runs
from nearfar.report.terminal import sparkline, view
from nearfar.report.watching import Watched, WatchServer

QUICK = Choices(neighbours=0)


def got(server: WatchServer, path: str, host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(server.address).netloc, timeout=20)
    connection.request("GET", path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def wait_for(happened, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def going_on(copied):
    """A run that has made four reports and no metric yet."""
    path = copied("pairs")
    (path / "metric.safetensors").unlink()
    lines = (path / "history.jsonl").read_text().splitlines(keepends=True)
    (path / "history.jsonl").write_text("".join(lines[:4]))
    return path


def test_the_page_follows_the_run_to_its_end(going_on, place):
    with WatchServer(going_on, 0, QUICK) as server:
        status, page = got(server, "/")
        assert status == 200
        assert "connect-src 'self'" in page
        version = re.search(r'data-version="(\w+)"', page)[1]
        assert got(server, f"/page.json?known={version}") == (204, "")
        first = json.loads(got(server, "/page.json")[1])
        reports = read_runs([going_on], live=True)[0].reports
        assert len(reports) == 4
        assert first["status"].startswith(f"Live: step {reports[-1].step} ")
        assert "spectrum" not in first["figures"]

        shutil.copy(place / "pairs" / "history.jsonl", going_on)
        wait_for(lambda: got(server, f"/page.json?known={version}")[0] == 200)
        second = json.loads(got(server, "/page.json")[1])
        assert second["status"].startswith("Live: step 60 ")
        assert second["version"] != version
        assert not server.watched.has_ended

        shutil.copy(place / "pairs" / "metric.safetensors", going_on)
        server.wait(until_done=True)
        last = json.loads(got(server, "/page.json")[1])
        assert last["status"] == "The run has ended."
        assert {"spectrum", "map-run-0"} <= last["figures"].keys()


def test_the_page_is_for_this_machine_only(going_on):
    with WatchServer(going_on, 0, QUICK) as server:
        port = urlsplit(server.address).port
        assert got(server, "/page.json", f"localhost:{port}")[0] == 200
        assert got(server, "/page.json", f"evil.example:{port}")[0] == 403
        assert got(server, "/history.jsonl")[0] == 404
        assert got(server, "/../run.toml")[0] == 404
        with socket.socket() as outside, pytest.raises(OSError, match="refused"):
            outside.connect((_own_address(), port))


def _own_address() -> str:
    """An address of this machine that is not the loopback's own."""
    return "127.0.0.2" if sys.platform == "linux" else socket.gethostbyname(socket.gethostname())


def test_a_run_that_vanishes_is_said_and_comes_back(going_on):
    with WatchServer(going_on, 0, QUICK) as server:
        away = going_on.rename(going_on.with_name("away"))
        wait_for(lambda: got(server, "/page.json")[0] == 503)
        away.rename(going_on)
        wait_for(lambda: got(server, "/page.json")[0] == 200)


def test_a_port_that_is_taken_is_said(going_on):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidSettings, match="cannot be used"):
            WatchServer(going_on, taken.getsockname()[1], QUICK)


def test_a_metric_that_cannot_be_judged_does_not_end_the_watch(going_on, place):
    shutil.copy(place / "pairs" / "metric.safetensors", going_on)
    shutil.copy(place / "pairs" / "history.jsonl", going_on)
    watched = Watched(going_on, Choices(image_shape=(3, 3)))
    wait_for(lambda: watched.page() and watched.has_ended)
    assert "9 values, but points have 64" in " ".join(watched.page()[0].notes)


@pytest.mark.parametrize("options", [("--neighbours", "0"), ("--terminal",)])
def test_the_command_ends_when_the_run_is_done(place, options, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["watch", str(place / "pairs"), "--until-done", *options])
    assert not ended.value.code
    shown = capsys.readouterr()
    assert ("step 60" if "--terminal" in options else "http://127.0.0.1:") in shown.out
    assert "\x1b" not in shown.out
    assert shown.err == ""


def test_a_terminal_shows_a_live_view(place):
    screen, terminal = pty.openpty()
    command = [sys.executable, "-c", "from nearfar.cli import main; main()", "watch", str(place / "pairs")]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen([*command, "--terminal", "--until-done"], stdout=terminal, env=environment)
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(screen, 65536):
            shown += piece
    except OSError:  # the process has ended
        pass
    os.close(screen)
    assert process.wait(timeout=20) == 0
    text = shown.decode()
    for words in ("objective", "AP", "staleness", "queue", "worker", "▁"):
        assert words in text


def test_the_view_of_a_run_that_has_only_begun(going_on):
    (going_on / "history.jsonl").unlink()
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(view(read_runs([going_on], live=True)[0]))
    assert "no report yet" in console.export_text()


def test_sparklines():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([3.0, 3.0]) == "▁▁"
    assert sparkline([float("nan")]) == ""
    long = sparkline(range(10_000))
    assert len(long) == 48
    assert list(long) == sorted(long)
