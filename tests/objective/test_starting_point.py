"""Where learning starts does not depend on units, offsets or storage."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from nearfar.data.points import as_points
from nearfar.data.sampling import Batch, Block
from nearfar.errors import InvalidSettings
from nearfar.objective.fast_gradient import squared_distances
from nearfar.objective.starting_point import feature_scale, mean_squared_difference, rescale, starting_metric

N, D = 400, 12
STORAGES = {"dense": np.asarray, "sparse": sp.csr_matrix}
EMPTY = np.empty((0, 2), np.int64)


def normal_points(seed=0, n=N, d=D):
    return np.random.default_rng(seed).normal(size=(n, d))


def typical_differences(X):
    """The root mean square of all non-zero differences of each feature, by brute force."""
    squares = (X[:, None] - X[None]).reshape(-1, X.shape[1]) ** 2
    return np.sqrt(squares.sum(axis=0) / np.maximum(1, (squares > 0).sum(axis=0)))


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10_000))
def test_scaled_features_are_alike_whatever_their_units(seed):
    units = 10.0 ** np.random.default_rng(seed).uniform(-4, 4, D)
    X = normal_points(seed) * units
    scale = feature_scale(as_points(X), 0)
    within = typical_differences(X / scale)
    assert within.min() > 0.48
    assert within.max() < 2.1


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from([1e-4, 1e-2, 3.0, 1e4]))
def test_a_change_of_all_units_changes_the_scale_alike(seed, unit):
    X = normal_points(seed) * 10.0 ** np.linspace(-3, 3, D)
    scale, other = feature_scale(as_points(X), 0), feature_scale(as_points(X * unit), 0)
    np.testing.assert_allclose(other, scale * unit, rtol=1e-4)


def test_offsets_do_not_matter():
    X = np.round(normal_points() * 100) * 10.0 ** np.arange(D)
    offsets = np.random.default_rng(1).integers(-10_000, 10_000, D) * 10.0 ** np.arange(D)
    for store in STORAGES.values():
        moved = feature_scale(as_points(store(X + offsets)), 0)
        np.testing.assert_allclose(moved, feature_scale(as_points(X), 0), rtol=1e-3)


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
def test_mostly_zero_features_are_not_called_small(store):
    random = np.random.default_rng(0)
    shares = np.array([0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01])
    X = (random.random((3000, 8)) < shares) * 7.0 * random.choice([0.9, 1.1], (3000, 8))
    assert X.std(axis=0).max() > 5 * X.std(axis=0).min()
    scale = feature_scale(as_points(store(X)), 0)
    np.testing.assert_allclose(scale / scale[0], 1, atol=0.05)
    X[:, 3] *= 1000
    scale = feature_scale(as_points(store(X)), 0)
    assert 300 < scale[3] / scale[0] < 1100


def test_like_features_share_one_scale():
    X = normal_points() * np.linspace(0.7, 1.4, D)
    assert np.ptp(feature_scale(as_points(X), 0)) == 0


@pytest.mark.parametrize("density", [0.01, 0.3, 1.0])
def test_dense_and_sparse_points_have_the_same_scale(density):
    X = (normal_points() + 5) * 10.0 ** np.linspace(-3, 3, D)
    X *= np.random.default_rng(2).random(X.shape) < density
    dense, sparse = (feature_scale(as_points(store(X)), 3) for store in STORAGES.values())
    np.testing.assert_allclose(sparse, dense, rtol=1e-5)


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
def test_constant_features_get_a_scale_that_can_be_divided_by(store):
    X = normal_points() * 1000
    X[:, 2], X[:, 5] = 0, 3
    scale = feature_scale(as_points(store(X)), 0)
    assert np.isfinite(scale).all()
    assert scale.min() > 100
    np.testing.assert_array_equal(feature_scale(as_points(store(np.ones((5, 3)))), 0), 1)
    np.testing.assert_array_equal(feature_scale(as_points(store(np.ones((1, 3)))), 0), 1)


def test_the_scale_follows_the_seed():
    points = as_points(normal_points() * 10.0 ** np.arange(D))
    np.testing.assert_array_equal(feature_scale(points, 1), feature_scale(points, 1))
    assert (feature_scale(points, 1) != feature_scale(points, 2)).any()


def test_a_random_start():
    points = as_points(normal_points(d=100))
    Lt = starting_metric("random", points, 40, None, 0)
    assert Lt.shape == (100, 40)
    assert Lt.dtype == np.float32
    assert Lt.flags.c_contiguous
    assert abs(Lt.mean()) < 0.05
    assert np.linalg.matrix_rank(Lt) == 40
    np.testing.assert_array_equal(Lt, starting_metric("random", points, 40, None, 0))
    assert (Lt != starting_metric("random", points, 40, None, 1)).any()


def test_an_identity_start_keeps_euclidean_distances():
    X = normal_points().astype(np.float32)
    Lt = starting_metric("identity", as_points(X), D, None, 0)
    np.testing.assert_array_equal(Lt, np.eye(D))
    assert starting_metric("identity", as_points(X), 3, None, 0).T.tolist() == np.eye(3, D).tolist()


def test_a_pca_start_finds_the_principal_directions():
    random = np.random.default_rng(0)
    X = random.normal(size=(N, 5)) * [50, 20, 9, 4, 2] @ np.linalg.qr(random.normal(size=(D, 5)))[0].T + 30
    Lt = starting_metric("pca", as_points(X), 3, None, 0)
    alike = np.abs(PCA(3).fit(X).components_ @ Lt)
    np.testing.assert_allclose(alike, np.eye(3), atol=1e-3)
    sparse = starting_metric("pca", as_points(sp.csr_matrix(X)), 3, None, 0)
    np.testing.assert_allclose(np.abs(np.linalg.svd(X)[2][:3] @ sparse), np.eye(3), atol=1e-3)


def test_a_pca_start_of_fewer_points_than_rows_has_small_rows_left():
    Lt = starting_metric("pca", as_points(normal_points(n=4)), 8, None, 0)
    norms = np.linalg.norm(Lt, axis=0)
    np.testing.assert_allclose(norms[:4], 1, atol=1e-5)
    assert (norms[4:] > 0).all()
    assert (norms[4:] < 0.1).all()


@settings(deadline=None, max_examples=30)
@given(st.integers(1, D), st.integers(0, 1000))
def test_a_given_start_is_for_points_without_scale(rank, seed):
    random = np.random.default_rng(seed)
    start, scale = random.normal(size=(rank, D)), 10.0 ** random.uniform(-4, 4, D)
    X = normal_points(seed).astype(np.float32)
    points = as_points(X).scaled(scale)
    Lt = starting_metric(start, points, rank, scale, 0)
    assert Lt.flags.c_contiguous
    np.testing.assert_allclose(Lt.T / scale, start, rtol=1e-6)
    pairs = random.integers(0, N, (20, 2))
    expected = np.square((X[pairs[:, 0]] - X[pairs[:, 1]]) @ start.T).sum(axis=1)
    np.testing.assert_allclose(squared_distances(Lt, points, pairs), expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(starting_metric(start, as_points(X), rank, None, 0).T, start, rtol=1e-6)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (np.ones((D, 3)), r"shape \(12, 3\); expected .* \(3, 12\)"),
        (np.ones(D), "shape"),
        (np.full((3, D), np.nan), "NaN"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(start, said):
    with pytest.raises(InvalidSettings, match=said):
        starting_metric(start, as_points(normal_points()), 3, None, 0)


BATCHES = {
    "pairs": Batch(np.arange(40).reshape(20, 2), np.arange(100, 160).reshape(30, 2)),
    "similar only": Batch(np.arange(40).reshape(20, 2), EMPTY),
    "block": Block(np.arange(30), (10, 20)),
}


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("target", [1.0, 10.0, 1e-3])
def test_rescaling_hits_the_target(store, batch, target):
    X = normal_points().astype(np.float32) * 30
    points, Lt = as_points(store(X)), starting_metric("random", as_points(X), 5, None, 0)
    before = Lt.copy()
    rescale(Lt, points, batch, target)
    np.testing.assert_allclose(Lt / before, (Lt / before)[0, 0], rtol=1e-5)
    if isinstance(batch, Block):
        far = np.column_stack((np.arange(30), np.roll(np.arange(30), 15)))
    else:
        far = batch.far if len(batch.far) else batch.near
    squares = np.square(X[far[:, 0]] - X[far[:, 1]])
    assert np.square((X[far[:, 0]] - X[far[:, 1]]) @ Lt).sum(axis=1).mean() == pytest.approx(target, rel=1e-4)
    assert mean_squared_difference(points, batch) == pytest.approx(squares.sum(axis=1).mean(), rel=1e-4)


@pytest.mark.parametrize("batch", [Batch(EMPTY, EMPTY), Batch(EMPTY, np.array([[3, 3]]))], ids=["empty", "self pair"])
def test_where_no_distance_can_be_had_nothing_is_rescaled(batch):
    Lt, points = np.ones((D, 2), np.float32), as_points(normal_points())
    rescale(Lt, points, batch, 10.0)
    assert (Lt == 1).all()
    assert mean_squared_difference(points, batch) > 0
