"""What a metric promises, whatever the points are stored in."""

import json

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar import errors
from nearfar.data.points import as_points
from nearfar.files import write_safetensors
from nearfar.model import distance as distance_module
from nearfar.model import metric as metric_module
from nearfar.model.euclidean import Euclidean
from nearfar.model.metric import Metric, load_metric

N_POINTS, N_FEATURES, RANK = 40, 12, 5


def random_points(seed=0, n=N_POINTS, d=N_FEATURES):
    random = np.random.default_rng(seed)
    dense = random.normal(size=(n, d)) * (random.random((n, d)) < 0.4)
    return dense.astype(np.float32)


def random_metric(seed=0, k=RANK, d=N_FEATURES, **kept):
    return Metric(np.random.default_rng(seed).normal(size=(k, d)), **kept)


def brute_force(metric, A, B):
    differences = A[:, np.newaxis].astype(np.float64) - B.astype(np.float64)
    return np.sqrt(np.einsum("abi,ij,abj->ab", differences, metric.matrix(), differences).clip(0))


@pytest.fixture(params=["dense", "float64", "sparse", "memmap", "points", "sparse points"])
def stored(request, tmp_path):
    """A function that stores points in one of the ways that are taken."""

    def memmap(array):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        np.save(path, array)
        return np.load(path, mmap_mode="r")

    return {
        "dense": lambda array: array,
        "float64": lambda array: array.astype(np.float64),
        "sparse": sp.csr_array,
        "memmap": memmap,
        "points": as_points,
        "sparse points": lambda array: as_points(sp.csr_matrix(array)),
    }[request.param]


@pytest.fixture(params=["whole", "blocks of a few points"])
def blocked(request, monkeypatch):
    if request.param != "whole":
        monkeypatch.setattr(distance_module, "_BLOCK_BYTES", 500)
        assert len(list(distance_module.places(N_POINTS, RANK))) > 1


@settings(deadline=None)  # the machine may be busy
@given(st.integers(0, 10_000))
def test_it_is_a_pseudometric(seed):
    metric, A = random_metric(seed), random_points(seed)
    a, b, c = A[:13], A[13:26], A[26:39]
    np.testing.assert_array_equal(metric.distance(a, a), 0.0)
    np.testing.assert_array_equal(metric.distance(a, b), metric.distance(b, a))
    assert (metric.distance(a, c) <= (metric.distance(a, b) + metric.distance(b, c)) * (1 + 1e-5)).all()


@settings(deadline=None)  # the machine may be busy
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_distance_is_that_of_the_matrix(seed, rank):
    metric, A, B = random_metric(seed, rank), random_points(seed), random_points(seed + 1)
    expected = np.diag(brute_force(metric, A, B))
    np.testing.assert_allclose(metric.distance(A, B), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metric.distance(A, B, squared=True), expected**2, rtol=2e-4, atol=1e-5)


@pytest.mark.usefixtures("blocked")
def test_every_storage_gives_the_same(stored):
    A, B = random_points(0), random_points(1)
    metric = random_metric(centre=A.mean(axis=0))
    pairs = np.random.default_rng(2).integers(0, N_POINTS, (100, 2))
    everything = brute_force(metric, A, np.concatenate((A, B)))
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(metric.transform(stored(A)), (A - A.mean(axis=0)) @ metric.components.T, **close)
    np.testing.assert_allclose(metric.distance(stored(A), stored(B)), np.diag(everything[:, N_POINTS:]), **close)
    np.testing.assert_allclose(metric.distance(stored(A), B), np.diag(everything[:, N_POINTS:]), **close)
    np.testing.assert_allclose(metric.pair_distances(stored(A), pairs), everything[tuple(pairs.T)], **close)
    np.testing.assert_allclose(metric.pairwise(stored(A), stored(B)), everything[:, N_POINTS:], atol=2e-3)
    np.testing.assert_allclose(metric.pairwise(stored(A)), everything[:, :N_POINTS], atol=2e-3)


@pytest.mark.usefixtures("blocked")
def test_euclidean_is_the_metric_of_the_identity(stored):
    A, B = random_points(0), random_points(1)
    identity, plain = Metric(np.eye(N_FEATURES)), Euclidean()
    pairs = np.random.default_rng(2).integers(0, N_POINTS, (100, 2))
    unchanged = plain.transform(stored(A))
    np.testing.assert_array_equal(unchanged.toarray() if sp.issparse(unchanged) else unchanged, A)
    np.testing.assert_allclose(plain.distance(stored(A), B), identity.distance(A, B), rtol=1e-5)
    np.testing.assert_allclose(plain.pair_distances(stored(A), pairs), identity.pair_distances(A, pairs), rtol=1e-5)
    np.testing.assert_allclose(plain.pairwise(stored(A), stored(B)), identity.pairwise(A, B), atol=2e-3)
    np.testing.assert_allclose(plain.pairwise(A, stored(B)), identity.pairwise(A, B), atol=2e-3)
    np.testing.assert_allclose(plain.pairwise(stored(A)), identity.pairwise(A), atol=2e-3)


def test_euclidean_takes_sparse_points_too_wide_to_be_dense():
    wide = sp.random_array((30, 10_000_000), density=1e-6, format="csr", rng=0, dtype=np.float32)
    pairs = np.array([[0, 1], [2, 2]])
    expected = sp.linalg.norm(wide[[0]] - wide[[1]])
    np.testing.assert_allclose(Euclidean().pair_distances(wide, pairs), [expected, 0.0], rtol=1e-5)
    np.testing.assert_allclose(Euclidean().pairwise(wide)[0, 1], expected, rtol=1e-5)


def test_a_column_that_stands_twice_in_a_sparse_row_adds_up():
    twice = as_points(sp.csr_array(np.ones((2, 3), np.float32)))
    twice = type(twice)(np.ones(3, np.float32), np.array([1, 1, 2], np.int32), np.array([0, 2, 3]), 3)
    expected = np.sqrt([[0.0, 5.0], [5.0, 0.0]])  # the points (0, 2, 0) and (0, 0, 1)
    np.testing.assert_allclose(Euclidean().pairwise(twice), expected, rtol=1e-6)
    np.testing.assert_allclose(Metric(np.eye(3)).pairwise(twice), expected, rtol=1e-6)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_both_ways_to_pair_distances_agree_and_the_limit_decides(store, limit, monkeypatch):
    projected = []
    project = Metric.projected
    monkeypatch.setattr(Metric, "projected", lambda *given: projected.append(given) or project(*given))
    monkeypatch.setattr(metric_module, "_PROJECTIONS_BYTES", limit)
    A, metric = random_points(), random_metric()
    pairs = np.random.default_rng(2).integers(0, 10, (200, 2))
    found = metric.pair_distances(store(A), pairs, squared=True)
    np.testing.assert_allclose(found, metric.distance(A[pairs[:, 0]], A[pairs[:, 1]], squared=True), atol=1e-4)
    assert bool(projected) == (limit > 0)


def test_far_from_the_origin_near_points_keep_their_distance():
    offset = 3000.0
    A = random_points() + np.float32(offset)
    B = A.copy()
    B[:, 0] += 0.25
    metric = random_metric()
    expected = np.full(N_POINTS, 0.25 * np.linalg.norm(metric.components[:, 0]))
    np.testing.assert_allclose(metric.distance(A, B), expected, rtol=1e-5)
    np.testing.assert_allclose(metric.pairwise(A, B), brute_force(metric, A, B), atol=0.1)


def test_pairwise_is_zero_on_the_diagonal_and_never_below():
    A = np.repeat(random_points() * 1000, 2, axis=0)
    found = random_metric().pairwise(A, squared=True)
    np.testing.assert_array_equal(np.diag(found), 0.0)
    assert found.min() == 0.0


def test_pairwise_blocks_cover_all_rows_in_small_blocks(monkeypatch):
    monkeypatch.setattr(distance_module, "_BLOCK_BYTES", 4 * N_POINTS * 7)
    blocks = list(random_metric().pairwise_blocks(random_points(), random_points(1)))
    assert [place.start for place, _ in blocks] == list(range(0, N_POINTS, 7))
    assert all(block.shape == (place.stop - place.start, N_POINTS) for place, block in blocks)


def test_transform_writes_where_it_is_told():
    A, metric, out = random_points(), random_metric(), np.full((N_POINTS, RANK), np.nan, np.float32)
    assert metric.transform(A, out=out) is out
    np.testing.assert_array_equal(out, metric.transform(A))


def test_centre_moves_the_transform_and_no_distance():
    A, B, centre = random_points(0), random_points(1), np.arange(N_FEATURES)
    plain, centred = random_metric(), random_metric(centre=centre)
    np.testing.assert_allclose(centred.transform(np.array([centre])), np.zeros((1, RANK)), atol=1e-4)
    np.testing.assert_array_equal(centred.distance(A, B), plain.distance(A, B))


def test_transformed_points_have_the_metric_as_euclidean_distance():
    A, B, metric = random_points(0), random_points(1), random_metric(centre=np.ones(N_FEATURES))
    apart = np.linalg.norm(metric.transform(A) - metric.transform(B), axis=1)
    np.testing.assert_allclose(apart, metric.distance(A, B), rtol=1e-4)


def test_it_is_immutable_and_from_transposed_shares():
    given_components = np.ones((2, 3), np.float32)
    metric = Metric(given_components, settings={"rank": 2})
    given_components[:] = 7
    metric.settings["rank"] = 9
    assert (metric.components == 1).all()
    assert metric.settings == {"rank": 2}
    with pytest.raises(ValueError, match="read-only"):
        metric.components[0, 0] = 2
    with pytest.raises(AttributeError):
        metric.threshold = 1.0
    transposed = np.ones((3, 2), np.float32)
    shared = Metric.from_transposed(transposed)
    assert np.shares_memory(shared.components, transposed)
    assert (shared.rank, shared.n_features) == (2, 3)
    assert np.shares_memory(shared.with_threshold(2.0).components, transposed)


def test_matrix_is_symmetric_and_positive():
    M = random_metric().matrix()
    np.testing.assert_array_equal(M, M.T)
    np.testing.assert_allclose(M, random_metric().components.T @ random_metric().components, rtol=1e-4, atol=1e-5)
    assert np.linalg.eigvalsh(M).min() > -1e-12


@settings(deadline=None)  # the machine may be busy
@given(st.integers(0, 10_000), st.integers(1, 20), st.data())
def test_reduced_is_the_best_of_its_rank(seed, rank, data):
    metric = random_metric(seed, rank)
    fewer = data.draw(st.integers(1, rank))
    reduced = metric.reduced(fewer)
    assert reduced.rank == min(fewer, N_FEATURES)
    values = np.linalg.svd(metric.components.astype(np.float64), compute_uv=False) ** 2
    left_out = np.append(values, 0.0)[reduced.rank]
    error = np.linalg.norm(metric.matrix() - reduced.matrix(), 2)
    assert error == pytest.approx(left_out, abs=1e-4 * values[0])
    A, B = random_points(seed), random_points(seed + 1)
    shrunk = metric.distance(A, B, squared=True) - reduced.distance(A, B, squared=True)
    bound = left_out * ((A - B) ** 2).sum(axis=1)
    rounding = 1e-5 * values[0] * ((A - B) ** 2).sum(axis=1)
    assert (shrunk >= -rounding).all()
    assert (shrunk <= bound + rounding).all()


def test_auto_keeps_the_fewest_rows_that_hold_the_trace():
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    metric = Metric(rotation @ np.diag(np.sqrt([90.0, 9.0, 0.9, 0.1])), threshold=1.0, settings={"seed": 3})
    assert [metric.reduced("auto", tolerance).rank for tolerance in (0.2, 0.05, 0.005, 0.0005)] == [
        1,
        2,
        3,
        4,
    ]
    reduced = metric.reduced("auto", 0.05)
    np.testing.assert_allclose(reduced.matrix(), np.diag([90.0, 9.0, 0, 0]), atol=1e-4)
    assert reduced.settings == {"seed": 3}
    assert reduced.threshold is None


def test_is_similar_is_at_or_below_the_threshold():
    metric = Metric([[0.1]]).with_threshold(float(np.float32(0.1)))
    np.testing.assert_array_equal(metric.is_similar([[0], [0], [0]], [[0.999], [1], [1.001]]), [True, True, False])
    with pytest.raises(errors.InvalidSettings, match=r"has no threshold.*with_threshold"):
        Metric([[1.0]]).is_similar([[0]], [[1]])


@pytest.mark.parametrize("centre", [None, np.linspace(-1, 1, N_FEATURES)])
@pytest.mark.parametrize("threshold", [None, 0.1 + 0.2])
def test_saved_and_loaded_is_exact(tmp_path, centre, threshold):
    settings = {"loss": "hinge", "rank": 5, "step": 0.1, "scaled": True}
    metric = random_metric(centre=centre, threshold=threshold, settings=settings)
    metric.save(tmp_path / "m.safetensors")
    loaded = load_metric(str(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(loaded.components, metric.components)
    np.testing.assert_array_equal(loaded.transform(random_points()), metric.transform(random_points()))
    assert (loaded.threshold, loaded.settings) == (threshold, settings)
    assert (loaded.centre is None) == (centre is None)
    plain = safetensors.numpy.load_file(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(plain["components"], metric.components)


METADATA = {"format": "nearfar.metric", "version": "1", "settings": "{}"}
GOOD = {"components": np.ones((2, 3), np.float32)}
BAD_FILES = {
    "another kind": (GOOD, {}, "not a metric"),
    "no components": ({"weights": np.ones((2, 3), np.float32)}, METADATA, "not a metric"),
    "a newer version": (GOOD, METADATA | {"version": "2"}, "version 2.*newer nearfar"),
    "an unknown tensor": (GOOD | {"lift": np.ones(3, np.float32)}, METADATA, "lift.*newer nearfar"),
    "one dimension": ({"components": np.ones(3, np.float32)}, METADATA, r"components of shape \(3,\)"),
    "no rows": ({"components": np.ones((0, 3), np.float32)}, METADATA, "not empty"),
    "NaN": ({"components": np.full((2, 3), np.nan, np.float32)}, METADATA, "NaN or infinity"),
    "a wide centre": (GOOD | {"centre": np.ones(4, np.float32)}, METADATA, r"centre has shape \(4,\)"),
    "two thresholds": (GOOD | {"threshold": np.ones(2)}, METADATA, r"threshold of shape \(2,\)"),
    "a threshold below 0": (GOOD | {"threshold": -np.ones(1)}, METADATA, "threshold is -1.0"),
    "broken settings": (GOOD, METADATA | {"settings": "{"}, "not a usable metric"),
    "nested settings": (GOOD, METADATA | {"settings": json.dumps({"a": {}})}, "setting a is {}"),
    "a list of settings": (GOOD, METADATA | {"settings": "[1]"}, "not a usable metric"),
}


@pytest.mark.parametrize(("tensors", "metadata", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_no_metric_is_refused(tmp_path, tensors, metadata, message):
    path = tmp_path / "m.safetensors"
    write_safetensors(path, tensors, metadata)
    with pytest.raises(errors.InvalidFile, match=message) as raised:
        load_metric(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_of_another_program_is_refused_as_such(tmp_path):
    safetensors.numpy.save_file(GOOD, tmp_path / "m.safetensors")
    with pytest.raises(errors.InvalidFile, match="not a metric"):
        load_metric(tmp_path / "m.safetensors")


@pytest.mark.parametrize("harm", ["cut short", "a bit turned", "missing", "text"])
def test_a_damaged_file_is_refused(tmp_path, harm):
    path = tmp_path / "m.safetensors"
    random_metric().save(path)
    whole = path.read_bytes()
    changed = {"cut short": whole[:-5], "a bit turned": whole[:-1] + bytes([whole[-1] ^ 1]), "text": b"hello"}
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(changed[harm])
    with pytest.raises(errors.InvalidFile, match=r"m\.safetensors"):
        load_metric(path)


def nan_at(row, feature):
    points = random_points()
    points[row, feature] = np.nan
    return points


WRONG = {
    "components of one dimension": (lambda _: Metric([1, 2]), errors.InvalidInput, r"shape \(2,\)"),
    "components without rows": (lambda _: Metric(np.ones((0, 3))), errors.InvalidInput, "not empty"),
    "infinite components": (lambda _: Metric([[1e300]]), errors.InvalidInput, "NaN or infinity"),
    "components of text": (lambda _: Metric([["a"]]), errors.InvalidInput, "type <U1"),
    "complex components": (lambda _: Metric([[1j]]), errors.InvalidInput, "complex"),
    "a short centre": (lambda _: Metric(np.eye(3), centre=[1, 2]), errors.InvalidInput, r"expected \(3,\)"),
    "a negative threshold": (lambda m: m.with_threshold(-1), errors.InvalidSettings, "threshold is -1"),
    "a NaN threshold": (lambda m: m.with_threshold(np.nan), errors.InvalidSettings, "threshold is nan"),
    "a setting that is a list": (
        lambda _: Metric([[1]], settings={"a": []}),
        errors.InvalidSettings,
        r"setting a is \[\]",
    ),
    "points of another width": (
        lambda m: m.transform(np.ones((3, 4))),
        errors.InvalidPoints,
        "4 features.*12",
    ),
    "a single point": (lambda m: m.transform(np.ones(12)), errors.InvalidPoints, "two dimensions"),
    "a small out": (
        lambda m: m.transform(random_points(), out=np.ones((2, 2), np.float32)),
        errors.InvalidInput,
        r"out has shape \(2, 2\)",
    ),
    "an out of doubles": (
        lambda m: m.transform(random_points(), out=np.ones((40, 5))),
        errors.InvalidInput,
        "float64; expected",
    ),
    "sets of two lengths": (
        lambda m: m.distance(random_points(), random_points(n=3)),
        errors.InvalidPoints,
        "40 points and the other 3",
    ),
    "sets of two widths": (
        lambda _: Euclidean().distance(random_points(), random_points(d=3)),
        errors.InvalidPoints,
        "12 features, the other 3",
    ),
    "NaN to transform": (lambda m: m.transform(nan_at(3, 4)), errors.InvalidPoints, "point 3 .*feature 4"),
    "NaN in one of two sets": (
        lambda m: m.distance(random_points(), nan_at(5, 1)),
        errors.InvalidPoints,
        "point 5 .*feature 1",
    ),
    "NaN in a pair": (
        lambda m: m.pair_distances(nan_at(5, 1), [[0, 5]]),
        errors.InvalidPoints,
        "point 5 .*feature 1",
    ),
    "NaN in pairwise": (lambda m: m.pairwise(nan_at(5, 1)), errors.InvalidPoints, "point 5 .*feature 1"),
    "NaN in Euclid": (
        lambda _: Euclidean().pairwise(nan_at(5, 1)),
        errors.InvalidPoints,
        "point 5 .*feature 1",
    ),
    "pairs with a high index": (
        lambda m: m.pair_distances(random_points(), [[0, 40]]),
        errors.InvalidConstraints,
        "index 40; there are 40 points",
    ),
    "pairs with a negative index": (
        lambda m: m.pair_distances(random_points(), [[0, -1]]),
        errors.InvalidConstraints,
        "index -1",
    ),
    "pairs of three": (
        lambda m: m.pair_distances(random_points(), [[0, 1, 2]]),
        errors.InvalidConstraints,
        r"shape \(1, 3\)",
    ),
    "pairs of fractions": (
        lambda m: m.pair_distances(random_points(), [[0.5, 1]]),
        errors.InvalidConstraints,
        "type float64",
    ),
    "rank 0": (lambda m: m.reduced(0), errors.InvalidSettings, "rank is 0"),
    "a higher rank": (lambda m: m.reduced(6), errors.InvalidSettings, "from 1 to 5"),
    "a rank that is a word": (lambda m: m.reduced("half"), errors.InvalidSettings, "rank is half"),
    "tolerance 1": (lambda m: m.reduced("auto", 1.0), errors.InvalidSettings, "tolerance is 1.0"),
    "a folder that is not there": (
        lambda m: m.save("/nowhere/m.safetensors"),
        errors.InvalidFile,
        "cannot write",
    ),
}


@pytest.mark.parametrize(("act", "kind", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_named(act, kind, message):
    with pytest.raises(kind, match=message):
        act(random_metric())


def test_no_pairs_have_no_distances():
    assert random_metric().pair_distances(random_points(), np.empty((0, 2), np.int64)).shape == (0,)


def test_repr_is_short():
    assert repr(random_metric()) == "Metric(rank=5, n_features=12)"
    assert repr(random_metric(threshold=0.5)) == "Metric(rank=5, n_features=12, threshold=0.5)"
