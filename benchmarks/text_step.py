"""A step on bags of words: its time as the vocabulary grows, and against the same step in PyTorch, one thread each.

The step is the whole of it: draw 1,000 pairs, gather, gradient of the logistic loss at rank 100, Adam on the touched
features. PyTorch's is its best form of two: a product of the batch's sparse CSR matrix with the rows of L that it
touches, or an embedding bag; both give SparseAdam a sparse gradient of the touched rows.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import nearfar as nf
from benchmarks.serial import serial_job
from nearfar.data.points import as_points
from nearfar.data.sampling import PairSampler, SamplingPlan
from nearfar.data.synthesis import Documents
from nearfar.objective.fast_gradient import Gatherer
from nearfar.objective.losses import Logistic
from nearfar.parameter_server.worker import Worker

VOCABULARIES, SMALL_VOCABULARIES = (100_000, 1_000_000), (10_000, 20_000)
RANK, PAIRS, MARGIN = 100, 1000, 5.0
STEPS_A_TURN, TURNS = 10, 24


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """Milliseconds of a step in turns: with more columns, with a larger vocabulary, and against PyTorch.

    More columns are the same documents with their words at other places: only d differs. A larger vocabulary has as
    many words a document, but a batch then has more different ones, which is more rows of L to change.
    """
    steps, turns = (2, 2) if small else (STEPS_A_TURN, TURNS)
    few, many = SMALL_VOCABULARIES if small else VOCABULARIES
    with threadpool_limits(1):
        documents = _documents(few, 2000 if small else 20_000)
        larger = _documents(many, documents.shape[0])
        ours = {"few": _Ours(documents), "spread": _Ours(_spread(documents, many)), "larger": _Ours(larger)}
        seconds = _in_turns(ours, steps, turns)
        for name, said in (("spread", "the same words, more columns"), ("larger", "a larger vocabulary")):
            yield {
                "comparison": said,
                "columns": [few, many],
                "milliseconds": [round(1000 * min(seconds[side]), 2) for side in ("few", name)],
                "ratio": round(statistics.median(_ratios(seconds[name], seconds["few"])), 3),
            }
        theirs = _torch_sides(larger)
        if not theirs:
            return
        sides: dict[str, Callable[[int], None]] = {"ours": ours["larger"], **theirs}
        seconds = _in_turns(sides, steps, turns)
        best = min(theirs, key=lambda name: statistics.median(seconds[name]))
        yield {
            "comparison": "PyTorch",
            "columns": many,
            "milliseconds": {name: round(1000 * min(each), 2) for name, each in seconds.items()},
            "against": best,
            "ratio": round(statistics.median(_ratios(seconds[best], seconds["ours"])), 3),
        }


def _spread(X: sp.csr_matrix, columns: int) -> sp.csr_matrix:
    """The same rows, their columns at random places among more."""
    places = np.sort(np.random.default_rng(0).choice(columns, X.shape[1], replace=False)).astype(np.int32)
    return sp.csr_matrix((X.data, places[X.indices], X.indptr), shape=(X.shape[0], columns))


def _documents(words: int, count: int) -> sp.csr_matrix:
    return Documents(0, words).rows(1, 0, count)[0].astype(np.float32)


class _Ours:
    """The steps of the serial engine, some at a call."""

    def __init__(self, X: sp.csr_matrix) -> None:
        rng = np.random.default_rng(0)
        pairs, points = nf.Pairs(*_pairs(X.shape[0], rng)), as_points(X)
        Lt = rng.standard_normal((X.shape[1], RANK), dtype=np.float32) * np.float32(0.1)
        sampler = PairSampler(pairs, SamplingPlan(PAIRS, 1, 0))
        job = serial_job(points, sampler, Logistic(margin=MARGIN), Lt, step_size=1e-4)
        self._worker = Worker(0, sampler, job.shards, Lt, None, slots=1, clock=job.clocks.join(0))
        self._gatherer, self._kernel, self._server = Gatherer(points, RANK), job.kernel(), job.server

    def __call__(self, steps: int) -> None:
        for _ in range(steps):
            task = self._worker.begin()
            gathered = self._gatherer.rows_of(task.batch)
            self._server.receive(self._worker.compute(task, gathered, self._kernel, self._server, 1e-4))
            self._server.update()


def _pairs(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    left = rng.integers(n, size=(2, 50 * PAIRS))
    similar, dissimilar = np.stack((left, (left + rng.integers(1, n, size=left.shape)) % n), axis=2)
    return similar, dissimilar


def _torch_sides(X: sp.csr_matrix) -> dict[str, Callable[[int], None]]:
    try:
        import torch  # noqa: PLC0415 - optional
    except ImportError:
        return {}
    torch.set_num_threads(1)
    similar, dissimilar = _pairs(X.shape[0], np.random.default_rng(0))

    def side(project: Callable[[Any, sp.csr_matrix], Any]) -> Callable[[int], None]:
        generator = np.random.default_rng(1)
        weight = torch.nn.Parameter(torch.randn(X.shape[1], RANK) * 0.1)
        optimizer = torch.optim.SparseAdam([weight], lr=1e-4)

        def step(steps: int) -> None:
            for _ in range(steps):
                near, far = (pairs[generator.integers(len(pairs), size=PAIRS // 2)] for pairs in (similar, dissimilar))
                chosen = np.concatenate((near, far))
                Z = project(weight, X[chosen[:, 0]] - X[chosen[:, 1]])
                s = (Z * Z).sum(dim=1)
                loss = torch.nn.functional.softplus(s[: PAIRS // 2] - MARGIN).mean()
                loss = loss + torch.nn.functional.softplus(MARGIN - s[PAIRS // 2 :]).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

        return step

    def bag(weight: Any, rows: sp.csr_matrix) -> Any:
        return torch.nn.functional.embedding_bag(
            torch.from_numpy(rows.indices.astype(np.int64)), weight,
            torch.from_numpy(rows.indptr[:-1].astype(np.int64)), mode="sum", sparse=True,
            per_sample_weights=torch.from_numpy(rows.data),
        )  # fmt: skip

    def product(weight: Any, rows: sp.csr_matrix) -> Any:
        touched, places = np.unique(rows.indices, return_inverse=True)
        some = torch.nn.functional.embedding(torch.from_numpy(touched.astype(np.int64)), weight, sparse=True)
        matrix = torch.sparse_csr_tensor(
            torch.from_numpy(rows.indptr.astype(np.int64)), torch.from_numpy(places.astype(np.int64)),
            torch.from_numpy(rows.data), (rows.shape[0], len(touched)),
        )  # fmt: skip
        return matrix @ some

    return {"embedding bag": side(bag), "CSR product": side(product)}


def _in_turns(sides: dict[str, Any], steps: int, turns: int) -> dict[str, list[float]]:
    """Seconds of a step, each side in turn; the first turn warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name, side in sides.items():
            began = time.perf_counter()
            side(steps)
            if turn:
                seconds[name].append((time.perf_counter() - began) / steps)
    return seconds


def _ratios(above: list[float], below: list[float]) -> Iterator[float]:
    return (a / b for a, b in zip(above, below, strict=True))
