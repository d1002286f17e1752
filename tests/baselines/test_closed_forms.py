"""KISS, RCA, LDA: what their formulas say, and how they read points."""

import tracemalloc

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from nearfar.baselines import KISS, LDA, RCA, Euclidean
from nearfar.baselines.wide_rows import WideRows
from nearfar.errors import InvalidConstraints, InvalidPoints
from tests.baselines.conftest import Drawn, invertible, orthogonal

ENOUGH = settings(max_examples=15, deadline=None)
SIZES = {"seed": st.integers(0, 10_000), "d": st.integers(1, 6)}


def second_moment(differences: np.ndarray) -> np.ndarray:
    return differences.T @ differences / len(differences)


def check_same_distances(moved, made, pairs: np.ndarray) -> None:
    """Points are float32: where those that should be near hardly differ, L is large, and so is what rounding does."""
    rounding = 4 * np.finfo(np.float32).eps * np.abs(moved.transform(moved.preprocessor)).max()
    found, expected = moved.pair_distance(pairs), made.pair_distance(pairs)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 + rounding)


@given(**SIZES)
@ENOUGH
def test_kiss_is_its_formula(seed, d):
    drawn = Drawn.of(seed, d, 60)
    M = np.linalg.inv(second_moment(drawn.differences(1))) - np.linalg.inv(second_moment(drawn.differences(-1)))
    values, vectors = np.linalg.eigh(M)
    if values[-1] <= 1e-9 * np.abs(values).max():
        return
    expected = (vectors * np.maximum(values, 0)) @ vectors.T
    made = KISS(preprocessor=drawn.X).fit(drawn.pairs, drawn.y)
    np.testing.assert_allclose(made.get_mahalanobis_matrix(), expected, rtol=1e-5, atol=1e-7 * values[-1])


def test_kiss_after_principal_components_is_kiss_of_the_reduced_points(problem):
    centred = problem.X - problem.X.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:5]
    everyone = np.column_stack((np.arange(300), (np.arange(300) + 1) % 300))
    pairs, y = np.vstack((problem.pairs, everyone)), np.append(problem.y, np.full(300, -1))
    made = KISS(preprocessor=problem.X, n_components=5).fit(pairs, y)
    reduced = KISS(preprocessor=problem.X @ axes.T).fit(pairs, y)
    np.testing.assert_allclose(made.pair_distance(pairs), reduced.pair_distance(pairs), rtol=1e-3, atol=1e-5)
    assert made.components_.shape[1] == 12


@given(**SIZES)
@ENOUGH
def test_kiss_does_not_see_where_points_lie_how_they_are_turned_and_their_scale(seed, d):
    drawn = Drawn.of(seed, d, 60)
    try:
        made = KISS(preprocessor=drawn.X).fit(drawn.pairs, drawn.y)
    except InvalidConstraints:  # in no direction do similar pairs differ less
        return
    order = np.random.default_rng(seed).permutation(120)
    moved = KISS(preprocessor=drawn.X @ orthogonal(seed, d) * 4 - 9).fit(drawn.pairs[order], drawn.y[order])
    check_same_distances(moved, made, drawn.pairs)


def test_euclid_is_the_plain_distance(problem):
    made = Euclidean(preprocessor=problem.X).fit(problem.pairs, problem.y)
    left, right = problem.X[problem.pairs].transpose(1, 0, 2)
    np.testing.assert_allclose(made.pair_distance(problem.pairs), np.linalg.norm(left - right, axis=1), rtol=1e-6)


@given(**SIZES)
@ENOUGH
def test_rca_whitens_points_within_their_groups(seed, d):
    drawn = Drawn.of(seed, d, 1)
    groups = np.append(drawn.labels, 7)
    X = np.vstack((drawn.X, np.full(d, 100.0)))  # the last group has one point
    Z = RCA().fit(X, groups).transform(X)[:-1]
    within = np.concatenate([Z[drawn.labels == label] - Z[drawn.labels == label].mean(axis=0) for label in range(3)])
    np.testing.assert_allclose(second_moment(within), np.eye(d), atol=1e-6)


@given(**SIZES)
@ENOUGH
def test_lda_is_that_of_scikit_learn(seed, d):
    drawn = Drawn.of(seed, d, 1, n_points=45)
    made = LDA().fit(drawn.X, drawn.labels)
    L = LinearDiscriminantAnalysis(solver="eigen").fit(drawn.X, drawn.labels).scalings_[:, : min(2, d)].T
    np.testing.assert_allclose(made.get_mahalanobis_matrix(), L.T @ L, rtol=1e-6, atol=1e-8 * np.abs(L.T @ L).max())


@pytest.mark.parametrize("shrinkage", [0.0, 0.2, 1.0])
def test_lda_solves_its_eigenvalue_problem(problem, shrinkage):
    X, labels = problem.X, problem.labels
    means = np.array([X[labels == label].mean(axis=0) for label in range(10)])[labels]
    within, between = second_moment(X - means), second_moment(means - X.mean(axis=0))
    within = (1 - shrinkage) * within + shrinkage * np.trace(within) / 12 * np.eye(12)
    vectors = scipy.linalg.eigh(between, within)[1][:, -9:]
    made = LDA(shrinkage=shrinkage).fit(X, labels)
    np.testing.assert_allclose(made.get_mahalanobis_matrix(), vectors @ vectors.T, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", [RCA, LDA])
@given(**SIZES)
@ENOUGH
def test_no_affine_map_and_no_order_changes_the_distances(method, seed, d):
    drawn = Drawn.of(seed, d, 20)
    order = np.random.default_rng(seed).permutation(30)
    made = method(preprocessor=drawn.X).fit(drawn.X, drawn.labels)
    X = drawn.X @ invertible(seed, d) * 3 + 11
    moved = method(preprocessor=X).fit(X[order], drawn.labels[order])
    check_same_distances(moved, made, drawn.pairs)


def test_lda_of_fewer_directions_keeps_the_best(problem):
    full, two = (LDA(n_components=n).fit(problem.X, problem.labels).components_ for n in (None, 2))
    assert full.shape == (9, 12)
    np.testing.assert_allclose(np.abs(two), np.abs(full[:2]), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", [KISS, RCA, LDA])
def test_features_that_never_vary_are_left_out(problem, method):
    def distances(X):
        made = method(preprocessor=X)
        given = (X, problem.labels) if method is not KISS else (problem.pairs, problem.y)
        return made.fit(*given).pair_distance(problem.pairs)

    wider = np.column_stack((problem.X, np.full(300, 7.0), np.zeros(300)))
    np.testing.assert_allclose(distances(wider), distances(problem.X), rtol=1e-3)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_a_singular_covariance_is_an_error_that_says_what_to_do(problem):
    few = np.array([[0, 10], [1, 11], [0, 1], [10, 30], [3, 4], [5, 6], [7, 8], [9, 12], [13, 14], [15, 16], [17, 18]])
    y = np.array([1, 1, *[-1] * 9])
    with pytest.raises(InvalidConstraints, match=r"similar differences has rank 2 in 12 .*shrinkage above 0"):
        KISS(preprocessor=problem.X).fit(few, y)
    assert KISS(preprocessor=problem.X, shrinkage=0.1).fit(few, y).components_.any()
    labels = np.arange(300)
    labels[:4] = 0
    with pytest.raises(InvalidConstraints, match=r"within their groups has rank 3 in 12"):
        RCA().fit(problem.X, labels)
    assert RCA(shrinkage=0.1).fit(problem.X, labels).components_.shape == (12, 12)
    with pytest.raises(InvalidConstraints, match=r"within their classes has rank 3 in 12"):
        LDA().fit(problem.X, labels)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_what_can_not_be_learned_from(problem):
    with pytest.raises(InvalidConstraints, match="every group has one point"):
        RCA().fit(problem.X, np.arange(300))
    with pytest.raises(InvalidConstraints, match="one class only"):
        LDA().fit(problem.X, np.zeros(300))
    with pytest.raises(InvalidPoints, match="all points are equal"):
        RCA().fit(np.ones((10, 3)), np.arange(10) % 2)
    with pytest.raises(InvalidPoints, match="vary in 1 directions only"):
        RCA(n_components=2).fit(np.outer(np.arange(10.0), [1, 2]), np.arange(10) % 2)
    with pytest.raises(InvalidConstraints, match="in no direction"):
        KISS(preprocessor=problem.X, n_components=1).fit(problem.pairs, -problem.y)


def test_pairs_are_never_expanded():
    """Of 40,000 pairs of points with 300 features the differences alone would take 96 MB."""
    rng = np.random.default_rng(0)
    rows, pairs = WideRows(rng.integers(0, 255, (1000, 300), np.uint8)), rng.integers(0, 1000, (40_000, 2))
    tracemalloc.start()
    try:
        rows.second_moment(pairs)
        rows.squared_distances(pairs, np.eye(300))
        assert tracemalloc.get_traced_memory()[1] < 60e6
    finally:
        tracemalloc.stop()


def test_rows_are_read_in_the_precision_that_they_are_stored_in():
    X = np.array([[1e9 + 1.0, 3.0], [1e9, 1.0]])
    np.testing.assert_array_equal(WideRows(X).differences(np.array([[0, 1]])), [[1.0, 2.0]])
