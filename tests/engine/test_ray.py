"""The Ray engine, on a real cluster of this machine."""

import contextlib
import os
import signal
import subprocess
import threading
import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import ray
import scipy.sparse as sp
from benchmarks.serial import serial_job
from benchmarks.soak import actors

import nearfar as nf
from nearfar.data.dataset import write_dataset
from nearfar.data.from_labels import draw_pairs
from nearfar.data.points import as_points
from nearfar.data.sampling import BlockSampler
from nearfar.engine.ray_cluster import cluster
from nearfar.engine.ray_cluster.mirror import Mirror
from nearfar.engine.ray_cluster.server_group import ServerGroup
from nearfar.engine.ray_cluster.wire import nothing, send
from nearfar.errors import Diverged, InvalidFile, InvalidSettings, TrainingFailed
from nearfar.model.run import RunFolder
from nearfar.objective.losses import Hinge
from tests.commands import running, wait_until
from tests.parameter_server.stepping import push_of

pytestmark = pytest.mark.usefixtures("ray_cluster")


def train(X, y, options: nf.RayOptions | None = None, **settings: object) -> nf.TrainingResult:
    chosen = nf.TrainingSettings(**{"steps": 40, "block_size": 200, "seed": 3, "workers": 2} | settings)
    return nf.train(X, y, chosen, engine=nf.RayEngine(options))


@pytest.mark.parametrize("servers", [1, 2])
def test_in_step_it_learns_what_threads_do(servers, digits):
    X, y = digits
    on_ray = train(X, y, nf.RayOptions(servers=servers), consistency="bsp")
    settings = nf.TrainingSettings(steps=40, block_size=200, seed=3, workers=2, consistency="bsp")
    in_threads = nf.train(X, y, settings, engine="threads")
    np.testing.assert_allclose(on_ray.metric.components, in_threads.metric.components, rtol=1e-4, atol=1e-6)
    assert on_ray.history[-1].objective == pytest.approx(in_threads.history[-1].objective, rel=1e-5)


@pytest.fixture
def two_servers():
    draws = nf.LabelDraws(nf.Labels(np.arange(8) % 2))
    points, sampler = as_points(np.ones((8, 6), np.float32)), BlockSampler(draws, 4, 2, n_shards=1, seed=0)
    job = serial_job(points, sampler, Hinge(margin=1.0), np.zeros((6, 2), np.float32), step_size=0.5)
    mirror = Mirror(job.server)
    mirror.keep_cut()
    servers = ServerGroup(job, nf.RayOptions(servers=2), mirror)
    servers.place()
    servers.begin({0: 0})
    yield servers, mirror
    servers.end()


def push_to(servers: ServerGroup, number: int, which: tuple[int, ...] = (0, 1)) -> None:
    whole = replace(push_of(np.ones((6, 2)), number=number), release=nothing)
    for i in which:
        ray.get(servers.handles[i].push.remote(0, send(whole, servers.ranges[i], "float32"), 0))


def test_what_is_judged_while_a_server_is_lost_is_no_mixture_of_old_rows_and_new(two_servers):
    servers, mirror = two_servers
    push_to(servers, 0)
    servers.refresh()
    seen = mirror.local.Lt.copy()
    assert (seen < 0).all()
    push_to(servers, 1)
    ray.kill(servers.handles[1])
    servers.refresh()
    np.testing.assert_array_equal(mirror.local.Lt, seen)


def test_of_a_worker_that_is_gone_those_pushes_count_that_every_server_took(two_servers):
    """It died with two under way, and each server got another one of them; a third one was overtaken."""
    servers, _ = two_servers
    for number, which in ((0, (0, 1)), (1, (0,)), (2, (1,)), (3, (0, 1))):
        push_to(servers, number, which)
    assert servers.leave(0) == (2, 2)
    complete, deadline = [], time.monotonic() + 30
    while len(complete) < 2 and time.monotonic() < deadline:
        ready, _ = ray.wait(list(servers.asked), num_returns=1)
        complete += servers.answered(ready[0])
    assert [one.push.number for one in complete] == [0, 3]


@pytest.mark.parametrize("consistency", ["asp", "bsp"])
def test_to_diverge_is_no_loss_of_a_server(consistency, digits):
    with pytest.raises(Diverged, match="lower step_size"):
        train(*digits, step_size=1e30, update_rule="sgd", steps=400, consistency=consistency)


@dataclass(frozen=True)
class FailsInItsSixthStep(Hinge):
    """In so many of the workers that take one."""

    marks: Path = Path()
    times: int = 1
    driver: int = field(default_factory=os.getpid)
    steps: list[int] = field(default_factory=list)

    def similar(self, s):
        if os.getpid() != self.driver:
            self.steps.append(len(s))
            if len(self.steps) == 6:
                self._fail()
        return super().similar(s)

    def _fail(self) -> None:
        for i in range(self.times):
            with contextlib.suppress(FileExistsError):
                (self.marks / str(i)).touch(exist_ok=False)
                raise ArithmeticError("now")


@pytest.mark.parametrize("workers", [2, 3])
def test_in_step_the_last_steps_are_taken_by_who_is_left(workers, digits, tmp_path):
    """All but one have a step in the last round, and fail in it; the last one is to take theirs nevertheless."""
    X, y = digits
    pairs = draw_pairs(nf.LabelDraws(nf.Labels(y)), 200, 200)
    settings = nf.TrainingSettings(steps=6 * workers - 1, workers=workers, consistency="bsp", batch_size=50)
    loss = FailsInItsSixthStep(marks=tmp_path, times=workers - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        last = nf.train(X, pairs, settings, loss=loss, engine=nf.RayEngine()).history[-1]
    assert len(list(tmp_path.iterdir())) == workers - 1
    assert [worker["steps"] for worker in last.workers] == [5] * (workers - 1) + [5 + workers - 1]
    assert last.step == settings.steps


def test_sparse_points_and_three_servers(digits):
    X, y = digits
    wide = sp.hstack((sp.csr_matrix(X.astype(np.float32)), sp.csr_matrix((len(X), 500), dtype=np.float32))).tocsr()
    result = train(wide, y, nf.RayOptions(servers=3), consistency="ssp:3")
    last = result.history[-1]
    assert last.step == 40
    assert last.forms == {"columns": 40}
    assert last.bytes / 40 < 4 * 64 * 256 * 1.1  # the touched features alone
    assert last.pulled_bytes / 40 < 4 * 64 * 256 * 1.2
    assert last.ap > result.history[0].ap


def test_factors_travel_at_a_declared_bandwidth(digits):
    X, y = digits
    pairs = nf.draw_pairs(nf.LabelDraws(nf.Labels(y)), 500, 500, seed=0)
    wide = np.random.default_rng(0).normal(size=(64, 2000)).astype(np.float32)
    settings = {"batch_size": 16, "rank": 64, "steps": 20, "consistency": "bsp"}
    slow = train(X @ wide, pairs, nf.RayOptions(bandwidth=0.1), **settings).history[-1]
    fast = train(X @ wide, pairs, nf.RayOptions(bandwidth=1e6), **settings).history[-1]
    assert (slow.forms, fast.forms) == ({"factors": 20}, {"dense": 20})
    assert fast.bytes > 3 * slow.bytes
    assert slow.objective == pytest.approx(fast.objective, rel=1e-3)


def test_bfloat16_halves_what_travels_and_still_learns(digits):
    full, half = (train(*digits, nf.RayOptions(wire=wire), consistency="bsp") for wire in ("float32", "bfloat16"))
    assert half.history[-1].bytes == full.history[-1].bytes / 2
    assert half.history[-1].objective == pytest.approx(full.history[-1].objective, rel=0.02)


def test_what_cannot_be_placed_is_an_error_in_time(digits, tmp_path):
    engine = nf.RayEngine(nf.RayOptions(cpus_per_worker=64, start_timeout=8))
    with pytest.raises(TrainingFailed, match=r"1 of 1 workers could not be placed within 8 s: the cluster has 8 CPUs"):
        nf.train(*digits, nf.TrainingSettings(steps=40, workers=1), engine=engine, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()  # the same may be tried again


def test_it_begins_with_fewer_workers_where_that_is_allowed(digits):
    result = train(*digits, nf.RayOptions(min_workers=1, cpus_per_worker=5), steps=30)
    assert result.history[-1].step == 30
    assert len(result.history[-1].workers) == 1


def test_points_on_disk_are_read_by_the_workers(digits, tmp_path):
    X, y = digits
    np.save(tmp_path / "X.npy", X)
    result = train(np.load(tmp_path / "X.npy", mmap_mode="r"), y, steps=20)
    assert result.history[-1].step == 20


def test_options_of_a_cluster_are_refused_elsewhere(tmp_path, digits, capsys):
    from nearfar.cli import main
    from nearfar.data.dataset import write_dataset

    write_dataset(tmp_path / "data", digits[0].astype(np.float32), digits[1])
    with pytest.raises(SystemExit) as ended:
        main(["train", str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--servers", "2"])
    assert ended.value.code == 2
    assert "add --engine ray" in capsys.readouterr().err


def test_a_signal_saves_the_run_which_then_goes_on(digits, tmp_path):
    write_dataset(tmp_path / "digits", digits[0].astype(np.float32), digits[1])
    training = ["train", tmp_path / "digits", "--out", tmp_path / "run", "--engine", "ray", "--workers", "2"]
    with running(*training, "--steps", "1000000", stdout=subprocess.PIPE) as begun:
        wait_until(lambda: len(list(RunFolder(tmp_path / "run").reports())) > 3, begun)
        begun.send_signal(signal.SIGTERM)
        out, _ = begun.communicate(timeout=120)
    assert begun.returncode == 130
    assert "saved; go on with the same command and --resume" in out
    newest = RunFolder(tmp_path / "run").checkpoints(3).newest()
    assert newest is not None
    assert f"stopped at step {newest.step}," in out


def test_several_threads_a_worker_are_refused():
    with pytest.raises(InvalidSettings, match="one computing thread a worker"):
        nf.TrainingSettings(engine="ray", threads_per_worker=2)


def test_every_worker_failing_is_an_error_with_its_cause(digits, tmp_path):
    X, y = digits
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (tmp_path / "X.npy").unlink()  # still mapped here; gone for everybody else
        with pytest.raises((InvalidFile, TrainingFailed), match="is not there on this node"):
            train(mapped, y, steps=20)


class Stubborn:
    """Has a call that never ends."""

    def ready(self) -> bool:
        return True

    def wait(self) -> None:
        threading.Event().wait()


def test_what_is_ended_is_dead_before_it_is_forgotten(monkeypatch):
    """Else the process would go on until its last call has ended. A kill takes its time to arrive."""
    kill = ray.kill
    monkeypatch.setattr(ray, "kill", lambda actor: threading.Timer(0.5, kill, [actor]).start())
    actor = ray.remote(max_concurrency=2)(Stubborn).remote()
    ray.get(actor.ready.remote())
    waits = actor.wait.remote()
    cluster.end([actor])
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(waits, timeout=0)
    del actor, waits
    deadline = time.monotonic() + 10
    while actors("Stubborn"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
