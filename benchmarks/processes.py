"""Commands in processes of their own, and the memory that they take."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.environments import surroundings


def anonymous_bytes(process: int) -> int:
    """Memory of a process that no file stands behind; 0 when it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def nearfar(*arguments: str) -> tuple[str, int]:
    """What a command printed, and the most memory it had that no file stands behind; BLAS has all cores."""
    return watched(
        [str(Path(sys.executable).with_name("nearfar")), *arguments], {"OPENBLAS_NUM_THREADS": str(os.cpu_count())}
    )


def watched(command: list[str], environment: Mapping[str, str] | None = None) -> tuple[str, int]:
    """The same of any program, with more environment variables.

    It prints to a file, as nobody reads what it prints before it has ended, and a pipe would be full soon.
    """
    surrounding = {**surroundings(), **(environment or {})}
    with (
        tempfile.TemporaryFile("w+") as printed,
        subprocess.Popen(command, env=surrounding, stdout=printed, text=True) as process,
    ):
        peak = 0
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.02)
        printed.seek(0)
        text = printed.read()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, text)
        return text, peak
