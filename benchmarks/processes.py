"""Commands in processes of their own, and the memory that they take."""

import os
import re
import subprocess
import sys
import time
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
    environment = {**surroundings(), "OPENBLAS_NUM_THREADS": str(os.cpu_count())}
    with subprocess.Popen(
        [str(Path(sys.executable).with_name("nearfar")), *arguments], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.02)
        assert process.stdout is not None
        printed = process.stdout.read()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, arguments, printed)
        return printed, peak
