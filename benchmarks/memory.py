"""The memory of large runs: the highest RssAnon, that is without the pages of files.

Of the commands of the paper's scale (scale.py) it is that of the whole process, in a run of a few steps. Of a call in
Python it is what the call adds to a process that has made its inputs. Such a case is one function, which makes them and
returns the work to be watched; to add one, write it and enter it in CASES.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import nearfar as nf
from benchmarks import scale
from benchmarks.environments import ROOT, surroundings
from benchmarks.processes import anonymous_bytes

Work = Callable[[], dict[str, Any]]
"""What is watched; it returns figures of its own."""
_MEGABYTE = 1 << 20
_READY = "ready"
_STEPS = "40"
"""By then all buffers are as large as they get, and L was judged and saved."""


@dataclass(frozen=True)
class Case:
    """A run to watch."""

    prepare: Callable[[bool], Work]
    """Given whether it is to be small: makes the inputs, which do not count, and returns the work."""
    promised: float
    """Megabytes that the work may add."""


def index_pairs(small: bool) -> Work:
    """Ten million index pairs of 60,000 points of 784 float32 features, given to PairLearner for 20 steps."""
    n_points, n_pairs = (1000, 100_000) if small else (60_000, 10_000_000)
    rng = np.random.default_rng(0)
    X = rng.random((n_points, 784), dtype=np.float32)
    first = rng.integers(n_points, size=n_pairs)
    pairs = np.column_stack((first, (first + rng.integers(1, n_points, size=n_pairs)) % n_points))
    y = np.where((pairs[:, 0] - pairs[:, 1]) % 2 == 0, 1, -1)  # odd and even points are two classes
    del first

    def work() -> dict[str, Any]:
        began = time.perf_counter()
        nf.PairLearner(preprocessor=X, steps=20, random_state=0).fit(pairs, y)
        seconds = time.perf_counter() - began
        return {"seconds": round(seconds, 2), "seconds_a_million_pairs": round(seconds / n_pairs * 1e6, 3)}

    return work


CASES = {"10M index pairs, 60,000 × 784": Case(index_pairs, promised=300)}


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """For each case the memory that it takes or adds; the ratio is against what is promised of the full form."""
    for name, case in CASES.items():
        added, figures = watched(name, small=small)
        yield {
            "case": name if not small else f"{name}, in small",
            **figures,
            "added_megabytes": round(added / _MEGABYTE, 1),
            "promised_megabytes": case.promised,
            "ratio": round(added / _MEGABYTE / case.promised, 3),
        }
    for name, of_scale in (scale.SMALL if small else scale.CASES).items():
        scale.obtain(of_scale)
        peak = scale.train(name, of_scale, ("--steps", _STEPS)) / 1e9
        yield {
            "case": name,
            "steps": int(_STEPS),
            "peak_gigabytes": round(peak, 2),
            "promised_gigabytes": of_scale.gigabytes,
            "ratio": round(peak / of_scale.gigabytes, 3),
        }


def watched(name: str, *, small: bool) -> tuple[int, dict[str, Any]]:
    """Bytes that a case adds to a process of its own, looked at a hundred times a second, and the case's figures."""
    command = [sys.executable, "-m", "benchmarks.memory", name, *(["--small"] if small else [])]
    with subprocess.Popen(
        command, cwd=ROOT, env=surroundings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != _READY:
            raise subprocess.CalledProcessError(process.wait(), command)
        before = peak = anonymous_bytes(process.pid)
        process.stdin.close()
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.01)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        return peak - before, json.loads(process.stdout.read())


def main() -> None:
    """The watched process: inputs made and all compiled, it says so, waits to be watched, and works."""
    work = CASES[sys.argv[1]].prepare("--small" in sys.argv[2:])
    index_pairs(small=True)()  # what is compiled once for all runs does not count
    print(_READY, flush=True)
    sys.stdin.read()
    print(json.dumps(work()))


if __name__ == "__main__":
    main()
