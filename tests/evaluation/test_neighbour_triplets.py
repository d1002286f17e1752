"""Triplets among neighbours: near points of the anchor's class, far points of others, and both among the nearest."""

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf
from nearfar.errors import InvalidConstraints, InvalidSettings


@pytest.mark.parametrize("store", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_they_are_among_the_nearest(digits, store):
    X, labels = (array[:400] for array in digits)
    X = X + np.random.default_rng(0).random(X.shape)  # no two equally far
    triplets = nf.draw_neighbour_triplets(store(X), labels, 3000, near=2, far=4, seed=1).indices
    assert triplets.shape == (3000, 3)
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    same = labels[:, None] == labels
    nearest = np.argsort(np.where(same, distances, np.inf), axis=1)[:, :2]
    impostors = np.argsort(np.where(same, np.inf, distances), axis=1)[:, :4]
    for anchor, near, far in triplets:
        assert near in nearest[anchor]
        assert far in impostors[anchor]
    assert len(np.unique(triplets[:, 0])) == 400
    assert len(np.unique(triplets, axis=0)) > 2000


def test_points_that_are_equal_are_not_their_own_neighbours():
    X = np.repeat(np.random.default_rng(0).normal(size=(10, 3)), 5, axis=0)
    triplets = nf.draw_neighbour_triplets(X, np.arange(50) // 10, 500).indices
    assert (triplets[:, 0] != triplets[:, 1]).all()


def test_a_lone_point_of_a_class_is_never_an_anchor():
    labels = np.array([0] * 10 + [1])
    triplets = nf.draw_neighbour_triplets(np.arange(22.0).reshape(11, 2), labels, 100).indices
    assert set(triplets[:, 0]) == set(range(10))
    assert (triplets[:, 2] == 10).all()


def test_they_teach_neighbours_better_than_any_triplets(digits):
    X, labels = digits
    noisy = np.column_stack((X, 12 * np.random.default_rng(0).normal(size=(len(X), 64))))
    drawn = nf.draw_neighbour_triplets(noisy[:900], labels[:900], 20_000)
    learner = nf.TripletLearner(preprocessor=noisy[:900], n_components=32, random_state=0).fit(drawn.indices)

    def error(A, B):
        nearest = np.argmin(((B[:, None] - A[None]) ** 2).sum(axis=2), axis=1)
        return np.mean(labels[:900][nearest] != labels[900:1200])

    plain = error(noisy[:900], noisy[900:1200])
    assert error(learner.transform(noisy[:900]), learner.transform(noisy[900:1200])) < 0.8 * plain


@pytest.mark.parametrize("wrong", [{"count": 0}, {"near": 0}, {"far": -1}])
def test_wrong_numbers_are_named(wrong):
    given = {"count": 5, **wrong}
    with pytest.raises(InvalidSettings, match="expected 1 or more"):
        nf.draw_neighbour_triplets(np.eye(6), np.arange(6) % 2, given.pop("count"), **given)
    with pytest.raises(InvalidConstraints):
        nf.draw_neighbour_triplets(np.eye(6), np.zeros(6), 5)
