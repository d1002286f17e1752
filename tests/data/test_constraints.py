"""Constraints are checked, never changed and never copied; what is odd about them is counted."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data import constraints as constraints_module
from nearfar.data.constraints import Comparisons, Labels, Pairs
from nearfar.errors import InvalidConstraints

WHOLE = [np.int8, np.uint8, np.int32, np.int64, np.uint64, ">i8", ">u4"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([1, 2], r"shape \(2,\)"),
        ([[1, 2, 3]], r"shape \(1, 3\); expected \(n, 2\)"),
        (np.zeros((2, 2, 2), int), r"shape \(2, 2, 2\)"),
        ([[1, np.nan]], "NaN"),
        ([[1, np.inf]], "infinity"),
        ([[1, 2.5]], "fractions"),
        ([[-0.5, 2]], "fractions"),
        ([["a", "b"]], "expected whole numbers"),
        ([[True, False]], "type bool"),
        (np.array([[1, None]], object), "type object"),
        ([[1 + 0j, 2]], "type complex128"),
    ],
    ids=str,
)
def test_what_cannot_be_pairs_is_refused(wrong, said):
    with pytest.raises(InvalidConstraints, match=f"^similar pairs.*{said}"):
        Pairs(wrong, [[0, 1]])
    with pytest.raises(InvalidConstraints, match=f"^dissimilar pairs.*{said}"):
        Pairs([[0, 1]], wrong)


@pytest.mark.parametrize("wrong", [[[1, 2]], [[1, 2, 3, 4, 5]], [[0, 1, 0.5]], [1, 2, 3]], ids=str)
def test_what_cannot_be_comparisons_is_refused(wrong):
    with pytest.raises(InvalidConstraints, match=r"^comparisons"):
        Comparisons(wrong)


def test_constraints_that_are_none_are_refused():
    for empty in ([], np.empty((0, 2)), np.empty((0, 2), int)):
        with pytest.raises(InvalidConstraints, match="no pairs"):
            Pairs(empty, empty)
        with pytest.raises(InvalidConstraints, match="no triplets"):
            Comparisons(empty)
    assert Pairs([], [[0, 1]]).similar.shape == (0, 2)
    assert len(Pairs([[0, 1]], [])) == 1


@pytest.mark.parametrize(
    ("indices", "wrong"), [([[0, 5]], 5), ([[0, 1], [-1, 2]], -1), ([[2**62, 0]], 2**62), ([[0.0, 1e300]], "")]
)
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_an_index_without_a_point_is_named(indices, wrong, block, monkeypatch):
    monkeypatch.setattr(constraints_module, "_CHECK_ROWS", block)
    good = [[0, 1], [3, 4]]
    for pairs, name in ((Pairs(good + indices, good), "similar"), (Pairs(good, good + indices), "dissimilar")):
        with pytest.raises(InvalidConstraints, match=f"^{name} pairs have index {wrong}.* 5 points"):
            pairs.check(5)
    with pytest.raises(InvalidConstraints, match=r"^triplets have index"):
        Comparisons([[*indices[-1], 0]]).check(5)
    with pytest.raises(InvalidConstraints, match=r"^quadruplets have index"):
        Comparisons([[0, 1, *indices[-1]]]).check(5)


def test_an_index_that_int64_cannot_hold_is_refused():
    with pytest.raises(InvalidConstraints, match="5 points"):
        Pairs(np.array([[0, 2**64 - 1]], np.uint64), []).check(5)


@pytest.mark.parametrize("kind", WHOLE, ids=str)
def test_whole_numbers_of_any_type_stay_what_they_are(kind):
    pairs = Pairs(np.array([[0, 1], [2, 3]], kind), [[4, 5]])
    assert pairs.similar.tolist() == [[0, 1], [2, 3]]
    both = np.concatenate((pairs.similar, pairs.dissimilar))
    assert both.dtype.kind in "iu"
    assert both.dtype.isnative
    assert Pairs([[0.0, 1.0]], []).similar.dtype.kind == "i"


def test_constraints_cannot_be_changed():
    given_array = np.array([[0, 1], [2, 3]])
    pairs, comparisons, labels = Pairs(given_array, []), Comparisons([[0, 1, 2]]), Labels([0, 1])
    for array in (pairs.similar, comparisons.indices, comparisons.near, comparisons.far, labels.codes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(FrozenInstanceError):
        pairs.similar = given_array
    assert given_array.flags.writeable


def test_mapped_arrays_are_not_copied(tmp_path):
    for width, make in ((2, lambda a: Pairs(a, []).similar), (3, lambda a: Comparisons(a).indices)):
        np.save(tmp_path / "indices.npy", np.arange(6 * width).reshape(6, width))
        mapped = np.load(tmp_path / "indices.npy", mmap_mode="r")
        assert np.shares_memory(make(mapped), mapped)
    unsigned = np.array([[0, 1]], np.uint64)
    assert np.shares_memory(Pairs(unsigned, []).similar, unsigned)


some_pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30)


@settings(deadline=None, max_examples=100)
@given(some_pairs, some_pairs, st.sampled_from([1, 4, 1 << 20]))
def test_self_pairs_and_contradictions_are_counted(similar, dissimilar, block):
    if not similar and not dissimilar:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constraints_module, "_CHECK_ROWS", block)
        pairs = Pairs(similar, dissimilar)
        remarks = " ".join(pairs.check(6))
        contradictions = pairs.count_contradictions(6)
    selfs = sum(a == b for a, b in similar + dissimilar)
    assert contradictions == len({frozenset(p) for p in similar} & {frozenset(p) for p in dissimilar})
    assert (f"{selfs} pairs join" in remarks) == (selfs > 0)
    assert (f"{contradictions} pairs are both" in remarks) == (contradictions > 0)
    if not selfs and not contradictions:
        assert not remarks


@pytest.mark.parametrize("share", [2, 3, 8, 13])
def test_of_many_pairs_contradictions_are_estimated(share, monkeypatch):
    random, n_points, n_both = np.random.default_rng(0), 3000, 6000
    every = random.choice(n_points * (n_points - 1) // 2, 40_000, replace=False)
    pairs = np.column_stack(np.triu_indices(n_points, 1))[every]
    similar, dissimilar = pairs[:20_000], np.concatenate((pairs[:n_both, ::-1], pairs[20_000:]))
    constraints = Pairs(similar, dissimilar)
    assert constraints.count_contradictions(n_points) == n_both
    monkeypatch.setattr(constraints_module, "_CONTRADICTION_SAMPLE", -(-len(constraints) // share))
    assert constraints.count_contradictions(n_points) == pytest.approx(n_both, rel=0.15)
    assert Pairs(similar, pairs[20_000:]).count_contradictions(n_points) == 0


def test_near_and_far_of_triplets_and_quadruplets():
    triplets, quadruplets = Comparisons([[0, 1, 2], [3, 4, 5]]), Comparisons([[0, 1, 2, 3]])
    assert triplets.near.tolist() == [[0, 1], [3, 4]]
    assert triplets.far.tolist() == [[0, 2], [3, 5]]
    assert quadruplets.near.tolist() == [[0, 1]]
    assert quadruplets.far.tolist() == [[2, 3]]
    for view in (triplets.near, triplets.far):
        assert np.shares_memory(view, triplets.indices)


def test_comparisons_that_can_never_hold_are_remarked():
    assert Comparisons([[0, 1, 2], [0, 0, 1]]).check(3) == []
    assert "1 comparisons" in Comparisons([[0, 1, 2], [2, 1, 2]]).check(3)[0]
    assert "2 comparisons" in Comparisons([[0, 1, 2, 2], [0, 0, 1, 2], [0, 1, 1, 1]]).check(3)[0]


@pytest.mark.parametrize(
    "labels",
    [
        [3, 1, 3, -7],
        ["b", "a", "b", "c"],
        [2.5, 0.0, 2.5, 1.0],
        [True, False, True, False],
        np.array(["b", 1, "b", 2], object),
        np.array([b"b", b"a", b"b", b"c"]),
        np.array(["None", "nan", "None", "a"], object),
        np.array([7, 200, 7, 0], np.uint8),
    ],
    ids=str,
)
def test_labels_are_equal_where_codes_are(labels):
    made = Labels(labels)
    given_labels = np.asarray(labels)
    np.testing.assert_array_equal(
        made.codes[:, None] == made.codes, given_labels[:, None].astype(str) == given_labels.astype(str)
    )
    assert made.check(4) == [] or "one point" in made.check(4)[0]
    assert made.codes.max() == len(made.classes) - 1
    assert len(made) == 4


@pytest.mark.parametrize(
    "labels",
    [
        [1.0, np.nan],
        [1.0, np.inf],
        np.array(["a", None], object),
        np.array(["a", np.nan], object),
        np.array(["2026", "NaT"], "M8[Y]"),
    ],
    ids=str,
)
def test_missing_labels_are_refused(labels):
    with pytest.raises(InvalidConstraints, match="give every point a label"):
        Labels(labels)


def test_labels_that_cannot_teach_are_refused():
    with pytest.raises(InvalidConstraints, match="no labels"):
        Labels([])
    with pytest.raises(InvalidConstraints, match=r"shape \(2, 1\)"):
        Labels([[1], [2]])
    with pytest.raises(InvalidConstraints, match="all labels are cat;"):
        Labels(["cat", "cat"]).check(2)
    with pytest.raises(InvalidConstraints, match="every class has one point"):
        Labels([1, 2, 3]).check(3)
    with pytest.raises(InvalidConstraints, match="3 labels for 4 points"):
        Labels([1, 1, 2]).check(4)


def test_classes_of_one_point_are_remarked():
    assert "2 classes have one point" in Labels([1, 1, 2, 3]).check(4)[0]
    assert Labels([1, 1, 2, 2]).check(4) == []
