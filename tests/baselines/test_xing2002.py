"""Xing2002 solves Eq. 1 of the paper."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

from nearfar.baselines import Xing2002
from tests.baselines.conftest import Drawn, invertible, squared

SIZES = {"seed": st.integers(0, 10_000), "d": st.integers(1, 6), "n_pairs": st.integers(1, 25)}
ENOUGH = settings(max_examples=15, deadline=None)


def solved(drawn: Drawn, **arguments) -> Xing2002:
    return Xing2002(preprocessor=drawn.X, **{"tol": 1e-4, "max_steps": 4000} | arguments).fit(drawn.pairs, drawn.y)


def objective(made: Xing2002, drawn: Drawn) -> float:
    return float(squared(made.get_mahalanobis_matrix(), drawn.differences(1)).mean())


@pytest.mark.filterwarnings("ignore:.*ConvergenceWarning")
@given(**SIZES, diagonal=st.booleans())
@ENOUGH
def test_every_constraint_is_kept_and_the_gap_is_true(seed, d, n_pairs, diagonal):
    drawn = Drawn.of(seed, d, n_pairs)
    made = Xing2002(preprocessor=drawn.X, diagonal=diagonal, max_seconds=0.2).fit(drawn.pairs, drawn.y)
    M = made.get_mahalanobis_matrix()
    assert np.linalg.eigvalsh(M)[0] >= -1e-9 * np.linalg.eigvalsh(M)[-1]
    assert squared(M, drawn.differences(-1)).min() >= 1 - 1e-6
    plain = np.sum(drawn.differences(1) ** 2, axis=1).mean() / np.sum(drawn.differences(-1) ** 2, axis=1).min()
    assert made.history_[-1][1] == pytest.approx(objective(made, drawn), rel=1e-6, abs=1e-6 * plain)
    assert 0 <= made.gap_ <= 1
    assert (made.cut_ is None) == (made.gap_ <= 1e-3)
    if diagonal:
        assert np.count_nonzero(M - np.diag(np.diag(M))) == 0
        similar = np.mean(drawn.differences(1) ** 2, axis=0)
        least = linprog(similar, -(drawn.differences(-1) ** 2), -np.ones(n_pairs)).fun
        assert least - 1e-9 <= objective(made, drawn)
        assert objective(made, drawn) * (1 - made.gap_) <= least + 1e-9


@pytest.mark.filterwarnings("ignore")  # of cvxpy's own
@pytest.mark.parametrize(
    ("seed", "d", "n_pairs", "whiten"),
    [(0, 1, 5, True), (1, 2, 10, True), (2, 4, 30, True), (3, 8, 60, True), (4, 12, 40, True), (1, 2, 10, False)],
)
def test_the_solution_is_that_of_a_general_solver(seed, d, n_pairs, whiten):
    cvxpy = pytest.importorskip("cvxpy")
    drawn = Drawn.of(seed, d, n_pairs, n_points=60)
    near, far = drawn.differences(1), drawn.differences(-1)
    M = cvxpy.Variable((d, d), PSD=True)
    constraints = [cvxpy.sum(cvxpy.multiply(far @ M, far), axis=1) >= 1]
    least = cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(near.T @ near / n_pairs @ M)), constraints).solve(
        solver="CLARABEL"
    )
    made = solved(drawn, whiten=whiten)
    assert made.cut_ is None
    assert objective(made, drawn) == pytest.approx(least, rel=2e-4)


@pytest.mark.parametrize("seed", range(4))
def test_the_diagonal_solution_is_that_of_linear_programming(seed):
    drawn = Drawn.of(seed, 5, 40)
    made = solved(drawn, diagonal=True, tol=1e-3)
    least = linprog(np.mean(drawn.differences(1) ** 2, axis=0), -(drawn.differences(-1) ** 2), -np.ones(40)).fun
    assert made.cut_ is None
    assert objective(made, drawn) == pytest.approx(least, rel=2e-3)


@given(seed=st.integers(0, 10_000), d=st.integers(1, 5))
@settings(max_examples=8, deadline=None)
def test_no_affine_map_of_the_points_and_no_order_of_the_pairs_changes_the_solution(seed, d):
    drawn = Drawn.of(seed, d, 20)
    expected = objective(solved(drawn), drawn)
    order = np.random.default_rng(seed).permutation(40)
    moved = Drawn(drawn.X @ invertible(seed, d) * 7 + 3, drawn.labels, drawn.pairs[order], drawn.y[order])
    assert objective(solved(moved), moved) == pytest.approx(expected, rel=1e-3)


def test_more_pairs_than_a_block_and_rounds_of_some(problem):
    """With 1,500 dissimilar pairs, most rounds go over those near their bound only."""
    drawn = Drawn.of(0, 6, 1500, n_points=200)
    made = solved(drawn, tol=1e-3)
    assert made.cut_ is None
    assert squared(made.get_mahalanobis_matrix(), drawn.differences(-1)).min() >= 1 - 1e-6


def test_directions_in_which_similar_pairs_do_not_differ_are_free():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    made = Xing2002(preprocessor=X).fit([[0, 1], [2, 3], [0, 2], [1, 3]], [1, 1, -1, -1])
    M = made.get_mahalanobis_matrix()
    assert M[0, 0] < 1e-3
    assert M[1, 1] >= 1 - 1e-3


def test_too_few_steps_are_warned_of(problem):
    with pytest.warns(ConvergenceWarning, match="max_steps=2 did not suffice"):
        made = Xing2002(preprocessor=problem.X, max_steps=2).fit(problem.pairs, problem.y)
    assert made.n_iter_ == 2
    assert "the objective is at most" in made.cut_
