"""The reference gradient is the derivative of the objective, and the fast one equals the reference."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from nearfar.data.constraints import Labels
from nearfar.data.held_out import HeldOut, draw_held_out
from nearfar.data.points import as_points
from nearfar.data.sampling import Batch, Block
from nearfar.objective import fast_gradient
from nearfar.objective.fast_gradient import Gatherer, Gradient, GradientKernel, project, squared_distances
from nearfar.objective.gradient import from_block, from_differences, from_points, laplacian
from nearfar.objective.judging import Judge
from nearfar.objective.losses import ComparisonHinge, Hinge, Logistic, Neighbour, PairLoss, value_and_slopes

BATCH_LOSSES = [Hinge(margin=4.0), Logistic(margin=3.0, weight=2.0), ComparisonHinge(margin=2.0)]
BLOCK_LOSSES = [Hinge(margin=4.0), Logistic(margin=3.0, weight=2.0), Neighbour()]
STORAGES = {"dense": np.asarray, "sparse": sp.csr_matrix}
EMPTY = np.empty((0, 2), np.int64)


class Contrastive(PairLoss):
    """A user's own: s² for similar pairs, max(0, c - √s)² for dissimilar ones."""

    def similar(self, s):
        return s * s, 2 * s

    def dissimilar(self, s):
        distance = np.sqrt(s + 1e-6)
        gap = np.maximum(self.margin - distance, 0)
        return gap * gap, -gap / distance


def problem(n=12, d=7, k=4, near=6, far=6, seed=0, density=0.5):
    """L, points half of them 0, and a batch, such that distances are about 3."""
    random = np.random.default_rng(seed)
    L = random.normal(size=(k, d)) / np.sqrt(d * k * density)
    X = (random.normal(size=(n, d)) * (random.random((n, d)) < density)).astype(np.float32)
    return L.astype(np.float32), X, Batch(random.integers(0, n, (near, 2)), random.integers(0, n, (far, 2)))


def a_block(n, seed=0, sizes=(3, 2, 4)):
    return Block(np.random.default_rng(seed).permutation(n)[: sum(sizes)], sizes)


def wide(*arrays):
    return (array.astype(np.float64) for array in arrays)


def reference(L, X, batch, loss):
    form = from_block if isinstance(batch, Block) else from_differences
    return form(*wide(L, X), batch, loss)


def fast(L, points, batch, loss, kernel=None):
    """Objective, gradient (k, d) and the gathered rows, from the fast kernel."""
    kernel = kernel or GradientKernel(points, loss, len(L))
    out, gathered = Gradient.empty(), Gatherer(points, len(L)).rows_of(batch)
    value = kernel.gradient(np.ascontiguousarray(L.T), batch, gathered, out)
    assert out.values.dtype == np.float32
    assert out.values.shape == (len(out.features), len(L))
    G = np.zeros(L.shape, np.float32)
    G[:, out.features] = out.values.T
    return value, G, gathered


def assert_equal_gradients(found, expected, tolerance=2e-5):
    (value, G, *_), (expected_value, expected_G) = found, expected
    assert value == pytest.approx(expected_value, rel=tolerance, abs=1e-6)
    terms = 0.2  # of about this size are those that make up a gradient, which may cancel each other
    np.testing.assert_allclose(G, expected_G, rtol=0, atol=tolerance * np.abs(expected_G).max(initial=terms))


def numeric_gradient(objective, L, step=1e-6):
    G = np.zeros_like(L)
    for i in np.ndindex(*L.shape):
        up, down = L.copy(), L.copy()
        up[i] += step
        down[i] -= step
        G[i] = (objective(up) - objective(down)) / (2 * step)
    return G


@pytest.mark.parametrize("loss", [*BATCH_LOSSES, Contrastive(margin=2.0)], ids=str)
@pytest.mark.parametrize("form", [from_differences, from_points])
@pytest.mark.parametrize("seed", range(3))
def test_reference_is_the_derivative(form, loss, seed):
    L, X, batch = problem(seed=seed)
    L, X = wide(L, X)
    G = form(L, X, batch, loss)[1]
    assert np.abs(G).max() > 0.01
    np.testing.assert_allclose(G, numeric_gradient(lambda M: form(M, X, batch, loss)[0], L), atol=1e-6)


@pytest.mark.parametrize("loss", BLOCK_LOSSES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_reference_of_blocks_is_the_derivative(loss, seed):
    L, X, _ = problem(seed=seed)
    L, X = wide(L, X)
    block = a_block(len(X), seed)
    G = from_block(L, X, block, loss)[1]
    assert np.abs(G).max() > 0.01
    np.testing.assert_allclose(G, numeric_gradient(lambda M: from_block(M, X, block, loss)[0], L), atol=1e-6)


def weighed(batch, loss, seed=0):
    """The same batch with weights, some of them 0."""
    count = len(batch.near) if isinstance(loss, ComparisonHinge) else batch.n_pairs
    weights = np.random.default_rng(seed).integers(0, 4, count).astype(np.float32) / 2
    return Batch(batch.near, batch.far, weights)


@pytest.mark.parametrize("loss", BATCH_LOSSES, ids=str)
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("n_points", [12, 1000])  # through points, and through differences
def test_weights_in_the_reference_and_in_the_fast_kernel(loss, storage, n_points):
    L, X, batch = problem(n=n_points, near=30, far=30)
    batch = weighed(batch, loss)
    of_all = from_differences(*wide(L, X), batch, loss)
    for one, other in zip(of_all, from_points(*wide(L, X), batch, loss), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert_equal_gradients(fast(L, as_points(STORAGES[storage](X)), batch, loss), of_all)
    numeric = numeric_gradient(lambda M: from_differences(M, *wide(X), batch, loss)[0], *wide(L))
    np.testing.assert_allclose(of_all[1], numeric, atol=1e-6)


@pytest.mark.parametrize("loss", BATCH_LOSSES, ids=str)
def test_a_weight_of_two_is_as_good_as_the_constraint_twice(loss):
    L, X, batch = problem(near=20, far=20)
    twice = Batch(*(np.concatenate((pairs, pairs[:10])) for pairs in (batch.near, batch.far)))
    half = np.where(np.arange(20) < 10, 2.0, 1.0)
    weights = half if isinstance(loss, ComparisonHinge) else np.tile(half, 2)
    once = Batch(batch.near, batch.far, weights)
    value, G = from_differences(*wide(L, X), once, loss)
    expected, expected_G = from_differences(*wide(L, X), twice, loss)
    assert value == pytest.approx(1.5 * expected)
    np.testing.assert_allclose(G, 1.5 * expected_G)


def all_pairs(block):
    codes = np.repeat(np.arange(len(block.sizes)), block.sizes)
    i, j = np.triu_indices(len(codes), 1)
    pairs, same = np.column_stack((block.indices[i], block.indices[j])), codes[i] == codes[j]
    return Batch(pairs[same], pairs[~same])


@pytest.mark.parametrize("loss", BATCH_LOSSES, ids=str)
def test_reference_forms_equal_each_other(loss):
    L, X, batch = problem(near=30, far=30)
    for one, other in zip(
        from_differences(*wide(L, X), batch, loss), from_points(*wide(L, X), batch, loss), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("loss", BLOCK_LOSSES[:2], ids=str)
def test_reference_of_a_block_is_that_of_all_its_pairs(loss):
    L, X, _ = problem()
    block = a_block(len(X))
    for form in (from_differences, from_points):
        for one, other in zip(
            form(*wide(L, X), all_pairs(block), loss), from_block(*wide(L, X), block, loss), strict=True
        ):
            np.testing.assert_allclose(one, other, atol=1e-12)


def test_a_laplacian_has_rows_of_sum_zero_and_its_quadratic_form():
    random = np.random.default_rng(0)
    W, z = random.random((6, 6)), random.normal(size=6)
    np.testing.assert_allclose(laplacian(W).sum(axis=1), 0, atol=1e-12)
    assert z @ laplacian(W) @ z == pytest.approx((W * (z[:, None] - z) ** 2).sum())


counts = st.integers(0, 40)
shapes = st.fixed_dictionaries(
    {
        "n": st.integers(1, 60),
        "d": st.integers(1, 70),
        "k": st.integers(1, 33),
        "near": counts,
        "far": counts,
        "seed": st.integers(0, 10_000),
        "density": st.sampled_from([0.1, 0.5, 1.0]),
    }
)


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("loss", [Logistic(margin=3.0, weight=2.0), Contrastive(margin=2.0)], ids=str)
@settings(deadline=None, max_examples=50)
@given(shape=shapes)
def test_fast_equals_reference_on_pairs(store, loss, shape):
    L, X, batch = problem(**shape)
    found = fast(L, as_points(store(X)), batch, loss)
    assert_equal_gradients(found, reference(L, X, batch, loss))


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("loss", [Hinge(margin=4.0), ComparisonHinge(margin=2.0)], ids=str)
@settings(deadline=None, max_examples=50)
@given(shape=shapes)
def test_fast_equals_reference_on_losses_with_a_kink(store, loss, shape):
    L, X, batch = problem(**shape | {"far": shape["near"]})
    s = [np.square((X[p[:, 0]] - X[p[:, 1]]).astype(np.float64) @ L.T).sum(axis=1) for p in (batch.near, batch.far)]
    gap = loss.margin + s[0] - s[1] if isinstance(loss, ComparisonHinge) else loss.margin - s[1]
    if (np.abs(gap) < 1e-4).any():
        return  # on which side of the kink a pair falls is then a matter of rounding
    found = fast(L, as_points(store(X)), batch, loss)
    assert_equal_gradients(found, reference(L, X, batch, loss))


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("loss", [Logistic(margin=3.0, weight=2.0), Neighbour()], ids=str)
@settings(deadline=None, max_examples=50)
@given(
    sizes=st.lists(st.integers(2, 9), min_size=1, max_size=6).map(tuple),
    d=st.integers(1, 70),
    k=st.integers(1, 33),
    seed=st.integers(0, 10_000),
)
def test_fast_equals_reference_on_blocks(store, loss, sizes, d, k, seed):
    L, X, _ = problem(n=sum(sizes) + 5, d=d, k=k, seed=seed)
    block = a_block(len(X), seed, sizes)
    assert_equal_gradients(fast(L, as_points(store(X)), block, loss), reference(L, X, block, loss), 1e-4)


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("loss", BATCH_LOSSES, ids=str)
def test_both_forms_are_used_and_equal_the_reference(store, loss):
    for n, pairs, through_points in ((10, 200, True), (2000, 20, False)):
        L, X, batch = problem(n=n, near=pairs, far=pairs)
        found = fast(L, as_points(store(X)), batch, loss)
        assert (found[2].places is not None) == through_points
        assert_equal_gradients(found, reference(L, X, batch, loss))


CURIOUS = {
    "empty": Batch(EMPTY, EMPTY),
    "similar only": Batch(np.array([[0, 1], [2, 3]]), EMPTY),
    "dissimilar only": Batch(EMPTY, np.array([[0, 1], [2, 3]])),
    "one pair": Batch(np.array([[4, 5]]), EMPTY),
    "self pairs": Batch(np.array([[3, 3], [4, 4]]), np.array([[5, 5], [1, 2]])),
    "one point": Batch(np.array([[3, 3]] * 5), np.array([[3, 3]] * 5)),
    "repeated": Batch(np.array([[1, 2]] * 9), np.array([[2, 1]] * 9)),
    "contradicting": Batch(np.array([[1, 2], [3, 4]]), np.array([[2, 1], [3, 4]])),
    "narrow indices": Batch(np.array([[1, 2], [3, 4]], np.uint8), np.array([[2, 1], [3, 4]], np.int32)),
    "indices of columns": Batch(np.arange(20).reshape(2, 10).T % 9, np.arange(30).reshape(10, 3)[:, ::2] % 11),
}


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("batch", CURIOUS.values(), ids=CURIOUS)
def test_curious_batches(store, batch):
    L, X, _ = problem()
    X[5] = X[6] = X[1]
    loss = Logistic(margin=3.0)
    assert_equal_gradients(fast(L, as_points(store(X)), batch, loss), reference(L, X, batch, loss))


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
def test_points_of_zeros_and_a_single_point_give_no_gradient(store):
    for X in (np.zeros((5, 3), np.float32), np.ones((1, 3), np.float32)):
        batch = Batch(np.zeros((4, 2), int), np.full((4, 2), len(X) - 1))
        value, G, _ = fast(np.ones((2, 3), np.float32), as_points(store(X)), batch, Logistic())
        assert np.isfinite(value)
        assert not G.any()


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("size", [1e-15, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize("n", [10, 500])
def test_extreme_values(store, size, n):
    L, X, batch = problem(n=n, near=20, far=20)
    X *= np.float32(size)
    for loss in BATCH_LOSSES:
        expected = reference(L, X, batch, loss)
        value, G, _ = fast(L, as_points(store(X)), batch, loss)
        assert value == pytest.approx(expected[0], rel=1e-4)
        np.testing.assert_allclose(G, expected[1], rtol=0, atol=1e-4 * np.abs(expected[1]).max())


def test_points_far_from_the_origin_lose_few_digits():
    L, X, batch = problem(n=40, near=300, far=300, density=1.0)
    X += 100
    found = fast(L, as_points(X), batch, Logistic(margin=3.0))
    assert found[2].places is not None
    assert_equal_gradients(found, reference(L, X, batch, Logistic(margin=3.0)), 2e-3)
    block = a_block(len(X))
    for loss in BLOCK_LOSSES:
        assert_equal_gradients(fast(L, as_points(X), block, loss), reference(L, X, block, loss), 2e-4)


@pytest.mark.parametrize("n", [20, 400])
def test_a_sparse_gradient_covers_exactly_the_touched_features(n):
    L, X, batch = problem(n=n, d=500, near=15, far=15, density=0.01)
    for chosen in (batch, a_block(n)):
        points, out = as_points(sp.csr_matrix(X)), Gradient.empty()
        kernel, gathered = GradientKernel(points, Logistic(), len(L)), Gatherer(points, len(L)).rows_of(chosen)
        kernel.gradient(np.ascontiguousarray(L.T), chosen, gathered, out)
        touched = np.flatnonzero(X[chosen.indices].any(axis=0))
        np.testing.assert_array_equal(gathered.features, touched)
        np.testing.assert_array_equal(out.features, touched)
        assert 0 < len(touched) < 300
        assert out.nbytes == len(touched) * 4 * (len(L) + 1)


def test_only_touched_features_are_read():
    L, X, batch = problem(d=300, density=0.01)
    expected = fast(L, as_points(sp.csr_matrix(X)), batch, Logistic())
    L[:, ~X[batch.indices].any(axis=0)] = np.nan
    found = fast(L, as_points(sp.csr_matrix(X)), batch, Logistic())
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("n", [12, 3000])
def test_dropping_rows_without_slope_changes_nothing(n, monkeypatch):
    L, X, batch = problem(n=n, near=0, far=60)
    loss = Hinge(margin=1.0)
    s = np.square((X[batch.far[:, 0]] - X[batch.far[:, 1]]) @ L.T).sum(axis=1)
    assert 0 < (s < 1).mean() < 0.9
    dropped = fast(L, as_points(X), batch, loss)
    monkeypatch.setattr(fast_gradient, "_WORTH_DROPPING", -1)
    kept = fast(L, as_points(X), batch, loss)
    assert dropped[0] == kept[0]
    np.testing.assert_allclose(dropped[1], kept[1], atol=1e-6)
    assert_equal_gradients(dropped, reference(L, X, batch, loss))


def test_a_batch_without_any_slope_has_a_gradient_of_zeros():
    L, X, batch = problem(n=50, near=0, far=30)
    far = batch.far[batch.far[:, 0] != batch.far[:, 1]]
    for store in STORAGES.values():
        value, G, _ = fast(L, as_points(store(X)), Batch(EMPTY, far), Hinge(margin=1e-9))
        assert value == 0
        assert not G.any()


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
def test_kept_buffers_do_not_leak_from_batch_to_batch(store):
    L, X, _ = problem(n=60, d=130, density=0.02)
    points, loss = as_points(store(X)), Logistic(margin=3.0)
    kernel, out, gatherer = GradientKernel(points, loss, len(L)), Gradient.empty(), Gatherer(points, len(L))
    for seed, pairs in enumerate((30, 3, 200, 0, 1, 90)):
        batch = problem(n=60, near=pairs, far=pairs // 2, seed=seed)[2]
        for chosen in (batch, a_block(60, seed)):
            gathered = gatherer.rows_of(chosen)
            value = kernel.gradient(np.ascontiguousarray(L.T), chosen, gathered, out)
            touched = X[chosen.indices].any(axis=0) if points.is_sparse else np.ones(130)
            np.testing.assert_array_equal(out.features, np.flatnonzero(touched))
            G = np.zeros(L.shape)
            G[:, out.features] = out.values.T
            assert_equal_gradients((value, G), reference(L, X, chosen, loss), 1e-4)


def test_a_gradient_outlives_the_next_rows_gathered():
    L, X, batch = problem(n=60, d=200, density=0.05)
    points, out = as_points(sp.csr_matrix(X)), Gradient.empty()
    gatherer = Gatherer(points, len(L))
    GradientKernel(points, Logistic(), len(L)).gradient(np.ascontiguousarray(L.T), batch, gatherer.rows_of(batch), out)
    before = out.features.copy(), out.values.copy()
    gatherer.rows_of(problem(n=60, d=200, near=50, far=50, seed=1)[2])
    np.testing.assert_array_equal(out.features, before[0])
    np.testing.assert_array_equal(out.values, before[1])


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
def test_scaled_points_have_the_gradient_of_divided_points(store):
    L, X, batch = problem()
    scale = 10.0 ** np.linspace(-1, 1, X.shape[1])
    found = fast(L, as_points(store(X)).scaled(scale), batch, Logistic())
    assert_equal_gradients(found, reference(L, X / scale, batch, Logistic()))


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
def test_projections_and_squared_distances(store):
    L, X, batch = problem(n=30)
    Lt, points = np.ascontiguousarray(L.T), as_points(store(X))
    np.testing.assert_allclose(project(Lt, points, np.array([3, 3, 0])), X[[3, 3, 0]] @ L.T, atol=1e-5)
    pairs = np.concatenate((batch.near, batch.far, [[4, 4]]))
    expected = np.square((X[pairs[:, 0]] - X[pairs[:, 1]]).astype(np.float64) @ L.T).sum(axis=1)
    np.testing.assert_allclose(squared_distances(Lt, points, pairs), expected, atol=1e-5)
    assert squared_distances(Lt, points, pairs)[-1] == 0
    assert len(squared_distances(Lt, points, EMPTY)) == 0


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("loss", [*BATCH_LOSSES, Neighbour()], ids=str)
def test_a_judge_computes_what_it_says(store, loss):
    labels = Labels(np.random.default_rng(0).integers(0, 4, 60))
    L, X, _ = problem(n=60)
    held_out = draw_held_out(labels, np.arange(0, 60, 2), 0)
    judged = Judge(as_points(store(X)), held_out, loss)(np.ascontiguousarray(L.T))
    batch = held_out.triplets if isinstance(loss, ComparisonHinge) else held_out.pairs
    judged_batch = held_out.block if isinstance(loss, Neighbour) else batch
    assert judged.objective == pytest.approx(reference(L, X, judged_batch, loss)[0], rel=1e-5)
    truth = np.repeat([1, 0], [len(batch.near), len(batch.far)])
    pairs = np.concatenate((batch.near, batch.far))
    s = squared_distances(np.ascontiguousarray(L.T), as_points(store(X)), pairs)
    assert judged.ap == pytest.approx(average_precision_score(truth, -s), abs=1e-6)
    assert 0.2 < judged.ap < 0.9


def test_a_judge_of_stored_pairs_and_what_it_costs():
    L, X, batch = problem(n=30)
    judge = Judge(as_points(X), HeldOut.of_pairs(batch), Hinge())
    s = [np.square((X[p[:, 0]] - X[p[:, 1]]) @ L.T).sum(axis=1) for p in (batch.near, batch.far)]
    assert judge(np.ascontiguousarray(L.T)).objective == pytest.approx(value_and_slopes(Hinge(), *s)[0], rel=1e-5)
    assert judge.flops(8) == 2 * judge.flops(4) == 2 * len(np.unique(batch.indices)) * 7 * 8
