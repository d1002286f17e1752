"""Held-out constraints judge, so none of their points may train."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data.constraints import Comparisons, Groups, Labels, Pairs
from nearfar.data.from_labels import GroupDraws, LabelDraws
from nearfar.data.held_out import HeldOut, draw_held_out, split_apart, split_points
from nearfar.data.sampling import Batch

SHAPES = {
    "few classes": np.arange(3000) % 10,
    "many small classes": np.arange(6000) % 1000,
    "two classes": np.arange(1000) % 2,
    "imbalanced": np.repeat([0, 1, 2], [4000, 900, 100]),
    "singletons too": np.concatenate((np.arange(2000) % 20, np.arange(1000) + 100)),
    "strings": np.array(["cat", "dog", "owl"])[np.arange(900) % 3],
}


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_points_set_aside_are_apart_and_can_judge(values, seed):
    labels = Labels(values)
    split = split_points(labels, 500, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate((split.training, split.aside))), np.arange(len(labels)))
    assert len(split.aside) == min(500, len(labels) // 10)
    np.testing.assert_array_equal(np.flatnonzero(split.excluded(len(labels))), split.aside)
    for points in (split.training, split.aside):
        draws = LabelDraws(labels, points)
        assert draws.n_similar >= min(100, len(split.aside))
        assert draws.n_dissimilar >= min(100, len(split.aside))


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES)
def test_drawn_held_out_constraints_are_among_the_points_given_and_right(values):
    labels = Labels(values)
    aside = split_points(labels, 500, 0).aside
    held_out = draw_held_out(labels, aside, 0)
    codes = labels.codes
    for batch in (held_out.pairs, held_out.triplets):
        assert len(batch.near) == len(batch.far) >= 100
        assert set(batch.indices.tolist()) <= set(aside.tolist())
        assert (codes[batch.near[:, 0]] == codes[batch.near[:, 1]]).all()
        assert (batch.near[:, 0] != batch.near[:, 1]).all()
        assert (codes[batch.far[:, 0]] != codes[batch.far[:, 1]]).all()
    np.testing.assert_array_equal(held_out.triplets.near[:, 0], held_out.triplets.far[:, 0])
    block = held_out.block
    assert set(block.indices.tolist()) <= set(aside.tolist())
    assert sum(block.sizes) == len(block.indices) == len(set(block.indices.tolist()))
    assert min(block.sizes) >= 2
    assert len(block.sizes) >= 2
    class_of_block = np.repeat(np.arange(len(block.sizes)), block.sizes)
    np.testing.assert_array_equal(
        codes[block.indices][:, None] == codes[block.indices], class_of_block[:, None] == class_of_block
    )


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(0, 200), st.integers(0, 2**62))
def test_a_split_leaves_both_sides_able_to_teach_or_is_none(sizes, most, seed):
    labels = Labels(np.repeat(np.arange(len(sizes)), sizes))
    split = split_points(labels, most, seed)
    if split is None:
        return
    assert 2 <= len(split.aside) <= min(most, len(labels) // 10)
    assert not set(split.aside) & set(split.training)
    for points in (split.training, split.aside):
        draws = LabelDraws(labels, points)
        assert draws.n_similar
        assert draws.n_dissimilar


def test_splits_follow_the_seed():
    labels = Labels(np.arange(1000) % 5)
    np.testing.assert_array_equal(split_points(labels, 100, 3).aside, split_points(labels, 100, 3).aside)
    assert set(split_points(labels, 100, 3).aside) != set(split_points(labels, 100, 4).aside)


def test_every_class_is_judged_when_classes_are_large():
    labels = Labels(np.arange(5000) % 10)
    counts = np.bincount(labels.codes[split_points(labels, 500, 0).aside], minlength=10)
    assert counts.min() > 25


@pytest.mark.parametrize(
    "values",
    [[0, 1, 0, 1], np.arange(19) % 2, np.arange(1000), np.zeros(1000), np.arange(200) % 100],
    ids=["four", "nineteen", "all singletons", "one class", "pairs"],
)
def test_where_too_little_would_be_held_out_nothing_is(values):
    assert split_points(Labels(values), 500, 0) is None


def test_none_are_held_out_when_none_are_wanted():
    assert split_points(Labels(np.arange(1000) % 5), 0, 0) is None


def test_held_out_of_stored_pairs_has_no_block():
    batch = Batch(np.array([[0, 1]]), np.array([[2, 3]]))
    held_out = HeldOut.of_pairs(batch)
    assert held_out.pairs is held_out.triplets is batch
    assert len(held_out.block.indices) == held_out.block.n_pairs == 0


def test_classes_of_two_are_held_out_whole():
    labels = Labels(np.repeat(np.arange(1000), 2))
    split = split_points(labels, 500, 0)
    assert split is not None
    assert not set(labels.codes[split.aside]) & set(labels.codes[split.training])


@pytest.fixture
def groups():
    """1,000 points in two of 40 groups each, but every tenth in none."""
    random = np.random.default_rng(0)
    rows, columns = np.repeat(np.arange(1000), 2), random.integers(40, size=2000)
    kept = rows % 10 > 0
    return Groups(sp.csr_matrix((np.ones(kept.sum()), (rows[kept], columns[kept])), shape=(1000, 40)))


def test_groups_are_held_out_apart_and_drawn_on_the_right_side(groups):
    split = split_points(groups, 500, 0)
    held_out = draw_held_out(groups, split.aside, 0)
    share = (groups.membership @ groups.membership.T).toarray() > 0
    assert share[tuple(held_out.pairs.near.T)].all()
    assert not share[tuple(held_out.pairs.far.T)].any()
    assert np.isin(np.concatenate((held_out.pairs.near, held_out.pairs.far)), split.aside).all()
    training = GroupDraws(groups, split.training)
    drawn = np.concatenate((training.similar(500, 0), training.dissimilar(500, 0)))
    assert np.isin(drawn, split.training).all()
    assert training.n_points == np.isin(split.training, np.flatnonzero(np.arange(1000) % 10)).sum()


@pytest.mark.parametrize("n_points", [60, 100_000])  # all hang together, and hardly any two
@pytest.mark.parametrize("width", [2, 3, 4])
def test_constraints_held_out_apart_share_no_point_with_the_others(n_points, width):
    random = np.random.default_rng(0)
    if width == 2:
        constraints = Pairs(random.integers(n_points, size=(3000, 2)), random.integers(n_points, size=(3000, 2)))
        all_of_them = [constraints.similar, constraints.dissimilar]
    else:
        constraints = Comparisons(random.integers(n_points, size=(20_000, width)))
        all_of_them = [constraints.indices]
    split, held_out = split_apart(constraints, n_points, 200, 0)
    held = np.unique(np.concatenate((held_out.pairs.near, held_out.pairs.far)))
    assert not np.isin(held, split.training).any()
    assert 10 <= len(held_out.pairs.near) <= 200
    lost = sum(np.isin(c, split.aside).any(axis=1).sum() for c in all_of_them)
    if n_points > 1000 and width == 2:
        assert lost <= 2 * 200 * 1.5  # nothing lies between the two sides
