"""The command line as tests call it: in this process, or as a process of its own where that is what is tested."""

import io
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nearfar.cli import main

COMMAND = "from nearfar.cli import main; main()"
"""The program that a command is."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def ended(*arguments: str | Path) -> Ended:
    """A command run in this process, with warnings shown as in a process of its own."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
    return Ended(exit_.value.code or 0, out.getvalue(), err.getvalue())


def nearfar(*arguments: str | Path) -> str:
    """What a command that must succeed prints on standard output."""
    code, out, err = ended(*arguments)
    assert code == 0, err
    return out


class Used(NamedTuple):
    """What a command printed, and what it took."""

    out: str
    peak_bytes: int
    processor_seconds: float


_LOOK = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss * 1024, used.ru_utime + used.ru_stime)
sys.exit(code)
"""


def used_by(*arguments: str | Path) -> Used:
    """What a command that must succeed takes, as a process of its own.

    A small process starts it and looks: the kernel counts what the starting process had before it turned into the
    command, and a process of tests has much.
    """
    command = [sys.executable, "-c", _LOOK, *process(*arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    *printed, used = ended.stdout.splitlines(keepends=True)
    peak, seconds = used.split()
    return Used("".join(printed), int(peak), float(seconds))


def process(*arguments: str | Path, program: str = COMMAND) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-c", program, *(str(argument) for argument in arguments)]


@contextmanager
def running(*arguments: str | Path, program: str = COMMAND, **how: Any) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, which is dead afterwards, whatever happened.

    Nothing reads what it prints, so it is not kept unless ``how``, which goes to ``Popen``, says where it goes.
    """
    quietly = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(process(*arguments, program=program), text=True, **quietly | how) as begun:
        try:
            yield begun
        finally:
            begun.kill()


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen[str] | None = None, seconds: float = 120
) -> None:
    """Return when a condition holds; fail when it does not in time, or when the process it depends on has ended."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None:
            assert condition(), f"the process ended by itself: {process.returncode}, {process.communicate()}"
            return
        assert time.monotonic() < deadline, f"not within {seconds} seconds"
        time.sleep(0.01)
