"""The cut kernel equals the plain one, and every form of the products of sparse rows gives the same numbers."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearfar import cost
from nearfar.data.points import SparseRows, as_points
from nearfar.data.sampling import Batch
from nearfar.data.scratch import Scratch
from nearfar.objective import kernels, packing, sparse_cut, sparse_kernels
from nearfar.objective.fast_gradient import Gatherer, Gradient, GradientKernel, project
from nearfar.objective.losses import Hinge
from nearfar.objective.sparse_products import SparseProducts, SparseProjection, TouchedFeatures

FORMS = ["entries", "blocks", "dense"]
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
    """Some of the first numbers; all of them without a seed."""
    chosen = np.ones(count, bool) if seed is None else np.random.default_rng(seed).random(count) < 0.7
    return np.flatnonzero(chosen).astype(np.int32)


def normal(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max(initial=1))


def order_of(rows, columns=None):
    columns = np.arange(rows.n_features, dtype=np.int32) if columns is None else columns
    return sparse_cut.by_frequency(rows, columns, np.full(rows.n_features, 2**32 - 1, np.uint32))


def multiplied(rows, order, Lt, *, rounded=False):
    scratch, out = Scratch(), np.full((len(rows), Lt.shape[1]), np.nan, np.float32)
    packed = packing.pack(Lt, order.columns, order.places, scratch, rounded=rounded)
    sparse_kernels.multiply(sparse_cut.cut(rows, order, scratch, rounded=rounded), packed, out, scratch)
    return out


@settings(deadline=None, max_examples=60)
@given(shapes, ranks)
@example({"n_rows": 3, "n_features": 5, "stored": 0, "seed": 0}, 64)
@example({"n_rows": 0, "n_features": 5, "stored": 1, "seed": 0}, 1)
def test_the_cut_kernel_equals_the_plain_one(shape, k):
    rows = sparse_rows(**shape)
    Lt, expected = normal(rows.n_features, k), np.empty((len(rows), k), np.float32)
    kernels.weighted_sums(rows.starts, rows.columns, rows.values, Lt, expected)
    assert_close(multiplied(rows, order_of(rows), Lt), expected)


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda Lt: np.repeat(Lt, 2, axis=1)[:, ::2], np.float64])
def test_what_is_packed_may_lie_in_memory_in_any_way(layout):
    rows, Lt = sparse_rows(50, 300, 20, 0), normal(300, 100)
    np.testing.assert_array_equal(multiplied(rows, order_of(rows), layout(Lt)), multiplied(rows, order_of(rows), Lt))


@settings(deadline=None, max_examples=40)
@given(shapes)
def test_columns_go_by_frequency_and_rise_where_it_is_about_the_same(shape):
    rows = sparse_rows(**shape | {"n_rows": min(shape["n_rows"], 400)})  # of twice as many, each second would count
    columns = np.unique(np.concatenate((rows.columns, np.arange(0, rows.n_features, 7, dtype=np.int32))))
    order = order_of(rows, columns)
    counts = np.bincount(rows.columns, minlength=rows.n_features)
    ordered, in_order = columns[order.ranks], counts[columns[order.ranks]] + 1
    np.testing.assert_array_equal(np.sort(ordered), columns)
    assert (in_order[1:] <= 1.5 * in_order[:-1]).all()
    same = in_order[1:] == in_order[:-1]
    assert (ordered[1:] > ordered[:-1])[same].all()
    np.testing.assert_array_equal(order.places[order.ranks], np.arange(len(columns)))
    block, within = order.codes[columns] >> 10, order.codes[columns] & 1023
    np.testing.assert_array_equal(order.first_sources[block] + within, order.places)


@settings(deadline=None, max_examples=40)
@given(shapes, st.sampled_from(["none", "some", "all"]), st.booleans())
@example({"n_rows": 1100, "n_features": 1500, "stored": 3, "seed": 0}, "some", True)
@example({"n_rows": 3, "n_features": 5, "stored": 0, "seed": 0}, "all", False)
def test_a_cut_matrix_is_transposed_entry_by_entry(shape, which, rounded):
    rows, scratch = sparse_rows(**shape), Scratch()
    kept = {"none": some_of(0, 0), "some": some_of(len(rows), shape["seed"]), "all": some_of(len(rows), None)}[which]
    if rounded:
        rows = replace(rows, values=rounded_to_bfloat16(rows.values))
    order = order_of(rows)
    cut = sparse_cut.cut(rows, order, scratch, rounded=rounded)
    turned = sparse_cut.transposed(cut, order, kept, order.ranks, scratch)
    assert (cut.shape, turned.shape) == ((len(rows), rows.n_features), (rows.n_features, len(kept)))
    expected, some = rows.to_scipy().tocoo(), rows.to_scipy()[kept].tocoo()
    targets, sources, values = entries_of(cut)
    found = sorted_triples(cut.results[targets], order.ranks[sources], values)
    np.testing.assert_array_equal(found, sorted_triples(expected.row, expected.col, expected.data))
    targets, sources, values = entries_of(turned)
    found = sorted_triples(turned.results[targets], sources, values)
    np.testing.assert_array_equal(found, sorted_triples(some.col, some.row, some.data))


def rounded_to_bfloat16(values):
    """The nearest numbers that are float32 with a lower half of zeros."""
    return ((values.view(np.uint32) + 0x8000) & np.uint32(0xFFFF0000)).view(np.float32)


def entries_of(cut):
    """Target, source and value of each entry, read by the description of a cut matrix."""
    spans = np.repeat(np.arange(len(cut.first_groups) - 1), np.diff(cut.first_groups))
    groups = np.repeat(np.arange(len(spans)), np.diff(cut.first_visits))
    counts = np.diff(cut.first_entries[: len(groups) + 1])
    assert (counts > 0).all()
    targets = np.repeat(spans[groups] * sparse_cut.SPAN + cut.targets[: len(groups)], counts)
    entries = cut.entries[: counts.sum()]
    if entries.dtype == np.uint32:
        within, values = entries & 0xFFFF, (entries & np.uint32(0xFFFF0000)).view(np.float32)
    else:
        within, values = entries.view(np.uint32)[::2], entries.view(np.float32)[1::2]
    return targets, np.repeat(cut.first_sources[groups], counts) + within, values


def sorted_triples(targets, sources, values):
    return np.array(sorted(zip(targets, sources, values, strict=True))).reshape(-1, 3)


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=40)
@given(shape=shapes, k=ranks)
def test_every_form_equals_scipy(form, shape, k):
    rows = sparse_rows(**shape)
    kept = some_of(len(rows), shape["seed"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "sparse_form", lambda *_: form)
        features = TouchedFeatures(rows.n_features).of(rows)
        products = SparseProducts(rows.n_features).of(rows, features, k)
        np.testing.assert_array_equal(features, np.unique(rows.columns))
        Lt, Z = normal(rows.n_features, k), np.full((len(rows), k), np.nan, np.float32)
        products.project(Lt, Z)
        assert_close(Z, rows.to_scipy() @ Lt)
        C, G = normal(len(rows), k), np.full((len(features), k), np.nan, np.float32)
        for chosen in (kept, np.arange(len(rows), dtype=np.int32)):
            products.gradient(chosen, C, G)
            assert_close(G, (rows.to_scipy()[chosen].T @ C[chosen])[features])


@pytest.mark.parametrize("density", [0.001, 0.05, 0.5, 1.0])
def test_blocks_of_every_size_hold_all_sources(density):
    X = sp.random(300, 2500, density, "csr", np.float32, random_state=0)
    rows, Lt = as_points(X).rows(np.arange(300)), normal(2500, 100)
    order = order_of(rows)
    assert (1 << order.shifts).tolist() == [{0.001: 1024, 0.05: 256, 0.5: 128, 1.0: 128}[density]] * 3
    assert_close(multiplied(rows, order, Lt), X @ Lt)


UNEVEN = {
    "as in images": lambda random, n_columns: 0.9 * random.random(n_columns) ** 8,
    "some in every row": lambda _, n_columns: np.where(np.arange(n_columns) % 500 == 3, 1.0, 0.001),
    "all rare": lambda _, n_columns: np.full(n_columns, 0.002),
    "some never": lambda random, n_columns: np.where(random.random(n_columns) < 0.5, 0.0, 0.1),
    "none": lambda _, n_columns: np.zeros(n_columns),
}


@pytest.mark.parametrize("name", UNEVEN)
def test_columns_of_uneven_frequency_equal_scipy(name, monkeypatch):
    monkeypatch.setattr(cost, "sparse_form", lambda *_: "blocks")
    random = np.random.default_rng(0)
    frequencies = UNEVEN[name](random, 3000)
    present = random.random((1100, 3000)) < random.permutation(frequencies)
    present[random.random(1100) < 0.1] = False  # some rows are empty
    rows = as_points(sp.csr_matrix(present * normal(1100, 3000))).rows(np.arange(1100))
    features, Lt = TouchedFeatures(3000).of(rows), normal(3000, 70)
    products, Z = SparseProducts(3000).of(rows, features, 70), np.full((1100, 70), np.nan, np.float32)
    products.project(Lt, Z)
    assert_close(Z, rows.to_scipy() @ Lt)
    for kept in (some_of(1100, None), some_of(1100, 0)):
        G = np.full((len(features), 70), np.nan, np.float32)
        products.gradient(kept, Z, G)
        assert_close(G, (rows.to_scipy()[kept].T @ Z[kept])[features])


def test_rare_columns_come_in_larger_blocks():
    random = np.random.default_rng(0)
    present = random.random((1000, 6000)) < random.permutation(UNEVEN["as in images"](random, 6000))
    order = order_of(as_points(sp.csr_matrix(present.astype(np.float32))).rows(np.arange(1000)))
    assert (np.diff(order.shifts) >= 0).all()
    assert {128, 1024} <= set((1 << order.shifts).tolist())


@pytest.mark.parametrize(("density", "form"), [(0.001, "entries"), (0.1, "blocks"), (0.6, "dense")])
def test_only_touched_features_are_read_whatever_the_form(density, form):
    X = sp.random(400, 3000, density, "csr", np.float32, random_state=0)
    X = sp.hstack((X[:, :1000], sp.csr_matrix((400, 500), dtype=np.float32), X[:, 1000:])).tocsr()
    touched = np.diff(X.tocsc().indptr) > 0
    assert cost.sparse_form(400, X.nnz, int(touched.sum()), 40) == form
    Lt = normal(3500, 40)
    expected = X @ Lt
    Lt[~touched] = np.nan
    assert_close(project(Lt, as_points(X), np.arange(400)), expected)


def test_a_projection_packs_once_for_all_blocks_that_touch_most_features(monkeypatch):
    X, few = (sp.random(n, 400, density, "csr", np.float32, random_state=n) for n, density in ((900, 0.3), (80, 0.002)))
    first_half = sp.hstack((sp.random(300, 200, 0.3, "csr", np.float32, random_state=3), sp.csr_matrix((300, 200))))
    blocks = [X[:300, :], sp.csr_matrix(first_half), few, X[300:600, ::-1], X[600:]]
    Lt, packed, pack = normal(400, 70), [], packing.pack
    monkeypatch.setattr(
        packing, "pack", lambda base, *given, **how: packed.append(len(given[0])) or pack(base, *given, **how)
    )
    projection = SparseProjection(Lt, Scratch())
    for block in blocks:
        rows = as_points(block).rows(np.arange(block.shape[0]))
        Z = np.full((len(rows), 70), np.nan, np.float32)
        projection.project(rows, Z)
        assert_close(Z, block @ Lt)
    assert packed == [400, 200]  # the half is packed by itself


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_not_kept_are_not_read(form, monkeypatch):
    monkeypatch.setattr(cost, "sparse_form", lambda *_: form)
    rows, kept = sparse_rows(1100, 300, 20, 0), some_of(1100, 0)
    features = TouchedFeatures(300).of(rows)
    C, G = normal(1100, 70), np.empty((len(features), 70), np.float32)
    expected = (rows.to_scipy()[kept].T @ C[kept])[features]
    C[np.setdiff1d(np.arange(1100), kept)] = np.nan
    SparseProducts(300).of(rows, features, 70).gradient(kept, C, G)
    assert_close(G, expected)


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
        features = TouchedFeatures(rows.n_features).of(rows)
        assert cost.sparse_form(len(rows), len(rows.columns), len(features), 100) == "blocks"
        SparseProducts(1500).of(rows, features, 100).project(Lt, out)

    threads = [threading.Thread(target=compute, args=(out,)) for out in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in results[1:]:
        np.testing.assert_array_equal(out, results[0])


@pytest.mark.parametrize("n_missing", [0, 30])
def test_a_packed_metric_serves_batches_in_an_order_of_all_features_that_other_rows_gave(n_missing):
    X, pairs = sp.random(500, 200, 0.2, "lil", np.float32, random_state=0), np.arange(500).reshape(-1, 2)
    X[:, np.random.default_rng(0).permutation(200)[:n_missing]] = 0
    points, Lt, batch = as_points(X.tocsr()), normal(200, 20), Batch(pairs[:125], pairs[125:])
    kernel, gathered = GradientKernel(points, Hinge(), 20), Gatherer(points, 20).rows_of(batch)
    expected, out = Gradient.empty(), Gradient.empty()
    value = kernel.gradient(Lt, batch, gathered, expected)
    order = sparse_cut.order_of_all(sparse_rows(300, 200, 20, seed=1))
    packed = packing.pack(Lt, order.columns, order.places, Scratch())
    Lt.fill(np.nan)  # it is no longer needed
    products = kernel.products_of_packed(gathered)
    assert products is not None
    products.arrange(order)
    products.take(packed)
    assert kernel.gradient(products, batch, gathered, out) == pytest.approx(value, rel=1e-5)
    np.testing.assert_array_equal(out.features, expected.features)
    assert len(out.features) == 200 - n_missing
    assert_close(out.values, expected.values)


def test_an_order_of_all_features_may_have_many_more_than_a_batch_touches(monkeypatch):
    monkeypatch.setattr(cost, "sparse_form", lambda *_: "blocks")
    rows, Lt = sparse_rows(60, 2500, 12, 0), normal(2500, 20)
    some = SparseRows(rows.values, rows.columns % 90 + 2000, rows.starts, 2500)
    features = TouchedFeatures(2500).of(some)
    products = SparseProducts(2500).of(some, features, 20)
    order = sparse_cut.order_of_all(sparse_rows(300, 2500, 200, seed=1))
    products.arrange(order)
    products.take(packing.pack(Lt, order.columns, order.places, Scratch()))
    Z, G, C = np.empty((60, 20), np.float32), np.empty((len(features), 20), np.float32), normal(60, 20, seed=2)
    guarded: list[np.ndarray] = []

    def sums(name: str, size: int, scratch: Scratch) -> np.ndarray:
        if name != "sums":
            return packing.aligned(name, size, scratch)
        guarded.append(packing.aligned(name, size + (1 << 18), scratch))
        guarded[-1][size:] = 7
        return guarded[-1][:size]

    monkeypatch.setattr(sparse_kernels, "aligned", sums)
    products.project_packed(Z)
    products.gradient(some_of(60, None), C, G)
    assert len(guarded) == 2
    assert all((memory[-(1 << 18) :] == 7).all() for memory in guarded)  # nothing is written behind the sums
    plain = sp.csr_matrix((some.values, some.columns, some.starts), (60, 2500))
    assert_close(Z, plain @ Lt)
    assert_close(G, (plain.T @ C)[features])


# Rounded numbers


def assert_rounded(found, rows, base, part=lambda matrix: matrix):
    """Each sum of a part of the rows is off by no more than 2/256 of its terms, 1 of each factor; most by less."""
    values = (rows.values.astype(np.float64), np.abs(rows.values).astype(np.float64))  # some columns are there twice
    plain, sizes = (part(sp.csr_matrix((v, rows.columns, rows.starts), (len(rows), rows.n_features))) for v in values)
    errors, terms = np.abs(found - plain @ base), sizes @ np.abs(base)
    assert (errors <= terms * 2.01 / 256 + 1e-20).all()
    if errors.size >= 1000 and len(rows.values) >= 200:  # of few values, each may be off by nearly as much as can be
        assert np.linalg.norm(errors) <= 0.003 * np.linalg.norm(terms)


@settings(deadline=None, max_examples=60)
@given(shape=shapes, k=ranks)
def test_rounded_products_are_off_by_the_rounding_and_no_more(shape, k):
    rows = sparse_rows(**shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "sparse_form", lambda *_: "blocks")
        features = TouchedFeatures(rows.n_features).of(rows)
        products = SparseProducts(rows.n_features, rounded=True).of(rows, features, k)
        Lt, Z = normal(rows.n_features, k), np.full((len(rows), k), np.nan, np.float32)
        products.project(Lt, Z)
        assert_rounded(Z, rows, Lt)
        kept, C, G = some_of(len(rows), shape["seed"]), normal(len(rows), k), np.empty((len(features), k), np.float32)
        products.gradient(kept, C, G)
        assert_rounded(G, rows, C[kept], lambda matrix: matrix[kept].T[features])


def unpacked(numbers, k):
    """What the product reads of these numbers, as rows of k: the product of the identity."""
    base = np.resize(np.asarray(numbers, np.float32), (-(-len(numbers) // k), k))
    diagonal = as_points(sp.identity(len(base), np.float32, "csr")).rows(np.arange(len(base)))
    return base, multiplied(diagonal, order_of(diagonal), base, rounded=True)


@pytest.mark.parametrize("k", [1, 16, 50, 96, 200])
def test_every_number_is_rounded_to_one_near_it_wherever_it_stands(k):
    random = np.random.default_rng(0)
    sizes = random.uniform(1, 2, 20_000) * 2.0 ** random.integers(-90, 90, 20_000)
    base, found = unpacked(sizes * random.choice([-1, 1], 20_000), k)
    assert np.abs(found / base - 1).max() <= 1 / 256 + 2.0**-13  # its own, and what a place adds to the value 1
    assert np.sqrt(np.mean((found / base - 1.0) ** 2)) < 1 / 500
    assert abs(np.mean(found / base - 1.0)) < 2e-4  # neither up nor down


def test_zero_and_what_is_nearly_zero_stay_below_any_number_that_counts():
    base, found = unpacked([0.0, -0.0, 1e-45, -1e-39, 1e-31, -1.0, 3e38] * 31, 70)
    tiny = np.abs(base) < 2.0**-100
    assert tiny.any()
    assert (np.abs(found[tiny]) <= 2.0**-99).all()
    np.testing.assert_allclose(found[~tiny], base[~tiny], rtol=1 / 256)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_not_finite_still_shows_when_it_is_squared(bad):
    for place in range(64):
        numbers = np.ones(64, np.float32)
        numbers[place] = bad
        with np.errstate(over="ignore"):
            squared = np.square(unpacked(numbers, 64)[1])
        assert np.flatnonzero(~np.isfinite(squared)).tolist() == [place]


def test_a_gradient_of_rounded_products_is_near_that_of_exact_ones():
    X, pairs = sp.random(2000, 500, 0.1, "csr", np.float32, random_state=0), np.arange(2000).reshape(-1, 2)
    points, Lt, batch = as_points(X), normal(500, 100) / 5, Batch(pairs[:500], pairs[500:])
    gathered, found = Gatherer(points, 100).rows_of(batch), []
    assert cost.sparse_form(1000, len(gathered.rows.columns), len(gathered.features), 100) == "blocks"
    for rounded in (False, True):
        out = Gradient.empty()
        kernel = GradientKernel(points, Hinge(margin=100.0), 100, rounded=rounded)
        found.append((kernel.gradient(Lt, batch, gathered, out), out.values))
    (value, exact), (rounded_value, rounded_gradient) = found
    assert rounded_value == pytest.approx(value, rel=1e-3)
    distance = np.linalg.norm(rounded_gradient - exact) / np.linalg.norm(exact)
    assert 1e-5 < distance < 0.004
