"""Steps gathered ahead are the steps gathered in turn, and none is lost when computing ends early or fails."""

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf
from nearfar.data.points import as_points
from nearfar.data.sampling import Block, BlockSampler
from nearfar.engine import steps as steps_module
from nearfar.engine.steps import StepsAhead, StepsInTurn, steps_of
from nearfar.errors import InvalidPoints
from nearfar.objective.fast_gradient import Gatherer
from nearfar.parameter_server.worker import Shard, Worker

LABELS = np.arange(200) % 4
RANK = 3


@pytest.fixture
def points():
    return as_points(np.random.default_rng(0).normal(size=(200, 30)).astype(np.float32))


@pytest.fixture
def worker():
    sampler = BlockSampler(nf.LabelDraws(nf.Labels(LABELS)), 40, 10, n_shards=3, seed=0)
    return Worker(0, sampler, [Shard(number) for number in range(3)], np.empty((30, RANK), np.float32), None, slots=1)


def positions(worker) -> list[int]:
    return [shard.clock for shard in worker.shards]


def test_ahead_and_in_turn_give_the_same_steps(points, worker):
    in_turn = StepsInTurn(worker, Gatherer(points, RANK))
    seen = []
    with in_turn:
        for _ in range(20):
            step = in_turn.next()
            seen.append((step.task, step.gathered.rows.copy()))
            in_turn.done(step)
    for shard in worker.shards:
        shard.clock = 0
    with StepsAhead(worker, [Gatherer(points, RANK) for _ in range(2)]) as ahead:
        for i, (task, rows) in enumerate(seen):
            step = ahead.next()
            assert (step.task.shard, step.task.shard_clock) == (task.shard, task.shard_clock)
            assert step.task.clock == task.clock + len(seen), i
            np.testing.assert_array_equal(step.gathered.rows, rows)
            ahead.done(step)


@pytest.mark.parametrize("n_done", [0, 1, 5])
def test_what_was_begun_and_not_computed_is_given_back(points, worker, n_done):
    for make in (lambda: StepsInTurn(worker, Gatherer(points, RANK)),
                 lambda: StepsAhead(worker, [Gatherer(points, RANK) for _ in range(3)])):  # fmt: skip
        for shard in worker.shards:
            shard.clock = 0
        with make() as steps:
            for _ in range(n_done):
                steps.done(steps.next())
            steps.next()
        assert sum(positions(worker)) == n_done


def test_an_error_while_gathering_reaches_the_computing_thread(worker):
    class Broken:
        def rows_of(self, batch: Block):
            raise InvalidPoints("the disk is gone")

    with StepsAhead(worker, [Broken(), Broken()]) as steps, pytest.raises(InvalidPoints, match="the disk is gone"):
        steps.next()
    assert sum(positions(worker)) == 0


def test_only_large_files_are_read_ahead(points, worker, tmp_path, monkeypatch):
    assert isinstance(steps_of(worker, points, RANK), StepsInTurn)
    np.save(tmp_path / "points.npy", np.zeros((200, 30), np.float32))
    mapped = as_points(np.load(tmp_path / "points.npy", mmap_mode="r"))
    assert mapped.mapped_bytes == 200 * 30 * 4
    assert mapped.scaled(np.ones(30)).mapped_bytes == mapped.chosen(np.arange(5)).mapped_bytes == 24_000
    assert points.mapped_bytes == as_points(sp.csr_matrix(np.eye(5))).mapped_bytes == 0
    assert isinstance(steps_of(worker, mapped, RANK), StepsInTurn)
    monkeypatch.setattr(steps_module, "_WORTH_A_THREAD", 1)
    assert isinstance(steps_of(worker, mapped, RANK), StepsAhead)


@pytest.mark.parametrize("options", [{}, {"workers": 2, "consistency": "bsp"}], ids=["serial", "bsp"])
def test_training_from_disk_ahead_is_bit_for_bit_training_in_turn(options, tmp_path, monkeypatch, digits):
    X, labels = digits
    np.save(tmp_path / "points.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    settings = nf.TrainingSettings(rank=8, steps=30, **options)
    in_turn = nf.train(mapped, labels, settings).metric.components
    monkeypatch.setattr(steps_module, "_WORTH_A_THREAD", 1)
    np.testing.assert_array_equal(nf.train(mapped, labels, settings).metric.components, in_turn)
