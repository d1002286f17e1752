"""The command line as tests call it: in this process, or as a process of its own where that is what is tested."""

import io
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from nearfar.cli import main


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


def process(*arguments: str | Path) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-c", "from nearfar.cli import main; main()", *(str(argument) for argument in arguments)]
