"""Supervision as people have it: weights, ids, overlapping groups, points kept apart, a rank found by itself."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import nearfar as nf


def auc(distances_near, distances_far) -> float:
    return float(np.mean(distances_near[:, None] < distances_far))


def test_a_pair_of_weight_two_counts_like_the_pair_twice(problem):
    twice = np.random.default_rng(0).random(len(problem.pairs)) < 0.5
    options = {"preprocessor": problem.X, "n_components": 4, "held_out": 0, "batch_size": 10_000, "steps": 30}
    weighted = nf.PairLearner(**options, random_state=0)
    weighted.fit(problem.pairs, problem.y, sample_weight=np.where(twice, 2.0, 1.0))
    repeated = nf.PairLearner(**options, random_state=0)
    repeated.fit(np.concatenate((problem.pairs, problem.pairs[twice])), np.concatenate((problem.y, problem.y[twice])))
    plain = nf.PairLearner(**options, random_state=0).fit(problem.pairs, problem.y)
    distances = [learner.pair_distance(problem.pairs) for learner in (weighted, repeated, plain)]
    assert np.corrcoef(distances[0], distances[1])[0, 1] > 0.995
    assert np.abs(distances[0] - distances[1]).mean() < np.abs(distances[2] - distances[1]).mean()


@pytest.mark.filterwarnings("ignore:.*both similar and dissimilar")
def test_pairs_of_weight_zero_are_used_for_nothing(problem):
    """Half of the pairs have the wrong sign, and weight 0."""
    wrong = np.random.default_rng(1).random(len(problem.pairs)) < 0.5
    y = np.where(wrong, -problem.y, problem.y)
    learner = nf.PairLearner(preprocessor=problem.X, n_components=8, steps=100, random_state=0)
    alone = clone(learner).fit(problem.pairs[~wrong], problem.y[~wrong])
    weighted = learner.fit(problem.pairs, y, sample_weight=(~wrong).astype(float))
    np.testing.assert_array_equal(weighted.components_, alone.components_)
    assert weighted.threshold_ == alone.threshold_
    misled = clone(learner).fit(problem.pairs, y)
    assert weighted.score(problem.pairs, problem.y) > misled.score(problem.pairs, problem.y) + 0.1


@pytest.mark.parametrize("learner", [nf.TripletLearner, nf.QuadrupletLearner])
def test_comparisons_have_weights_too(problem, learner):
    """Half of the comparisons are turned round, and count little."""
    tuples = problem.given(learner)[0]
    turned = np.random.default_rng(2).random(len(tuples)) < 0.5
    order = [0, 2, 1] if learner is nf.TripletLearner else [2, 3, 0, 1]
    given = np.where(turned[:, None], tuples[:, order], tuples)
    made = learner(preprocessor=problem.X, n_components=8, steps=100, random_state=0)
    weighted = clone(made).fit(given, sample_weight=np.where(turned, 0.01, 1.0)).score(tuples)
    assert weighted > clone(made).fit(given).score(tuples) + 0.1


def test_a_frame_of_ids_and_a_mapping_teach_what_row_numbers_teach(problem):
    names = [f"image {row:03d}" for row in np.random.default_rng(0).permutation(len(problem.X))]
    frame = pd.DataFrame({"left": np.take(names, problem.pairs[:, 0]), "right": np.take(names, problem.pairs[:, 1])})
    options = {"n_components": 8, "steps": 30, "random_state": 0}
    rows = nf.PairLearner(preprocessor=problem.X, **options).fit(problem.pairs, problem.y)
    pixels = pd.DataFrame(problem.X, columns=[f"pixel {i}" for i in range(64)])
    for points, ids in (
        (problem.X, names),
        (problem.X, pd.Series(names)),
        (pixels, {name: row for row, name in enumerate(names)}),
        (sp.csr_matrix(problem.X), np.array(names)),
    ):
        named = nf.PairLearner(preprocessor=nf.NamedPoints(points, ids), **options)
        assert clone(named).preprocessor is named.preprocessor
        named.fit(frame, pd.Series(problem.y))
        np.testing.assert_allclose(named.pair_distance(frame), rows.pair_distance(problem.pairs), rtol=0.02)
        some = frame["left"][:5]
        np.testing.assert_allclose(named.transform(some), rows.transform(problem.pairs[:5, 0]), rtol=0.1, atol=0.02)
        assert hasattr(named, "feature_names_in_") == (points is pixels)


def test_ids_may_be_numbers_of_some_rows_only(problem):
    numbers = {1000 + row: row for row in range(0, len(problem.X), 2)}
    learner = nf.LabelLearner(preprocessor=nf.NamedPoints(problem.X, numbers), steps=5, random_state=0)
    learner.fit(np.array(list(numbers)), problem.labels[::2])
    plain = nf.LabelLearner(steps=5, random_state=0).fit(problem.X[::2], problem.labels[::2])
    np.testing.assert_allclose(learner.components_, plain.components_, rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def grouped(problem):
    """Two groups a point: one of ten digits, and whether it is drawn in much ink, which is not to be learned alone."""
    ink = problem.X.sum(axis=1) > np.median(problem.X.sum(axis=1))
    return [{f"digit {label}", "ink"} if inky else {f"digit {label}"} for label, inky in zip(problem.labels, ink)]  # noqa: B905


def test_overlapping_groups_in_every_form_teach_the_same(problem, grouped):
    names = sorted(set().union(*grouped))
    matrix = np.array([[name in groups for name in names] for groups in grouped])
    learners = [
        nf.LabelLearner(n_components=16, steps=60, random_state=0).fit(problem.X, y)
        for y in (grouped, matrix, matrix.astype(int).tolist(), sp.csr_matrix(matrix), pd.Series(grouped, dtype=object))
    ]
    for learner in learners[1:]:
        np.testing.assert_array_equal(learner.components_, learners[0].components_)
    share = matrix.astype(int) @ matrix.T.astype(int) > 0
    left, right = np.triu_indices(len(share), 1)
    distances = learners[0].pair_distance(problem.X[np.column_stack((left, right))])
    plain = np.linalg.norm(problem.X[left] - problem.X[right], axis=1)
    alike = share[left, right]
    assert auc(distances[alike], distances[~alike]) > auc(plain[alike], plain[~alike]) + 0.1
    assert learners[0].history_[-1].ap > 0.6  # judged on points of their own


def test_groups_of_one_digit_teach_what_labels_teach(problem):
    groups = [{label} for label in problem.labels]
    of_groups = nf.LabelLearner(n_components=16, steps=100, random_state=0).fit(problem.X, groups)
    assert of_groups.history_[-1].ap > 0.85


def test_apart_split_keeps_points_apart_and_loses_no_small_group():
    lone = np.arange(400).reshape(-1, 2)
    for training, test in nf.ApartSplit(3, test_size=0.25, random_state=0).split(lone):
        assert sorted([*training, *test]) == list(range(200))
        assert len(test) == pytest.approx(50, abs=1)
    ring = np.random.default_rng(0).integers(100, size=(5000, 3))  # all hang together
    splits = list(nf.ApartSplit(4, test_size=0.25, random_state=0).split(ring))
    assert len({tuple(test) for _, test in splits}) == 4
    for training, test in splits:
        assert not set(ring[training].ravel()) & set(ring[test].ravel())
        assert len(test) > 100


def test_apart_split_of_formed_tuples_knows_a_point_by_its_features(problem):
    formed = problem.X[problem.pairs]
    of_ids = list(nf.ApartSplit(2, random_state=0).split(problem.pairs))
    for (training, test), (_, of_numbers) in zip(nf.ApartSplit(2, random_state=0).split(formed), of_ids, strict=True):
        seen = {row.tobytes() for row in formed[training].reshape(-1, 64)}
        assert not any(row.tobytes() in seen for row in formed[test].reshape(-1, 64))
        assert len(test)
        assert len(of_numbers)


def test_apart_split_serves_scikit_learn(problem):
    learner = nf.PairLearner(preprocessor=problem.X, n_components=8, steps=30, random_state=0)
    scores = cross_val_score(learner, problem.pairs, problem.y, cv=nf.ApartSplit(3, random_state=0))
    assert len(scores) == 3
    assert scores.min() > 0.6


@pytest.mark.parametrize("learner", [nf.PairLearner, nf.TripletLearner])
def test_held_out_apart_is_judged_more_strictly(problem, learner):
    """Few points in many pairs: a held-out pair of training points is half known; one of other points is not."""
    options = {"preprocessor": problem.X, "n_components": 64, "steps": 150, "random_state": 0, "report_every": 150}
    together = learner(**options).fit(*problem.given(learner))
    apart = learner(**options, held_out_apart=True).fit(*problem.given(learner))
    assert apart.history_[-1].objective > together.history_[-1].objective


@pytest.mark.parametrize("learner", [nf.PairLearner, nf.TripletLearner, nf.LabelLearner])
@pytest.mark.parametrize("lift", ["none", "rbf"])
def test_auto_drops_directions_and_loses_nothing(problem, learner, lift):
    options = {"preprocessor": problem.X, "steps": 60, "lift": lift, "lift_dim": 256, "random_state": 0}
    whole = learner(**options).fit(*problem.given(learner))
    few = learner(**options, n_components="auto").fit(*problem.given(learner))
    assert len(few.components_) < len(whole.components_) / 2
    assert few.transform(problem.X).shape == (300, len(few.components_))
    sides = [problem.pairs[problem.y == sign] for sign in (1, -1)]
    whole_auc, few_auc = (auc(*(made.pair_distance(side) for side in sides)) for made in (whole, few))
    assert few_auc > whole_auc - 0.02
    before = len(few.components_)
    few.partial_fit(*problem.given(learner))
    assert len(few.components_) == before


def test_auto_for_the_neighbour_loss(problem):
    few = nf.LabelLearner(n_components="auto", loss="neighbour", steps=60, random_state=0)
    few.fit(problem.X, problem.labels)
    assert len(few.components_) < 32
