"""ITML: projections, their limit, and metric-learn's."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from benchmarks import environments
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from nearfar.baselines import ITML
from nearfar.baselines.itml_projections import project_block, project_plainly
from tests.baselines.conftest import Drawn, orthogonal, squared

ENOUGH = settings(max_examples=15, deadline=None)
GAMMAS = st.sampled_from([1e-3, 0.1, 1.0, 10.0, np.inf])
SCRIPT = Path(__file__).parent / "fit_metric_learn.py"


def solved(drawn: Drawn, **arguments) -> ITML:
    made = ITML(preprocessor=drawn.X, **{"tol": 1e-7, "max_sweeps": 20_000, "random_state": 0} | arguments)
    return made.fit(drawn.pairs, drawn.y)


@given(seed=st.integers(0, 10_000), d=st.integers(1, 12), n=st.integers(1, 40), gamma=GAMMAS)
@ENOUGH
def test_a_block_of_projections_is_one_after_the_other(seed, d, n, gamma):
    rng = np.random.default_rng(seed)
    V, signs = rng.normal(size=(n, d)), rng.choice([1.0, -1.0], n)
    V[rng.random(n) < 0.1] = 0.0
    states = [(np.eye(d), np.zeros(n), np.where(signs > 0, 0.5 * d, 2.0 * d)) for _ in range(2)]
    for project, (M, multipliers, slacks) in zip((project_block, project_plainly), states, strict=True):
        for _ in range(3):
            project(M, V, signs, gamma, multipliers, slacks)
    for blocked, plain in zip(*states, strict=True):
        np.testing.assert_allclose(blocked, plain, rtol=1e-8, atol=1e-10)


@given(
    seed=st.integers(0, 10_000),
    d=st.integers(1, 5),
    n_pairs=st.integers(1, 12),
    gamma=st.sampled_from([0.01, 1.0, 5.0]),
)
@ENOUGH
def test_the_limit_keeps_every_constraint_up_to_its_slack(seed, d, n_pairs, gamma):
    drawn = Drawn.of(seed, d, n_pairs)
    made = solved(drawn, gamma=gamma, max_sweeps=5000)
    M, sign = made.get_mahalanobis_matrix(), drawn.y
    assert np.linalg.eigvalsh(M)[0] > 0
    left, right = drawn.pairs.T
    distances = squared(M, drawn.X[left] - drawn.X[right])
    assert np.all(sign * (distances - made.slacks_) <= 1e-3 * made.slacks_)
    u, limit = made.bounds_
    moved = np.where(sign > 0, made.slacks_ - u, limit - made.slacks_)
    assert moved.min() >= -1e-9 * limit
    if gamma >= 1:  # at a bound that gave way, a pair lies on it
        gave_way = moved > 1e-3 * limit
        np.testing.assert_allclose(distances[gave_way], made.slacks_[gave_way], rtol=1e-2)


@pytest.mark.filterwarnings("ignore")  # of cvxpy's own
@pytest.mark.parametrize(("seed", "gamma"), [(0, 1.0), (1, 0.1), (2, 3.0)])
def test_the_limit_is_that_of_a_general_solver(seed, gamma):
    cvxpy = pytest.importorskip("cvxpy")
    drawn = Drawn.of(seed, 3, 8)
    made = solved(drawn, gamma=gamma)
    M, slacks = cvxpy.Variable((3, 3), PSD=True), cvxpy.Variable(16)
    left, right = drawn.pairs.T
    V, targets = drawn.X[left] - drawn.X[right], np.where(drawn.y > 0, *made.bounds_)
    divergence = cvxpy.trace(M) - cvxpy.log_det(M) - 3
    shares = cvxpy.multiply(slacks, 1 / targets)
    objective = divergence + gamma * cvxpy.sum(shares - cvxpy.log(shares) - 1)
    distances = cvxpy.sum(cvxpy.multiply(V @ M, V), axis=1)
    problem = cvxpy.Problem(cvxpy.Minimize(objective), [cvxpy.multiply(drawn.y, slacks - distances) >= 0])
    least = problem.solve(solver="CLARABEL")
    assert made.history_[-1][1] == pytest.approx(least, rel=1e-4)
    np.testing.assert_allclose(made.get_mahalanobis_matrix(), M.value, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("gamma", [1.0, 0.001])
def test_the_steps_are_those_of_metric_learn(problem, tmp_path, gamma):
    try:
        python = environments.layer("metric-learn")
    except environments.NoEnvironment as error:
        pytest.skip(str(error))
    order = np.argsort(-problem.y, kind="stable")  # metric-learn projects on the similar pairs first
    pairs, y, bounds, sweeps = problem.pairs[order], problem.y[order], (60.0, 900.0), 5
    with pytest.warns(ConvergenceWarning):
        made = ITML(
            preprocessor=problem.X, gamma=gamma, bounds=bounds, max_sweeps=sweeps, tol=1e-12, shuffle=False
        ).fit(pairs, y)
    given_file, learned_file = tmp_path / "problem.npz", tmp_path / "matrix.npy"
    np.savez(given_file, X=problem.X, pairs=pairs, y=y, gamma=gamma, sweeps=sweeps, bounds=bounds)
    command = [str(python), "-P", str(SCRIPT), str(given_file), str(learned_file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environments.surroundings())
    assert ended.returncode == 0, ended.stderr
    theirs, ours = np.load(learned_file), made.get_mahalanobis_matrix()
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9 * np.abs(theirs).max())
    left, right = problem.X[pairs].transpose(1, 0, 2)
    np.testing.assert_allclose(squared(ours, left - right), squared(theirs, left - right), rtol=1e-6)


@given(seed=st.integers(0, 10_000), d=st.integers(1, 5))
@settings(max_examples=8, deadline=None)
def test_turned_moved_and_scaled_points_and_another_order_give_the_same_distances(seed, d):
    drawn = Drawn.of(seed, d, 10)
    made = solved(drawn, gamma=0.1)
    order = np.random.default_rng(seed).permutation(20)
    X = drawn.X @ orthogonal(seed, d) * 3 + 5
    moved = solved(Drawn(X, drawn.labels, drawn.pairs[order], drawn.y[order]), gamma=0.1, random_state=1)
    np.testing.assert_allclose(moved.pair_distance(drawn.pairs), 3 * made.pair_distance(drawn.pairs), rtol=1e-2)
    np.testing.assert_allclose(moved.bounds_, 9 * np.array(made.bounds_), rtol=1e-8)


def test_bounds_are_percentiles_of_squared_distances():
    drawn = Drawn.of(0, 4, 40)
    used = np.unique(drawn.pairs)
    differences = (drawn.X[used][:, None] - drawn.X[used])[np.triu_indices(len(used), 1)]
    expected = np.percentile(np.sum(differences**2, axis=1), (5, 95))
    np.testing.assert_allclose(solved(drawn, tol=0.1).bounds_, expected)


def test_bounds_of_many_points_come_from_a_sample(monkeypatch):
    drawn = Drawn.of(0, 4, 200, n_points=150)
    exact = solved(drawn, tol=0.1).bounds_
    monkeypatch.setattr("nearfar.baselines.itml._BOUND_PAIRS", 5_000)
    sampled = solved(drawn, tol=0.1).bounds_
    assert sampled != exact
    np.testing.assert_allclose(sampled, exact, rtol=0.1)


def test_the_prior_stays_where_nothing_is_asked_for():
    X = np.array([[0.0, 0.0], [1.0, 1.0], [9.0, 0.0], [10.0, 1.0]])
    pairs, y, prior = [[0, 1], [2, 3], [0, 2], [1, 3]], [1, 1, -1, -1], np.diag([1.0, 2.0])
    made = ITML(preprocessor=X, prior=prior, bounds=(4.0, 50.0)).fit(pairs, y)
    np.testing.assert_allclose(made.get_mahalanobis_matrix(), prior, rtol=1e-12, atol=1e-12)
    of_covariance = ITML(preprocessor=X, prior="covariance", bounds=(4.5, 4.5), gamma=1e-9).fit(pairs, y)
    np.testing.assert_allclose(of_covariance.get_mahalanobis_matrix() @ np.cov(X.T, bias=True), np.eye(2), atol=1e-6)


def test_time_cuts_a_sweep_short(problem):
    made = ITML(preprocessor=problem.X, max_seconds=1e-9, random_state=0).fit(problem.pairs, problem.y)
    assert made.cut_ == "max_seconds=1e-09 was up in sweep 1: 400 of 400 pairs were never used"
    np.testing.assert_allclose(made.get_mahalanobis_matrix(), np.eye(12))


def test_one_random_state_gives_one_result(problem):
    first, second, other = (
        ITML(preprocessor=problem.X, random_state=seed, tol=0.1).fit(problem.pairs, problem.y).components_
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)
