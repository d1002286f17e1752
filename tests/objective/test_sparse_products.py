"""The cut kernel equals the plain one, and every form of the products of sparse rows gives the same numbers."""

import threading

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearfar import cost
from nearfar.data.points import SparseRows, as_points
from nearfar.data.sampling import Batch
from nearfar.data.scratch import Scratch
from nearfar.objective import kernels, sparse_kernels
from nearfar.objective.fast_gradient import Gatherer, Gradient, GradientKernel, project
from nearfar.objective.losses import Hinge
from nearfar.objective.sparse_products import SparseProducts, TouchedFeatures

FORMS = ["rows", "blocks", "dense"]
shapes = st.fixed_dictionaries(
    {
        "n_rows": st.one_of(st.integers(0, 40), st.integers(1000, 1100)),
        "n_features": st.one_of(st.integers(1, 300), st.integers(1020, 1500)),
        "stored": st.integers(0, 12),
        "seed": st.integers(0, 10_000),
    }
)
ranks = st.one_of(st.integers(1, 70), st.sampled_from([96, 127, 128, 129, 200]))


def sparse_rows(n_rows, n_features, stored, seed):
    """Rows of 0 to 2 · stored entries, in no order, some columns more than once."""
    random = np.random.default_rng(seed)
    starts = np.concatenate(([0], np.cumsum(random.integers(0, 2 * stored + 1, n_rows)))).astype(np.int64)
    columns = (random.random(starts[-1]) ** 2 * n_features).astype(np.int32)
    return SparseRows(random.normal(size=starts[-1]).astype(np.float32), columns, starts, n_features)


def some_of(count, seed):
    return np.flatnonzero(np.random.default_rng(seed).random(count) < 0.7).astype(np.int32)


def normal(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max(initial=1))


@settings(deadline=None, max_examples=60)
@given(shapes, ranks)
@example({"n_rows": 3, "n_features": 5, "stored": 0, "seed": 0}, 64)
@example({"n_rows": 0, "n_features": 5, "stored": 1, "seed": 0}, 1)
def test_the_cut_kernel_equals_the_plain_one(shape, k):
    rows, scratch = sparse_rows(**shape), Scratch()
    Lt, found, expected = normal(rows.n_features, k), *np.full((2, len(rows), k), np.nan, np.float32)
    everything = np.arange(rows.n_features, dtype=np.int32)
    cut = sparse_kernels.cut(
        rows, np.arange(len(rows), dtype=np.int32), everything.astype(np.uint32), rows.n_features, scratch,
        transposed=False,
    )  # fmt: skip
    sparse_kernels.multiply(cut, sparse_kernels.pack(Lt, everything, scratch), found, scratch)
    kernels.weighted_sums(rows.starts, rows.columns, rows.values, Lt, expected)
    assert_close(found, expected)


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=40)
@given(shape=shapes, k=ranks)
def test_every_form_equals_scipy(form, shape, k):
    rows = sparse_rows(**shape)
    kept = some_of(len(rows), shape["seed"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "sparse_form", lambda *_: form)
        products = SparseProducts(rows.n_features)
        features = TouchedFeatures(rows.n_features).of(rows)
        np.testing.assert_array_equal(features, np.unique(rows.columns))
        Lt, Z = normal(rows.n_features, k), np.full((len(rows), k), np.nan, np.float32)
        products.project(rows, features, Lt, Z)
        assert_close(Z, rows.to_scipy() @ Lt)
        C, G = normal(len(rows), k), np.full((len(features), k), np.nan, np.float32)
        for chosen in (kept, np.arange(len(rows), dtype=np.int32)):
            products.gradient(rows, features, chosen, C, G)
            assert_close(G, (rows.to_scipy()[chosen].T @ C[chosen])[features])


@pytest.mark.parametrize("density", [0.001, 0.05, 0.5, 1.0])
def test_blocks_of_every_size_hold_all_sources(density):
    X = sp.random(300, 2500, density, "csr", np.float32, random_state=0)
    rows = as_points(X).rows(np.arange(300))
    products, Lt = SparseProducts(2500), normal(2500, 100)
    found, place = np.empty((300, 100), np.float32), np.arange(2500, dtype=np.uint32)
    cut = sparse_kernels.cut(rows, np.arange(300, dtype=np.int32), place, 2500, Scratch(), transposed=False)
    assert cut.block == {0.001: 1024, 0.05: 256, 0.5: 128, 1.0: 128}[density]
    sparse_kernels.multiply(cut, sparse_kernels.pack(Lt, place.astype(np.int32), Scratch()), found, Scratch())
    assert_close(found, X @ Lt)
    products.project(rows, TouchedFeatures(rows.n_features).of(rows), Lt, found)
    assert_close(found, X @ Lt)


@pytest.mark.parametrize(("density", "form"), [(0.001, "rows"), (0.1, "blocks"), (0.6, "dense")])
def test_only_touched_features_are_read_whatever_the_form(density, form):
    X = sp.random(400, 3000, density, "csr", np.float32, random_state=0)
    X = sp.hstack((X[:, :1000], sp.csr_matrix((400, 500), dtype=np.float32), X[:, 1000:])).tocsr()
    touched = np.diff(X.tocsc().indptr) > 0
    assert cost.sparse_form(400, X.nnz, int(touched.sum()), 40) == form
    Lt = normal(3500, 40)
    expected = X @ Lt
    Lt[~touched] = np.nan
    assert_close(project(Lt, as_points(X), np.arange(400)), expected)


@pytest.mark.parametrize("form", FORMS)
def test_pairs_beyond_the_margin_have_no_part_in_the_gradient(form, monkeypatch):
    monkeypatch.setattr(cost, "sparse_form", lambda *_: form)
    X, Lt = sp.random(500, 200, 0.1, "csr", np.float32, random_state=0), normal(200, 20) / 5
    far = np.random.default_rng(0).permutation(500).reshape(-1, 2)
    s = np.square((X[far[:, 0]] - X[far[:, 1]]) @ Lt).sum(axis=1)
    loss = Hinge(margin=float(np.median(s)))
    within = s < loss.margin
    out, some = Gradient.empty(), Gradient.empty()
    for batch, target in ((far, out), (far[within], some)):
        kernel, batch_of = GradientKernel(as_points(X), loss, 20), Batch(np.empty((0, 2), int), batch)
        kernel.gradient(Lt, batch_of, Gatherer(as_points(X), 20).rows_of(batch_of), target)
    expected = np.zeros((200, 20))
    expected[some.features] = some.values * within.mean()
    assert np.abs(expected).max() > 0
    assert_close(out.values, expected[out.features])


def test_the_same_input_gives_the_same_bits_in_every_thread():
    rows, Lt = sparse_rows(1200, 1500, 60, 0), normal(1500, 100)
    results = np.empty((4, 1200, 100), np.float32)

    def compute(out):
        products = SparseProducts(1500)
        features = TouchedFeatures(rows.n_features).of(rows)
        assert cost.sparse_form(len(rows), len(rows.columns), len(features), 100) == "blocks"
        products.project(rows, features, Lt, out)

    threads = [threading.Thread(target=compute, args=(out,)) for out in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in results[1:]:
        np.testing.assert_array_equal(out, results[0])
