"""A small problem that all tests of learners share: digits, and pairs, triplets and quadruplets of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nearfar as nf


@dataclass(frozen=True)
class Problem:
    X: np.ndarray
    labels: np.ndarray
    pairs: np.ndarray
    y: np.ndarray
    triplets: np.ndarray
    quadruplets: np.ndarray

    def given(self, learner: type) -> tuple[Any, ...]:
        """What ``fit`` of this learner takes, with X as the preprocessor."""
        return {
            nf.PairLearner: (self.pairs, self.y),
            nf.TripletLearner: (self.triplets,),
            nf.QuadrupletLearner: (self.quadruplets,),
            nf.LabelLearner: (self.X, self.labels),
        }[learner]


@pytest.fixture(scope="session")
def problem(digits: tuple[np.ndarray, np.ndarray]) -> Problem:
    X, labels = (array[:300] for array in digits)
    draws = nf.LabelDraws(nf.Labels(labels))
    drawn = nf.draw_pairs(draws, 400, 400)
    pairs = np.concatenate((drawn.similar, drawn.dissimilar))
    y = np.repeat([1, -1], 400)
    order = np.random.default_rng(0).permutation(len(pairs))
    triplets = np.array(nf.draw_triplets(draws, 500).indices)
    quadruplets = np.column_stack((drawn.similar, drawn.dissimilar))
    return Problem(X, labels, pairs[order], y[order], triplets, quadruplets)
