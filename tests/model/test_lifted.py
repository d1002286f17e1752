"""A lifted metric, from training to file: it learns what a linear one cannot, and takes raw points everywhere."""

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf
from nearfar.errors import InvalidFile, InvalidInput, InvalidPoints, InvalidSettings
from nearfar.evaluation.retrieval import judge_neighbours
from nearfar.files import write_safetensors
from nearfar.model.metric import Metric, load_metric
from nearfar.model.preparation import prepare
from nearfar.model.run import RunFolder
from nearfar.objective.lift import Lift, LiftedPoints, rbf_lift

QUICK = {"lift": "rbf", "lift_dim": 256, "rank": 16, "block_size": 100, "steps": 20}


@pytest.fixture(scope="module")
def metric() -> Metric:
    lift = rbf_lift(6, 50, 1.5, None, seed=0)
    components = np.random.default_rng(1).standard_normal((4, 50))
    return Metric(components, lift=lift, threshold=0.5, settings={"lift": "rbf"})


@pytest.fixture(scope="module", name="X")
def some_points() -> np.ndarray:
    rng = np.random.default_rng(2)
    return rng.standard_normal((40, 6)) * (rng.random((40, 6)) < 0.6)


def lifted(metric: Metric, X: np.ndarray) -> np.ndarray:
    assert metric.lift is not None
    return np.sqrt(2 / 50) * np.cos(X @ metric.lift.weights.astype(np.float64) + metric.lift.phases)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_every_method_takes_raw_points(metric, X, make):
    Z = lifted(metric, X) @ metric.components.T
    all_with_all = np.sqrt(((Z[:, None] - Z[None]) ** 2).sum(axis=2))
    points = make(X)
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(metric.transform(points), Z, **close)
    np.testing.assert_allclose(metric.pairwise(points), all_with_all, atol=3e-3)
    np.testing.assert_allclose(metric.pairwise(points[:9], X), all_with_all[:9], atol=3e-3)
    np.testing.assert_allclose(metric.distance(points[:20], X[20:]), np.diag(all_with_all[:20, 20:]), **close)
    for pairs in (np.array([[0, 1], [5, 9]]), np.argwhere(np.ones((40, 40)))):
        np.testing.assert_allclose(metric.pair_distances(points, pairs), all_with_all[tuple(pairs.T)], **close)
    np.testing.assert_array_equal(metric.is_similar(points[:20], X[20:]), np.diag(all_with_all[:20, 20:]) <= 0.5)
    assert metric.n_features == 6
    assert metric.components.shape == (4, 50)
    assert metric.matrix().shape == (50, 50)
    assert "lifted to 50" in repr(metric)


def test_points_are_transformed_in_blocks(metric, monkeypatch):
    seen: list[int] = []
    apply = Lift.apply
    monkeypatch.setattr(Lift, "apply", lambda self, rows, out=None: seen.append(len(rows)) or apply(self, rows, out))
    monkeypatch.setattr("nearfar.model.distance._BLOCK_BYTES", 100 * 4 * (2 * 50 + 4))
    metric.transform(np.ones((1050, 6)))
    assert seen == [100] * 10 + [50]


def test_a_wrong_width_is_that_of_raw_points(metric):
    with pytest.raises(InvalidPoints, match="points of 6"):
        metric.transform(np.ones((3, 50)))


def test_a_lifted_point_that_is_not_finite_is_named(metric, X):
    wrong = X.copy()
    wrong[3, 1] = np.nan
    for use in (metric.transform, metric.pairwise, lambda points: metric.distance(X, points)):
        with pytest.raises(InvalidPoints, match="point 3 has NaN or infinity in feature 1"):
            use(wrong)


@pytest.mark.parametrize("centre", [None, np.linspace(-1, 1, 50)])
def test_save_and_load_are_exact(metric, X, tmp_path, centre):
    made = Metric(metric.components, lift=metric.lift, centre=centre, threshold=0.5)
    made.save(tmp_path / "m.safetensors")
    read = load_metric(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(read.lift.weights, metric.lift.weights)
    np.testing.assert_array_equal(read.lift.phases, metric.lift.phases)
    np.testing.assert_array_equal(read.transform(X), made.transform(X))
    assert read.threshold == 0.5


def test_a_file_with_half_a_lift_or_one_of_another_size_is_refused(metric, tmp_path):
    path = tmp_path / "m.safetensors"
    whole = {"components": np.ones((4, 50), np.float32), "lift.weights": metric.lift.weights}
    known = {"format": "nearfar.metric", "version": "1", "settings": "{}"}
    write_safetensors(path, whole, known)
    with pytest.raises(InvalidFile, match=r"lift.weights alone"):
        load_metric(path)
    for wrong in ({"lift.phases": np.ones(49, np.float32)}, {"components": np.ones((4, 6), np.float32)}):
        write_safetensors(path, {**whole, "lift.phases": metric.lift.phases, **wrong}, known)
        with pytest.raises(InvalidFile, match="lift"):
            load_metric(path)
    with pytest.raises(InvalidInput, match="the lift makes 50"):
        Metric(np.ones((4, 6)), lift=metric.lift)


def test_a_reduced_metric_and_one_with_a_threshold_keep_the_lift(metric, X):
    full = metric.reduced(4)
    np.testing.assert_allclose(full.pairwise(X), metric.pairwise(X), atol=5e-3)
    assert metric.reduced(2).transform(X).shape == (40, 2)
    assert metric.with_threshold(1.0).lift is metric.lift


def xor(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    return X, (X[:, 0] > 0) ^ (X[:, 1] > 0)


def test_the_lift_learns_what_no_linear_metric_can():
    X, y = xor(2000, 0)
    settings = {"steps": 150, "block_size": 200}
    linear = nf.train(X, y, nf.TrainingSettings(**settings))
    bent = nf.train(X, y, nf.TrainingSettings(lift="rbf", lift_dim=1024, rank=16, **settings))
    assert linear.report.ap < 0.7
    assert bent.report.ap > 0.93
    far_apart_but_alike = bent.metric.distance([[-0.5, -0.5]], [[0.5, 0.5]])
    near_but_not = bent.metric.distance([[-0.3, 0.3]], [[0.3, 0.3]])
    assert far_apart_but_alike < near_but_not


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_seed_gives_the_same_metric_bit_for_bit(digits, workers):
    settings = nf.TrainingSettings(**QUICK, workers=workers, consistency="bsp")
    one, two = (nf.train(*digits, settings).metric for _ in range(2))
    np.testing.assert_array_equal(one.components, two.components)
    np.testing.assert_array_equal(one.lift.weights, two.lift.weights)
    other = nf.train(*digits, nf.TrainingSettings(**{**QUICK, "seed": 1})).metric
    assert (one.lift.weights != other.lift.weights).any()


def test_a_resumed_run_is_the_whole_run(digits, tmp_path):
    settings = {**QUICK, "schedule": "constant"}
    nf.train(*digits, nf.TrainingSettings(**{**settings, "steps": 10}), run=tmp_path / "run")
    assert RunFolder(tmp_path / "run").checkpoints(3).newest().arrays["Lt"].shape == (256, 16)
    resumed = nf.train(*digits, nf.TrainingSettings(**settings), run=tmp_path / "run", resume=True).metric
    whole = nf.train(*digits, nf.TrainingSettings(**settings)).metric
    np.testing.assert_array_equal(resumed.components, whole.components)
    saved = load_metric(tmp_path / "run" / "metric.safetensors")
    np.testing.assert_array_equal(saved.transform(digits[0]), whole.transform(digits[0]))


def test_training_never_lifts_more_than_a_batch_or_a_block(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50_000, 5)).astype(np.float32), rng.integers(3, size=50_000)
    sizes: list[int] = []
    rows = LiftedPoints.rows

    def counted(self, indices, scratch=None):
        sizes.append(len(indices))
        return rows(self, indices, scratch)

    monkeypatch.setattr(LiftedPoints, "rows", counted)
    metric = nf.train(X, y, nf.TrainingSettings(lift="rbf", rank=8, steps=3, block_size=64, centre=True)).metric
    assert max(sizes) <= (32 << 20) // (8 * 4096)
    assert metric.components.shape == (8, 4096)


def test_the_scale_of_features_is_in_the_lift(digits):
    X, y = digits
    scales = 10 ** np.random.default_rng(0).uniform(-2, 2, X.shape[1])
    settings = nf.TrainingSettings(**{**QUICK, "steps": 100, "lift_dim": 1024})
    plain, scaled = nf.train(X, y, settings).metric, nf.train(X * scales, y, settings).metric
    wide = X * scales
    near, far = plain.distance(X[:99], X[99:198]), scaled.distance(wide[:99], wide[99:198])
    assert np.corrcoef(near, far)[0, 1] > 0.8


def test_centre_is_of_the_lifted_points(digits):
    X, y = digits
    plain = nf.train(X, y, nf.TrainingSettings(**QUICK)).metric
    centred = nf.train(X, y, nf.TrainingSettings(**QUICK, centre=True)).metric
    assert centred.centre.shape == (256,)
    assert abs(centred.transform(X).mean(axis=0)).max() < 1e-3 < abs(plain.transform(X).mean(axis=0)).max()
    np.testing.assert_allclose(plain.distance(X[:9], X[9:18]), centred.distance(X[:9], X[9:18]), rtol=1e-5)


def test_the_width_that_was_chosen_is_noted_and_can_be_given(digits):
    chosen = nf.train(*digits, nf.TrainingSettings(**QUICK)).metric
    width = chosen.settings["lift_width"]
    assert width > 0
    same = nf.train(*digits, nf.TrainingSettings(**QUICK, lift_width=width)).metric
    np.testing.assert_array_equal(same.components, chosen.components)
    twice = nf.train(*digits, nf.TrainingSettings(**QUICK, lift_width=2 * width)).metric
    np.testing.assert_allclose(twice.lift.weights, chosen.lift.weights / 2, rtol=1e-5)


def test_neighbours_are_found_with_raw_points(digits):
    X, y = digits
    metric = nf.train(X[:1200], y[:1200], nf.TrainingSettings(**{**QUICK, "steps": 100})).metric
    assert judge_neighbours(metric, X[:1200], y[:1200], X[1200:], y[1200:]).error < 0.1


@pytest.mark.parametrize("start", ["identity", "pca", 0.4 * np.random.default_rng(0).standard_normal((16, 256))])
def test_every_start_is_one_of_lifted_points(digits, start):
    named = {"start": start} if isinstance(start, str) else {}
    given = None if named else start
    result = nf.train(*digits, nf.TrainingSettings(**{**QUICK, "steps": 60}, **named), start=given)
    assert result.report.ap > 0.9


def test_a_rank_above_the_lifted_width_is_refused(digits):
    with pytest.raises(InvalidSettings, match="256 features"):
        nf.train(*digits, nf.TrainingSettings(**{**QUICK, "rank": 257}))


def test_a_lift_that_does_not_fit_in_memory_is_refused_before_it_is_made(digits):
    with pytest.raises(InvalidSettings, match="lower lift_dim"):
        nf.train(*digits, nf.TrainingSettings(lift="rbf", lift_dim=10**9))


def test_equal_points_can_be_lifted():
    X, y = np.ones((50, 3)), np.arange(50) % 2
    prepared = prepare(
        X, nf.Labels(y), nf.TrainingSettings(lift="rbf", lift_dim=16), labels=None, loss=None, start=None
    )
    assert np.isfinite(prepared.lift.weights).all()
    assert prepared.step_size > 0
