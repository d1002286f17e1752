"""Every loss gives a value and its true slope, at any distance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nearfar.errors import InvalidSettings
from nearfar.objective.losses import (
    ComparisonHinge,
    Hinge,
    Logistic,
    Neighbour,
    block_layout,
    block_value_and_slopes,
    make_loss,
    value_and_slopes,
)

EXTREME = [0.0, 1e-8, 1e-3, 0.5, 2.0, 9.99, 10.5, 100.0, 750.0, 1e6]
PAIR_LOSSES = [Hinge(), Hinge(margin=5.0, weight=0.3), Logistic(), Logistic(margin=2.0, weight=4.0)]
distances = arrays(np.float64, st.integers(0, 8), elements=st.floats(0, 60))


def slope_of(function, s, i, step=1e-6):
    """The slope of a function of an array in its entry i; one-sided at 0, below which no squared distance is."""
    up, down = s.copy(), s.copy()
    up[i] += step
    down[i] = max(0.0, down[i] - step)
    return (function(up) - function(down)) / (up[i] - down[i])


@pytest.mark.parametrize("loss", PAIR_LOSSES, ids=str)
def test_slopes_of_pairs_at_extreme_distances(loss):
    s = np.array(EXTREME)
    for side in (loss.similar, loss.dissimilar):
        values, slopes = side(s.copy())
        for i in range(len(s)):
            step = 1e-6 * max(1.0, s[i])
            assert slopes[i] == pytest.approx(slope_of(lambda t: side(t)[0][i], s, i, step), rel=1e-4, abs=1e-6)  # noqa: B023
        assert (values >= 0).all()


@pytest.mark.parametrize("loss", PAIR_LOSSES, ids=str)
@settings(deadline=None, max_examples=30)
@given(near=distances, far=distances)
def test_slopes_of_the_objective_of_pairs(loss, near, far):
    for s in (near, far):
        s[np.abs(s - loss.margin) < 1e-3] += 0.01  # the hinge has no slope at its margin
    value, near_slopes, far_slopes = value_and_slopes(loss, near.copy(), far.copy())
    mean = lambda values: values.mean() if len(values) else 0.0  # noqa: E731
    expected = mean(loss.similar(near.copy())[0]) + loss.weight * mean(loss.dissimilar(far.copy())[0])
    assert value == pytest.approx(expected)
    for i in range(len(near)):
        numeric = slope_of(lambda s: value_and_slopes(loss, s, far.copy())[0], near, i)
        assert near_slopes[i] == pytest.approx(numeric, rel=1e-4, abs=1e-6)
    for i in range(len(far)):
        numeric = slope_of(lambda s: value_and_slopes(loss, near.copy(), s)[0], far, i)
        assert far_slopes[i] == pytest.approx(numeric, rel=1e-4, abs=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), max_size=8), st.floats(0.1, 5))
def test_slopes_of_comparisons(both, margin):
    loss = ComparisonHinge(margin)
    both = [(near, far) for near, far in both if abs(margin + near - far) > 1e-3]
    near, far = (np.array([pair[i] for pair in both], float) for i in (0, 1))
    value, near_slopes, far_slopes = value_and_slopes(loss, near, far)
    assert value == pytest.approx(sum(max(0.0, margin + a - b) for a, b in both) / max(1, len(both)))
    for i in range(len(both)):
        numeric = slope_of(lambda s: value_and_slopes(loss, s, far)[0], near, i)
        assert near_slopes[i] == pytest.approx(numeric, abs=1e-6)
        assert far_slopes[i] == pytest.approx(slope_of(lambda s: value_and_slopes(loss, near, s)[0], far, i), abs=1e-6)


def test_the_formulas():
    s = np.array([0.0, 0.25, 3.0])
    np.testing.assert_array_equal(Hinge().similar(s)[0], s)
    np.testing.assert_array_equal(Hinge().dissimilar(s)[0], [1, 0.75, 0])
    np.testing.assert_allclose(Logistic(margin=2.0).similar(s)[0], np.log(1 + np.exp(s - 2)))
    np.testing.assert_allclose(Logistic(margin=2.0).dissimilar(s)[0], np.log(1 + np.exp(2 - s)))
    np.testing.assert_array_equal(ComparisonHinge().compare(s, s[::-1])[0], [0, 1, 4])


@pytest.mark.parametrize("loss", [*PAIR_LOSSES, ComparisonHinge()], ids=str)
def test_float32_stays_float32_and_finite(loss):
    s = np.array([0, 1e-38, 1e-8, 1, 88, 89, 1000, 1e6, 1e30, 3e38], np.float32)
    value, near_slopes, far_slopes = value_and_slopes(loss, s.copy(), s[::-1].copy())
    assert near_slopes.dtype == far_slopes.dtype == np.float32
    assert np.isfinite(near_slopes).all()
    assert np.isfinite(far_slopes).all()
    assert value >= 0
    assert (near_slopes >= 0).all()
    assert (far_slopes <= 0).all()


@pytest.mark.parametrize("loss", [*PAIR_LOSSES, ComparisonHinge()], ids=str)
def test_an_empty_batch_has_no_loss(loss):
    empty = np.empty(0, np.float32)
    value, near_slopes, far_slopes = value_and_slopes(loss, empty, empty)
    assert value == 0
    assert len(near_slopes) == len(far_slopes) == 0


def naive_neighbour(s, sizes):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    total = 0.0
    for i in range(len(s)):
        others = [j for j in range(len(s)) if j != i]
        shares = np.exp(-s[i, others])
        total -= np.log(shares[codes[others] == codes[i]].sum() / shares.sum())
    return total / len(s)


def random_distances(sizes, spread, seed):
    Z = np.random.default_rng(seed).normal(size=(sum(sizes), 3)) * spread
    return ((Z[:, None] - Z) ** 2).sum(axis=2)


some_sizes = st.lists(st.integers(2, 5), min_size=1, max_size=4).map(tuple)


@settings(deadline=None, max_examples=50)
@given(some_sizes, st.floats(0.01, 3), st.integers(0, 1000))
def test_neighbour_equals_the_naive_softmax(sizes, spread, seed):
    s = random_distances(sizes, spread, seed)
    value, slopes = block_value_and_slopes(Neighbour(), s.copy(), sizes)
    assert value == pytest.approx(naive_neighbour(s, sizes), rel=1e-9, abs=1e-12)
    random = np.random.default_rng(seed)
    for _ in range(5):
        i, j = random.choice(len(s), 2, replace=False)
        moved = s[i, j] + 1e-6 * np.array([1, -1])
        up, down = s.copy(), s.copy()
        up[i, j], down[i, j] = moved
        numeric = (naive_neighbour(up, sizes) - naive_neighbour(down, sizes)) / (moved[0] - moved[1])
        assert slopes[i, j] == pytest.approx(numeric, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e3, 1e9])
def test_neighbour_bears_any_distance(spread, dtype):
    s = random_distances((2, 3, 2), spread, 0).astype(dtype)
    value, slopes = block_value_and_slopes(Neighbour(), s, (2, 3, 2))
    assert np.isfinite(value)
    assert value >= 0
    assert np.isfinite(slopes).all()
    assert slopes.dtype == dtype
    np.testing.assert_allclose(slopes.sum(axis=1), 0, atol=1e-6)


def test_a_point_far_from_its_class_is_still_pulled_home():
    """A softmax over all points gives its own class the share 0 here, and would have no slope."""
    s = np.array([[0, 1e4, 1.0, 2.0], [1e4, 0, 1e4, 1e4], [1, 1e4, 0, 1.0], [2, 1e4, 1, 0]])
    value, slopes = block_value_and_slopes(Neighbour(), s, (2, 2))
    assert value > 1000
    assert slopes[0, 1] == pytest.approx(0.25)


@pytest.mark.parametrize("loss", PAIR_LOSSES, ids=str)
@settings(deadline=None, max_examples=30)
@given(sizes=some_sizes, seed=st.integers(0, 1000))
def test_a_block_of_a_pair_loss_is_all_its_pairs(loss, sizes, seed):
    s = random_distances(sizes, 1.5, seed)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    every = [(i, j) for i in range(len(s)) for j in range(i + 1, len(s))]
    near = [pair for pair in every if codes[pair[0]] == codes[pair[1]]]
    far = [pair for pair in every if codes[pair[0]] != codes[pair[1]]]
    given_s = [np.array([s[pair] for pair in pairs]) for pairs in (near, far)]
    value, near_slopes, far_slopes = value_and_slopes(loss, *given_s)
    expected = np.zeros_like(s)
    for pair, slope in zip(near + far, np.concatenate((near_slopes, far_slopes)), strict=True):
        expected[pair] = slope
    block_value, slopes = block_value_and_slopes(loss, s.copy(), sizes)
    assert block_value == pytest.approx(value)
    np.testing.assert_allclose(slopes, expected)


def test_the_layout_of_a_block():
    layout = block_layout((2, 1))
    assert layout.runs == (slice(0, 2), slice(2, 3))
    assert layout.similar.tolist() == [1]
    assert layout.dissimilar.tolist() == [2, 5]


def test_losses_are_made_by_name():
    assert make_loss("hinge", None, 2.0) == Hinge(margin=1.0, weight=2.0)
    assert make_loss("logistic", None, 1.0) == Logistic()
    assert make_loss("logistic", 3.0, 1.0) == Logistic(margin=3.0)
    assert make_loss("comparison", 2.0, 1.0) == ComparisonHinge(margin=2.0)
    assert make_loss("neighbour", None, 1.0) == Neighbour()
    with pytest.raises(InvalidSettings, match="no margin"):
        make_loss("neighbour", 1.0, 1.0)
    with pytest.raises(InvalidSettings, match="'hing'; expected hinge"):
        make_loss("hing", None, 1.0)
