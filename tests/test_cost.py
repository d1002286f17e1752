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
@given(many, many, many, st.integers(1, 1000), many, st.booleans())
def test_more_distinct_points_never_make_points_cheaper(n_pairs, n_distinct, stored, rank, n_features, sparse):
    def cheaper(n_distinct, sparse):
        return cost.points_are_cheaper(n_pairs, n_distinct, stored, rank, sparse=sparse, n_features=n_features)

    if cheaper(n_distinct + 1, sparse):
        assert cheaper(n_distinct, sparse)
    if cheaper(n_distinct, False):
        assert n_distinct < n_pairs
        assert cheaper(n_distinct, True)


@pytest.mark.parametrize(
    ("n_pairs", "n_distinct", "sparse", "n_features", "points"),
    [
        (1000, 100, False, 784, True),
        (1000, 900, False, 784, True),
        (1000, 1000, False, 784, False),
        (1000, 2000, False, 784, False),
        (1000, 1500, True, 20_000, True),
        (1000, 1800, True, 20_000, False),  # in blocks, differences make more of each entry
        (1000, 1800, True, 1_000_000, True),  # row by row they do not
        (1000, 2000, True, 1_000_000, False),
        (0, 0, False, 784, False),
    ],
)
def test_which_way_is_cheaper(n_pairs, n_distinct, sparse, n_features, points):
    found = cost.points_are_cheaper(n_pairs, n_distinct, 784, 600, sparse=sparse, n_features=n_features)
    assert found == points


@pytest.mark.parametrize(
    ("n_rows", "stored", "n_columns", "rank", "form"),
    [
        (1000, 2150, 21_504, 1000, "blocks"),
        (1000, 2150, 21_504, 10, "entries"),  # too few numbers a column to fill a tile
        (1000, 200, 75_000, 100, "entries"),  # columns are used too seldom
        (300_000, 10, 100_000, 64, "entries"),  # a row has hardly any of them beside each other
        (40_000, 100, 50_000, 256, "blocks"),
        (1000, 400, 784, 600, "dense"),
        (0, 0, 0, 1000, "entries"),
    ],
)
def test_which_form_sparse_rows_take(n_rows, stored, n_columns, rank, form):
    assert cost.sparse_form(n_rows, n_rows * stored, n_columns, rank) == form


@settings(deadline=None, max_examples=100)
@given(st.floats(0, 1e15), st.floats(0, 1e12), st.integers(1, 10**6))
def test_judging_stays_within_its_share(judging, step, steps_per_epoch):
    steps = cost.steps_between_reports(judging, step, steps_per_epoch)
    assert steps >= min(25, max(10, steps_per_epoch))
    assert judging <= 1.1 * cost.REPORT_SHARE * steps * max(1.0, step)


def test_only_large_steps_take_all_cores():
    assert cost.worth_all_cores(cost.step_flops(1000, 784, 600))
    assert not cost.worth_all_cores(cost.step_flops(100, 64, 32))
