"""What nothing else has caught ends a command in one line too, never in a traceback."""

import errno
from pathlib import Path

import pytest
import typer

from tests.commands import ended

FAULTS: dict[str, tuple[BaseException, int, str]] = {
    "a system's fault": (OSError(errno.EIO, "Input/output error"), 1, "error: Input/output error"),
    "a fault in words": (OSError("the library\nsays so"), 1, "error: the library says so"),
    "a fault without a word": (TimeoutError(), 1, "error: TimeoutError"),
    "a path": (
        PermissionError(errno.EACCES, "Permission denied", "/a/b"),
        2,
        "error: /a/b: Permission denied; choose a path that can be read and written",
    ),
    "no memory": (MemoryError(), 1, "error: memory is used up; free some, or give less at once"),
    "no memory for an array": (
        MemoryError("Unable to allocate 1. TiB"),
        1,
        "error: memory is used up (Unable to allocate 1. TiB); free some, or give less at once",
    ),
    "an early end": (
        EOFError(),
        1,
        "error: what was read ended before it should; look for a file that was cut short",
    ),
    "a question not answered": (
        typer.Abort(),
        1,
        "error: what was read ended before it should; look for a file that was cut short",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_any_fault_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, code, line = FAULTS[name]

    def failing(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr("nearfar.cli.data.ingest_sources", failing)
    done = ended("ingest", tmp_path / "a.npy", "--out", tmp_path / "d")
    assert (done.code, done.out, done.err.strip()) == (code, "", line)
