"""Clusters: the figures are scikit-learn's; what is clustered is the metric's own space, and no more than allowed."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from nearfar.errors import InvalidConstraints, InvalidInput, InvalidPoints, InvalidSettings
from nearfar.evaluation import adjusted_rand_index, clustering, judge_clusters, normalized_mutual_information
from nearfar.model.euclidean import Euclidean
from nearfar.model.metric import Metric

partitions = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 6), min_size=n, max_size=n) for _ in range(2)])
)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
@settings(deadline=None)  # the machine may be busy
@given(partitions)
def test_figures_are_those_of_scikit_learn(both):
    assert normalized_mutual_information(*both) == pytest.approx(normalized_mutual_info_score(*both), abs=1e-9)
    assert adjusted_rand_index(*both) == pytest.approx(adjusted_rand_score(*both), abs=1e-9)


def test_figures_of_many_points_do_not_overflow():
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, 300_000)
    clusters = np.where(rng.random(300_000) < 0.7, classes, rng.integers(0, 4, 300_000))
    assert adjusted_rand_index(classes, clusters) == pytest.approx(adjusted_rand_score(classes, clusters))
    assert normalized_mutual_information(classes, clusters) == pytest.approx(
        normalized_mutual_info_score(classes, clusters)
    )


@pytest.fixture(scope="module")
def hidden():
    """Four classes in two directions of small spread, among twenty of large spread."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 1200)
    corners = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    return np.hstack((corners[y] + rng.normal(0, 0.1, (1200, 2)), rng.normal(0, 2, (1200, 20)))), y


def finding():
    return Metric(np.eye(2, 22))


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_clusters_are_found_where_the_metric_is_euclidean(hidden, store):
    X, y = hidden
    found = judge_clusters(finding(), store(X), y)
    assert found.normalized_mutual_information > 0.99
    assert found.adjusted_rand_index > 0.99
    assert (found.n_clusters, found.n_points) == (4, 1200)
    lost = judge_clusters(Euclidean(), store(X), y)
    assert lost.normalized_mutual_information < 0.1
    assert abs(lost.adjusted_rand_index) < 0.1


def test_clusters_are_as_good_as_those_of_scikit_learn(digits):
    X, y = digits
    means = KMeans(10, n_init=3, random_state=0).fit(X)
    found = judge_clusters(Euclidean(), X, y)
    expected = normalized_mutual_info_score(y, means.labels_)
    assert found.normalized_mutual_information == pytest.approx(expected, abs=0.03)
    assert judge_clusters(Euclidean(), X, y) == found


def test_a_sample_is_clustered_where_there_are_more(hidden):
    X, y = hidden
    found = judge_clusters(finding(), X, y, most_points=300)
    assert found.n_points == 300
    assert found.normalized_mutual_information > 0.98


def test_memory_is_bounded_whatever_the_number_of_points(monkeypatch):
    monkeypatch.setattr(clustering, "_MOST_BYTES", 1 << 20)
    X = np.zeros((200_000, 64), np.float32)
    X[:, 0] = y = np.arange(200_000) % 2
    judge_clusters(Euclidean(), X[:50], y[:50])  # imports and compiles
    tracemalloc.start()
    found = judge_clusters(Euclidean(), X, y, most_points=10**9)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.n_points == 4096
    assert found.adjusted_rand_index == 1.0
    assert peak < 16 << 20  # the points take 51 MB


def test_equal_points_make_fewer_clusters():
    found = judge_clusters(Euclidean(), np.ones((50, 3)), np.arange(50) % 5)
    assert (found.normalized_mutual_information, found.adjusted_rand_index) == (0.0, 0.0)


POINTS, LABELS = np.arange(8.0).reshape(4, 2), [0, 0, 1, 1]
WRONG = {
    "too few labels": (lambda: judge_clusters(Euclidean(), POINTS, LABELS[:3]), InvalidConstraints, "3 labels for 4"),
    "one class": (lambda: judge_clusters(Euclidean(), POINTS, [1] * 4), InvalidConstraints, "at least two classes"),
    "missing labels": (
        lambda: judge_clusters(Euclidean(), POINTS, [0, 1, np.nan, 1]),
        InvalidConstraints,
        "labels hold NaN",
    ),
    "NaN": (lambda: judge_clusters(Euclidean(), [[0.0], [np.nan]], [0, 1]), InvalidPoints, "point 1 has NaN"),
    "another width": (
        lambda: judge_clusters(Metric(np.eye(3)), POINTS, LABELS),
        InvalidPoints,
        "2 features; this metric measures points of 3",
    ),
    "more clusters than points": (
        lambda: judge_clusters(Euclidean(), POINTS, LABELS, n_clusters=5),
        InvalidSettings,
        "n_clusters is 5; expected from 2 to 4",
    ),
    "one point": (
        lambda: judge_clusters(Euclidean(), POINTS, LABELS, most_points=1),
        InvalidSettings,
        "most_points is 1",
    ),
    "too wide": (
        lambda: judge_clusters(
            Euclidean(), sp.csr_array(([1.0, 1.0], ([0, 3999], [0, 1])), shape=(4000, 10**6)), np.arange(4000) % 1000
        ),
        InvalidSettings,
        "1000 clusters .*fewer clusters, or a metric of lower rank",
    ),
    "unequal lengths": (lambda: adjusted_rand_index([0, 1], [0]), InvalidInput, r"\(2,\) and \(1,\)"),
}


@pytest.mark.parametrize(("act", "kind", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_named(act, kind, message):
    with pytest.raises(kind, match=message):
        act()
