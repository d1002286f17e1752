"""What the benchmarks learn from: MNIST where it is at hand, else random points of its shape."""

from pathlib import Path

import numpy as np

import nearfar as nf
from nearfar.data.from_labels import LabelDraws, draw_pairs

MNIST = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist.npz"


def mnist_pairs() -> tuple[np.ndarray, np.ndarray, nf.Pairs, str]:
    """Points, labels, 100K + 100K pairs, and which data it is."""
    if MNIST.exists():
        with np.load(MNIST) as file:
            X, y, name = file["x_train"].reshape(-1, 784), file["y_train"], "mnist"
    else:
        rng = np.random.default_rng(0)
        y = rng.integers(0, 10, 60_000)
        means = rng.uniform(0, 120, (10, 784))
        X, name = rng.normal(means[y], 60).clip(0, 255).astype(np.uint8), "random points in MNIST's shape"
    return X, y, draw_pairs(LabelDraws(nf.Labels(y)), 100_000, 100_000, seed=1), name


def paper_settings(**more: object) -> nf.TrainingSettings:
    """The paper's MNIST setting: k = 600, 1,000 pairs a step, hinge with λ = c = 1."""
    return nf.TrainingSettings(**{"rank": 600, "batch_size": 1000, "loss": "hinge"} | more)
