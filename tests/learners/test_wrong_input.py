"""What users get wrong with learners, and what they are told."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import nearfar as nf
from nearfar.errors import NearfarError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 5))
PAIRS = RNG.integers(20, size=(30, 2))
Y = np.where(np.arange(30) % 2, 1, -1)
TRIPLETS = RNG.integers(20, size=(30, 3))
LABELS = np.arange(20) % 3
NAMED = nf.NamedPoints(X, [f"p{i}" for i in range(20)])
NAMES = np.array([f"p{i}" for i in range(20)], object)


def pairs(**options):
    return nf.PairLearner(preprocessor=X, steps=2, **options)


WRONG = {
    "y of 0 and 1": (lambda: pairs().fit(PAIRS, Y > 0), r"should contain only values in \[-1, 1\].*\+1 for similar"),
    "y of text": (lambda: pairs().fit(PAIRS, np.where(Y > 0, "yes", "no")), r"\[-1, 1\]"),
    "y too short": (lambda: pairs().fit(PAIRS, Y[:-1]), "inconsistent numbers of samples"),
    "no y": (lambda: pairs().fit(PAIRS, None), "y"),
    "one kind of pair": (lambda: pairs().fit(PAIRS, np.ones(30)), "no dissimilar pairs"),
    "triplets to the pair learner": (lambda: pairs().fit(TRIPLETS, Y), r"Tuples of 2 element\(s\) expected"),
    "pairs to the triplet learner": (
        lambda: nf.TripletLearner(preprocessor=X).fit(PAIRS), r"Tuples of 3 element\(s\) expected"),
    "ids without a preprocessor": (lambda: nf.PairLearner().fit(PAIRS, Y), "use a preprocessor"),
    "an index beyond the points": (lambda: pairs().fit(PAIRS + 10, Y), r"index \d+, but there are 20 points"),
    "a negative index": (lambda: pairs().fit(PAIRS - 5, Y), "index -5, but there are 20 points"),
    "indices that are fractions": (lambda: pairs().fit(PAIRS + 0.5, Y), "not all whole numbers"),
    "strings for an array": (lambda: pairs().fit(NAMES[PAIRS], Y), r"nf.NamedPoints\(points, ids\)"),
    "a preprocessor of strings": (
        lambda: nf.PairLearner(preprocessor=np.full((20, 5), "x")).fit(PAIRS, Y), "expected real numbers"),
    "a preprocessor that is a path": (
        lambda: nf.PairLearner(preprocessor="points.npy").fit(PAIRS, Y), "Invalid type for the preprocessor"),
    "a preprocessor that fails": (
        lambda: nf.PairLearner(preprocessor=lambda ids: 1 / 0).fit(PAIRS, Y), "ZeroDivisionError"),
    "a preprocessor of too few rows": (
        lambda: nf.PairLearner(preprocessor=lambda ids: X[:3]).fit(PAIRS, Y), r"asked for \d+ points, one row each"),
    "a preprocessor of another width, later": (
        lambda: pairs().fit(PAIRS, Y).set_params(preprocessor=X[:, :3]).predict(PAIRS), "expecting 5 features"),
    "points with NaN": (
        lambda: nf.PairLearner(preprocessor=np.where(X > 2, np.nan, X) * np.r_[1, 1, 1, 1, np.nan]).fit(PAIRS, Y),
        "NaN or infinity in feature"),
    "formed pairs of text": (lambda: nf.PairLearner().fit(np.full((30, 2, 5), "x"), Y), "expected real numbers"),
    "pairs of one dimension": (lambda: pairs().fit(PAIRS[:, 0], Y), "Found 1D array instead"),
    "pairs of four dimensions": (lambda: pairs().fit(np.zeros((30, 2, 5, 1)), Y), "Found 4D array instead"),
    "no pairs": (lambda: pairs().fit(PAIRS[:0], Y[:0]), "a minimum of 1 is required"),
    "sparse tuples": (lambda: pairs().fit(sp.csr_matrix(PAIRS), Y), "give indices, and the sparse points as"),
    "missing ids": (
        lambda: nf.PairLearner(preprocessor=NAMED).fit(pd.DataFrame({"a": ["p1", None], "b": ["p2", "p3"]}), [1, -1]),
        "row 1 has a missing id"),
    "missing numbers for ids": (
        lambda: nf.PairLearner(preprocessor=nf.NamedPoints(X, range(20))).fit(
            pd.DataFrame({"a": [1, None], "b": [2, 3]}), [1, -1]), "row 1 has a missing id"),
    "an unknown id": (
        lambda: nf.PairLearner(preprocessor=NAMED).fit(np.array([["p1", "p2"], ["p3", "p99"]]), [1, -1]),
        "row 1 has the id p99, which is not among the 20 ids"),
    "numbers where ids are text": (
        lambda: nf.PairLearner(preprocessor=NAMED).fit(PAIRS, Y), "which is not among the 20 ids"),
    "an id twice": (lambda: nf.NamedPoints(X, ["p1"] * 20), "p1 stands for point 0 and for point 1"),
    "too few ids": (lambda: nf.NamedPoints(X, ["p1", "p2"]), "2 ids for 20 points"),
    "ids of fractions": (lambda: nf.NamedPoints(X, np.arange(20) / 2), "expected whole numbers or text"),
    "an id of a row too many": (lambda: nf.NamedPoints(X, {"p1": 20}), "rows that are not all from 0 to 19"),
    "weights too few": (lambda: pairs().fit(PAIRS, Y, sample_weight=[1.0]), r"shape \(1,\); expected one a tuple"),
    "negative weights": (lambda: pairs().fit(PAIRS, Y, sample_weight=-np.ones(30)), "holds -1.0"),
    "weights of NaN": (lambda: pairs().fit(PAIRS, Y, sample_weight=np.full(30, np.nan)), "holds nan"),
    "weights of nothing": (lambda: pairs().fit(PAIRS, Y, sample_weight=np.zeros(30)), "0 everywhere"),
    "weights of text": (lambda: pairs().fit(PAIRS, Y, sample_weight=["x"] * 30), "not an array of numbers"),
    "transform before fit": (lambda: nf.LabelLearner().transform(X), "not fitted yet"),
    "predict before fit": (lambda: pairs().predict(PAIRS), "not fitted yet"),
    "transform of another width": (
        lambda: nf.LabelLearner(steps=2).fit(X, LABELS).transform(X[:, :3]), "expecting 5 features"),
    "a lift larger than memory": (
        lambda: nf.LabelLearner(lift="rbf", lift_dim=10**10, n_components=2).fit(X, LABELS),
        "this run takes .* TB: .*lift.*; lower lift_dim"),
    "an unknown lift": (lambda: nf.LabelLearner(lift="poly").fit(X, LABELS), "expected one of none, rbf"),
    "an unknown number of components": (
        lambda: nf.LabelLearner(n_components="many").fit(X, LABELS), 'expected a whole number, "auto" or None'),
    "more components than features": (
        lambda: nf.LabelLearner(n_components=6).fit(X, LABELS), "^n_components is 6, but points have 5 features"),
    "no components": (
        lambda: nf.LabelLearner(n_components=0).fit(X, LABELS), "^n_components is 0; expected more than 0"),
    "one class": (lambda: nf.LabelLearner().fit(X, np.zeros(20)), "at least two classes"),
    "labels that are measurements": (lambda: nf.LabelLearner().fit(X, RNG.normal(size=20)), "Unknown label type"),
    "labels too few": (lambda: nf.LabelLearner().fit(X, LABELS[:-1]), "inconsistent numbers of samples"),
    "nobody labelled": (lambda: nf.LabelLearner(unlabelled=0).fit(X, np.zeros(20)), "all points have the label 0"),
    "groups of one point each": (lambda: nf.LabelLearner().fit(X, np.eye(20)), "no group has two points"),
    "a group of all": (lambda: nf.LabelLearner(steps=2).fit(X, np.ones((20, 2))), "share a group"),
    "groups too few": (lambda: nf.LabelLearner().fit(X, np.ones((19, 2))), "groups of 19 points, but 20 points"),
    "groups of some points only": (
        lambda: nf.LabelLearner().fit(X, [{"a"}, 3] * 10), "y is 3 for point 1; expected a set of groups"),
    "groups with NaN": (lambda: nf.LabelLearner().fit(X, np.full((20, 2), np.nan)), "groups hold NaN"),
    "groups for the neighbour loss": (
        lambda: nf.LabelLearner(loss="neighbour").fit(X, LABELS[:, None] == [0, 1, 2]), "use hinge or logistic"),
    "the neighbour loss for pairs": (lambda: pairs(loss="neighbour").fit(PAIRS, Y), "does not take pairs"),
    "a strategy unknown": (
        lambda: pairs().fit(PAIRS, Y, calibration_params={"strategy": "best"}), "Strategy can either be"),
    "a threshold of text": (lambda: pairs().fit(PAIRS, Y).set_threshold("far"), "must be a real number"),
    "workers of none": (lambda: pairs(n_workers=0).fit(PAIRS, Y), "^n_workers is 0; expected more than 0"),
    "serial with two workers": (lambda: pairs(engine="serial", n_workers=2).fit(PAIRS, Y), "use engine threads"),
    "a negative seed": (lambda: pairs(random_state=-1).fit(PAIRS, Y), "Seed must be between"),
    "a split of nothing": (lambda: next(nf.ApartSplit().split(np.zeros((5, 2), int))), "cannot be parted"),
    "a test size above 1": (lambda: nf.ApartSplit(test_size=2), "expected a share between 0 and 1"),
    "no splits": (lambda: nf.ApartSplit(0), "expected a whole number of 1 or more"),
    "points apart where all hang together": (
        lambda: nf.PairLearner(preprocessor=X, held_out_apart=True).fit(PAIRS, Y), "leave it out"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # that some pair joins a point with itself, by chance
@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_a_clear_error(name):
    act, said = WRONG[name]
    with pytest.raises((NearfarError, NotFittedError, ValueError), match=said) as raised:
        act()
    assert "\n" not in str(raised.value)
