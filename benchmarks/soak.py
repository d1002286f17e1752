"""``python -m benchmarks.soak [MINUTES]``: trains on Ray while a random fault strikes every so often.

It prints a line of JSON every five minutes and at the end: what was lost, whether the counts agree, the objective on
the way and the worst of it after a tenth of the time, and the memory of all processes together in the last third of the
time so far against that in the middle third (medians).
"""

import json
import os
import random
import signal
import statistics
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nearfar as nf
from benchmarks.problems import paired
from benchmarks.processes import anonymous_bytes
from nearfar.parameter_server.progress import Report

FAULTS = {
    "a worker is killed": ("WorkerActor", signal.SIGKILL),
    "a worker hangs": ("WorkerActor", signal.SIGSTOP),
    "a server is killed": ("ServerActor", signal.SIGKILL),
}
EVERY = 30.0
"""Seconds between two faults."""
TELL_EVERY = 300.0
HANG_AFTER = 10.0
WORST = 1.2
"""The worst report's objective against the last's, at most: faults are not to be seen in what is learned."""

os.environ.setdefault("NEARFAR_STRUCK_BY", uuid.uuid4().hex)  # processes inherit it: no other cluster is struck


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
    """The processes of the actors of this kind, by the name that Ray gives them, in clusters that were started here."""
    mark = f"NEARFAR_STRUCK_BY={os.environ['NEARFAR_STRUCK_BY']}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        try:
            is_actor = folder.name.isdecimal() and (folder / "cmdline").read_bytes().startswith(f"ray::{kind}".encode())
            if is_actor and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # ended meanwhile
    return sorted(found)


@dataclass
class Soak:
    """What is seen of a training under faults."""

    data: str
    faults: Faults
    reports: list[Report] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    """Anonymous bytes of all processes together, at each report."""

    def watch(self, report: Report) -> None:
        """Note how it is at a report."""
        everyone = [os.getpid(), *actors("WorkerActor"), *actors("ServerActor")]
        self.reports.append(report)
        self.memory.append(sum(anonymous_bytes(process) for process in everyone))

    def figures(self) -> dict[str, Any]:
        """What became of it so far."""
        last, count = self.reports[-1], len(self.reports)
        counted = sum(worker["steps"] for worker in last.workers)
        middle, end = (self._memory(last.seconds * i / 3, last.seconds * (i + 1) / 3) for i in (1, 2))
        return {
            "benchmark": "soak",
            "data": self.data,
            "minutes": round(last.seconds / 60, 1),
            "faults": dict(self.faults.struck),
            "steps": last.step,
            "lost": last.lost,
            "counted": counted,
            "untold": last.step + last.lost - counted,
            "objective": [round(self.reports[i].objective, 4) for i in (0, count // 4, count // 2, -1)],
            "worst": round(max(report.objective for report in self.reports[count // 10 :]), 4),
            "ap": last.ap,
            "megabytes": [round(middle / 1e6), round(end / 1e6)],
            "ratio": round(end / max(1, middle), 3),
        }

    def _memory(self, from_: float, to: float) -> float:
        within = [used for report, used in zip(self.reports, self.memory, strict=True) if from_ <= report.seconds <= to]
        return statistics.median(within or [0])


def soak(minutes: float, every: float, on_figures: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """Train for so many minutes under faults, and say what became of it; on the way, too, where that is asked for."""
    problem = paired(small=False)
    faults = Faults(every)
    seen = Soak(problem.name, faults)
    told = 0.0

    def tell(report: Report) -> None:
        nonlocal told
        if on_figures and report.seconds - told > TELL_EVERY:
            told = report.seconds
            on_figures(seen.figures())

    engine = nf.RayEngine(nf.RayOptions(servers=2, hang_after=HANG_AFTER, start_timeout=120.0))
    faults.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        problem.train(
            on=engine, watched_by=[seen.watch, tell], workers=2, minutes=minutes, report_every=100, checkpoint_every=5.0
        )
    faults.stop()
    return seen.figures()


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    began = time.monotonic()
    figures = soak(minutes, EVERY, lambda so_far: print(json.dumps(so_far), flush=True))
    print(json.dumps(figures | {"seconds": round(time.monotonic() - began)}))
    left = actors("WorkerActor") + actors("ServerActor")
    sys.exit(bool(left) or figures["untold"] < 0 or figures["worst"] > WORST * figures["objective"][-1])


if __name__ == "__main__":
    main()
