"""Files and folders that get their name only when they are whole and on disk; text and JSON in them."""

import contextlib
import errno
import json
import os
import secrets
import shutil
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
    with _hidden(path, _make_file) as temporary:
        with temporary.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _give_name(temporary, path)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that appears at ``path`` only if the block ends without an error."""
    if path.exists():
        raise InvalidFile(f"{path} exists already; choose another name or remove it")
    with _hidden(path, _make_folder) as temporary:
        yield temporary
        _give_name(temporary, path)


@contextlib.contextmanager
def hidden_folder(path: Path) -> Iterator[Path]:
    """A folder beside ``path`` to make files in that are moved when they are whole; gone when the block ends."""
    with _hidden(path, _make_folder) as temporary:
        yield temporary


@contextlib.contextmanager
def locked(folder: Path, refusal: Exception | None = None) -> Iterator[None]:
    """Wait until nobody else is in such a block for this folder, or raise the refusal if somebody is.

    Where the file system knows no locks, everybody may.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError as error:
            assert refusal
            raise refusal from error
        except OSError:
            pass
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _hidden(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """What is to become ``path``, under a hidden name, which nothing has any more when the block ends.

    It is locked, so that it is known to have a living writer.
    """
    with contextlib.suppress(OSError):  # what is wrong with the folder, making says
        remove_unfinished(path.parent, path.name)
    temporary, lock = path.parent / f".{path.name}.{secrets.token_hex(8)}{_UNFINISHED}", None
    try:
        lock = _made_and_locked(path, temporary, make)
        yield temporary
    except OSError as error:
        raise _failed(path, temporary, error) from error
    finally:
        _remove(temporary)
        if lock is not None:
            os.close(lock)


def _make_file(path: Path) -> None:
    path.touch(0o644, exist_ok=False)


def _make_folder(path: Path) -> None:
    path.mkdir(0o755)


def _made_and_locked(path: Path, temporary: Path, make: Callable[[Path], None]) -> int:
    """A handle that keeps it locked."""
    try:
        make(temporary)
        while (lock := _lock_new(temporary)) is None:
            make(temporary)
    except OSError as error:
        raise InvalidFile(
            f"cannot write {path}: {error.strerror or error}; choose a folder that exists and is writable"
        ) from error
    return lock


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


def _give_name(temporary: Path, path: Path) -> None:
    temporary.replace(path)
    _flush_folder(path.parent)


def remove_unfinished(folder: Path, name: str | None = None) -> None:
    """Remove what processes were writing in ``folder`` when they were killed: nobody has it locked any more.

    With ``name``, only what was to get that name.
    """
    if fcntl is None:
        return
    for found in folder.glob(f".*{_UNFINISHED}"):
        becomes, _, random = found.name.removeprefix(".").removesuffix(_UNFINISHED).rpartition(".")
        if random and becomes and name in (None, becomes):
            with contextlib.suppress(OSError):  # locked, or another user's
                _remove_if_unlocked(found)


def _remove_if_unlocked(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    finally:
        os.close(handle)


def _remove(temporary: Path) -> None:
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _failed(path: Path, temporary: Path, error: OSError) -> InvalidFile:
    """What went wrong while ``path`` was written: with it, or with another file that was read for it."""
    reason = error.strerror or str(error) or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InvalidFile(f"cannot write {path}: {reason}; free some, or choose another disk")
    if isinstance(error.filename, str | bytes | os.PathLike):
        named = Path(os.fsdecode(error.filename))
        if named != path and not named.is_relative_to(temporary):
            return InvalidFile(f"{named}: {reason}; choose a file that can be read")
    return InvalidFile(f"cannot write {path}: {reason}")


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
