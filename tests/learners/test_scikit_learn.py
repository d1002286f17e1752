"""scikit-learn's conventions, to the letter."""

import dataclasses
import inspect
import io
import pickle

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator

import nearfar as nf
from nearfar.errors import InvalidSettings
from nearfar.learners.arguments import ARGUMENTS, LEFT_OUT, setting_arguments

TUPLE_LEARNERS = [nf.PairLearner, nf.TripletLearner, nf.QuadrupletLearner]
LEARNERS = [*TUPLE_LEARNERS, nf.LabelLearner]
OF_LEARNERS = {"preprocessor": None, "warm_start": False, "verbose": False, "callbacks": None}
"""The arguments that are no settings."""

EXPECTED_FAILURES: dict[str, str] = {}
"""Checks of check_estimator that a LabelLearner fails, with the reason: none. Tuple learners take three-dimensional
input, of which check_estimator runs nothing at all; the checks that need no data are run on them below."""


@pytest.mark.parametrize(
    ("estimator", "check"),
    list(estimator_checks_generator(nf.LabelLearner(), expected_failed_checks=EXPECTED_FAILURES, mark="xfail")),
    ids=lambda value: value.func.__name__ if hasattr(value, "func") else "",
)
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.mark.parametrize("learner", TUPLE_LEARNERS)
@pytest.mark.parametrize(
    "check",
    [
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_get_params_invariance",
        "check_mixin_order",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_set_params",
        "check_valid_tag_types",
    ],
)
def test_checks_without_data_pass_for_tuple_learners(learner, check):
    getattr(estimator_checks, check)(learner.__name__, learner())


@pytest.mark.parametrize("learner", LEARNERS)
def test_signatures_are_the_settings(learner):
    own = {"unlabelled": None} if learner is nf.LabelLearner else {}
    found = {name: parameter.default for name, parameter in inspect.signature(learner).parameters.items()}
    settings = {name: default for name, (default, _) in setting_arguments().items()}
    assert found == OF_LEARNERS | settings | own


def test_the_table_of_other_names_names_settings():
    names = {setting.name for setting in dataclasses.fields(nf.TrainingSettings)}
    assert names >= {*ARGUMENTS, *LEFT_OUT}


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_argument_is_documented(learner):
    documented = {line.split(" : ")[0].strip() for line in learner.__doc__.splitlines() if " : " in line}
    assert documented >= set(learner().get_params())
    assert "{" not in learner.__doc__


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_setting_out_of_range_is_refused_by_fit_and_not_before(problem, learner):
    made = learner(preprocessor=problem.X, batch_size=-1)
    with pytest.raises(InvalidSettings, match="batch_size"):
        made.fit(*problem.given(learner))


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_argument_reaches_the_training(problem, learner):
    fitted = learner(preprocessor=problem.X, n_components=3, steps=4, margin=2.5, random_state=7).fit(
        *problem.given(learner)
    )
    made = fitted.metric_.settings
    assert (made["rank"], made["steps"], made["margin"], made["seed"]) == (3, 4, 2.5, 7)
    assert fitted.n_iter_ == fitted.history_[-1].step == 4


@pytest.mark.parametrize("learner", LEARNERS)
def test_pickles_and_clones_predict_the_same(problem, learner):
    fitted = learner(preprocessor=problem.X, steps=5, random_state=0).fit(*problem.given(learner))
    stored = io.BytesIO()
    joblib.dump(fitted, stored)
    stored.seek(0)
    for copied in (joblib.load(stored), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(copied.transform(problem.X), fitted.transform(problem.X))
        np.testing.assert_array_equal(copied.pair_distance(problem.pairs), fitted.pair_distance(problem.pairs))
    again = clone(fitted)
    assert not hasattr(again, "components_")
    np.testing.assert_array_equal(again.fit(*problem.given(learner)).components_, fitted.components_)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_clone_shares_points_and_callbacks(problem, learner):
    for preprocessor in (problem.X, nf.as_points(problem.X), sp.csr_matrix(problem.X)):
        seen: list = []
        callbacks = [seen.append]
        made = learner(preprocessor=preprocessor, callbacks=callbacks, n_components=5)
        copied = clone(made)
        assert copied.preprocessor is preprocessor
        assert copied.callbacks is callbacks
        assert copied.n_components == 5
        assert made.preprocessor is preprocessor


def test_a_clone_keeps_set_output():
    assert clone(nf.LabelLearner().set_output(transform="default"))._sklearn_output_config == {"transform": "default"}


@pytest.mark.parametrize("learner", LEARNERS)
def test_one_random_state_gives_one_result(problem, learner):
    def components(random_state):
        made = learner(preprocessor=problem.X, steps=5, random_state=random_state)
        return made.fit(*problem.given(learner)).components_

    np.testing.assert_array_equal(components(3), components(3))
    np.testing.assert_array_equal(components(np.random.RandomState(3)), components(np.random.RandomState(3)))
    assert not np.array_equal(components(3), components(4))


@pytest.mark.parametrize("learner", LEARNERS)
def test_nothing_works_before_fit(problem, learner):
    made = learner(preprocessor=problem.X)
    calls = [
        lambda: made.transform(problem.X),
        lambda: made.pair_distance(problem.pairs),
        lambda: made.pair_score(problem.pairs),
        made.get_metric,
        made.get_mahalanobis_matrix,
        made.get_feature_names_out,
    ]
    if learner is not nf.LabelLearner:
        calls += [lambda: made.predict(problem.pairs), lambda: made.decision_function(problem.pairs)]
    if learner is nf.PairLearner:
        calls += [
            lambda: made.set_threshold(1.0),
            lambda: made.calibrate_threshold(problem.pairs, problem.y),
            lambda: made.score(problem.pairs, problem.y),
        ]
    for call in calls:
        with pytest.raises(NotFittedError):
            call()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("learner", LEARNERS)
def test_answers_come_in_the_float_type_of_the_points(problem, learner, kind):
    X = problem.X.astype(kind)
    given = (X, problem.labels) if learner is nf.LabelLearner else problem.given(learner)
    fitted = learner(preprocessor=X, steps=3, n_components=4).fit(*given)
    assert fitted.components_.dtype == kind
    assert fitted.components_.shape == (4, 64)
    for points in (X, sp.csr_array(X)):
        assert fitted.transform(points).dtype == kind
        np.testing.assert_allclose(fitted.transform(points), X @ fitted.components_.T, rtol=1e-4, atol=1e-4)
    assert fitted.transform(X.astype(np.float32)).dtype == np.float32
    assert fitted.transform(X.astype(np.int64)).dtype == np.float64


def test_centre_moves_transform_but_no_distance(problem):
    plain, centred = (
        nf.LabelLearner(steps=5, random_state=0, centre=centre).fit(problem.X, problem.labels)
        for centre in (False, True)
    )
    moved = plain.transform(problem.X) - centred.transform(problem.X)
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-5)
    assert np.linalg.norm(moved[0]) > 0.1
    np.testing.assert_allclose(centred.transform(problem.X), centred.metric_.transform(problem.X), atol=1e-4)


@pytest.mark.parametrize("scoring", ["roc_auc", "average_precision", None])
def test_grid_search_over_pairs(problem, scoring):
    search = GridSearchCV(
        nf.PairLearner(preprocessor=problem.X, steps=20, random_state=0),
        {"n_components": [2, 16]},
        scoring=scoring,
        cv=3,
        error_score="raise",
    ).fit(problem.pairs, problem.y)
    assert search.best_params_ == {"n_components": 16}
    assert search.best_score_ > 0.8


def test_grid_search_over_formed_pairs(problem):
    search = GridSearchCV(
        nf.PairLearner(steps=10, random_state=0),
        {"n_components": [2, 16]},
        scoring="roc_auc",
        cv=2,
        error_score="raise",
    ).fit(problem.X[problem.pairs], problem.y)
    assert search.best_score_ > 0.7


@pytest.mark.parametrize("learner", [nf.TripletLearner, nf.QuadrupletLearner])
def test_cross_validation_of_comparisons(problem, learner):
    made = learner(preprocessor=problem.X, steps=20, random_state=0)
    scores = cross_val_score(made, *problem.given(learner), cv=3, error_score="raise")
    assert scores.mean() > 0.85


def test_pipeline_with_neighbours(problem):
    learner = nf.LabelLearner(n_components=16, random_state=0, steps=50)
    pipeline = make_pipeline(StandardScaler(), learner, KNeighborsClassifier(3))
    assert cross_val_score(pipeline, problem.X, problem.labels, cv=3).mean() > 0.85


def test_a_learned_metric_in_neighbours(problem):
    fitted = nf.LabelLearner(n_components=8, random_state=0, steps=20).fit(problem.X, problem.labels)
    by_function = KNeighborsClassifier(1, metric=fitted.get_metric(), algorithm="brute")
    by_function.fit(problem.X[:100], problem.labels[:100])
    by_transform = KNeighborsClassifier(1).fit(fitted.transform(problem.X[:100]), problem.labels[:100])
    expected = by_transform.predict(fitted.transform(problem.X[100:150]))
    np.testing.assert_array_equal(by_function.predict(problem.X[100:150]), expected)


def test_feature_names_out(problem):
    fitted = nf.PairLearner(preprocessor=problem.X, n_components=3, steps=2).fit(problem.pairs, problem.y)
    assert list(fitted.get_feature_names_out()) == ["pairlearner0", "pairlearner1", "pairlearner2"]
    assert fitted.n_features_in_ == 64


def test_tags():
    tags = nf.LabelLearner().__sklearn_tags__()
    assert tags.input_tags.sparse
    assert tags.target_tags.required
    assert tags.transformer_tags.preserves_dtype == ["float64", "float32"]
    pairs = nf.PairLearner().__sklearn_tags__()
    assert pairs.estimator_type == "classifier"
    assert pairs.input_tags.three_d_array
    assert not pairs.input_tags.two_d_array
    assert nf.PairLearner(preprocessor=np.eye(3)).__sklearn_tags__().input_tags.two_d_array
    assert not nf.TripletLearner().__sklearn_tags__().target_tags.required


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_set_output(problem, package):
    frames = pytest.importorskip(package)
    columns = [f"pixel{i}" for i in range(64)]
    X = frames.DataFrame(dict(zip(columns, problem.X.T, strict=True)))
    fitted = nf.LabelLearner(n_components=2, steps=2).set_output(transform=package).fit(X, problem.labels)
    transformed = fitted.transform(X)
    assert isinstance(transformed, frames.DataFrame)
    assert list(transformed.columns) == ["labellearner0", "labellearner1"]
    assert list(fitted.feature_names_in_) == columns
    of_pairs = nf.PairLearner(preprocessor=X, steps=2).fit(problem.pairs, problem.y)
    assert list(of_pairs.feature_names_in_) == columns
    assert not hasattr(of_pairs.fit(problem.X[problem.pairs], problem.y), "feature_names_in_")
