"""Where the points of tuples come from: every way gives the same metric, and none expands the tuples."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf

TUPLE_LEARNERS = [nf.PairLearner, nf.TripletLearner, nf.QuadrupletLearner]


def components(learner, preprocessor, *given):
    """Learned with plain SGD of a given step size: other rules count how often a sparse batch touches a feature."""
    made = learner(preprocessor=preprocessor, steps=10, n_components=8, update_rule="sgd", step_size=1e-2)
    return made.set_params(random_state=0).fit(*given).components_


@pytest.mark.parametrize("learner", TUPLE_LEARNERS)
def test_every_storage_gives_the_same_metric(problem, learner, tmp_path):
    X, given = problem.X, problem.given(learner)
    np.save(tmp_path / "points.npy", X)
    np.save(tmp_path / "points32.npy", X.astype(np.float32))
    expected = components(learner, X, *given)
    for same in (
        X.astype(np.float32),
        X.astype(np.uint8),
        np.asfortranarray(X),
        X.tolist(),
        np.load(tmp_path / "points.npy", mmap_mode="r"),
        np.load(tmp_path / "points32.npy", mmap_mode="r"),
        nf.as_points(X),
    ):
        np.testing.assert_allclose(components(learner, same, *given), expected, rtol=1e-4, atol=1e-5)
    for sparse in (sp.csr_matrix(X), sp.csr_array(X), sp.csc_matrix(X)):
        np.testing.assert_allclose(components(learner, sparse, *given), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learner", TUPLE_LEARNERS)
def test_a_callable_gives_the_metric_of_the_points_it_is_asked_for(problem, learner):
    X, (ids, *rest) = problem.X, problem.given(learner)
    asked, places = np.unique(ids, return_inverse=True)
    expected = components(learner, X[asked], places.reshape(ids.shape), *rest)
    for dense in (lambda ids: X[ids], lambda ids: X[ids].tolist()):
        np.testing.assert_array_equal(components(learner, dense, ids, *rest), expected)
    sparse = components(learner, lambda ids: sp.csr_array(X[ids]), ids, *rest)
    np.testing.assert_allclose(sparse, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("learner", TUPLE_LEARNERS)
def test_formed_tuples_teach_what_their_ids_do(problem, learner):
    ids, *rest = problem.given(learner)
    formed = problem.X[ids]
    alone = learner(steps=60, random_state=0, scale_features=False).fit(formed, *rest)
    beside = learner(steps=60, random_state=0, scale_features=False, preprocessor=problem.X).fit(formed, *rest)
    np.testing.assert_array_equal(alone.components_, beside.components_)
    by_id = learner(steps=60, random_state=0, scale_features=False, preprocessor=problem.X).fit(ids, *rest)
    np.testing.assert_allclose(by_id.score(ids, *rest), alone.score(formed, *rest), atol=0.01)
    np.testing.assert_allclose(beside.decision_function(ids), beside.decision_function(formed), rtol=1e-3, atol=1e-3)


def test_formed_tuples_of_float32_are_not_copied():
    from nearfar.learners.tuples import read_tuples

    formed = np.zeros((10, 2, 3), np.float32)
    assert np.shares_memory(read_tuples(formed, 2, None, "PairLearner").points, formed)


def test_a_callable_is_called_once_an_id_and_from_one_thread(problem, monkeypatch):
    monkeypatch.setattr("nearfar.learners.tuples._CALL_IDS", 64)
    names = np.array([f"image{i}" for i in range(len(problem.X))])
    asked, threads = [], set()

    def load(ids):
        asked.extend(ids)
        threads.add(threading.get_ident())
        return problem.X[[int(name.removeprefix("image")) for name in ids]]

    learner = nf.PairLearner(preprocessor=load, steps=10, random_state=0, n_components=8, n_workers=2)
    learner.fit(names[problem.pairs], problem.y)
    assert len(asked) == len(set(asked)) == len(np.unique(problem.pairs))
    assert threads == {threading.get_ident()}
    assert learner.score(names[problem.pairs], problem.y) > 0.7
    assert learner.transform(names[:3]).shape == (3, 8)


def test_a_callable_that_changes_its_width_is_refused(problem, monkeypatch):
    monkeypatch.setattr("nearfar.learners.tuples._CALL_IDS", 64)
    learner = nf.PairLearner(preprocessor=lambda ids: problem.X[ids][:, : 40 + ids[0] % 7])
    with pytest.raises(ValueError, match="expected as many each time"):
        learner.fit(problem.pairs, problem.y)


def test_pairs_as_a_frame_of_ids(problem):
    pandas = pytest.importorskip("pandas")
    pairs = pandas.DataFrame(problem.pairs, columns=["left", "right"])
    found = components(nf.PairLearner, problem.X, pairs, pandas.Series(problem.y))
    np.testing.assert_array_equal(found, components(nf.PairLearner, problem.X, problem.pairs, problem.y))


_MEMORY = """
import os, threading, time
import numpy as np
import nearfar as nf

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

rng = np.random.default_rng(0)
X = rng.standard_normal((20_000, 200), dtype=np.float32)
left, apart = rng.integers(20_000, size=2_000_000), rng.integers(1, 20_000, size=2_000_000)
pairs = np.column_stack((left, (left + apart) % 20_000))
y = np.where((X[pairs[:, 0], 0] > 0) == (X[pairs[:, 1], 0] > 0), 1, -1)
del left, apart
learner = nf.PairLearner(preprocessor=X, steps=20, n_components=32, random_state=0)
learner.fit(pairs[:1000], y[:1000])  # what is loaded and compiled once is not of the pairs
before, most, done = resident(), 0, threading.Event()

def watch():
    global most
    while not done.wait(0.002):
        most = max(most, resident())

watching = threading.Thread(target=watch)
watching.start()
learner.fit(pairs, y)
done.set()
watching.join()
print((most - before) / 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_two_million_index_pairs_take_little_memory():
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", _MEMORY], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 150  # as (n, 2, d) they would take 3,000
