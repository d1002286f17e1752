"""``nf.train``: what it refuses, how it ends, and what it leaves on disk."""

import numpy as np
import pytest

import nearfar as nf
from nearfar.engine import supervisor
from nearfar.errors import Diverged, InvalidPoints, InvalidRun
from nearfar.model.metric import load_metric
from nearfar.model.run import RunFolder


def test_a_run_that_diverges_says_so_and_keeps_its_last_good_checkpoint(digits, tmp_path):
    run = tmp_path / "run"
    quick = {"seed": 1, "block_size": 100, "checkpoint_every": 1e-6, "schedule": "constant"}
    nf.train(*digits, nf.TrainingSettings(steps=20, **quick), run=run)
    newest = RunFolder(run).checkpoints(3).newest()
    assert newest is not None
    assert newest.step == 20
    with pytest.raises(Diverged, match="lower step_size"):
        nf.train(*digits, nf.TrainingSettings(steps=50, step_size=1e30, **quick), run=tmp_path / "wild")
    good = RunFolder(tmp_path / "wild").checkpoints(3).newest()
    assert good is None or np.isfinite(good.arrays["Lt"]).all()


def test_a_metric_that_takes_long_to_write_is_not_written_at_once(digits, tmp_path, monkeypatch):
    settings = nf.TrainingSettings(steps=20, block_size=100, checkpoint_every=1e-6)
    found = []
    for rate in (1e12, 1.0):
        monkeypatch.setattr(supervisor, "_WRITING_RATE", rate)
        nf.train(*digits, settings, run=tmp_path / f"{rate:g}")
        found.append(len(RunFolder(tmp_path / f"{rate:g}").checkpoints(3).paths()))
    assert found[0] > 1 == found[1]  # the last one only


def test_a_point_that_is_not_finite_is_named_even_where_points_are_not_checked_beforehand(digits, tmp_path):
    X = digits[0].astype(np.float32)
    X[7, 3] = np.nan
    np.save(tmp_path / "points.npy", X)
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    with pytest.raises(InvalidPoints, match="point 7 has NaN"):
        nf.train(mapped, digits[1], nf.TrainingSettings(steps=200))


def test_resuming_on_other_points_is_refused(digits, tmp_path):
    X, y = digits
    settings = nf.TrainingSettings(steps=10, block_size=100)
    nf.train(X, y, settings, run=tmp_path / "run")
    with pytest.raises(InvalidRun, match="points_fingerprint"):
        nf.train(X + 1, y, settings, run=tmp_path / "run", resume=True)


def test_a_finished_run_may_go_on_with_a_larger_budget(digits, tmp_path):
    settings = {"block_size": 100, "schedule": "constant"}
    nf.train(*digits, nf.TrainingSettings(steps=10, **settings), run=tmp_path / "run")
    longer = nf.train(*digits, nf.TrainingSettings(steps=30, **settings), run=tmp_path / "run", resume=True)
    whole = nf.train(*digits, nf.TrainingSettings(steps=30, **settings))
    np.testing.assert_array_equal(longer.metric.components, whole.metric.components)
    np.testing.assert_array_equal(
        load_metric(tmp_path / "run" / "metric.safetensors").components, whole.metric.components
    )


@pytest.mark.parametrize(
    "budget",
    [{"steps": 30}, {"minutes": 0.01}, {"epochs": 2}, {"patience": 1, "report_every": 10, "held_out": 400}, {}],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_finished_run_resumed_with_the_same_budget_stays_as_it_is(budget, workers, digits, tmp_path):
    def files():
        return {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}

    settings = nf.TrainingSettings(rank=8, block_size=100, workers=workers, **budget)
    first = nf.train(*digits, settings, run=tmp_path / "run")
    before = files()
    again = nf.train(*digits, settings, run=tmp_path / "run", resume=True)
    assert files() == before
    assert again.ended == f"nothing was left to do, so it stays as it is: {first.ended}"
    assert again.history == first.history
    assert again.report == first.report
    np.testing.assert_array_equal(again.metric.components, first.metric.components)


def test_a_run_that_ended_without_its_metric_gets_it_on_resume(digits, tmp_path):
    settings = nf.TrainingSettings(steps=30, block_size=100)
    first = nf.train(*digits, settings, run=tmp_path / "run")
    (tmp_path / "run" / "metric.safetensors").unlink()
    nf.train(*digits, settings, run=tmp_path / "run", resume=True)
    kept = load_metric(tmp_path / "run" / "metric.safetensors")
    np.testing.assert_array_equal(kept.components, first.metric.components)


def test_a_run_that_went_on_and_ended_without_its_new_metric_gets_it_on_resume(digits, tmp_path, monkeypatch):
    settings = {"block_size": 100, "schedule": "constant"}
    nf.train(*digits, nf.TrainingSettings(steps=10, **settings), run=tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(nf.Metric, "save", fail)
        with pytest.raises(KeyboardInterrupt):
            nf.train(*digits, nf.TrainingSettings(steps=30, **settings), run=tmp_path / "run", resume=True)
    nf.train(*digits, nf.TrainingSettings(steps=30, **settings), run=tmp_path / "run", resume=True)
    kept = load_metric(tmp_path / "run" / "metric.safetensors")
    whole = nf.train(*digits, nf.TrainingSettings(steps=30, **settings))
    np.testing.assert_array_equal(kept.components, whole.metric.components)


def fail(*_):
    raise KeyboardInterrupt


def test_a_run_that_patience_ended_goes_on_with_a_budget_and_keeps_what_it_learns_then(digits, tmp_path):
    settings = {"rank": 8, "block_size": 100, "schedule": "constant", "report_every": 5}
    first = nf.train(*digits, nf.TrainingSettings(patience=3, **settings), run=tmp_path / "run")
    ended = first.history[-1].step
    fewer = nf.train(*digits, nf.TrainingSettings(steps=5, **settings), run=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(fewer.metric.components, first.metric.components)
    more = nf.train(*digits, nf.TrainingSettings(steps=ended + 30, **settings), run=tmp_path / "run", resume=True)
    whole = nf.train(*digits, nf.TrainingSettings(steps=ended + 30, **settings))
    assert more.report.step == ended + 30
    np.testing.assert_array_equal(more.metric.components, whole.metric.components)


def test_a_run_without_patience_may_go_on_with_some(digits, tmp_path):
    settings = {"rank": 8, "block_size": 100, "report_every": 5}
    nf.train(*digits, nf.TrainingSettings(steps=1000, **settings), run=tmp_path / "run")
    patient = nf.TrainingSettings(steps=1100, patience=3, **settings)
    assert nf.train(*digits, patient, run=tmp_path / "run", resume=True).history[-1].step > 1000


@pytest.mark.parametrize("held_out", [400, 0])
@pytest.mark.parametrize("stops", [(11, 12, 14), (5, 20), (31, 32, 33, 34)])
def test_a_run_that_is_stopped_and_goes_on_is_the_undisturbed_one(stops, held_out, digits, tmp_path, monkeypatch):
    settings = nf.TrainingSettings(rank=8, block_size=100, report_every=5, held_out=held_out, patience=2)
    whole = nf.train(*digits, settings)
    assert whole.history[-1].step > max(stops)
    attend = supervisor.LocalSupervisor.attend

    def attend_and_stop(self, applied):
        if self._server.version in stops:
            self.interrupt()
        return attend(self, applied)

    monkeypatch.setattr(supervisor.LocalSupervisor, "attend", attend_and_stop)
    for number in range(len(stops)):
        assert nf.train(*digits, settings, run=tmp_path / "run", resume=number > 0).interrupted
    resumed = nf.train(*digits, settings, run=tmp_path / "run", resume=True)
    assert resumed.ended == whole.ended
    assert resumed.report.step == whole.report.step
    assert [report.objective for report in resumed.history] == [report.objective for report in whole.history]
    assert sum(sum(report.staleness_counts) for report in resumed.history) == resumed.history[-1].step
    np.testing.assert_array_equal(resumed.metric.components, whole.metric.components)


def test_of_reports_without_an_objective_none_is_the_best():
    X = np.array([[0.0], [0.001], [100.0], [100.001]] * 20)
    anchors = np.arange(0, 80, 4)
    triplets = nf.Comparisons(np.stack([anchors, anchors + 1, anchors + 2], axis=1))
    settings = nf.TrainingSettings(patience=1, held_out=0, batch_size=10, report_every=2, scale_features=False)
    result = nf.train(X, triplets, settings, start=np.eye(1))
    assert result.report.has_objective
    assert result.report.objective == 0


def test_a_run_that_still_goes_on_is_not_resumed_beside_it(digits, tmp_path):
    settings = nf.TrainingSettings(steps=30, block_size=100)
    refused = []

    def resume(report):
        with pytest.raises(InvalidRun, match="another process"):
            nf.train(*digits, settings, run=tmp_path / "run", resume=True)
        refused.append(report.step)

    whole = nf.train(*digits, settings, run=tmp_path / "run", on_report=[resume])
    assert refused[-1] == 30
    assert whole.history == list(RunFolder(tmp_path / "run").reports())
    nf.train(*digits, settings, run=tmp_path / "run", resume=True)


def test_a_run_whose_description_cannot_be_written_leaves_no_folder(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "describe", fail)
    with pytest.raises(KeyboardInterrupt):
        nf.train(*digits, nf.TrainingSettings(steps=3), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_scale_of_features_is_folded_into_the_metric(digits):
    X, y = digits
    scales = 10 ** np.random.default_rng(0).uniform(-3, 3, X.shape[1])
    settings = nf.TrainingSettings(steps=50, block_size=200, start="identity")
    plain, scaled = nf.train(X, y, settings).metric, nf.train(X * scales, y, settings).metric
    near, far = plain.distance(X[:100], X[100:200]), scaled.distance(X[:100] * scales, X[100:200] * scales)
    assert np.corrcoef(near, far)[0, 1] > 0.9


def test_centre_moves_the_transform_and_no_distance(digits):
    X, y = digits
    settings = {"steps": 20, "block_size": 100}
    plain = nf.train(X, y, nf.TrainingSettings(**settings)).metric
    centred = nf.train(X, y, nf.TrainingSettings(centre=True, **settings)).metric
    np.testing.assert_array_equal(plain.components, centred.components)
    assert abs(centred.transform(X).mean(axis=0)).max() < 1e-3 < abs(plain.transform(X).mean(axis=0)).max()
    np.testing.assert_allclose(plain.distance(X[:9], X[9:18]), centred.distance(X[:9], X[9:18]), rtol=1e-5)


@pytest.mark.parametrize("start", ["random", "identity", "pca"])
def test_every_start_learns(digits, start):
    result = nf.train(*digits, nf.TrainingSettings(steps=100, block_size=200, start=start))
    assert result.report.ap > 0.95


def test_the_report_is_that_of_the_metric_that_is_kept(digits):
    result = nf.train(*digits, nf.TrainingSettings(block_size=200))
    assert result.report.objective <= min(report.objective for report in result.history) * 1.002
    assert result.metric.threshold is not None
    assert result.metric.threshold > 0


@pytest.mark.parametrize(
    ("given", "spaced_out"), [({}, True), ({"report_every": 20}, False), ({"patience": 1000}, False)]
)
def test_reports_come_further_apart_unless_they_were_asked_for_or_decide(given, spaced_out, digits):
    history = nf.train(*digits, nf.TrainingSettings(rank=4, block_size=50, steps=3000, held_out=100, **given)).history
    apart = np.diff([report.step for report in history])
    assert (apart[:-1].max() > apart[0]) == spaced_out
    assert all(gap <= max(apart[0], report.step / 25) for gap, report in zip(apart, history, strict=False))
    assert history[-1].step == 3000
