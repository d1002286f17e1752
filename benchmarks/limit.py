"""How near a step comes to the machine's limit: the rate of its two matrix products alone, at the same shapes."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from nearfar.data.constraints import Pairs
from nearfar.data.points import as_points
from nearfar.data.sampling import PairSampler, SamplingPlan
from nearfar.engine.budget import Budget
from nearfar.engine.engine import Job
from nearfar.engine.serial import SerialEngine
from nearfar.objective.losses import Hinge
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.messages import Applied
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import UpdateRule
from nearfar.parameter_server.worker import Shard

SHAPES = {"MNIST pairs": (60_000, 784, 600, 1000, 20), "d=21504, k=1000": (4_000, 21_504, 1000, 1000, 4)}
SMALL = {"small": (500, 100, 50, 100, 5)}
ROUNDS = 5


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """Flops a second of one worker's whole step (sample, gather, gradient, update), and of its products alone."""
    for name, (n, d, k, b, steps) in (SMALL if small else SHAPES).items():
        with threadpool_limits(1):
            job = _job(n, d, k, b)
            products = _products(d, k, b)
            products()
            _steps(job, 2)
            ours, limit = [], []
            for _ in range(2 if small else ROUNDS):
                limit.append(4 * b * d * k * steps / sum(_seconds(products) for _ in range(steps)))
                ours.append(4 * b * d * k * steps / _seconds(partial(_steps, job, steps)))
        yield {
            "shape": name,
            "step_gflops": round(max(ours) / 1e9, 1),
            "sgemm_gflops": round(max(limit) / 1e9, 1),
            "ratio": round(float(np.median(np.divide(ours, limit))), 3),
        }


class _Count:
    """A supervisor that ends a job after some steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def attend(self, applied: list[Applied]) -> bool:
        self._left -= len(applied)
        return self._left <= 0

    def worker_failed(self, worker: int, error: BaseException, left: int) -> None:
        raise error


def _job(n: int, d: int, k: int, b: int) -> Job:
    rng = np.random.default_rng(0)
    points = as_points(rng.random((n, d), dtype=np.float32))
    pairs = Pairs(rng.integers(n, size=(10 * b, 2)), rng.integers(n, size=(10 * b, 2)))
    clocks = Clocks(float("inf"))
    Lt = rng.standard_normal((d, k), dtype=np.float32)
    server = Server(Lt, UpdateRule("adam", d, k), clocks, lambda version: 1e-6, capacity=2)
    return Job(
        points=points, sampler=PairSampler(pairs, SamplingPlan(b, 1, 0)), loss=Hinge(margin=1e9), rank=k, server=server,
        clocks=clocks, budget=Budget(None, None), step_size=lambda version: 1e-6, update_rule="adam", workers=1,
        threads_per_worker=1, slots=1, shards=[Shard(0)],
    )  # fmt: skip


def _steps(job: Job, steps: int) -> None:
    SerialEngine().run(job, _Count(steps))


def _products(d: int, k: int, b: int) -> Callable[[], None]:
    rng = np.random.default_rng(1)
    rows, Lt = rng.random((b, d), dtype=np.float32), rng.random((d, k), dtype=np.float32)
    Z, G = np.empty((b, k), np.float32), np.empty((d, k), np.float32)

    def products() -> None:
        np.matmul(rows, Lt, out=Z)
        np.matmul(rows.T, Z, out=G)

    return products


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
