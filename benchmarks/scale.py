"""The paper's scale on one machine, by the commands of the README, each run in a process of its own.

Every line has what ``nearfar plan`` said before the run beside what the run took. Datasets are made on first use under
build/data; the system is told to forget their files before a run, so each starts from a cold page cache.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.environments import ROOT
from benchmarks.processes import nearfar

DATA = ROOT / "build" / "data"
RUNS = ROOT / "build" / "runs"


@dataclass(frozen=True)
class Case:
    """A dataset, and how to train on it."""

    shape: str
    points: int
    pairs: int
    """Of each kind, drawn and stored; 0 to learn from labels."""
    settings: tuple[str, ...]
    budget: tuple[str, str]
    gigabytes: float
    """Promised."""
    features: int | None = None
    promised: str = ""
    """What else is."""
    bound: tuple[int, int, int] | None = None
    """Pairs a step, features and rank, where the time of a step is set beside the machine's bound for dense ones."""

    @property
    def folder(self) -> Path:
        words = "" if self.features is None else f"-{self.features}"
        return DATA / f"{self.shape}-{self.points}{words}"


HINGE = ("--loss", "hinge", "--margin", "1", "--workers", "2")
TEXT = ("--from-labels", "--rank", "100", "--checkpoint-every", "600")
"""Seconds of training: a checkpoint in their midst, of 1.2 GB, would take as long, and is none of the steps."""
CASES = {
    "imnet-1m": Case(
        "imnet-1m", 1_000_000, 100_000_000, ("--rank", "1000", "--batch-size", "1000", *HINGE), ("--minutes", "10"), 4,
        promised="8,000 pairs a second",
    ),
    "imnet-1m, labels": Case(
        "imnet-1m", 1_000_000, 0, ("--from-labels", "--rank", "1000", "--workers", "2"), ("--minutes", "3"), 4
    ),
    "imnet-63k": Case(
        "imnet-63k", 63_000, 100_000,
        ("--rank", "10000", "--batch-size", "100", "--report-every", "20", *HINGE), ("--steps", "100"), 12,
        promised="1.6 times the bound", bound=(100, 21_504, 10_000),
    ),
    "text-1m, 100,000 words": Case("text-1m", 200_000, 0, TEXT, ("--steps", "200"), 0.5, 100_000),
    "text-1m": Case("text-1m", 200_000, 0, TEXT, ("--steps", "200"), 2, 1_000_000),
}  # fmt: skip
SMALL = {
    "text-1m, in small": Case(
        "text-1m", 1000, 1000, ("--rank", "16", "--batch-size", "100", *HINGE), ("--steps", "30"), 0.5, 10_000,
        bound=(100, 10_000, 16),
    )
}  # fmt: skip


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """For each case what was planned and what was seen."""
    for name, case in (SMALL if small else CASES).items():
        yield {"case": name, **_run(name, case)}


def _run(name: str, case: Case) -> dict[str, Any]:
    made = obtain(case)
    planned = json.loads(nearfar("plan", str(case.folder), *case.settings, *case.budget, "--json")[0])
    before = _sgemm_rate()
    peak, run_folder = train(name, case, case.budget), _run_folder(name)
    after = _sgemm_rate()
    history = [json.loads(line) for line in (run_folder / "history.jsonl").read_text().splitlines()]
    pairs_only = ("--neighbours", "0", "--clusters", "0", "--json")
    judged = json.loads(nearfar("evaluate", str(run_folder), f"{case.folder}-test", *pairs_only)[0])
    first, last = history[1] if len(history) > 2 else history[0], history[-1]
    step_seconds = (last["seconds"] - first["seconds"]) / max(1, last["step"] - first["step"])
    return {
        **made,
        "steps": last["step"],
        "seconds": round(last["seconds"], 1),
        "pairs_per_second": round((last["pairs"] - first["pairs"]) / (last["seconds"] - first["seconds"])),
        "step_seconds": round(step_seconds, 4),
        "planned_step_seconds": round(planned["step_seconds"], 4),
        "ratio": round(planned["step_seconds"] / step_seconds, 2),
        "peak_gigabytes": round(peak / 1e9, 2),
        "planned_gigabytes": round(planned["memory_bytes"] / 1e9, 2),
        "planned_memory_ratio": round(planned["memory_bytes"] / peak, 2),
        "bottleneck": planned["bottleneck"],
        "average_precision": round(judged["learned"]["average_precision"], 4),
        "euclidean": round(judged["euclidean"]["average_precision"], 4),
        "curve": [[round(report["seconds"]), round(report["ap"], 3)] for report in _some(history) if report["ap"]],
        "promised_gigabytes": case.gigabytes,
        "promised": case.promised,
        "sgemm_gigaflops": [round(rate / 1e9, 1) for rate in (before, after)],
        **(_bound(*case.bound) if case.bound else {}),
    }


def train(name: str, case: Case, budget: tuple[str, str]) -> int:
    """One run from a cold page cache, and the most memory it had that no file stands behind."""
    run_folder = _run_folder(name)
    shutil.rmtree(run_folder, ignore_errors=True)
    run_folder.parent.mkdir(parents=True, exist_ok=True)
    _forget(case.folder)
    return nearfar("train", str(case.folder), *case.settings, *budget, "--out", str(run_folder))[1]


def _run_folder(name: str) -> Path:
    return RUNS / name.replace(" ", "-").replace(",", "")


def obtain(case: Case) -> dict[str, float]:
    """Make the dataset if it is missing, and draw its pairs if others are stored; seconds and memory of that."""
    took: dict[str, float] = {}
    if not case.folder.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(f"{case.folder}-test", ignore_errors=True)
        words = [] if case.features is None else ["--features", str(case.features)]
        began = time.perf_counter()
        nearfar("synthesize", case.shape, "--out", str(case.folder), "--points", str(case.points), *words)
        took["synthesis_seconds"] = round(time.perf_counter() - began, 1)
    stored = case.folder / "similar.npy"
    if case.pairs and not (stored.exists() and len(np.load(stored, mmap_mode="r")) == case.pairs):
        began = time.perf_counter()
        drawn = str(case.pairs)
        _, peak = nearfar("sample", str(case.folder), "--similar", drawn, "--dissimilar", drawn)
        took["sampling_seconds"] = round(time.perf_counter() - began, 1)
        took["sampling_gigabytes"] = round(peak / 1e9, 2)
    return took


def _sgemm_rate() -> float:
    """Flops a second of one core's dense products, over a second: machines differ by a factor of two, as do minutes."""
    b, d, k = 1000, 2000, 1000
    rows, Lt, out = np.ones((b, d), np.float32), np.ones((d, k), np.float32), np.empty((b, k), np.float32)
    spent, count = 0.0, 0
    with threadpool_limits(1):
        while spent < 1:
            spent, count = spent + _seconds(lambda: np.matmul(rows, Lt, out=out)), count + 1
    return 2 * b * d * k * count / spent


def _bound(b: int, d: int, k: int) -> dict[str, float]:
    """The time of a step's products at this machine's sgemm rate, and of the traffic of L at its copying rate."""
    rows, Lt = np.ones((b, d), np.float32), np.ones((d, k), np.float32)
    copy = np.empty_like(Lt)
    product = min(_seconds(lambda: rows @ Lt) for _ in range(3))
    copying = min(_seconds(lambda: np.copyto(copy, Lt)) for _ in range(3))
    traffic = 2  # the update reads and writes L once, the pull reads it and writes a copy
    return {"bound_seconds": round(2 * product + traffic * copying, 4)}


def _seconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _some(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most a dozen reports, the first and the last among them."""
    chosen = np.unique(np.linspace(0, len(history) - 1, 12).astype(int))
    return [history[place] for place in chosen]


def _forget(folder: Path) -> None:
    """Ask the system to drop a folder's files from its page cache."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
