"""Compiled loops: one decorator, and a place on disk for what was compiled that is left when any of the loops changes.

Numba keeps what it compiled of a function for as long as that function's own file stays as it is. But a loop has what
it calls within it, also from other files: after an upgrade that changed only those, old loops and new ones would
disagree on how memory is laid out. So the loops of this package share one folder, named for the sources of all of them.
"""

import atexit
import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit

_PACKAGE = Path(__file__).parent
_NUMBA: Any = config  # whose values have no types
_PREFIX = "nearfar-loops-"
_NAME = re.compile(_PREFIX + "[0-9a-f]{16}")
_KEPT_SECONDS = 7 * 24 * 3600
"""How long a folder of other sources is kept after its last use: another branch or process may still use it."""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function on its first call for each kind of arguments, and keep it; it releases the GIL.

    What is imported from an archive is compiled anew by each process, as there are no sources to name a folder for.

    Parameters
    ----------
    **options
        Those of ``numba.njit``.
    """

    def of(function: Callable[..., Any]) -> Any:
        if not _sources():
            return njit(nogil=True, **options)(function)
        given = _NUMBA.CACHE_DIR  # which is for all of a process, and so is not left changed
        _NUMBA.CACHE_DIR = str(_folder())
        try:
            return njit(nogil=True, cache=True, **options)(function)
        finally:
            _NUMBA.CACHE_DIR = given

    return of


@cache
def _folder() -> Path:
    """Where compiled loops are kept: in the first place that can be written to, or else until this process ends."""
    name = _PREFIX + _digest_of_sources()
    for place in _places():
        folder = place / name
        if _is_of_use(folder):
            named = [other for other in place.glob(f"{_PREFIX}*") if _NAME.fullmatch(other.name)]
            _remove_old([other for other in named if other != folder])
            return folder
    folder = Path(tempfile.mkdtemp(prefix="nearfar-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _sources() -> list[Path]:
    """All files of the package; none where it is in an archive."""
    return sorted(_PACKAGE.rglob("*.py"))


def _digest_of_sources() -> str:
    """Of all files that have to do with compiling."""
    digest = hashlib.sha256()
    for path in _sources():
        text = path.read_bytes()
        if b"numba" in text or b"llvmlite" in text or b"nearfar.compiled" in text:
            digest.update(text)
    return digest.hexdigest()[:16]


def _places() -> Iterator[Path]:
    if _NUMBA.CACHE_DIR:
        yield Path(_NUMBA.CACHE_DIR)
        return
    yield _PACKAGE / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - Path raises without one
    if os.path.isabs(home):  # noqa: PTH117
        yield Path(home) / "nearfar"


def _is_of_use(folder: Path) -> bool:
    """Whether the folder can be written to; its time says then that it was used now."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            os.utime(folder)
            return True
    except OSError:
        return False


def _remove_old(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(folder)
