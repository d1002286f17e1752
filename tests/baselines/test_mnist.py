"""The baselines on MNIST, in a small form: what the paper's Figure 4 compares."""

import numpy as np
import pytest

import nearfar as nf
from nearfar.baselines import ITML, KISS, LDA, RCA, Euclidean, Xing2002
from nearfar.objective.ranking import average_precision

pytestmark = pytest.mark.shared_data

LEAST = {
    "Euclid": 0.73,
    "KISS of 30 directions": 0.86,
    "RCA": 0.6,
    "LDA": 0.85,
    "ITML": 0.76,
    "Xing2002": 0.8,
    "Xing2002, diagonal": 0.6,
}
"""The average precision on test pairs that each must reach from 3,000 points and 3,000 + 3,000 pairs."""


@pytest.fixture(scope="module")
def mnist(shared_data):
    """Images of 14 × 14: 3,000 to learn from, and pairs of others to judge by."""
    with np.load(shared_data / "mnist.npz") as file:
        X, test = (
            file[f"x_{part}"].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) for part in ("train", "test")
        )
        return X[:3000], file["y_train"][:3000], test, file["y_test"]


@pytest.mark.parametrize("name", LEAST)
def test_average_precision(mnist, name):
    X, y, test, test_labels = mnist
    methods = {
        "Euclid": Euclidean(preprocessor=X),
        "KISS of 30 directions": KISS(preprocessor=X, n_components=30),
        "RCA": RCA(n_components=60),
        "LDA": LDA(shrinkage=0.01),
        "ITML": ITML(preprocessor=X, gamma=0.001, max_seconds=2, random_state=0),
        "Xing2002": Xing2002(preprocessor=X, max_seconds=3),
        "Xing2002, diagonal": Xing2002(preprocessor=X, max_seconds=1, diagonal=True),
    }
    method = methods[name]
    drawn = nf.draw_pairs(nf.LabelDraws(nf.Labels(y)), 3000, 3000, seed=0)
    of_labels = isinstance(method, RCA | LDA)
    pairs = np.concatenate((drawn.similar, drawn.dissimilar))
    metric = (method.fit(X, y) if of_labels else method.fit(pairs, np.repeat([1, -1], 3000))).metric_
    judged = nf.draw_pairs(nf.LabelDraws(nf.Labels(test_labels)), 5000, 5000, seed=0)
    near, far = (metric.pair_distances(test, kind) for kind in (judged.similar, judged.dissimilar))
    assert average_precision(near, far) > LEAST[name]
