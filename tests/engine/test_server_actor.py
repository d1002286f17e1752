"""A server's process, without the process: what it takes of whom, and what it tells of that."""

import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from nearfar.engine.ray_cluster.server_actor import ServerActor, ServerPart, WrongEra
from nearfar.engine.ray_cluster.wire import SentPush, nothing, send
from nearfar.errors import Diverged
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import Schedule
from tests.parameter_server.stepping import push_of

FEATURES = range(6)


def part(slack: float, workers: int, capacity: int = 8) -> ServerPart:
    return ServerPart(
        FEATURES, 2, 0, {"Lt": np.zeros((6, 2), np.float32)}, "sgd", slack, dict.fromkeys(range(workers), 0), capacity,
        staleness_scaling=False, schedule=Schedule("constant", 0.5), steps=None, seconds=None, elapsed=0.0,
    )  # fmt: skip


def sent(number: int, worker: int = 0) -> SentPush:
    push = replace(push_of(np.ones((6, 2)), worker=worker, number=number), release=nothing)
    return send(push, FEATURES, "float32")


def wait_for(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def server():
    actor = ServerActor()
    yield actor
    actor._end_updates()


def test_what_is_told_as_taken_is_all_that_is_ever_applied(server):
    """There is room for one push at a time, so when the worker is gone, some of its pushes wait for room."""
    server.begin(0, part(slack=0, workers=2, capacity=1))
    receipts = []
    pushing = [threading.Thread(target=lambda i=i: receipts.append(server.push(0, sent(i)))) for i in range(20)]
    for thread in pushing:
        thread.start()
    wait_for(lambda: receipts)
    told = server.leave(0, 0).from_(0)
    for thread in pushing:
        thread.join(10)
    assert sum(receipt.taken for receipt in receipts) == len(told)
    assert len(receipts) == 20
    assert not server.push(0, sent(20)).taken


def test_pushes_of_another_era_are_refused_and_counted_nowhere(server):
    server.begin(0, part(slack=1, workers=1))
    assert server.push(0, sent(0)).taken
    server.begin(1, part(slack=1, workers=1))
    assert not server.push(0, sent(1)).taken
    assert server.leave(1, 0).from_(0) == set()
    with pytest.raises(WrongEra):
        server.leave(0, 0)


def test_what_is_applied_in_an_era_is_told_in_that_era(server):
    """Whoever still asked in the one before gets nothing of it."""
    server.begin(0, part(slack=1, workers=1))
    server.push(0, sent(0))
    told = []
    asking = threading.Thread(target=lambda: told.append(server.applied(0, 1.0, 5.0)))
    asking.start()
    wait_for(lambda: server._server.version == 1 and server._changed._waiters)
    server.begin(1, part(slack=1, workers=1))
    server.push(1, sent(0))
    asking.join(10)
    assert told == [[]]
    assert [one.push.number for one in server.applied(1, 1.0, 0.0)] == [0]


def test_a_cut_waits_for_what_is_being_applied(server, monkeypatch):
    """It has left the queue by then, and has yet to change L."""
    begun, may_end = threading.Event(), threading.Event()
    apply = Server._apply

    def slowly(self, applied):
        if applied:
            begun.set()
            may_end.wait(10)
        apply(self, applied)

    monkeypatch.setattr(Server, "_apply", slowly)
    server.begin(0, part(slack=1, workers=1))
    server.push(0, sent(0))
    assert begun.wait(10)
    threading.Timer(0.2, may_end.set).start()
    assert (server.state(0, 10.0)["Lt"] == -0.5).all()


def test_what_went_wrong_is_told_though_a_new_era_begins(server):
    server.begin(0, part(slack=1, workers=1))
    good = sent(0)
    server.push(0, replace(good, push=replace(good.push, objective=math.nan)))
    wait_for(lambda: server._error)
    with pytest.raises(Diverged):
        server.applied(0, 1.0, 0.1)
    with pytest.raises(Diverged):
        server.begin(1, part(slack=1, workers=1))
