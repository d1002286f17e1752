"""Files and folders that get their name only when they are whole and on disk; text and JSON in them."""

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # not on every system; nothing is then taken for abandoned
    fcntl = None  # type: ignore[assignment]

from nearfar.errors import InvalidFile, UnreadableFile

_UNFINISHED = ".partial"


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to that appears at ``path``, complete and on disk, only if the block ends without an error."""
    with _unfinished(path, _new_file, 0o644) as temporary, temporary.open("w+b") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that appears at ``path`` only if the block ends without an error."""
    if path.exists():
        raise InvalidFile(f"{path} exists already; choose another name or remove it")
    with _unfinished(path, _new_folder, 0o755) as temporary:
        yield temporary


@contextlib.contextmanager
def _unfinished(path: Path, make: Callable[[Path], Path], mode: int) -> Iterator[Path]:
    """What becomes ``path`` if the block ends without an error, under a hidden name until then.

    It is locked, so that it is known to have a living writer.
    """
    with contextlib.suppress(OSError):  # what is wrong with the folder, making says
        _remove_abandoned(path)
    try:
        temporary = make(path)
        while (lock := _lock_new(temporary)) is None:
            temporary = make(path)
    except OSError as error:
        raise _no_place(path, error) from error
    try:
        yield temporary
        temporary.chmod(mode)
        temporary.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        _remove(temporary)
        os.close(lock)


def _new_file(path: Path) -> Path:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_UNFINISHED)
    os.close(handle)
    return Path(name)


def _new_folder(path: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=_UNFINISHED))


def _lock_new(temporary: Path) -> int | None:
    """A handle that keeps it locked, or None if another process removed it before it was."""
    if fcntl is None:
        return os.open(os.devnull, os.O_RDONLY)
    try:
        handle = os.open(temporary, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with contextlib.suppress(OSError):  # where the file system knows no locks, nothing is taken for abandoned
        fcntl.flock(handle, fcntl.LOCK_EX)
    if temporary.exists():
        return handle
    os.close(handle)
    return None


def _remove_abandoned(path: Path) -> None:
    """Remove what processes were writing to ``path`` when they were killed: nobody has it locked any more."""
    if fcntl is None:
        return
    for found in path.parent.iterdir():
        before, _, random = found.name.removesuffix(_UNFINISHED).rpartition(".")
        if found.name.endswith(_UNFINISHED) and random and before == f".{path.name}":
            with contextlib.suppress(OSError):  # locked, or another user's
                handle = os.open(found, os.O_RDONLY)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(found)
                finally:
                    os.close(handle)


def _remove(temporary: Path) -> None:
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


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


def open_file(path: Path) -> IO[bytes]:
    """Open a file to read, or say why it cannot be opened."""
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise InvalidFile(f"{path} is missing") from error
    except IsADirectoryError as error:
        raise UnreadableFile(f"{path} is a folder; expected a file") from error
    except PermissionError as error:
        raise UnreadableFile(f"{path} may not be read by you: get the right to, as with chmod u+r") from error
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be opened: {error.strerror}; choose a file that can be read") from error


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
    with open_file(path) as file:
        try:
            value = json.load(file)
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
