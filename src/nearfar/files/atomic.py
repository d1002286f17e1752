"""Files and folders that get their name only when they are whole and on disk; text and JSON in them."""

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from nearfar.errors import InvalidFile

_UNFINISHED = ".partial"


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to that appears at ``path``, complete and on disk, only if the block ends without an error."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_UNFINISHED)
    except OSError as error:
        raise _no_place(path, error) from error
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that appears at ``path`` only if the block ends without an error."""
    if path.exists():
        raise InvalidFile(f"{path} exists already; choose another name or remove it")
    try:
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=_UNFINISHED))
    except OSError as error:
        raise _no_place(path, error) from error
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Remove the files in ``folder`` that a process was writing when it was killed; nobody may be writing there now."""
    for path in folder.glob(f".*{_UNFINISHED}"):
        path.unlink(missing_ok=True)


def _no_place(path: Path, error: OSError) -> InvalidFile:
    return InvalidFile(f"cannot write {path}: {error.strerror}; choose a folder that exists and is writable")


def _unwritable(path: Path, error: OSError) -> InvalidFile:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return InvalidFile(
        f"cannot write {path}: {error.strerror}" + ("; free some, or choose another disk" if full else "")
    )


def check_free(path: Path, suffix: str) -> None:
    """Raise unless ``path`` is the name of a file of this kind that does not exist yet, in a folder that does."""
    if path.suffix.lower() != suffix:
        raise InvalidFile(f"{path} is no name of a {suffix[1:]} file; expected one that ends in {suffix}")
    if path.exists():
        raise InvalidFile(f"{path} exists already; choose another name or remove it")
    if not path.parent.is_dir():
        raise InvalidFile(f"cannot write {path}: there is no such folder; choose a folder that exists and is writable")


def make_folder(path: Path) -> None:
    """Make ``path`` and its parents, or say why it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFile(f"cannot make the folder {path}: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InvalidFile(f"{path} is missing") from error
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path} is not readable as JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidFile(f"{path} should hold a JSON object, but holds a {type(value).__name__}")
    return value


def _flush_folder(folder: Path) -> None:
    """Make a rename in this folder survive a power cut, where the system lets a folder be opened."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
