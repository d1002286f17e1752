"""``python -m benchmarks.soak [MINUTES]``: trains on Ray while a random fault strikes every so often.

At the end it prints one line of JSON: what was lost, whether the counts agree, and the memory of all processes together
in the last third of the time against that in the middle third (medians).
"""

import json
import math
import os
import random
import signal
import statistics
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import nearfar as nf
from benchmarks.memory import anonymous_bytes
from benchmarks.problems import paired
from nearfar.parameter_server.progress import Report

FAULTS = {
    "a worker is killed": ("WorkerActor", signal.SIGKILL),
    "a worker hangs": ("WorkerActor", signal.SIGSTOP),
    "a server is killed": ("ServerActor", signal.SIGKILL),
}
EVERY = 30.0
"""Seconds between two faults."""
HANG_AFTER = 10.0


class Faults(threading.Thread):
    """Strikes at random, again and again, until it is told to stop."""

    def __init__(self, every: float) -> None:
        super().__init__(daemon=True)
        self.struck: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self._every, self._done, self._rng = every, threading.Event(), random.Random(0)

    def run(self) -> None:
        while not self._done.wait(self._every):
            what = self._rng.choice(list(FAULTS))
            kind, number = FAULTS[what]
            victims = actors(kind)
            if victims:
                os.kill(self._rng.choice(victims), number)
                self.struck[what] += 1

    def stop(self) -> None:
        self._done.set()
        self.join()


def actors(kind: str) -> list[int]:
    """The processes of the actors of this kind, by the name that Ray gives them."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and (folder / "cmdline").read_bytes().startswith(f"ray::{kind}".encode()):
                found.append(int(folder.name))
        except OSError:
            continue  # ended meanwhile
    return sorted(found)


def soak(minutes: float, every: float) -> dict[str, Any]:
    """Train for so many minutes under faults, and say what became of it."""
    problem = paired(small=False)
    memory: list[tuple[float, int]] = []

    def watch(report: Report) -> None:
        everyone = [os.getpid(), *actors("WorkerActor"), *actors("ServerActor")]
        memory.append((report.seconds, sum(anonymous_bytes(process) for process in everyone)))

    engine = nf.RayEngine(nf.RayOptions(servers=2, hang_after=HANG_AFTER, start_timeout=120.0))
    faults = Faults(every)
    faults.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        history = problem.train(
            on=engine, watched_by=[watch], workers=2, minutes=minutes, report_every=100, checkpoint_every=5.0
        )
    faults.stop()
    last = history[-1]
    middle, end = (
        statistics.median([used for seconds, used in memory if from_ <= seconds / (60 * minutes) < to] or [0])
        for from_, to in ((1 / 3, 2 / 3), (2 / 3, math.inf))
    )
    counted = sum(worker["steps"] for worker in last.workers)
    return {
        "benchmark": "soak",
        "data": problem.name,
        "minutes": minutes,
        "faults": faults.struck,
        "steps": last.step,
        "lost": last.lost,
        "counted": counted,
        "untold": last.step + last.lost - counted,
        "objective": [round(history[i].objective, 4) for i in (0, len(history) // 4, len(history) // 2, -1)],
        "ap": last.ap,
        "megabytes": [round(middle / 1e6), round(end / 1e6)],
        "ratio": round(end / max(1, middle), 3),
    }


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    began = time.monotonic()
    figures = soak(minutes, EVERY)
    print(json.dumps(figures | {"seconds": round(time.monotonic() - began)}))
    left = actors("WorkerActor") + actors("ServerActor")
    sys.exit(bool(left) or figures["untold"] < 0)


if __name__ == "__main__":
    main()
