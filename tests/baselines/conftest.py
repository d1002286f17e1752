"""Small problems for the baselines: digits, and pairs of them."""

from dataclasses import dataclass

import numpy as np
import pytest

import nearfar as nf


@dataclass(frozen=True)
class Problem:
    X: np.ndarray
    labels: np.ndarray
    pairs: np.ndarray
    y: np.ndarray


@pytest.fixture(scope="session")
def problem(digits: tuple[np.ndarray, np.ndarray]) -> Problem:
    """300 digits, reduced to 12 features that all vary, and 200 + 200 pairs."""
    X, labels = (array[:300] for array in digits)
    chosen = np.argsort(X.var(axis=0))[-12:]
    drawn = nf.draw_pairs(nf.LabelDraws(nf.Labels(labels)), 200, 200)
    order = np.random.default_rng(0).permutation(400)
    pairs = np.concatenate((drawn.similar, drawn.dissimilar))[order]
    return Problem(X[:, chosen], labels, pairs, np.repeat([1, -1], 200)[order])


@dataclass(frozen=True)
class Drawn:
    """Random points of three classes, and pairs of them; made from a seed."""

    X: np.ndarray
    labels: np.ndarray
    pairs: np.ndarray
    y: np.ndarray

    @classmethod
    def of(cls, seed: int, d: int, n_pairs: int, n_points: int = 30) -> "Drawn":
        rng = np.random.default_rng(seed)
        labels = np.arange(n_points) % 3
        X = (rng.normal(size=(3, d)) * 2)[labels] + rng.normal(size=(n_points, d)) @ rng.normal(size=(d, d))
        pairs = nf.draw_pairs(nf.LabelDraws(nf.Labels(labels)), n_pairs, n_pairs, seed=seed)
        return cls(X, labels, np.concatenate((pairs.similar, pairs.dissimilar)), np.repeat([1, -1], n_pairs))

    def differences(self, sign: int) -> np.ndarray:
        left, right = self.pairs[self.y == sign].T
        return self.X[left] - self.X[right]


def squared(M: np.ndarray, differences: np.ndarray) -> np.ndarray:
    """Squared distances by M."""
    return np.einsum("ij,ij->i", differences @ M, differences)


def invertible(seed: int, d: int) -> np.ndarray:
    """A well-conditioned matrix that is neither symmetric nor orthogonal."""
    rng = np.random.default_rng(seed)
    return orthogonal(seed, d) @ np.diag(rng.uniform(0.5, 2.0, d)) @ orthogonal(seed + 1, d)


def orthogonal(seed: int, d: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]
