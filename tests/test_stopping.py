"""Signals end a command once: whatever comes after the first, it cleans up, and says in one line that it did."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nearfar.cli.stopping import Stopped, stopped_by_signals
from nearfar.model.metric import Metric

BEGUN = """
import os, signal, sys
from nearfar.cli import main
from nearfar.files import NpyAppender, atomic
first, second, hangup = int(sys.argv[1]), int(sys.argv[2]), signal.Handlers[sys.argv[3]]
signal.signal(signal.SIGHUP, hangup)
append, remove = NpyAppender.append, atomic._remove

def appending(self, rows):
    append(self, rows)
    os.kill(os.getpid(), first)

def removing(path):
    if second:
        os.kill(os.getpid(), second)
        os.kill(os.getpid(), second)
    remove(path)

NpyAppender.append, atomic._remove = appending, removing
main(sys.argv[4:])
"""
CALLBACK = """
import ctypes, os, signal, time
from nearfar.cli.stopping import Stopped, stopped_by_signals

def end(number):
    with stopped_by_signals():
        ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), number))()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            time.sleep(0.01)

for number in (signal.SIGINT, signal.SIGTERM):
    try:
        end(number)
    except (KeyboardInterrupt, Stopped) as stop:
        print(repr(stop))
"""

CUT_IN_HALF = """
import os, signal, sys
from nearfar.cli.stopping import Stopped, stopped_by_signals

class Whole:
    def __init__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        self.part = 1
    def __del__(self):
        self.part

with stopped_by_signals():
    try:
        Whole()
    except Stopped:
        print("stopped", file=sys.stderr)
        sys.exit(1)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a metric and points to transform."""
    Metric(np.eye(4)).save(tmp_path / "m.safetensors")
    np.save(tmp_path / "points.npy", np.ones((9, 4)))
    return tmp_path


def transformed(place: Path, first: int, second: int, hangup: str = "SIG_DFL") -> subprocess.CompletedProcess[str]:
    """A transform that sends itself the first signal while it writes, and the second twice while it cleans up."""
    given = (str(first), str(second), hangup)
    command = ("transform", str(place / "m.safetensors"), str(place / "points.npy"), "--out", str(place / "new.npy"))
    run = [sys.executable, "-c", BEGUN, *given, *command]
    return subprocess.run(run, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("second", [0, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_come_while_it_cleans_up_leave_nothing_behind(place: Path, first: int, second: int) -> None:
    before = set(place.iterdir())
    done = transformed(place, first, second)
    assert (done.returncode, done.stdout) == (128 + first, ""), done.stderr
    assert done.stderr == "stopped; nothing is left half-written\n"
    assert set(place.iterdir()) == before


def test_the_end_of_a_terminal_is_passed_over_where_it_is_ignored(place: Path) -> None:
    done = transformed(place, signal.SIGHUP, signal.SIGHUP, "SIG_IGN")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(place / "new.npy"), np.ones((9, 4)))


def test_a_signal_that_is_lost_in_a_callback_comes_again() -> None:
    run = [sys.executable, "-c", CALLBACK]
    done = subprocess.run(run, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.split() == ["KeyboardInterrupt()", f"Stopped({signal.SIGTERM:d})"], done.stderr
    assert done.stderr == ""


def test_nothing_is_told_of_what_a_signal_has_cut_in_half() -> None:
    run = [sys.executable, "-c", CUT_IN_HALF]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stderr == "stopped\n"


def test_what_is_told_of_lost_errors_is_as_before_once_it_has_stopped() -> None:
    before = sys.unraisablehook
    with pytest.raises(Stopped), stopped_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert sys.unraisablehook is before
