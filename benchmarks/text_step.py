"""A step on bags of words: its time as the vocabulary grows, and against the same step in PyTorch, one thread each.

Ours is the whole of it: draw 1,000 pairs, gather, gradient of the logistic loss at rank 100, Adam on the touched
features. PyTorch is given its batches ready, as the tensors that the form takes; only what depends on L is timed: Lx,
the loss, its gradient, and SparseAdam's step on the touched rows. What counts is the fastest of its forms: embedding
bags of both points of a pair, or of their difference, over all of L or over the rows that the batch touches, and a
product of the batch's CSR matrix with those rows.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
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
        seconds = _in_turns(sides, steps, turns, before=partial(_make_batches, theirs, steps))
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


Batch = tuple[Any, ...]
"""The tensors of a batch, in the form that takes them."""


@dataclass(frozen=True)
class _Form:
    """A way to get L(x - y) of pairs in PyTorch."""

    batch: Callable[[sp.csr_matrix, sp.csr_matrix], Batch]
    """Of the two points of each pair; not timed."""
    project: Callable[..., Any]
    """Of L, and the tensors of a batch."""


class _Torch:
    """Steps in PyTorch, on batches that were made before."""

    def __init__(self, X: sp.csr_matrix, form: _Form, L: Any, optimizer: Any) -> None:
        self._X, self._form, self._L, self._optimizer = X, form, L, optimizer
        self._pairs, self._generator = _pairs(X.shape[0], np.random.default_rng(0)), np.random.default_rng(1)
        self._batches: list[Batch] = []

    def make_batches(self, count: int) -> None:
        """Draw the batches of the next steps."""
        self._batches = []
        for _ in range(count):
            near, far = (pairs[self._generator.integers(len(pairs), size=PAIRS // 2)] for pairs in self._pairs)
            left, right = np.concatenate((near, far)).T
            self._batches.append(self._form.batch(self._X[left], self._X[right]))

    def __call__(self, steps: int) -> None:
        from torch.nn.functional import softplus  # noqa: PLC0415 - optional

        for batch in self._batches[:steps]:
            Z = self._form.project(self._L, *batch)
            s = (Z * Z).sum(dim=1)
            loss = softplus(s[: PAIRS // 2] - MARGIN).mean() + softplus(MARGIN - s[PAIRS // 2 :]).mean()
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()


def _torch_sides(X: sp.csr_matrix) -> dict[str, _Torch]:
    try:
        import torch  # noqa: PLC0415 - optional
    except ImportError:
        return {}
    torch.set_num_threads(1)
    L = torch.nn.Parameter(torch.randn(X.shape[1], RANK) * 0.1)  # all forms may change the same one
    optimizer = torch.optim.SparseAdam([L], lr=1e-4)
    return {name: _Torch(X, form, L, optimizer) for name, form in _torch_forms().items()}


def _make_batches(sides: Mapping[str, _Torch], count: int) -> None:
    for side in sides.values():
        side.make_batches(count)


def _torch_forms() -> dict[str, _Form]:
    import torch  # noqa: PLC0415 - optional

    embedding, embedding_bag = torch.nn.functional.embedding, torch.nn.functional.embedding_bag

    def bag(rows: sp.csr_matrix) -> Batch:
        return _whole(rows.indices), _whole(rows.indptr[:-1]), torch.from_numpy(rows.data)

    def sums(L: Any, columns: Any, starts: Any, values: Any) -> Any:
        return embedding_bag(columns, L, starts, mode="sum", sparse=L.is_leaf, per_sample_weights=values)

    def matrix(rows: sp.csr_matrix) -> Any:
        return torch.sparse_csr_tensor(
            _whole(rows.indptr), _whole(rows.indices), torch.from_numpy(rows.data), rows.shape, check_invariants=False
        )

    def of_touched(make: Callable[[sp.csr_matrix], Batch]) -> Callable[[sp.csr_matrix, sp.csr_matrix], Batch]:
        def batch(left: sp.csr_matrix, right: sp.csr_matrix) -> Batch:
            touched, rows = _compact(left - right)
            return _whole(touched), *make(rows)

        return batch

    def touched_rows(L: Any, touched: Any) -> Any:
        return embedding(touched, L, sparse=True)

    return {
        "difference of bags": _Form(
            lambda left, right: (*bag(left), *bag(right)), lambda L, *both: sums(L, *both[:3]) - sums(L, *both[3:])
        ),
        "bag of differences": _Form(lambda left, right: bag(left - right), sums),
        "bag of touched rows": _Form(of_touched(bag), lambda L, touched, *rows: sums(touched_rows(L, touched), *rows)),
        "CSR product": _Form(
            of_touched(lambda rows: (matrix(rows),)), lambda L, touched, rows: rows @ touched_rows(L, touched)
        ),
    }


def _whole(numbers: np.ndarray) -> Any:
    """Numbers of rows or columns, as PyTorch takes them."""
    import torch  # noqa: PLC0415 - optional

    return torch.from_numpy(numbers.astype(np.int64))


def _compact(rows: sp.csr_matrix) -> tuple[np.ndarray, sp.csr_matrix]:
    """The columns that have entries, and the rows with only those."""
    touched, places = np.unique(rows.indices, return_inverse=True)
    return touched, sp.csr_matrix((rows.data, places, rows.indptr), shape=(rows.shape[0], len(touched)))


def _in_turns(
    sides: Mapping[str, Callable[[int], None]], steps: int, turns: int, before: Callable[[], object] = lambda: None
) -> dict[str, list[float]]:
    """Seconds of a step, each side in turn; the first turn warms up. ``before`` each turn comes what is not timed."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        before()
        for name, side in sides.items():
            began = time.perf_counter()
            side(steps)
            if turn:
                seconds[name].append((time.perf_counter() - began) / steps)
    return seconds


def _ratios(above: list[float], below: list[float]) -> Iterator[float]:
    return (a / b for a, b in zip(above, below, strict=True))
