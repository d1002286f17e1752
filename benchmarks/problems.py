"""What the benchmarks learn from: MNIST where it is at hand; in small forms, scikit-learn's digits."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import nearfar as nf
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.engine.engine import Engine
from nearfar.evaluation.retrieval import judge_neighbours
from nearfar.objective.ranking import average_precision
from nearfar.parameter_server.progress import Report

DATA = Path(os.environ.get("NEARFAR_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
"""Where mnist.npz is: the folder that the environment variable NEARFAR_DATA names, or ../shared/data."""
MNIST = DATA / "mnist.npz"


@dataclass(frozen=True)
class Labelled:
    """Labelled points to learn from, others to judge by, and 10K + 10K pairs of those."""

    name: str
    X: np.ndarray
    y: np.ndarray
    test_points: np.ndarray
    test_labels: np.ndarray
    test_pairs: nf.Pairs

    def first(self, count: int) -> "Labelled":
        """The same with only this many points to learn from."""
        return Labelled(self.name, self.X[:count], self.y[:count], self.test_points, self.test_labels, self.test_pairs)

    def average_precision(self, metric: nf.Metric) -> float:
        """Of the test pairs; similar is the class to be found."""
        near, far = (
            metric.pair_distances(self.test_points, p) for p in (self.test_pairs.similar, self.test_pairs.dissimilar)
        )
        return float(average_precision(near, far))

    def neighbour_error(self, metric: nf.Metric) -> float:
        """The share of test points that their three nearest points to learn from put into a wrong class."""
        return judge_neighbours(metric, self.X, self.y, self.test_points, self.test_labels, k=3).error


@lru_cache(maxsize=1)
def labelled(*, small: bool) -> Labelled:
    """MNIST, pixels 0 to 1; in the small form a shuffled two thirds of the digits and the rest of them."""
    if small:
        X, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(X))
        X, y, cut = (X[order] / 16).astype(np.float32), y[order], 1200
        return _labelled("digits", X[:cut], y[:cut], X[cut:], y[cut:])
    if not MNIST.exists():
        raise SystemExit(f"there is no {MNIST}; name the folder of mnist.npz in NEARFAR_DATA, or use --small")
    with np.load(MNIST) as file:
        X, test_points = (file[key].reshape(-1, 784).astype(np.float32) / 255 for key in ("x_train", "x_test"))
        return _labelled("mnist", X, file["y_train"].astype(np.int64), test_points, file["y_test"].astype(np.int64))


def _labelled(name: str, X: np.ndarray, y: np.ndarray, test_points: np.ndarray, test_labels: np.ndarray) -> Labelled:
    pairs = draw_pairs(LabelDraws(nf.Labels(test_labels)), 10_000, 10_000, seed=0)
    return Labelled(name, X, y, test_points, test_labels, pairs)


@dataclass(frozen=True)
class Paired:
    """Points with their labels and pairs of them, and how to learn from those."""

    name: str
    X: np.ndarray
    y: np.ndarray
    pairs: nf.Pairs
    settings: dict[str, Any]

    def training_settings(self, **more: Any) -> nf.TrainingSettings:
        """How to learn, with more settings or others."""
        return nf.TrainingSettings(**{"loss": "hinge", **self.settings, **more})

    def train(self, *, on: Engine | None = None, watched_by: Sequence[Any] = (), **more: Any) -> list[Report]:
        """The reports of a training with one thread of BLAS, on an engine of its own making where given."""
        with threadpool_limits(1):
            settings = self.training_settings(**more)
            return nf.train(self.X, self.pairs, settings, engine=on, labels=self.y, on_report=watched_by).history


@lru_cache(maxsize=1)
def paired(*, small: bool) -> Paired:
    """The paper's MNIST setting: k = 600, 1,000 of 100K + 100K pairs a step, hinge with λ = c = 1.

    Without MNIST, random points of its shape; in the small form digits, and a rank that they have.
    """
    if small:
        X, y = load_digits(return_X_y=True)
        return Paired("digits", X, y, _drawn_pairs(y, 5000), {"rank": 16, "batch_size": 100})
    if MNIST.exists():
        with np.load(MNIST) as file:
            X, y, name = file["x_train"].reshape(-1, 784), file["y_train"], "mnist"
    else:
        rng = np.random.default_rng(0)
        y = rng.integers(0, 10, 60_000)
        means = rng.uniform(0, 120, (10, 784))
        X, name = rng.normal(means[y], 60).clip(0, 255).astype(np.uint8), "random points in MNIST's shape"
    return Paired(name, X, y, _drawn_pairs(y, 100_000), {"rank": 600, "batch_size": 1000})


def _drawn_pairs(y: np.ndarray, count: int) -> nf.Pairs:
    return draw_pairs(LabelDraws(nf.Labels(y)), count, count, seed=1)


def nearly(start: float, end: float) -> float:
    """An objective that is 2 % of the way down short of the end, where curves are flat and differ by noise."""
    return end + 0.02 * (start - end)
