"""The cheaper way is chosen by counting, and counts what is done."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar import cost

many = st.integers(1, 100_000)


def test_flops_are_those_of_the_products():
    assert cost.step_flops(1000, 784, 600) == 2 * (2 * 1000 * 784 * 600)
    assert cost.step_flops(10, 5, 3, pairs=7) - cost.step_flops(10, 5, 3) == 6 * 7 * 3
    assert cost.block_flops(500, 784, 600) - cost.step_flops(500, 784, 600) == 2 * (2 * 500 * 500 * 600)


@settings(deadline=None, max_examples=100)
@given(many, many, many, st.integers(1, 1000), st.booleans())
def test_more_distinct_points_never_make_points_cheaper(n_pairs, n_distinct, stored, rank, sparse):
    if cost.points_are_cheaper(n_pairs, n_distinct + 1, stored, rank, sparse=sparse):
        assert cost.points_are_cheaper(n_pairs, n_distinct, stored, rank, sparse=sparse)
    if cost.points_are_cheaper(n_pairs, n_distinct, stored, rank, sparse=False):
        assert n_distinct < n_pairs
        assert cost.points_are_cheaper(n_pairs, n_distinct, stored, rank, sparse=True)


@pytest.mark.parametrize(
    ("n_pairs", "n_distinct", "sparse", "points"),
    [
        (1000, 100, False, True),
        (1000, 900, False, True),
        (1000, 1000, False, False),
        (1000, 2000, False, False),
        (1000, 1500, True, True),
        (1000, 2000, True, False),
        (0, 0, False, False),
    ],
)
def test_which_way_is_cheaper(n_pairs, n_distinct, sparse, points):
    assert cost.points_are_cheaper(n_pairs, n_distinct, 784, 600, sparse=sparse) == points


@settings(deadline=None, max_examples=100)
@given(st.floats(0, 1e15), st.floats(0, 1e12), st.integers(1, 10**6))
def test_judging_stays_within_its_share(judging, step, steps_per_epoch):
    steps = cost.steps_between_reports(judging, step, steps_per_epoch)
    assert steps >= min(25, max(10, steps_per_epoch))
    assert judging <= 1.1 * cost.REPORT_SHARE * steps * max(1.0, step)


def test_only_large_steps_take_all_cores():
    assert cost.worth_all_cores(cost.step_flops(1000, 784, 600))
    assert not cost.worth_all_cores(cost.step_flops(100, 64, 32))
