"""Pushes in memory that a worker and a server share: found by who may find it, and not used again too early."""

import math
import threading
from dataclasses import replace

import numpy as np
import pytest

from nearfar.engine.ray_cluster.server_actor import ServerActor, ServerPart
from nearfar.engine.ray_cluster.shared_slots import SharedSlots
from nearfar.engine.ray_cluster.wire import nothing, send
from nearfar.objective.fast_gradient import Gradient
from nearfar.parameter_server.messages import Push
from nearfar.parameter_server.update_rule import Schedule

SHAPE = (6, 2)
FEATURES = np.arange(6, dtype=np.int32)


@pytest.fixture
def slots():
    made = SharedSlots.make(4, SHAPE)
    assert made is not None
    return made


@pytest.fixture
def server():
    """Of features 2 to 5 of 6; a step of size 1 takes the gradient from L, which begins as zeros."""
    actor = ServerActor()
    actor.begin(
        0,
        ServerPart(
            features=range(2, 6), rank=2, version=0, arrays={"Lt": np.zeros((4, 2), np.float32)}, update_rule="sgd",
            slack=math.inf, workers={0: 0}, capacity=4, staleness_scaling=False, schedule=Schedule("constant", 1.0),
            steps=100, seconds=None, elapsed=0.0,
        ),
    )  # fmt: skip
    yield actor
    actor._end_updates()


def sent_from(slots, slot, number=0):
    """A push of ones that is in a slot, as the server of features 2 to 5 gets it."""
    gradient = Gradient.within(slots[slot])
    gradient.features, gradient.values = FEATURES, gradient.scratch.array("values", SHAPE)
    gradient.values[:] = 1
    push = Push(0, number, number, 0, number, 0, gradient, 0.0, 1, 1, nothing)
    return send(push, range(2, 6), "float32", slots.slot_of(gradient.values))


def test_both_sides_see_the_same_memory(slots):
    attached = SharedSlots.attach(slots.place)
    assert attached is not None
    slots[3][:] = 7
    assert (attached[3] == 7).all()


@pytest.mark.parametrize("change", [{"descriptor": 10_000}, {"process": 2**22 + 1}, {"token": b"x" * 32}, {"slots": 9}])
def test_other_memory_is_not_taken_for_it(slots, change):
    assert SharedSlots.attach(replace(slots.place, **change)) is None


def test_only_values_that_fill_a_slot_are_in_it(slots):
    assert [slots.slot_of(slots[slot]) for slot in range(4)] == [0, 1, 2, 3]
    assert slots.slot_of(slots[1][:3]) is None
    assert slots.slot_of(slots[1].copy()) is None


def test_nothing_but_the_slot_travels_and_the_servers_part_is_applied(slots, server):
    server.attach(0, slots.place)
    sent = sent_from(slots, 1)
    assert (sent.slot, sent.arrays) == (1, ())
    receipt = server.push(0, sent, known=0, slot=3)
    assert (receipt.taken, receipt.version, receipt.snapshot.slot) == (True, 1, 3)
    np.testing.assert_array_equal(slots[3], [[0, 0]] * 2 + [[-1, -1]] * 4)


def test_a_receipt_with_rows_comes_once_the_push_is_applied(slots, server):
    server.attach(0, slots.place)
    receipts = []
    with server._server._changing:  # nothing can be applied yet
        asking = threading.Thread(target=lambda: receipts.append(server.push(0, sent_from(slots, 0), 0, 2)))
        asking.start()
        asking.join(0.3)
        assert not receipts
    asking.join(5)
    slots[0][:] = 99
    assert receipts[0].taken
    np.testing.assert_array_equal(server._server.read(), np.full((4, 2), -1))


def test_a_receipt_without_rows_may_come_earlier_so_the_push_is_copied(slots, server):
    server.attach(0, slots.place)
    with server._server._changing:
        assert server.push(0, sent_from(slots, 0)).taken
        slots[0][:] = 99
    assert len(server.applied(0, wait=5.0, gather=0)) == 1
    np.testing.assert_array_equal(server._server.read(), np.full((4, 2), -1))


def test_a_push_that_comes_again_is_answered_and_not_applied_again(slots, server):
    server.attach(0, slots.place)
    for _ in range(2):
        assert server.push(0, sent_from(slots, 0), known=0, slot=2).taken
    np.testing.assert_array_equal(server._server.read(), np.full((4, 2), -1))
    assert server._server.repeats == 1


def test_who_waits_for_a_push_of_an_era_that_ends_is_refused(slots, server):
    server.attach(0, slots.place)
    receipts = []
    with server._server._changing:
        asking = threading.Thread(target=lambda: receipts.append(server.push(0, sent_from(slots, 0), 0, 2)))
        asking.start()
        asking.join(0.2)
        server._era = 1
        asking.join(5)
    assert not receipts[0].taken
