"""The lift: what it approximates, that it takes any points, and that no more than a batch is ever lifted."""

import numpy as np
import pytest
import scipy.sparse as sp

from nearfar.data.points import SparsePoints, as_points
from nearfar.data.sampling import Batch, Block
from nearfar.data.scratch import Scratch
from nearfar.errors import InvalidInput, InvalidPoints
from nearfar.objective import gradient
from nearfar.objective.fast_gradient import Gatherer, Gradient, GradientKernel
from nearfar.objective.lift import Lift, LiftedPoints, rbf_lift
from nearfar.objective.losses import Hinge, Logistic, Neighbour


@pytest.fixture(name="X")
def some_points() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 7)) * (rng.random((60, 7)) < 0.5)


def by_definition(lift: Lift, X: np.ndarray) -> np.ndarray:
    angles = X.astype(np.float64) @ lift.weights.astype(np.float64) + lift.phases
    return np.sqrt(2 / lift.dim) * np.cos(angles)


@pytest.mark.parametrize("width", [0.7, 2.0])
def test_inner_products_approximate_the_gaussian_kernel_of_scaled_points(X, width):
    scale = np.geomspace(0.1, 10, X.shape[1])
    lifted = rbf_lift(X.shape[1], 20_000, width, scale, seed=3).apply((X * scale).astype(np.float32))
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(lifted @ lifted.T, np.exp(-squares / (2 * width**2)), atol=0.04)


@pytest.mark.parametrize("size", [1.0, 30.0, 1000.0])
def test_the_fast_cosine_is_the_cosine(X, size):
    lift = rbf_lift(X.shape[1], 256, 1 / size, None, seed=0)
    rounding = 2e-6 * max(1.0, size)  # of the angle, in float32
    rows = X.astype(np.float32)
    np.testing.assert_allclose(lift.apply(rows), by_definition(lift, rows), atol=rounding)


def test_dense_sparse_and_memory_mapped_points_are_lifted_alike(X, tmp_path):
    lift = rbf_lift(X.shape[1], 64, 1.0, None, seed=0)
    np.save(tmp_path / "points.npy", X)
    indices = np.array([5, 0, 59, 5])
    expected = by_definition(lift, X[indices])
    for given in (X, sp.csr_matrix(X), np.load(tmp_path / "points.npy", mmap_mode="r")):
        lifted = LiftedPoints(as_points(given), lift)
        assert (len(lifted), lifted.n_features, lifted.is_sparse, lifted.stored_per_point) == (60, 64, False, 64)
        np.testing.assert_allclose(lifted.rows(indices), expected, atol=1e-6)
        np.testing.assert_allclose(lifted.chosen(indices).rows(np.arange(4)), expected, atol=1e-6)
        differences = lifted.differences(indices, indices[::-1], Scratch())
        np.testing.assert_allclose(differences, expected - expected[::-1], atol=1e-6)
        scale = np.linspace(1, 2, 64)
        np.testing.assert_allclose(lifted.scaled(scale).scaled(scale).rows(indices), expected / scale**2, atol=1e-6)


def test_wide_points_are_lifted_some_at_a_time_with_the_same_result(X, monkeypatch):
    lift = rbf_lift(X.shape[1], 64, 1.0, None, seed=0)
    lifted = LiftedPoints(as_points(X), lift)
    whole = lifted.rows(np.arange(60)).copy()
    monkeypatch.setattr("nearfar.objective.lift._RAW_BYTES", 8 * X.shape[1] * 7)
    asked: list[int] = []
    rows = lifted.base.rows
    monkeypatch.setattr(lifted.base, "rows", lambda i, scratch: asked.append(len(i)) or rows(i, scratch))
    np.testing.assert_allclose(lifted.rows(np.arange(60)), whole, atol=1e-6)
    assert asked == [7] * 8 + [4]


def test_differences_lift_each_point_once(X, monkeypatch):
    lifted = LiftedPoints(as_points(X), rbf_lift(X.shape[1], 16, 1.0, None, seed=0))
    counted: list[int] = []
    rows = lifted.base.rows
    monkeypatch.setattr(lifted.base, "rows", lambda i, scratch: counted.append(len(i)) or rows(i, scratch))
    lifted.differences(np.array([1, 1, 1, 2]), np.array([2, 3, 4, 1]))
    assert counted == [4]


PAIRS = Batch(np.array([[0, 1], [2, 3], [4, 5]]), np.array([[0, 9], [20, 3], [30, 31], [7, 8]]))
SHARED = Batch(np.array([[0, 1], [1, 2], [0, 2]]), np.array([[0, 3], [1, 3], [2, 3]]))
BLOCK = Block(np.arange(30), (10, 12, 8))


@pytest.mark.parametrize("make", [as_points, lambda X: as_points(sp.csr_matrix(X))], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("batch", "loss"),
    [(PAIRS, Logistic()), (SHARED, Logistic()), (SHARED, Hinge()), (BLOCK, Logistic()), (BLOCK, Neighbour())],
)
def test_the_gradient_is_that_of_explicitly_lifted_points(X, make, batch, loss):
    lift = rbf_lift(X.shape[1], 40, 1.5, None, seed=1)
    L = np.random.default_rng(2).standard_normal((5, 40))
    points, out = LiftedPoints(make(X), lift), Gradient.empty()
    gathered = Gatherer(points, 5).rows_of(batch)
    value = GradientKernel(points, loss, 5).gradient(np.ascontiguousarray(L.T, np.float32), batch, gathered, out)
    reference = gradient.from_block if isinstance(batch, Block) else gradient.from_points
    expected, G = reference(L, by_definition(lift, X), batch, loss)
    assert value == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(out.values.T, G, atol=1e-4 * abs(G).max())


def test_the_seed_decides_the_lift():
    def weights(seed: int) -> np.ndarray:
        return rbf_lift(3000, 8, 1.0, None, seed).weights

    np.testing.assert_array_equal(weights(1), weights(1))
    assert abs(weights(1) - weights(2)).min(axis=0).max() > 0


def test_a_raw_point_that_is_not_finite_is_named(X):
    X[4, 2] = np.inf
    lifted = LiftedPoints(as_points(X), rbf_lift(X.shape[1], 16, 1.0, None, seed=0))
    assert np.isnan(lifted.rows(np.array([4]))).any()
    with pytest.raises(InvalidPoints, match="point 4 has NaN or infinity in feature 2"):
        lifted.check_finite()


@pytest.mark.parametrize(
    ("weights", "phases"),
    [
        (np.ones(4), np.ones(4)),
        (np.ones((2, 4)), np.ones(3)),
        (np.ones((0, 4)), np.ones(4)),
        (np.full((2, 4), np.nan), np.ones(4)),
        (np.full((2, 4), "a"), np.ones(4)),
    ],
)
def test_a_lift_that_makes_no_sense_is_refused(weights, phases):
    with pytest.raises(InvalidInput, match=r"^lift "):
        Lift(weights, phases)


def test_a_lift_does_not_change(X):
    lift = rbf_lift(X.shape[1], 16, 1.0, None, seed=0)
    with pytest.raises(ValueError, match="read-only"):
        lift.weights[0, 0] = 1


def test_sparse_points_stay_sparse_under_the_lift(X):
    assert isinstance(LiftedPoints(as_points(sp.csr_matrix(X)), rbf_lift(7, 16, 1.0, None, 0)).base, SparsePoints)
