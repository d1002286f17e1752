"""What judging takes: `nearfar evaluate` with a million pairs and ten thousand queries among a million points.

The points have 128 features and 1,000 classes, the metric has rank 100; the command judges Euclidean distance too. The
datasets and the run are made on first use under build/. A second line compares the search for neighbours with FAISS.
"""

import json
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environments import ROOT
from benchmarks.processes import nearfar
from nearfar.data.constraints import Labels
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.data.writer import DatasetWriter
from nearfar.evaluation import Euclidean, neighbours

MADE = ROOT / "build" / "evaluation"
_FEATURES, _RANK = 128, 100
_PROMISED_GIGABYTES = 2.0
_BLOCK = 50_000


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """Seconds and memory of the command, its ratio that to the memory promised; seconds of both searches."""
    n_points, n_queries, n_pairs = (20_000, 500, 20_000) if small else (1_000_000, 10_000, 1_000_000)
    yield evaluate(n_points, n_queries, n_pairs)
    yield search(n_points, n_queries)


def evaluate(n_points: int, n_queries: int, n_pairs: int) -> dict[str, Any]:
    """The command, on data that are made if they are missing."""
    folder = MADE / str(n_points)
    if not (folder / "run" / "metric.safetensors").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _write(folder / "train", n_points, seed=1)
        _write(folder / "test", n_queries, seed=2, n_pairs=n_pairs // 2)
        nearfar("train", str(folder / "train"), "--out", str(folder / "run"), "--rank", str(_RANK), "--steps", "50")
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    printed, peak = nearfar("evaluate", str(folder / "run"), str(folder / "test"), "--json")
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    judged = json.loads(printed)
    figures = ("average_precision", "3nn_error", "map_at_r", "normalized_mutual_information")
    return {
        "case": f"evaluate, {n_pairs} pairs, {n_queries} queries among {n_points} points, rank {_RANK}",
        "seconds": round(seconds, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "peak_gigabytes": round(peak / 1e9, 2),
        "promised_gigabytes": _PROMISED_GIGABYTES,
        "ratio": round(peak / 1e9 / _PROMISED_GIGABYTES, 3),
        **{name: [round(judged[side][name], 4) for side in ("learned", "euclidean")] for name in figures},
    }


def search(n_points: int, n_queries: int) -> dict[str, Any]:
    """The ten nearest of each query, by nearfar and by FAISS, both with all cores; the ratio is how much faster."""
    rng = np.random.default_rng(0)
    references, queries = (rng.random((count, _RANK), dtype=np.float32) for count in (n_points, n_queries))
    neighbours(Euclidean(), queries[:10], references[:100], 10)  # compiles
    began = time.perf_counter()
    ours, _ = neighbours(Euclidean(), queries, references, 10)
    figures: dict[str, Any] = {
        "case": f"10 nearest of {n_queries} queries among {n_points} points of {_RANK} features",
        "seconds": round(time.perf_counter() - began, 2),
    }
    try:
        import faiss  # noqa: PLC0415 - optional
    except ImportError:
        return {**figures, "ratio": 0.0, "left_out": "FAISS is not installed"}
    began = time.perf_counter()
    _, theirs = faiss.knn(queries, references, 10)
    theirs_seconds = time.perf_counter() - began
    return {
        **figures,
        "faiss_seconds": round(theirs_seconds, 2),
        "found_alike": round(float((ours == theirs).mean()), 5),
        "ratio": round(theirs_seconds / figures["seconds"], 2),
    }


def _write(out: Path, count: int, seed: int, n_pairs: int = 0) -> None:
    """Points of 1,000 classes: the first features tell the class, the others do not; so many pairs of either kind."""
    telling = np.arange(_FEATURES) < _FEATURES // 2
    spread = np.where(telling, 1.5, 3.0)
    centres = np.random.default_rng(0).normal(size=(1000, _FEATURES)) * telling
    rng = np.random.default_rng(seed)
    with DatasetWriter(out, n_features=_FEATURES, dtype="float32") as writer:
        for start in range(0, count, _BLOCK):
            labels = rng.integers(0, len(centres), min(_BLOCK, count - start))
            noise = rng.normal(size=(len(labels), _FEATURES)) * spread
            writer.append((centres[labels] + noise).astype(np.float32), labels=labels)
        if n_pairs:
            pairs = draw_pairs(LabelDraws(Labels(labels)), n_pairs, n_pairs)  # of a test set, which is one block
            writer.append_constraints("similar", pairs.similar)
            writer.append_constraints("dissimilar", pairs.dissimilar)
