"""metric-learn's interface, call for call, and its errors where users match on them."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import nearfar as nf

TUPLE_LEARNERS = [nf.PairLearner, nf.TripletLearner, nf.QuadrupletLearner]
LEARNERS = [*TUPLE_LEARNERS, nf.LabelLearner]


@pytest.fixture(scope="module")
def fitted(problem):
    return {
        learner: learner(preprocessor=problem.X, n_components=16, random_state=0, steps=50).fit(*problem.given(learner))
        for learner in LEARNERS
    }


@pytest.mark.parametrize("learner", LEARNERS)
def test_distances_and_scores(problem, fitted, learner):
    made = fitted[learner]
    projected = problem.X @ made.components_.T
    expected = np.linalg.norm(projected[problem.pairs[:, 0]] - projected[problem.pairs[:, 1]], axis=1)
    np.testing.assert_allclose(made.pair_distance(problem.pairs), expected, rtol=1e-4)
    np.testing.assert_allclose(made.pair_distance(problem.X[problem.pairs]), expected, rtol=1e-4)
    np.testing.assert_array_equal(made.pair_score(problem.pairs), -made.pair_distance(problem.pairs))
    with pytest.warns(FutureWarning, match=r"score_pairs will be deprecated in release 0\.7\.0"):
        old = made.score_pairs(problem.pairs)
    np.testing.assert_array_equal(old, made.pair_distance(problem.pairs))


@pytest.mark.parametrize("learner", LEARNERS)
def test_get_metric_is_independent_of_the_learner(problem, learner):
    made = learner(preprocessor=problem.X, random_state=0, steps=5).fit(*problem.given(learner))
    measure, u, v = made.get_metric(), problem.X[0], problem.X[1]
    before = made.pair_distance(np.array([[0, 1]]))[0]
    assert measure(u, v) == pytest.approx(before, rel=1e-5)
    assert measure(u, v, squared=True) == pytest.approx(before**2, rel=1e-5)
    assert measure(u.tolist(), v.tolist()) == measure(u, v)
    made.set_params(random_state=5).fit(*problem.given(learner))
    assert measure(u, v) == pytest.approx(before, rel=1e-5)
    assert made.pair_distance(np.array([[0, 1]]))[0] != pytest.approx(before, rel=1e-5)
    with pytest.raises(ValueError, match="1-D"):
        measure(problem.X[:2], problem.X[2:4])


@pytest.mark.parametrize("learner", LEARNERS)
def test_get_mahalanobis_matrix(problem, fitted, learner):
    made = fitted[learner]
    matrix = made.get_mahalanobis_matrix()
    assert matrix.shape == (64, 64)
    np.testing.assert_allclose(matrix, made.metric_.matrix(), rtol=1e-4, atol=1e-6)
    matrix[:] = 0
    assert made.get_mahalanobis_matrix().any()


@pytest.mark.parametrize("learner", LEARNERS)
def test_points_by_their_ids(problem, fitted, learner):
    made = fitted[learner]
    np.testing.assert_allclose(made.transform([5, 2]), made.transform(problem.X[[5, 2]]), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="300 points"):
        made.transform([300])


def test_labels_of_points_by_their_ids(problem):
    chosen = np.arange(0, 300, 2)
    by_id = nf.LabelLearner(preprocessor=problem.X, steps=5, random_state=0).fit(chosen, problem.labels[chosen])
    by_point = nf.LabelLearner(steps=5, random_state=0).fit(problem.X[chosen], problem.labels[chosen])
    np.testing.assert_allclose(by_id.components_, by_point.components_, rtol=1e-5, atol=1e-6)


def test_pairs(problem, fitted):
    made = fitted[nf.PairLearner]
    decided = made.decision_function(problem.pairs)
    np.testing.assert_array_equal(decided, -made.pair_distance(problem.pairs))
    assert made.score(problem.pairs, problem.y) == pytest.approx(roc_auc_score(problem.y, decided))
    assert made.score(problem.pairs, problem.y) > 0.9
    assert list(made.classes_) == [-1, 1]
    predicted = made.predict(problem.pairs)
    assert set(predicted) == {-1, 1}
    np.testing.assert_array_equal(predicted == 1, -decided <= made.threshold_)


def test_triplets(problem, fitted):
    made = fitted[nf.TripletLearner]
    near, far = problem.triplets[:, :2], problem.triplets[:, [0, 2]]
    decided = made.decision_function(problem.triplets)
    np.testing.assert_allclose(decided, made.pair_distance(far) - made.pair_distance(near), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(made.predict(problem.triplets), np.where(decided > 0, 1, -1))
    assert made.score(problem.triplets) == np.mean(decided > 0) > 0.95
    turned = problem.triplets[:, [0, 2, 1]]
    np.testing.assert_array_equal(made.decision_function(turned), -decided)
    np.testing.assert_allclose(made.decision_function(problem.X[problem.triplets]), decided, rtol=1e-3, atol=1e-4)


def test_quadruplets(problem, fitted):
    made = fitted[nf.QuadrupletLearner]
    decided = made.decision_function(problem.quadruplets)
    near, far = problem.quadruplets[:, :2], problem.quadruplets[:, 2:]
    np.testing.assert_allclose(decided, made.pair_distance(far) - made.pair_distance(near), rtol=1e-5, atol=1e-5)
    assert made.score(problem.quadruplets) == np.mean(made.predict(problem.quadruplets) == 1) > 0.95


def test_triplets_are_quadruplets_that_share_a_point(problem):
    triplets = nf.TripletLearner(preprocessor=problem.X, steps=10, random_state=0).fit(problem.triplets)
    shared = problem.triplets[:, [0, 1, 0, 2]]
    quadruplets = nf.QuadrupletLearner(preprocessor=problem.X, steps=10, random_state=0).fit(shared)
    np.testing.assert_allclose(triplets.components_, quadruplets.components_, rtol=1e-4, atol=1e-5)
    assert issubclass(nf.TripletLearner, nf.QuadrupletLearner)


FORMED = np.random.default_rng(0).normal(size=(20, 2, 5))
SIGNS = np.tile([1, -1], 10)
POINTS = np.random.default_rng(1).normal(size=(50, 5))
IDS = np.arange(40).reshape(20, 2)


@pytest.mark.parametrize(
    ("preprocessor", "pairs", "y", "said"),
    [
        (None, IDS, SIGNS, "3D array of formed tuples expected by PairLearner. Found 2D array instead.*preprocessor"),
        (None, IDS.ravel(), SIGNS, "3D array of formed tuples expected.*Found 1D array instead"),
        (None, FORMED[None], SIGNS, "3D array of formed tuples expected.*Found 4D array instead"),
        (POINTS, IDS.ravel(), SIGNS, "2D array of indicators or 3D array of formed tuples expected.*using a preproc"),
        (POINTS, FORMED[None], SIGNS, "2D array of indicators or 3D array of formed tuples expected.*Found 4D"),
        (
            None,
            np.repeat(FORMED, 2, axis=1),
            SIGNS,
            r"Tuples of 2 element\(s\) expected by PairLearner. Got.* 4",
        ),
        (POINTS, np.arange(60).reshape(20, 3) % 50, SIGNS, r"Tuples of 2 element\(s\) expected.*Got tuples of 3"),
        (None, FORMED[:0], SIGNS[:0], r"Found array with 0 sample\(s\)"),
        (POINTS, IDS[:0], SIGNS[:0], r"Found array with 0 sample\(s\)"),
        (None, FORMED[:, :, :0], SIGNS, r"Found array with 0 feature\(s\).*while a minimum of 1 is required"),
        (None, FORMED.astype(str), SIGNS, "expected real numbers"),
        (None, FORMED + 1j, SIGNS, "expected real numbers"),
        (None, np.full((20, 2, 5), "a", object), SIGNS, "not a number"),
        (None, np.where(FORMED > 2, np.nan, FORMED), SIGNS, "NaN or infinity"),
        (None, np.where(FORMED > 2, np.inf, FORMED), SIGNS, "NaN or infinity"),
        (None, [[[1.0, 2.0], [1.0]], [[1.0], [2.0]]], [1, -1], "unequal lengths"),
        (None, FORMED, SIGNS[:-1], "inconsistent numbers of samples"),
        (None, FORMED, (SIGNS + 1) // 2, r"When training on pairs, the labels \(y\) should contain only values in"),
        (None, FORMED, SIGNS * 2, r"When training on pairs, the labels \(y\)"),
        (None, FORMED, np.where(SIGNS > 0, np.nan, -1), r"When training on pairs, the labels \(y\)"),
        (None, FORMED, np.where(SIGNS > 0, "near", "far"), r"When training on pairs, the labels \(y\)"),
        (None, FORMED, None, "requires y to be passed"),
        (None, FORMED, np.ones(20), "no dissimilar pairs"),
        (None, FORMED, -np.ones(20), "no similar pairs"),
        (POINTS, IDS + 20, SIGNS, r"index 5\d, but there are 50 points"),
        (POINTS, IDS - 1, SIGNS, "index -1, but there are 50 points"),
        (POINTS, IDS + 2**40, SIGNS, "there are 50 points"),
        (POINTS, IDS + 0.5, SIGNS, "not all whole numbers"),
        (POINTS, np.where(IDS == 3, np.nan, IDS), SIGNS, "not all whole numbers"),
        (POINTS, np.where(IDS == 3, None, IDS), SIGNS, "not all whole numbers"),
        (POINTS, IDS.astype(str), SIGNS, "not all whole numbers"),
        (POINTS[:, 0], IDS, SIGNS, "expected two dimensions"),
        (7, IDS, SIGNS, "Invalid type for the preprocessor"),
        ("points.npy", IDS, SIGNS, "Invalid type for the preprocessor"),
        (object(), FORMED, SIGNS, "Invalid type for the preprocessor"),
        ({1: POINTS}, IDS, SIGNS, "Invalid type for the preprocessor"),
        (lambda ids: POINTS[ids][:, 0], IDS, SIGNS, "2D array of formed points expected after the preprocessor"),
        (lambda ids: POINTS[:3], IDS, SIGNS, "asked for 40 points"),
        (lambda ids: 1 / 0, IDS, SIGNS, "An error occurred when trying to use the preprocessor.*division"),
    ],
)
def test_malformed_pairs(preprocessor, pairs, y, said):
    with pytest.raises(ValueError, match=said):
        nf.PairLearner(preprocessor=preprocessor, steps=2).fit(pairs, y)


@pytest.mark.parametrize("learner", TUPLE_LEARNERS)
def test_malformed_tuples_are_refused_after_fit_as_before(problem, fitted, learner):
    made = fitted[learner]
    size = {nf.PairLearner: 2, nf.TripletLearner: 3, nf.QuadrupletLearner: 4}[learner]
    wrong_size = np.zeros((3, size + 1), int)
    for call in (made.predict, made.decision_function):
        with pytest.raises(ValueError, match=rf"Tuples of {size} element\(s\) expected by {learner.__name__}"):
            call(wrong_size)
        with pytest.raises(ValueError, match="2D array of indicators or 3D array of formed tuples expected"):
            call(np.zeros(3, int))
        with pytest.raises(ValueError, match=f"X has 5 features, but {learner.__name__} is expecting 64"):
            call(np.zeros((3, size, 5)))
        with pytest.raises(ValueError, match="NaN or infinity"):
            call(np.full((3, size, 64), np.nan))


def test_triplets_given_to_the_pair_learner_and_back(problem):
    with pytest.raises(ValueError, match="Got tuples of 3"):
        nf.PairLearner(preprocessor=problem.X).fit(problem.triplets, np.ones(len(problem.triplets)))
    with pytest.raises(ValueError, match="Got tuples of 2"):
        nf.TripletLearner(preprocessor=problem.X).fit(problem.pairs)
    with pytest.raises(ValueError, match="Got tuples of 3"):
        nf.QuadrupletLearner(preprocessor=problem.X).fit(problem.triplets)


def test_labels_that_cannot_teach(problem):
    learner = nf.LabelLearner(steps=2)
    with pytest.raises(ValueError, match="all labels are 1"):
        learner.fit(problem.X, np.ones(300))
    with pytest.raises(ValueError, match="Unknown label type"):
        learner.fit(problem.X, np.linspace(0, 1, 300))
    with pytest.raises(ValueError, match="contains NaN"):
        learner.fit(problem.X, np.where(problem.labels == 0, np.nan, problem.labels))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        learner.fit(nf.as_points(problem.X), problem.labels[:-1])
