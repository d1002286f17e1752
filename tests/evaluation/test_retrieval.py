"""Neighbours are those that scikit-learn finds; the errors are counted as documented."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from nearfar import errors
from nearfar.evaluation import Resampling, judge_neighbours, nearest, neighbours, retrieval
from nearfar.evaluation.nearest_kernels import keep_smallest
from nearfar.model.euclidean import Euclidean
from nearfar.model.metric import Metric

NO_INTERVALS = Resampling(0)
STORAGES = {"dense": np.asarray, "sparse": sp.csr_array}


@pytest.fixture(scope="module")
def digits():
    points, labels = load_digits(return_X_y=True)
    return points[:1200], labels[:1200], points[1200:], labels[1200:]


@pytest.fixture(params=["whole", "tiles"])
def tiled(request, monkeypatch):
    if request.param == "tiles":
        monkeypatch.setattr(nearest, "_QUERY_BYTES", 40_000)
        monkeypatch.setattr(nearest, "_CANDIDATE_BYTES", 200_000)
        monkeypatch.setattr(nearest, "_BLOCK_BYTES", 30_000)
        monkeypatch.setattr(nearest, "_TILE", (7, 65))
        monkeypatch.setattr(nearest, "_SPARSE_TILE_ROWS", 7)
        monkeypatch.setattr(nearest, "_HELD_BYTES", 0)


def a_metric(n_features=64, rank=10):
    return Metric(np.random.default_rng(0).normal(size=(rank, n_features)))


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("metric", [a_metric(), Euclidean()], ids=repr)
@pytest.mark.parametrize("k", [1, 7, 600, 1200])
def test_neighbours_are_those_of_scikit_learn(digits, store, metric, k):
    references, _, queries, _ = digits
    indices, distances = neighbours(metric, store(queries), store(references), k)
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(metric.transform(references))
    expected, _ = search.kneighbors(metric.transform(queries))
    np.testing.assert_allclose(distances, expected, rtol=1e-4)
    found = references[indices] if k < 100 else references[indices[:20]]
    rows = np.repeat(queries[: len(found)], k, axis=0)
    true = metric.distance(rows, found.reshape(-1, 64)).reshape(-1, k)
    np.testing.assert_allclose(true, distances[: len(found)], rtol=1e-4)
    assert all(len(set(row)) == k for row in indices.tolist())


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
def test_leave_one_out_excludes_the_point_itself_and_nothing_else(digits, store):
    points = np.concatenate((digits[0][:400], digits[0][:1]))  # the last point is a copy of the first
    indices, distances = neighbours(Euclidean(), store(points), store(points), 5, leave_one_out=True)
    expected, _ = NearestNeighbors(n_neighbors=5, algorithm="brute").fit(points).kneighbors()
    np.testing.assert_allclose(distances, expected, rtol=1e-4, atol=1e-2)
    assert not (indices == np.arange(401)[:, np.newaxis]).any()
    assert indices[0, 0] == 400
    assert indices[400, 0] == 0
    everyone, _ = neighbours(Euclidean(), points, points, 400, leave_one_out=True)
    np.testing.assert_array_equal(np.sort(everyone[7]), np.delete(np.arange(401), 7))


@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("k", [1, 3, 5])
def test_neighbour_error_is_that_of_scikit_learn(digits, store, k):
    references, reference_labels, queries, query_labels = digits
    metric = a_metric(rank=4)
    odd, query_odd = reference_labels % 2, query_labels % 2  # two classes: an odd k has no ties
    classifier = KNeighborsClassifier(k, algorithm="brute").fit(metric.transform(references), odd)
    expected = 1 - classifier.score(metric.transform(queries), query_odd)
    found = judge_neighbours(metric, store(references), odd, store(queries), query_odd, k=k).error
    assert found == pytest.approx(expected, abs=1e-12)
    assert 0.02 < found < 0.5


@pytest.mark.parametrize(
    ("labels", "k", "winner"),
    [
        ("bac", 3, "b"),  # one vote each: the nearest
        ("baa", 3, "a"),  # most votes
        ("abba", 4, "a"),  # two each: the class of the nearest
        ("cabba", 5, "a"),  # a and b tie, c is nearest but has fewer votes
        ("cbaab", 5, "b"),
        ("cbaabb", 1, "c"),
    ],
)
def test_votes(labels, k, winner):
    references = np.arange(1.0, len(labels) + 1)[:, np.newaxis]
    wrong = [
        judge_neighbours(Euclidean(), references, list(labels), [[0.0]], [candidate], k=k).error for candidate in "abcd"
    ]
    assert wrong == [float(candidate != winner) for candidate in "abcd"]


def test_recall_at_is_the_share_that_finds_its_class():
    references, labels = [[1.0], [2.0], [3.0], [4.0]], ["a", "b", "b", "c"]
    queries, classes = [[0.0], [0.0], [0.0], [0.0], [5.0]], ["a", "b", "c", "d", "c"]
    found = judge_neighbours(Euclidean(), references, labels, queries, classes, ks=(1, 2, 4)).recall
    assert found == {1: 2 / 5, 2: 3 / 5, 4: 4 / 5}


def test_recall_and_error_leave_the_point_itself_out(digits):
    points, labels = digits[0][:500], digits[1][:500]
    assert judge_neighbours(Euclidean(), points, labels, points, labels, ks=[1]).recall == {1: 1.0}
    found = judge_neighbours(Euclidean(), points, labels, points, labels, leave_one_out=True).recall
    nearest = NearestNeighbors(n_neighbors=10).fit(points).kneighbors(return_distance=False)
    hits = labels[nearest] == labels[:, np.newaxis]
    assert found == pytest.approx({k: hits[:, :k].any(axis=1).mean() for k in (1, 5, 10)}, abs=0.003)
    error = judge_neighbours(Euclidean(), points, labels, points, labels, k=1, leave_one_out=True).error
    assert error == pytest.approx(1 - found[1])


places = st.lists(st.integers(0, 12), min_size=1, max_size=25)


def points_and_labels(draw_from, n_classes):
    return draw_from.flatmap(
        lambda x: st.tuples(st.just(x), st.lists(st.integers(0, n_classes - 1), min_size=len(x), max_size=len(x)))
    )


@settings(deadline=None, max_examples=50)  # the machine may be busy
@given(points_and_labels(places, 2), points_and_labels(places, 2), st.sampled_from([1, 3, 5]))
def test_the_vote_is_that_of_scikit_learn_with_points_that_are_equally_near(references, queries, k):
    """Where it matters which of several points at the same distance is taken, any may be, so such queries are not."""
    (x, labels), (asked, truth) = ((np.array(each[0], float), np.array(each[1])) for each in (references, queries))
    if len(x) < k:
        return
    distances = np.sort(np.abs(asked[:, np.newaxis] - x), axis=1)
    clear = np.ones(len(asked), bool) if len(x) == k else distances[:, k - 1] < distances[:, k]
    asked, truth = asked[clear], truth[clear]
    if not len(asked) or len({*labels, *truth}) < 2:
        return
    classifier = KNeighborsClassifier(k, algorithm="brute").fit(x[:, None], labels)
    judged = judge_neighbours(Euclidean(), x[:, None], labels, asked[:, None], truth, k=k, resampling=NO_INTERVALS)
    assert judged.error == np.mean(classifier.predict(asked[:, None]) != truth)


def brute_map_at_r(distances, labels, truth, own_rows=None):
    """Musgrave et al. 2020, as it is written; of equal distances, the lower row comes first."""
    total = 0.0
    for i, row in enumerate(distances):
        order = [j for j in np.argsort(row, kind="stable") if own_rows is None or j != own_rows[i]]
        relevant = [labels[j] == truth[i] for j in order]
        r = sum(relevant)
        total += sum(np.mean(relevant[:n]) for n in range(1, r + 1) if relevant[n - 1]) / r if r else 0.0
    return total / len(distances)


@settings(deadline=None, max_examples=50)  # the machine may be busy
@given(points_and_labels(places, 4), points_and_labels(places, 5), st.integers(0, 2**10))
def test_map_at_r_is_that_of_its_definition(references, queries, seed):
    """On sparse points, which are not moved, so that whole numbers have distances without any rounding."""
    (x, labels), (asked, truth) = ((np.array(each[0], float), np.array(each[1])) for each in (references, queries))
    if len({*labels, *truth}) < 2:
        return
    rows, few = sp.csr_array(x[:, None]), {"k": 1, "ks": [1], "resampling": NO_INTERVALS}
    judged = judge_neighbours(Euclidean(), rows, labels, sp.csr_array(asked[:, None]), truth, **few)
    expected = brute_map_at_r(np.abs(asked[:, np.newaxis] - x), labels, truth)
    assert judged.map_at_r == pytest.approx(expected, abs=1e-12)
    some = np.random.default_rng(seed).integers(len(x), size=5)
    if len({*labels}) > 1:
        judged = judge_neighbours(Euclidean(), rows, labels, rows[some], labels[some], leave_one_out=some, **few)
        expected = brute_map_at_r(np.abs(x[some, np.newaxis] - x), labels, labels[some], some)
        assert judged.map_at_r == pytest.approx(expected, abs=1e-12)


@pytest.fixture(scope="module")
def map_at_r_of_digits(digits):
    references, labels, queries, truth = digits
    return brute_map_at_r(((queries[:, np.newaxis] - references) ** 2).sum(axis=-1), labels, truth)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES)
def test_map_at_r_of_digits(digits, map_at_r_of_digits, store):
    references, labels, queries, truth = digits
    judged = judge_neighbours(Euclidean(), store(references), labels, store(queries), truth)
    assert judged.map_at_r == pytest.approx(map_at_r_of_digits, abs=2e-4)  # many digits are equally near
    assert judged.n_ranked == judged.n_queries == len(queries)
    assert judged.intervals.keys() == {"error", "recall_at_1", "recall_at_5", "recall_at_10", "map_at_r"}
    low, high = judged.intervals["map_at_r"]
    assert low < judged.map_at_r < high


def test_map_at_r_of_too_many_is_judged_on_some(digits, monkeypatch):
    references, labels, queries, truth = digits
    whole = judge_neighbours(Euclidean(), references, labels, queries, truth)
    monkeypatch.setattr(retrieval, "_MOST_RANKED", 30_000)
    some = judge_neighbours(Euclidean(), references, labels, queries, truth)
    assert 200 < some.n_ranked < 300  # 597 queries with about 120 references of their class each
    assert some.map_at_r == pytest.approx(whole.map_at_r, abs=0.04)
    assert some.map_at_r != whole.map_at_r
    assert (some.error, some.recall) == (whole.error, whole.recall)


def test_some_of_the_references_may_be_the_queries(digits):
    points, labels = digits[0][:400], digits[1][:400]
    whole, _ = neighbours(Euclidean(), points, points, 4, leave_one_out=True)
    some = np.array([7, 3, 399, 0])
    judged = judge_neighbours(Euclidean(), points, labels, points[some], labels[some], k=1, leave_one_out=some)
    assert judged.error == np.mean(labels[whole[some, 0]] != labels[some])


@pytest.mark.parametrize("size", [1, 2, 3, 10, 1000])
def test_the_smallest_keys_come_to_the_front(size):
    rng = np.random.default_rng(size)
    for keys in (rng.permutation(size), np.arange(size), np.arange(size)[::-1]):
        for count in {1, size // 2 or 1, size}:
            moved = keys.astype(np.uint64)
            keep_smallest(moved, count)
            assert set(moved[:count].tolist()) == set(range(count))
            assert set(moved.tolist()) == set(range(size))


def test_memory_is_bounded_whatever_the_number_of_distances():
    random = np.random.default_rng(0)
    queries, references = random.random((2_000, 8), np.float32), random.random((40_000, 8), np.float32)
    tracemalloc.start()
    judge_neighbours(Euclidean(), references, np.arange(40_000) % 9, queries, np.arange(2_000) % 9)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 << 20  # all distances would take 320 MB; those of a query's own class are a ninth of them


POINTS, LABELS = np.arange(8.0).reshape(4, 2), [0, 0, 1, 1]
WRONG = {
    "k is 0": (lambda: neighbours(Euclidean(), POINTS, POINTS, 0), errors.InvalidSettings, "k is 0.*1 to 4"),
    "k is high": (
        lambda: neighbours(Euclidean(), POINTS, POINTS, 5),
        errors.InvalidSettings,
        "k is 5.*1 to 4",
    ),
    "k is high without oneself": (
        lambda: neighbours(Euclidean(), POINTS, POINTS, 4, leave_one_out=True),
        errors.InvalidSettings,
        "k is 4.*1 to 3",
    ),
    "others left out": (
        lambda: neighbours(Euclidean(), POINTS[:2], POINTS, 1, leave_one_out=True),
        errors.InvalidPoints,
        "there are 2 and 4",
    ),
    "two widths": (
        lambda: neighbours(Euclidean(), POINTS[:, :1], POINTS, 1),
        errors.InvalidPoints,
        "1 features, the other 2",
    ),
    "the metric's width": (
        lambda: neighbours(a_metric(3), POINTS, POINTS, 1),
        errors.InvalidPoints,
        "2 features; this metric measures points of 3",
    ),
    "NaN": (
        lambda: neighbours(Euclidean(), [[0.0, np.nan]], POINTS, 1),
        errors.InvalidPoints,
        "point 0 .*feature 1",
    ),
    "too far": (
        lambda: neighbours(Euclidean(), POINTS * 1e30, POINTS, 1),
        errors.InvalidPoints,
        "squared distances are too large for float32",
    ),
    "one class": (
        lambda: judge_neighbours(Euclidean(), POINTS, [5] * 4, POINTS, [5] * 4),
        errors.InvalidConstraints,
        "all labels are 5; expected at least two classes",
    ),
    "no voters": (
        lambda: judge_neighbours(Euclidean(), POINTS, LABELS, POINTS, LABELS, k=0),
        errors.InvalidSettings,
        "k is 0.*1 to 4",
    ),
    "more voters than references": (
        lambda: judge_neighbours(Euclidean(), POINTS, LABELS, POINTS, LABELS, k=4, leave_one_out=True),
        errors.InvalidSettings,
        "k is 4.*1 to 3",
    ),
    "own rows that are none": (
        lambda: judge_neighbours(Euclidean(), POINTS, LABELS, POINTS, LABELS, leave_one_out=[0, 1, 2, 4]),
        errors.InvalidPoints,
        "nor the row of each of 4 queries among 4 references",
    ),
    "missing labels": (
        lambda: judge_neighbours(Euclidean(), POINTS, [0, 1, np.nan, 1], POINTS, LABELS),
        errors.InvalidConstraints,
        "labels hold NaN",
    ),
    "too few labels": (
        lambda: judge_neighbours(Euclidean(), POINTS, LABELS[:3], POINTS, LABELS),
        errors.InvalidConstraints,
        r"reference labels have shape \(3,\); expected \(4,\)",
    ),
    "no ks": (
        lambda: judge_neighbours(Euclidean(), POINTS, LABELS, POINTS, LABELS, ks=()),
        errors.InvalidSettings,
        "ks is",
    ),
    "a k of 0 among the ks": (
        lambda: judge_neighbours(Euclidean(), POINTS, LABELS, POINTS, LABELS, ks=(0, 1)),
        errors.InvalidSettings,
        "ks is",
    ),
}


@pytest.mark.parametrize(("act", "kind", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_named(act, kind, message):
    with pytest.raises(kind, match=message):
        act()
