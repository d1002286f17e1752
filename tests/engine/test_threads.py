"""The threads engine: its asynchrony is real, its bounds hold, and a worker that raises does not hang the others."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf
from nearfar import cost
from nearfar.engine.threads import ThreadsEngine
from nearfar.errors import InvalidSettings, WorkerFailed
from nearfar.model import training
from nearfar.objective.fast_gradient import Gatherer
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.worker import Worker
from tests.commands import wait_until


class Recorder:
    """Counts the steps that each worker computes, and lets a test slow, hold up or break one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = {0: 0, 1: 0}
        self.workers: dict[int, Worker] = {}
        self.ahead = 0
        self.slow: dict[int, float] = {}
        self.held: dict[int, tuple[int, Callable[[], bool]]] = {}
        """How many steps a worker takes before it waits, and for what."""
        self.broken: dict[int, int] = {}
        self.have_broken: set[int] = set()
        compute = Worker.compute

        def recorded(worker, task, gathered, kernel, server, step_size):
            self.workers[worker.number] = worker
            time.sleep(self.slow.get(worker.number, 0.0))
            first, condition = self.held.get(worker.number, (10**9, bool))
            if self.steps[worker.number] >= first:
                wait_until(condition)
            if self.steps[worker.number] >= self.broken.get(worker.number, 10**9):
                self.have_broken.add(worker.number)
                raise MemoryError("no room left")
            push = compute(worker, task, gathered, kernel, server, step_size)
            self.steps[worker.number] += 1
            self.ahead = max(self.ahead, abs(self.steps[0] - self.steps[1]))
            return push

        monkeypatch.setattr(Worker, "compute", recorded)


@pytest.fixture
def recorder(monkeypatch):
    return Recorder(monkeypatch)


def settings_of(consistency: str, **more: object) -> nf.TrainingSettings:
    return nf.TrainingSettings(
        **{"engine": "threads", "workers": 2, "consistency": consistency, "steps": 60, "block_size": 60} | more
    )


class PausedServer:
    """Holds the update thread back until the workers have got as far ahead as is expected, and a little longer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, recorder: Recorder, expected: dict[int, int]) -> None:
        self.steps_while_paused: dict[int, int] = {}
        self.copies: list[np.ndarray] = []
        update = Server.update
        paused = threading.Event()

        def held_back(server, timeout=0, *, then=0.0):
            if not paused.is_set():
                paused.set()
                wait_until(lambda: all(recorder.steps[worker] >= steps for worker, steps in expected.items()))
                time.sleep(0.3)  # in which none may go on
                self.steps_while_paused = dict(recorder.steps)
                self.copies = [worker.local.copy() for worker in recorder.workers.values()]
                assert server.version == 0
            return update(server, timeout, then=then)

        monkeypatch.setattr(Server, "update", held_back)


def test_with_the_update_thread_paused_asp_workers_go_on_and_their_copies_differ(monkeypatch, recorder, digits):
    as_many_as_there_is_room_for = {0: 8, 1: 8}
    paused = PausedServer(monkeypatch, recorder, as_many_as_there_is_room_for)
    nf.train(*digits, settings_of("asp", queue_capacity=8))
    assert paused.steps_while_paused == as_many_as_there_is_room_for
    assert not np.array_equal(*paused.copies)


@pytest.mark.parametrize(("consistency", "most"), [("bsp", 1), ("ssp:2", 3)])
def test_with_the_update_thread_paused_bounded_workers_stop_exactly_at_the_bound(
    monkeypatch, recorder, digits, consistency, most
):
    paused = PausedServer(monkeypatch, recorder, {0: most, 1: most})
    nf.train(*digits, settings_of(consistency))
    assert paused.steps_while_paused == {0: most, 1: most}


@pytest.mark.parametrize(("consistency", "most"), [("bsp", 1), ("ssp:2", 3)])
def test_a_fast_worker_is_held_to_the_bound(recorder, digits, consistency, most):
    recorder.slow = {1: 0.01}
    recorder.held = {1: (10, lambda: recorder.steps[0] >= 10 + most)}
    nf.train(*digits, settings_of(consistency))
    assert recorder.ahead == most


def test_a_slow_worker_does_not_slow_asynchronous_ones(recorder, digits):
    recorder.held = {1: (5, lambda: recorder.steps[0] >= 150)}
    nf.train(*digits, settings_of("asp", steps=200))
    assert recorder.steps[0] >= 150
    assert sum(recorder.steps.values()) == 200


@pytest.mark.parametrize("consistency", ["asp", "ssp:2", "bsp"])
def test_a_worker_that_raises_leaves_its_shards_to_the_others(recorder, digits, consistency):
    recorder.broken = {1: 5}
    recorder.held = {0: (20, lambda: 1 in recorder.have_broken)}
    with pytest.warns(RuntimeWarning, match=r"worker 1 failed \(MemoryError: no room left\); its shards go to the 1"):
        result = nf.train(*digits, settings_of(consistency))
    assert recorder.steps[1] == 5
    assert result.history[-1].step == 60
    assert {shard.number for shard in recorder.workers[0].shards} == set(range(8))


@pytest.mark.parametrize("consistency", ["asp", "bsp"])
def test_when_all_workers_are_gone_the_run_ends_with_the_first_error(recorder, digits, consistency):
    recorder.broken = {0: 3, 1: 3}
    with pytest.warns(RuntimeWarning), pytest.raises(WorkerFailed, match="no room left") as caught:
        nf.train(*digits, settings_of(consistency))
    assert isinstance(caught.value.__cause__, MemoryError)


def test_where_not_all_threads_can_be_started_none_is_left_behind(monkeypatch, digits):
    start, before = threading.Thread.start, set(threading.enumerate())

    def start_one(thread):
        if thread.name == "worker 1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    with pytest.raises(RuntimeError, match="can't start"):
        nf.train(*digits, nf.TrainingSettings(workers=2, steps=100_000, block_size=100))
    assert set(threading.enumerate()) <= before


def test_no_thread_is_left_behind(digits):
    before = set(threading.enumerate())
    nf.train(*digits, settings_of("asp"))
    assert set(threading.enumerate()) <= before


def test_every_batch_of_every_shard_is_applied_once(monkeypatch, digits):
    seen: list[tuple[int, int]] = []
    update = Server.update

    def recorded(server, timeout=0, *, then=0.0):
        applied = update(server, timeout, then=then)
        seen.extend((one.push.shard, one.push.shard_clock) for one in applied)
        return applied

    monkeypatch.setattr(Server, "update", recorded)
    nf.train(*digits, settings_of("asp", steps=400, workers=3))
    assert len(seen) == len(set(seen)) == 400
    for shard in range(12):
        clocks = sorted(clock for number, clock in seen if number == shard)
        assert clocks == list(range(len(clocks)))


def test_training_uses_it_for_several_workers():
    assert training._ENGINES[nf.TrainingSettings(workers=2).chosen_engine] is ThreadsEngine


@pytest.mark.parametrize(("far", "consistency"), [(0, "asp"), (0, "ssp:2"), (1 << 40, "asp")])
def test_pushes_go_in_pairs_where_memory_is_far_and_nobody_waits_for_them(far, consistency, digits, monkeypatch):
    waits, update = set(), Server.update

    def noted(server, timeout, *, then=0.0):
        waits.add(then > 0)
        return update(server, timeout, then=then)

    monkeypatch.setattr(Server, "update", noted)
    monkeypatch.setattr(cost, "_FAR", far)
    result = nf.train(*digits, settings_of(consistency))
    assert result.history[-1].step == 60
    assert waits == {far == 0 and consistency == "asp"}


@pytest.mark.parametrize(("far", "consistency"), [(0, "asp"), (0, "bsp"), (1 << 40, "asp")])
def test_batches_that_need_most_of_a_far_metric_read_the_servers_packed_copies(far, consistency, monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    X = sp.csr_matrix(rng.random((600, 60)) < np.where(np.arange(60) % 3 == y[:, None], 0.3, 0.02), dtype=np.float32)
    copied, read, pull, packed = [], [], Server.pull, Server.packed

    def seen(server, copies):
        read.append(server.version)
        return packed(server, copies)

    def noted(server, features, local, known):
        copied.append(len(features))
        return pull(server, features, local, known)

    monkeypatch.setattr(Server, "pull", noted)
    monkeypatch.setattr(Server, "packed", seen)
    monkeypatch.setattr(cost, "_FAR", far)
    history = nf.train(X, y, settings_of(consistency, rank=16, block_size=400)).history
    assert history[-1].objective < 0.8 * history[0].objective
    shares = far == 0 and consistency == "asp"
    assert (not copied, bool(read)) == (shares, shares)


@pytest.mark.parametrize(
    ("consistency", "threads", "steps"), [("bsp", 2, 5), ("bsp", 2, 6), ("ssp:1", 3, 7), ("ssp:1", 2, 7)]
)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("engine", ["threads", "simulated"])
def test_threads_of_a_worker_that_wait_for_each_other_all_end_with_the_budget(
    digits, engine, workers, consistency, threads, steps
):
    settings = settings_of(consistency, engine=engine, workers=workers, threads_per_worker=threads, steps=steps)
    assert nf.train(*digits, settings).history[-1].step == steps


@pytest.mark.parametrize("consistency", ["bsp", "ssp:1"])
def test_of_a_worker_whose_thread_raises_no_other_thread_waits_for_ever(recorder, digits, consistency):
    recorder.broken = {1: 5}
    recorder.held = {0: (20, lambda: 1 in recorder.have_broken)}
    with pytest.warns(RuntimeWarning, match="worker 1 failed"):
        result = nf.train(*digits, settings_of(consistency, threads_per_worker=2))
    assert result.history[-1].step >= 50


def test_a_gradient_is_applied_although_the_next_batch_cannot_be_gathered(monkeypatch, digits):
    gathered = {"worker 0": 0, "worker 1": 0}
    rows_of = Gatherer.rows_of

    def broken(gatherer, batch):
        name = threading.current_thread().name
        if name in gathered:
            gathered[name] += 1
        if (name, gathered.get(name)) == ("worker 1", 4):
            raise OSError("the disk is gone")
        if (name, gathered.get(name)) == ("worker 0", 50):
            wait_until(lambda: gathered["worker 1"] >= 4)
        return rows_of(gatherer, batch)

    monkeypatch.setattr(Gatherer, "rows_of", broken)
    with pytest.warns(RuntimeWarning, match="worker 1 failed"):
        result = nf.train(*digits, settings_of("asp", steps=200))
    assert result.history[-1].step == 200
    assert next(one["steps"] for one in result.history[-1].workers if one["worker"] == 1) == 3


@pytest.mark.parametrize("engine", ["threads", "simulated"])
def test_more_workers_than_constraints_are_refused(digits, engine):
    X = digits[0]
    pairs = nf.Pairs(np.array([[0, 1], [2, 3], [4, 5]]), np.array([[0, 5], [1, 4], [2, 6], [3, 7]]))
    settings = nf.TrainingSettings(engine=engine, workers=4, steps=8)
    with pytest.raises(InvalidSettings, match="workers is 4, but there are only 3 pairs of one kind to learn from"):
        nf.train(X, pairs, settings)
    assert nf.train(X, pairs, replace(settings, workers=3)).history[-1].step == 8
