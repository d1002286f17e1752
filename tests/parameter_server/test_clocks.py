"""Consistency: one rule with one number."""

import math
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.parameter_server.clocks import Clocks
from tests.parameter_server.stepping import push_of


@pytest.mark.parametrize("slack", [0, 1, 2, 5])
def test_a_worker_may_be_exactly_that_many_steps_ahead(slack: int) -> None:
    clocks = Clocks(slack)
    clocks.join(0)
    clocks.join(1)
    for clock in range(10):
        clocks.applied(0, clock)
    assert clocks.may_begin(slack)
    assert not clocks.may_begin(slack + 1)


def test_without_a_bound_nobody_waits() -> None:
    clocks = Clocks(math.inf)
    clocks.join(0)
    clocks.join(1)
    assert clocks.may_begin(1_000_000)


def test_nobody_waits_for_who_has_left() -> None:
    clocks = Clocks(0)
    clocks.join(0)
    clocks.join(1)
    clocks.applied(0, 0)
    assert not clocks.may_begin(1)
    clocks.leave(1)
    assert clocks.may_begin(1)


def test_who_joins_late_begins_where_the_slowest_is() -> None:
    clocks = Clocks(0)
    clocks.join(0)
    for clock in range(7):
        clocks.applied(0, clock)
    assert clocks.join(1) == 7
    assert clocks.may_begin(7)


def test_waiting_ends_when_the_slowest_moves_or_when_given_up() -> None:
    clocks = Clocks(0)
    clocks.join(0)
    clocks.join(1)
    clocks.applied(0, 0)
    given_up = threading.Event()
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda c=clock: answers.append(clocks.wait_to_begin(c, given_up.is_set)), daemon=True)
        for clock in (1, 99)
    ]
    for thread in threads:
        thread.start()
    clocks.applied(1, 0)
    threads[0].join(5)
    assert answers == [True]
    given_up.set()
    clocks.wake()
    threads[1].join(5)
    assert answers == [True, False]


def test_what_comes_after_its_round_is_applied_at_once() -> None:
    """Its worker is gone; kept, it would be in the way of every round to come."""
    clocks = Clocks(0)
    for worker in range(3):
        clocks.join(worker)
    clocks.leave(2)
    first = [push_of(np.zeros((1, 1)), worker=worker, number=0) for worker in (0, 1)]
    assert clocks.ready(first) == (first, [])
    for worker in (0, 1):
        clocks.applied(worker, 0)
    late, early = (push_of(np.zeros((1, 1)), worker=worker, number=number) for worker, number in ((2, 0), (0, 1)))
    assert clocks.ready([early, late]) == ([late], [early])


@given(st.permutations([(worker, clock) for worker in range(3) for clock in range(3)]))
def test_in_step_rounds_are_whole_and_in_order_however_pushes_arrive(arrivals: list[tuple[int, int]]) -> None:
    clocks = Clocks(0)
    for worker in range(3):
        clocks.join(worker)
    held, applied = [], []
    for worker, clock in arrivals:
        held.append(push_of(np.zeros((1, 1)), worker=worker, number=clock))
        while True:
            ready, held = clocks.ready(held)
            if not ready:
                break
            assert [push.worker for push in ready] == [0, 1, 2]
            applied += ready
            for push in ready:
                clocks.applied(push.worker, push.clock)
    assert not held
    assert [push.clock for push in applied] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_with_a_slack_pushes_are_applied_as_they_come() -> None:
    clocks = Clocks(3)
    clocks.join(0)
    clocks.join(1)
    pushes = [push_of(np.zeros((1, 1)), worker=1, number=i) for i in range(3)]
    assert clocks.ready(pushes) == (pushes, [])
