"""All figures together: for any distance, dense and sparse, and as the command line gives them."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf
from nearfar.data.dataset import Dataset, write_dataset
from nearfar.errors import InvalidSettings
from nearfar.evaluation import Euclidean, judge_clusters, judge_neighbours, judge_pairs, summarise, summary
from nearfar.evaluation.nearest import comparison_cost
from nearfar.objective.lift import rbf_lift

RANDOM = np.random.default_rng(0)
DISTANCES = {
    "learned": nf.Metric(RANDOM.normal(size=(10, 64)), threshold=30.0),
    "lifted": nf.Metric(RANDOM.normal(size=(12, 300)), lift=rbf_lift(64, 300, 40.0, None, seed=0)),
    "euclidean": Euclidean(),
}
FIGURES = {"average_precision", "roc_auc", "equal_error_rate", "accuracy"}
NEIGHBOURS = {"3nn_error", "recall_at_1", "recall_at_5", "recall_at_10", "map_at_r"}


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("distance", DISTANCES.values(), ids=DISTANCES)
def test_a_distance_is_judged_as_euclid_on_the_points_it_makes(digits, distance, store):
    X, y = digits[0][:900], digits[1][:900]
    made = distance.transform(X)
    pairs = nf.draw_pairs(nf.LabelDraws(nf.Labels(y)), 2000, 2000)
    judged = judge_pairs(distance, store(X), pairs)
    expected = judge_pairs(Euclidean(), made, pairs, threshold=distance.threshold)
    for name in FIGURES:
        assert getattr(judged, name) == pytest.approx(getattr(expected, name), abs=2e-3)
        assert judged.intervals[name] == pytest.approx(expected.intervals[name], abs=5e-3)
    found = judge_neighbours(distance, store(X[:600]), y[:600], store(X[600:]), y[600:])
    expected = judge_neighbours(Euclidean(), made[:600], y[:600], made[600:], y[600:])
    assert found.map_at_r == pytest.approx(expected.map_at_r, abs=1e-3)
    assert found.error == pytest.approx(expected.error, abs=0.01)
    clusters = judge_clusters(distance, store(X), y)
    assert clusters.normalized_mutual_information == pytest.approx(
        judge_clusters(Euclidean(), made, y).normalized_mutual_information, abs=0.1
    )


@pytest.fixture(scope="module")
def datasets(digits, tmp_path_factory) -> tuple[Dataset, Dataset]:
    """Points to train on and points to test on."""
    X, y = digits
    folder = tmp_path_factory.mktemp("data")
    return write_dataset(folder / "train", X[:1200], y[:1200]), write_dataset(folder / "test", X[1200:], y[1200:])


def test_the_json_has_every_figure_and_its_interval(datasets):
    train, test = datasets
    judged = json.loads(json.dumps(summarise(DISTANCES["learned"], test, train).to_json(), allow_nan=False))
    assert judged.keys() >= FIGURES | NEIGHBOURS | {"normalized_mutual_information", "adjusted_rand_index"}
    assert judged["intervals"].keys() == FIGURES | NEIGHBOURS
    for name, (low, high) in judged["intervals"].items():
        assert low <= judged[name] <= high
    assert (judged["resamples"], judged["confidence"]) == (1000, 0.95)
    assert (judged["n_queries"], judged["n_references"], judged["n_clustered"]) == (597, 1200, 597)


def test_what_is_not_wanted_is_left_out(datasets):
    train, test = datasets
    summary = summarise(Euclidean(), test, train, k=0, most_clustered=0, resamples=0)
    assert (summary.retrieval, summary.clusters, summary.remarks) == (None, None, ())
    judged = summary.to_json()
    assert judged["intervals"] == {}
    assert not judged.keys() & (NEIGHBOURS | {"normalized_mutual_information"})
    assert all("–" not in text for _, text in summary.rows())


def test_the_threshold_is_never_fitted_to_the_pairs_that_it_is_judged_on_if_others_are_there(datasets):
    train, test = datasets
    quick = {"k": 0, "most_clustered": 0, "resamples": 0}
    own = summarise(DISTANCES["learned"], test, train, **quick).verification
    assert (own.threshold, own.threshold_from) == (30.0, "metric")
    fitted = summarise(Euclidean(), test, train, **quick).verification
    assert fitted.threshold_from == "training pairs"
    on_itself = summarise(Euclidean(), train, train, **quick).verification
    assert on_itself.threshold_from == "judged pairs"
    assert fitted.threshold == on_itself.threshold  # the best on the same pairs
    assert fitted.threshold != summarise(Euclidean(), test, **quick).verification.threshold


def test_queries_among_the_references_are_not_their_own_neighbours(datasets):
    train, _ = datasets
    whole = summarise(Euclidean(), train, train, most_clustered=0).retrieval
    assert whole.recall[1] < 1
    assert whole.n_queries == whole.n_references == 1200
    some = summarise(Euclidean(), train, None, most_queries=300, most_clustered=0).retrieval
    assert (some.n_queries, some.n_references) == (300, 1200)
    assert some.recall[1] == pytest.approx(whole.recall[1], abs=0.02)
    assert some.map_at_r == pytest.approx(whole.map_at_r, abs=0.03)


def test_fewer_queries_are_made_where_comparing_takes_long(datasets, monkeypatch):
    train, test = datasets
    assert comparison_cost(DISTANCES["learned"], *DISTANCES["learned"].two_sets(test.points, train.points)) == 10
    monkeypatch.setattr(summary, "_MOST_WORK", 200 * 1200 * 64)
    some = summarise(Euclidean(), test, train, most_clustered=0).retrieval
    assert some.n_queries == 200
    asked = summarise(Euclidean(), test, train, most_queries=300, most_clustered=0).retrieval
    assert asked.n_queries == 300
    monkeypatch.setattr(summary, "_MOST_WORK", 1)
    assert summarise(Euclidean(), test, train, most_clustered=0).retrieval.n_queries == 100


def test_sparse_points_cost_the_features_they_share():
    rng = np.random.default_rng(0)
    X, Y = (sp.csr_array((rng.random((3000, 500)) < density).astype(float)) for density in (0.02, 0.1))
    cost = comparison_cost(Euclidean(), *Euclidean().two_sets(X, Y))
    shared = (X @ Y.T).mean()
    assert cost == pytest.approx(1 + 100 * shared, rel=0.05)


def test_stored_pairs_judge_and_of_many_some_do(digits, tmp_path, monkeypatch):
    X, y = digits
    pairs = nf.draw_pairs(nf.LabelDraws(nf.Labels(y)), 1000, 3000)
    dataset = write_dataset(tmp_path / "d", X, constraints=pairs)
    whole = summarise(Euclidean(), dataset)
    assert (whole.verification.n_similar, whole.verification.n_dissimilar) == (1000, 3000)
    assert (whole.retrieval, whole.clusters) == (None, None)
    monkeypatch.setattr(summary, "_MOST_PAIRS", 1000)
    some = summary._pairs(dataset, 10, 0, most=1000)
    assert (len(some[0].similar), len(some[0].dissimilar)) == (1000, 1000)
    assert some[1] == ["of 3000 dissimilar pairs, 1000 are judged, evenly spaced"]


def test_labels_of_one_class_leave_out_what_needs_two(digits, tmp_path):
    X, y = digits
    pairs = nf.draw_pairs(nf.LabelDraws(nf.Labels(y)), 100, 100)
    judged = summarise(Euclidean(), write_dataset(tmp_path / "d", X, np.zeros(len(X), int), pairs))
    assert (judged.retrieval, judged.clusters) == (None, None)
    assert [remark.split(":")[0] for remark in judged.remarks] == ["neighbours are left out", "clusters are left out"]


def test_more_voters_than_points_are_an_error(datasets):
    with pytest.raises(InvalidSettings, match="k is 597; expected from 1 to 596"):
        summarise(Euclidean(), datasets[1], k=597)
