"""How near a step comes to the machine's limit: the rate of its two matrix products alone, at the same shapes."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import sparse_limit
from benchmarks.serial import Watcher, serial_job
from nearfar.data.constraints import Pairs
from nearfar.data.points import as_points
from nearfar.data.sampling import PairSampler, SamplingPlan
from nearfar.engine.engine import Job
from nearfar.engine.serial import SerialEngine
from nearfar.objective.losses import Hinge
from nearfar.parameter_server.messages import Applied

SHAPES = {
    "MNIST pairs": (60_000, 784, 600, 1000, 20),
    "d=21504, k=1000": (4_000, 21_504, 1000, 1000, 4),
    "d=21504, k=10000, batch of 100": (4_000, 21_504, 10_000, 100, 2),
}
"""Points, d, k, pairs a step, steps a turn: the paper's three. In the last one 100 pairs change all of a large L."""
SMALL = {"small": (500, 100, 50, 100, 5)}
ROUNDS = 5


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """Flops a second of one worker's whole step (sample, gather, gradient, update), and of its products alone."""
    for name, (n, d, k, b, steps) in (SMALL if small else SHAPES).items():
        with threadpool_limits(1):
            turns = _Turns(_products(d, k, b), steps, rounds=2 if small else ROUNDS)
            SerialEngine().run(_job(n, d, k, b), turns)
        flops = 4 * b * d * k
        ratios = [limit / ours for limit, ours in zip(turns.products, turns.steps, strict=True)]
        yield {
            "shape": name,
            "step_gflops": round(flops / min(turns.steps) / 1e9, 1),
            "sgemm_gflops": round(flops / min(turns.products) / 1e9, 1),
            "ratio": round(statistics.median(ratios), 3),
        }
    yield from sparse_limit.run(small=small)


class _Turns(Watcher):
    """A supervisor that times steps and products in turns: some steps, then as many products, and again."""

    def __init__(self, products: Callable[[], None], at_once: int, rounds: int) -> None:
        super().__init__()
        self.steps: list[float] = []
        """Mean seconds of a step, for each turn but the first, which warms up."""
        self.products: list[float] = []
        self._work, self._at_once, self._rounds = products, at_once, rounds
        self._done, self._began = 0, time.perf_counter()

    def attend(self, applied: list[Applied]) -> bool:
        self._done += len(applied)
        if self._done % self._at_once:
            return False
        now = time.perf_counter()
        for _ in range(self._at_once):
            self._work()
        after = time.perf_counter()
        if self._done > self._at_once:
            self.steps.append((now - self._began) / self._at_once)
            self.products.append((after - now) / self._at_once)
        self._began = after
        return len(self.steps) == self._rounds


def _job(n: int, d: int, k: int, b: int) -> Job:
    rng = np.random.default_rng(0)
    points = as_points(rng.random((n, d), dtype=np.float32))
    pairs = Pairs(rng.integers(n, size=(10 * b, 2)), rng.integers(n, size=(10 * b, 2)))
    Lt = rng.standard_normal((d, k), dtype=np.float32)
    return serial_job(points, PairSampler(pairs, SamplingPlan(b, 1, 0)), Hinge(margin=1e9), Lt)


def _products(d: int, k: int, b: int) -> Callable[[], None]:
    rng = np.random.default_rng(1)
    rows, Lt = rng.random((b, d), dtype=np.float32), rng.random((d, k), dtype=np.float32)
    Z, G = np.empty((b, k), np.float32), np.empty((d, k), np.float32)

    def products() -> None:
        np.matmul(rows, Lt, out=Z)
        np.matmul(rows.T, Z, out=G)

    return products
