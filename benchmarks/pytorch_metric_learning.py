"""Time to an average precision, against pytorch-metric-learning; the race itself is in race.py."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

from benchmarks.environments import ROOT, layer, surroundings


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """The lines of the race, both sides of which run in one process of an environment that has the peer."""
    command = [str(layer("pytorch-metric-learning")), "-m", "benchmarks.race", *(["--small"] if small else [])]
    with subprocess.Popen(command, cwd=ROOT, env=surroundings(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
