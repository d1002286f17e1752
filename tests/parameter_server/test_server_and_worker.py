"""Server and workers, stepped by hand: what the paper's section 4 promises, message by message."""

import dataclasses
import math
import random
from collections import defaultdict

import numpy as np
import pytest

from nearfar.errors import Diverged
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import UpdateRule
from tests.parameter_server.stepping import STEP_SIZE, D, K, push_of, stepped_cluster

ALL = np.arange(D, dtype=np.int32)


def test_with_the_update_side_paused_asynchronous_workers_go_on_and_their_copies_differ() -> None:
    cluster = stepped_cluster(slack=math.inf)
    start = cluster.server.Lt.copy()
    for _ in range(5):
        for worker in (0, 1):
            assert cluster.clocks.may_begin(cluster.workers[worker].clock)
            cluster.compute(worker)
    np.testing.assert_array_equal(cluster.server.Lt, start)
    assert cluster.server.version == 0
    first, second = (worker.local for worker in cluster.workers)
    assert not np.array_equal(first, start)
    assert not np.array_equal(second, start)
    assert not np.array_equal(first, second)
    assert cluster.server.waiting == 10


@pytest.mark.parametrize("slack", [0, 2])
def test_with_the_update_side_paused_bounded_workers_stop_exactly_at_the_bound(slack: int) -> None:
    cluster = stepped_cluster(slack)
    steps = 0
    while cluster.clocks.may_begin(cluster.workers[0].clock):
        cluster.compute(0)
        steps += 1
        assert steps < 50
    assert steps == slack + 1


def test_in_step_nobody_is_ahead_and_a_round_is_applied_whole() -> None:
    cluster = stepped_cluster(slack=0)
    cluster.compute(0)
    assert cluster.server.update() == []
    assert cluster.server.version == 0
    cluster.compute(1)
    assert [applied.push.worker for applied in cluster.server.update()] == [0, 1]
    assert cluster.server.version == 2


def test_a_worker_that_dies_inside_a_round_does_not_hold_up_the_others() -> None:
    cluster = stepped_cluster(slack=0, n_workers=3)
    cluster.compute(0)
    cluster.compute(2)
    assert cluster.server.update() == []
    cluster.clocks.leave(1)
    assert [applied.push.worker for applied in cluster.server.update()] == [0, 2]
    assert cluster.clocks.may_begin(cluster.workers[0].clock)


def test_what_waits_is_applied_in_one_pass_and_published_once() -> None:
    cluster = stepped_cluster(slack=math.inf, rule="adam")
    for _ in range(3):
        cluster.compute(0)
    assert [applied.waiting for applied in cluster.server.update()] == [3, 3, 3]
    assert cluster.server.version == 3
    assert cluster.server.update() == []


def test_staleness_counts_the_versions_in_between() -> None:
    cluster = stepped_cluster(slack=math.inf)
    cluster.compute(0)
    cluster.compute(0)
    cluster.compute(1)
    assert [applied.staleness for applied in cluster.server.update()] == [0, 1, 2]
    cluster.compute(0)
    assert [applied.staleness for applied in cluster.server.update()] == [0]


def test_a_pull_replaces_the_local_copy_by_the_newest_version() -> None:
    cluster = stepped_cluster(slack=math.inf)
    for _ in range(3):
        cluster.compute(0)
        cluster.server.update()
    cluster.compute(1)
    worker = cluster.workers[1]
    known = np.full(D, -1, np.int64)
    fresh = np.empty_like(worker.local)
    assert cluster.server.pull(ALL, fresh, known) == 3
    np.testing.assert_array_equal(fresh, cluster.server.Lt)
    np.testing.assert_array_equal(known, 3)


def test_a_pull_names_the_features_it_wants_and_copies_only_what_changed() -> None:
    cluster = stepped_cluster(slack=math.inf)
    server = cluster.server
    local, known = np.zeros((D, K), np.float32), np.full(D, -1, np.int64)
    server.pull(np.array([1, 4], np.int32), local, known)
    np.testing.assert_array_equal(local[[1, 4]], server.Lt[[1, 4]])
    np.testing.assert_array_equal(local[[0, 2, 3, 5]], 0)
    local[:] = 7
    server.pull(ALL, local, known)
    np.testing.assert_array_equal(local[[1, 4]], 7)  # unchanged at the server since, so the worker's own rows stay
    np.testing.assert_array_equal(local[[0, 2, 3, 5]], server.Lt[[0, 2, 3, 5]])


def test_a_push_that_comes_again_is_applied_once() -> None:
    clocks = Clocks(math.inf)
    clocks.join(0)
    server = Server(np.zeros((2, 2), np.float32), UpdateRule("sgd", 2, 2), clocks, lambda v: 1.0, capacity=10)
    for number in (0, 1, 1, 0, 2):
        server.receive(push_of(np.full((2, 2), -1.0), number=number))
    server.update()
    np.testing.assert_array_equal(server.Lt, 3)
    assert server.repeats == 2
    assert server.version == 3


def test_pushes_that_overtake_each_other_are_all_applied_once() -> None:
    clocks = Clocks(math.inf)
    clocks.join(0)
    server = Server(np.zeros((2, 2), np.float32), UpdateRule("sgd", 2, 2), clocks, lambda v: 1.0, capacity=10)
    for number in (1, 0, 4, 2, 4, 3, 0, 1):
        server.receive(push_of(np.full((2, 2), -1.0), number=number))
        server.update()
    np.testing.assert_array_equal(server.Lt, 5)
    assert server.repeats == 3


def test_staleness_scaling_shortens_stale_steps() -> None:
    clocks = Clocks(math.inf)
    clocks.join(0)
    server = Server(
        np.zeros((1, 1), np.float32), UpdateRule("sgd", 1, 1), clocks, lambda v: 1.0, capacity=10,
        staleness_scaling=True,
    )  # fmt: skip
    for number in range(3):
        server.receive(push_of(np.full((1, 1), -1.0), number=number, version=0))
    server.update()
    assert server.Lt[0, 0] == pytest.approx(1 + 1 / 2 + 1 / 3)


def test_memory_under_way_is_bounded_and_given_back() -> None:
    cluster = stepped_cluster(slack=math.inf, n_workers=1, slots=3)
    for _ in range(3):
        cluster.compute(0)
    assert cluster.workers[0]._free.empty()
    cluster.server.update()
    assert cluster.workers[0]._free.qsize() == 3


def test_after_the_server_went_back_pushes_are_counted_from_0() -> None:
    cluster = stepped_cluster(slack=math.inf)
    numbers = []
    for _ in range(2):
        cluster.workers[0].forget()
        for _ in range(3):
            cluster.compute(0)
        numbers.append([applied.push.number for applied in cluster.server.update()])
        cluster.server = Server(cluster.server.Lt, cluster.server.rule, cluster.clocks, lambda _: STEP_SIZE, capacity=8)
    assert numbers == [[0, 1, 2], [0, 1, 2]]


def test_a_failed_step_is_done_again_by_who_takes_the_shard_over() -> None:
    cluster = stepped_cluster(slack=math.inf)
    gone, other = cluster.workers
    task = gone.begin()
    gone.abandon(task)
    other.shards = []
    other.take_over(gone.shards)
    again = other.begin()
    assert (again.shard, again.shard_clock) == (task.shard, task.shard_clock)
    np.testing.assert_array_equal(again.batch.indices, task.batch.indices)


def test_an_objective_that_is_not_finite_stops_the_server_before_the_metric_changes() -> None:
    cluster = stepped_cluster(slack=math.inf)
    before = cluster.server.Lt.copy()
    cluster.workers[0].remote_update(cluster.server, cluster.gatherer.rows_of(cluster.workers[0].begin().batch))
    cluster.workers[0].local[:] = np.nan
    cluster.compute(0)
    with pytest.raises(Diverged, match="step_size"):
        cluster.server.update()
    np.testing.assert_array_equal(cluster.server.Lt, before)


def test_no_push_is_lost_or_applied_twice_in_100_000_messages_under_random_delays() -> None:
    """Messages are delayed, reordered between workers, and some are sent twice; each counts exactly once."""
    rng = random.Random(0)
    n_workers, n_messages = 8, 100_000
    clocks = Clocks(math.inf)
    for worker in range(n_workers):
        clocks.join(worker)
    server = Server(np.zeros((1, 1), np.float64), UpdateRule("sgd", 1, 1), clocks, lambda v: 1.0, capacity=64)
    sent, seen = [0] * n_workers, defaultdict(list)
    on_the_way: dict[int, list] = {worker: [] for worker in range(n_workers)}
    repeats = total = 0
    while total < n_messages or any(on_the_way.values()) or server.waiting:
        worker = rng.randrange(n_workers)
        if total < n_messages and rng.random() < 0.6:
            push = push_of(np.full((1, 1), -1.0), worker=worker, number=sent[worker])
            on_the_way[worker].append(push)
            sent[worker] += 1
            total += 1
            if rng.random() < 0.05:
                on_the_way[worker].append(push)
                repeats += 1
        while on_the_way[worker] and rng.random() < 0.7 and server.receive(on_the_way[worker][0], timeout=0):
            on_the_way[worker].pop(0)
        if rng.random() < 0.1:
            for applied in server.update():
                seen[applied.push.worker].append(applied.push.number)
    assert server.version == n_messages
    assert server.Lt[0, 0] == n_messages
    assert server.repeats == repeats > 1000
    assert all(seen[worker] == list(range(sent[worker])) for worker in range(n_workers))


@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_two_servers_that_own_a_range_each_do_what_one_does(rule: str) -> None:
    cluster = stepped_cluster(slack=math.inf, n_workers=1, rule=rule)
    whole, cut = cluster.server, 2
    halves = [
        Server(
            whole.Lt[first:last].copy(), UpdateRule(rule, last - first, K), Clocks(math.inf), lambda version: STEP_SIZE,
            capacity=8, first_feature=first,
        )
        for first, last in ((0, cut), (cut, D))
    ]  # fmt: skip
    for _ in range(5):
        push = cluster.compute(0)
        for half in halves:
            half.receive(dataclasses.replace(push, release=lambda: None))
            half.update()
        whole.update()
    np.testing.assert_array_equal(np.concatenate([half.Lt for half in halves]), whole.Lt)
    local, known = np.zeros((D, K), np.float32), np.full(D, -1, np.int64)
    halves[1].pull(np.array([0, 1, 3], np.int32), local, known)
    np.testing.assert_array_equal(local[3], whole.Lt[3])
    np.testing.assert_array_equal(local[[0, 1, 2, 4, 5]], 0)
    np.testing.assert_array_equal(known, [-1, -1, -1, 5, -1, -1])
