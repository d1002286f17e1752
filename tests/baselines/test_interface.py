"""Every baseline has the face of a learner."""

import inspect
import io
import itertools
import pickle
import time

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator

import nearfar as nf
from nearfar import baselines
from nearfar.baselines import ITML, KISS, LDA, RCA, Euclidean, Xing2002
from nearfar.errors import InvalidConstraints, InvalidInput, InvalidPoints, InvalidSettings

OF_PAIRS = [Euclidean, Xing2002, ITML, KISS]
OF_LABELS = [RCA, LDA]
ALL = OF_PAIRS + OF_LABELS
ITERATE = [Xing2002, ITML]


def fitted(method, problem, **arguments):
    if method in OF_LABELS:
        return method(**arguments).fit(problem.X, problem.labels)
    if method is ITML:
        arguments = {"random_state": 0, "tol": 0.05, "gamma": 0.1} | arguments
    if method is Xing2002:
        arguments = {"tol": 1e-2} | arguments
    return method(preprocessor=problem.X, **arguments).fit(problem.pairs, problem.y)


def test_the_public_names():
    assert sorted(baselines.__all__) == sorted(method.__name__ for method in ALL)
    assert not set(baselines.__all__) & set(nf.__all__)


@pytest.mark.parametrize("method", ALL)
def test_distances_transform_and_matrix_agree(problem, method):
    made = fitted(method, problem)
    M, projected = made.get_mahalanobis_matrix(), made.transform(problem.X)
    left, right = problem.X[problem.pairs].transpose(1, 0, 2)
    expected = np.sqrt(np.einsum("ij,ij->i", (left - right) @ M, left - right))
    near, far = projected[problem.pairs].transpose(1, 0, 2)
    np.testing.assert_allclose(np.linalg.norm(near - far, axis=1), expected, rtol=1e-8)
    made.preprocessor = problem.X
    np.testing.assert_allclose(made.pair_distance(problem.pairs), expected, rtol=1e-4)
    np.testing.assert_allclose(made.pair_distance(problem.X[problem.pairs]), expected, rtol=1e-4)
    assert made.get_metric()(problem.X[0], problem.X[1]) == pytest.approx(
        np.linalg.norm(projected[0] - projected[1]), rel=1e-4
    )
    assert np.linalg.eigvalsh(M)[0] > -1e-9 * np.linalg.eigvalsh(M)[-1]


@pytest.mark.parametrize("method", ALL)
def test_the_metric_needs_no_estimator(problem, method, tmp_path):
    made = fitted(method, problem)
    made.metric_.save(tmp_path / "metric.safetensors")
    loaded = nf.load_metric(tmp_path / "metric.safetensors")
    np.testing.assert_array_equal(
        loaded.pair_distances(problem.X, problem.pairs), made.metric_.pair_distances(problem.X, problem.pairs)
    )
    assert loaded.settings["method"] == method.__name__


@pytest.mark.parametrize("method", OF_PAIRS)
def test_formed_pairs_are_as_good_as_index_pairs(problem, method):
    bounds = {"bounds": (50.0, 400.0)} if method is ITML else {}
    reduced = {"shrinkage": 0.1} if method is KISS else {}
    by_index = fitted(method, problem, **bounds, **reduced)
    again = clone(by_index).set_params(preprocessor=None).fit(problem.X[problem.pairs], problem.y)
    np.testing.assert_allclose(again.get_mahalanobis_matrix(), by_index.get_mahalanobis_matrix(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("stored", [sp.csr_matrix, nf.as_points, lambda X: X.astype(np.uint8)])
def test_points_may_be_sparse_or_whole_numbers(problem, method, stored):
    expected = fitted(method, problem).get_mahalanobis_matrix()
    X = stored(problem.X)
    if method in OF_LABELS:
        made = method().fit(X, problem.labels)
    else:
        made = clone(fitted(method, problem)).set_params(preprocessor=X).fit(problem.pairs, problem.y)
    np.testing.assert_allclose(made.get_mahalanobis_matrix(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("method", OF_LABELS)
def test_labels_of_points_by_their_ids(problem, method):
    chosen = np.arange(0, 300, 2)
    by_id = method(preprocessor=problem.X).fit(chosen, problem.labels[chosen])
    by_point = method().fit(problem.X[chosen], problem.labels[chosen])
    np.testing.assert_allclose(by_id.get_mahalanobis_matrix(), by_point.get_mahalanobis_matrix(), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("method", OF_LABELS)
def test_points_without_a_label_are_left_out(problem, method):
    labels = np.where(np.arange(300) % 5 == 0, -1, problem.labels)
    made = method(unlabelled=-1).fit(problem.X, labels)
    expected = method().fit(problem.X[labels >= 0], labels[labels >= 0])
    np.testing.assert_allclose(made.get_mahalanobis_matrix(), expected.get_mahalanobis_matrix(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("method", ALL)
def test_clones_and_pickles(problem, method):
    calls = []
    made = fitted(method, problem, on_progress=lambda seconds, L: calls.append(seconds))
    again = clone(made)
    assert again.preprocessor is made.preprocessor
    assert again.on_progress is made.on_progress
    assert not hasattr(again, "components_")
    assert again.get_params() == made.get_params()
    made.set_params(on_progress=None)
    stored = io.BytesIO()
    joblib.dump(made, stored)
    stored.seek(0)
    for copied in (joblib.load(stored), pickle.loads(pickle.dumps(made))):
        np.testing.assert_array_equal(copied.transform(problem.X), made.transform(problem.X))


@pytest.mark.parametrize("method", ALL)
def test_every_argument_and_attribute_is_documented(problem, method):
    documented = {line.split(" : ")[0].strip() for line in method.__doc__.splitlines() if " : " in line}
    made = fitted(method, problem)
    learned = {name for name in vars(made) if name.endswith("_") and not name.startswith("_")}
    assert documented >= set(made.get_params()) | learned - {"classes_"}
    assert "flops" in method.__doc__ or method is Euclidean
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in inspect.signature(method).parameters.values())


@pytest.mark.parametrize("method", ALL)
def test_nothing_works_before_fit(problem, method):
    for call in (lambda made: made.transform(problem.X), lambda made: made.get_mahalanobis_matrix()):
        with pytest.raises(NotFittedError):
            call(method())


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("method", ALL)
def test_answers_come_in_the_float_type_of_the_points(problem, method, kind):
    X = problem.X.astype(kind)
    given = (X, problem.labels) if method in OF_LABELS else (problem.pairs, problem.y)
    made = clone(fitted(method, problem)).set_params(preprocessor=X).fit(*given)
    assert made.components_.dtype == kind
    assert made.transform(X).dtype == kind


@pytest.mark.parametrize(
    ("estimator", "check"),
    [each for method in OF_LABELS for each in estimator_checks_generator(method())],
    ids=lambda value: value.func.__name__ if hasattr(value, "func") else type(value).__name__,
)
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize("method", OF_PAIRS)
@pytest.mark.parametrize(
    "check",
    [
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_get_params_invariance",
        "check_mixin_order",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_set_params",
        "check_valid_tag_types",
    ],
)
def test_checks_without_data(method, check):
    getattr(estimator_checks, check)(method.__name__, method())


def test_grid_search_over_pairs(problem):
    search = GridSearchCV(KISS(preprocessor=problem.X), {"n_components": [2, 10]}, cv=3, error_score="raise")
    assert search.fit(problem.pairs, problem.y).best_params_ == {"n_components": 10}


def test_pipeline_with_neighbours(problem):
    scores = cross_val_score(make_pipeline(LDA(), KNeighborsClassifier(3)), problem.X, problem.labels, cv=3)
    assert scores.mean() > 0.7


@pytest.mark.parametrize("method", OF_PAIRS)
def test_a_threshold_comes_with_the_pairs(problem, method):
    made = fitted(method, problem)
    right = np.mean(made.predict(problem.pairs) == problem.y)
    assert right > 0.7
    assert made.score(problem.pairs, problem.y) > 0.75
    made.calibrate_threshold(problem.pairs, problem.y, strategy="max_tpr", min_rate=0.9)
    dissimilar = problem.pairs[problem.y == -1]
    assert np.mean(made.predict(dissimilar) == -1) >= 0.9


@pytest.mark.parametrize("method", ALL)
def test_progress_is_told(problem, method):
    told = []
    made = fitted(method, problem, on_progress=lambda seconds, L: told.append((seconds, L)))
    assert [seconds for seconds, _ in told] == [seconds for seconds, _ in made.history_]
    assert all(earlier <= later for (earlier, _), (later, _) in itertools.pairwise(told))
    np.testing.assert_allclose(told[-1][1], made.components_, rtol=1e-6, atol=1e-9)
    if method not in ITERATE:
        assert [objective for _, objective in made.history_] == [None]


@pytest.mark.parametrize("method", ITERATE)
def test_the_time_of_who_watches_is_not_counted(problem, method):
    began = time.perf_counter()
    made = fitted(method, problem, on_progress=lambda seconds, L: time.sleep(0.3), progress_every=60.0)
    assert made.history_[-1][0] < time.perf_counter() - began - 0.3 * len(made.history_) + 0.05


@pytest.mark.parametrize("method", ITERATE)
def test_a_budget_of_time_is_kept_and_what_it_cut_is_said(problem, method):
    fitted(method, problem)  # compiled from here on
    made = fitted(method, problem, max_seconds=1e-6, tol=1e-9)
    assert made.history_[-1][0] < 1
    assert "max_seconds=1e-06 was up" in made.cut_
    assert fitted(method, problem).cut_ is None


@pytest.mark.parametrize("method", OF_PAIRS)
def test_wrong_pairs(problem, method):
    made = method(preprocessor=problem.X)
    with pytest.raises(InvalidConstraints, match="index 300"):
        made.fit([[0, 300], [1, 2]], [1, -1])
    with pytest.raises(InvalidConstraints, match="should contain only values"):
        made.fit([[0, 1], [1, 2]], [1, 0])
    with pytest.raises(InvalidConstraints, match="minimum of 1"):
        made.fit(np.empty((0, 2), int), [])
    broken = problem.X.copy()
    broken[3, 4] = np.nan
    with pytest.raises(InvalidPoints, match="point 3 has NaN or infinity in feature 4"):
        method(preprocessor=broken).fit([[3, 5], [1, 2], [4, 7]], [1, -1, -1])


@pytest.mark.parametrize("method", [Xing2002, ITML, KISS])
@pytest.mark.parametrize(("sign", "missing"), [(1, "dissimilar"), (-1, "similar")])
def test_pairs_of_one_kind_are_refused(problem, method, sign, missing):
    with pytest.raises(InvalidConstraints, match=f"there are no {missing} pairs"):
        method(preprocessor=problem.X).fit(problem.pairs, np.full(400, sign))


@pytest.mark.parametrize("method", ITERATE)
def test_equal_points_cannot_be_dissimilar(problem, method):
    X = problem.X.copy()
    X[7] = X[8]
    with pytest.raises(InvalidConstraints, match="1 dissimilar pairs join equal points, the first is pair 1"):
        method(preprocessor=X).fit([[0, 1], [7, 8], [7, 9]], [1, -1, -1])


@pytest.mark.parametrize("method", ITERATE)
def test_equal_points_may_be_similar(problem, method):
    pairs, y = np.vstack((problem.pairs, [[5, 5]])), np.append(problem.y, 1)
    made = method(preprocessor=problem.X, tol=1e-2).fit(pairs, y)
    assert np.isfinite(made.components_).all()


@pytest.mark.parametrize("method", OF_LABELS)
def test_wrong_labels(problem, method):
    with pytest.raises(InvalidConstraints, match="requires y"):
        method().fit(problem.X, None)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        method().fit(problem.X, problem.labels[:10])
    with pytest.raises(InvalidConstraints, match="all points have the label"):
        method(unlabelled=1).fit(problem.X, np.ones(300))
    with pytest.raises(InvalidConstraints, match="minimum of 2"):
        method().fit(problem.X[:1], problem.labels[:1])


@pytest.mark.parametrize(
    ("method", "argument", "value"),
    [
        (ITML, "gamma", 0),
        (ITML, "gamma", "much"),
        (ITML, "bounds", (3, 1)),
        (ITML, "bounds", (1, 2, 3)),
        (ITML, "prior", "uniform"),
        (ITML, "prior", np.ones((3, 3))),
        (ITML, "prior", -np.eye(12)),
        (ITML, "tol", -1),
        (ITML, "max_sweeps", 0),
        (ITML, "max_seconds", 0),
        (ITML, "on_progress", "print"),
        (ITML, "progress_every", None),
        (Xing2002, "tol", 0),
        (Xing2002, "max_steps", 1.5),
        (Xing2002, "diagonal", "yes"),
        (Xing2002, "whiten", 1),
        (KISS, "n_components", 0),
        (KISS, "n_components", 13),
        (KISS, "shrinkage", 1.5),
        (RCA, "shrinkage", -0.1),
        (RCA, "n_components", 2.0),
        (LDA, "n_components", 10),
        (LDA, "shrinkage", "auto"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_fit_and_not_before(problem, method, argument, value):
    made = method(preprocessor=problem.X).set_params(**{argument: value})
    given = (problem.X, problem.labels) if method in OF_LABELS else (problem.pairs, problem.y)
    with pytest.raises(InvalidSettings, match=f"{argument} (is|are|has)"):
        made.fit(*given)


@pytest.mark.parametrize("method", ALL)
def test_points_too_wide_for_this_machine_are_refused(method):
    X = sp.csr_matrix(([1.0, 1.0, 1.0, 1.0], ([0, 1, 2, 3], [0, 5, 9, 2])), shape=(4, 3_000_000))
    given = (X, [0, 0, 1, 1]) if method in OF_LABELS else ([[0, 1], [1, 2]], [1, -1])
    with pytest.raises(InvalidInput, match="3,000,000 features"):
        method(preprocessor=X).fit(*given)
