"""How the time of a step grows as one thing at a time is doubled, twice: one worker, one thread."""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from benchmarks.serial import Watcher, serial_job
from nearfar.data.constraints import Pairs
from nearfar.data.points import as_points
from nearfar.data.sampling import PairSampler, SamplingPlan
from nearfar.engine.engine import Job
from nearfar.engine.serial import SerialEngine
from nearfar.objective.losses import Hinge
from nearfar.parameter_server.messages import Applied


@dataclass(frozen=True)
class Shape:
    """The size of a problem of pairs."""

    batch: int
    rank: int
    features: int
    points: int
    pairs: int
    """Of each kind."""
    nonzeros: int | None = None
    """Of a sparse row; dense without."""


DENSE = Shape(batch=500, rank=128, features=400, points=20_000, pairs=200_000)
SPARSE = Shape(batch=500, rank=64, features=20_000, points=20_000, pairs=200_000, nonzeros=50)
SMALL_DENSE = Shape(batch=100, rank=16, features=50, points=1000, pairs=5000)
SMALL_SPARSE = Shape(batch=100, rank=16, features=500, points=1000, pairs=5000, nonzeros=10)
DOUBLED = ("batch", "rank", "features", "points", "pairs")


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """For each thing that is doubled, the time of a step and the exponents between successive sizes.

    An exponent is the log2 of the ratio of two times: 1 where a step takes twice as long, 0 where it takes as long.
    """
    dense, sparse = (SMALL_DENSE, SMALL_SPARSE) if small else (DENSE, SPARSE)
    rounds, steps = (2, 5) if small else (6, 15)
    with threadpool_limits(1):
        for name in DOUBLED:
            yield {"points": "dense", **_grown(dense, name, rounds, steps)}
        for name in (*DOUBLED, "nonzeros"):
            yield {"points": "sparse", **_grown(sparse, name, rounds, steps)}


def _grown(base: Shape, name: str, rounds: int, steps: int) -> dict[str, Any]:
    sizes = [getattr(base, name) * factor for factor in (1, 2, 4)]
    makers = [_job_maker(replace(base, **{name: size})) for size in sizes]
    timers = [_Timer(steps) for _ in makers]
    for _ in range(rounds):  # in turns, so that a slow moment of the machine meets all sizes
        for make_job, timer in zip(makers, timers, strict=True):
            timer.begin()
            SerialEngine().run(make_job(), timer)
    seconds = [timer.fastest for timer in timers]
    return {
        "doubled": name,
        "sizes": sizes,
        "milliseconds_a_step": [round(1000 * each, 3) for each in seconds],
        "exponents": [round(math.log2(after / before), 2) for before, after in itertools.pairwise(seconds)],
        "ratio": round(seconds[-1] / seconds[0], 2),
    }


class _Timer(Watcher):
    """A supervisor that ends each turn after some steps, and keeps the time of the fastest turn."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps
        self.fastest = math.inf
        """Mean seconds of a step in the fastest turn; the first two steps of a turn warm up."""

    def begin(self) -> None:
        self._ends: list[float] = []

    def attend(self, applied: list[Applied]) -> bool:
        self._ends.append(time.perf_counter())
        if len(self._ends) < self._steps + 2:
            return False
        self.fastest = min(self.fastest, (self._ends[-1] - self._ends[1]) / self._steps)
        return True


def _job_maker(shape: Shape) -> Callable[[], Job]:
    """A job is run once; those of one maker share their points and pairs."""
    rng = np.random.default_rng(0)
    n, d = shape.points, shape.features
    if shape.nonzeros is None:
        points = as_points(rng.random((n, d), dtype=np.float32))
    else:
        columns = rng.integers(d, size=(n, shape.nonzeros))
        starts = np.arange(0, n * shape.nonzeros + 1, shape.nonzeros)
        values = rng.random(n * shape.nonzeros, dtype=np.float32)
        points = as_points(sp.csr_matrix((values, columns.ravel(), starts), shape=(n, d)))
    pairs = Pairs(rng.integers(n, size=(shape.pairs, 2)), rng.integers(n, size=(shape.pairs, 2)))
    sampler = PairSampler(pairs, SamplingPlan(shape.batch, 1, 0))
    Lt = rng.standard_normal((d, shape.rank), dtype=np.float32)
    # With so large a margin every pair has a slope, so that each step does all the work there may be.
    return lambda: serial_job(points, sampler, Hinge(margin=1e9), Lt)
