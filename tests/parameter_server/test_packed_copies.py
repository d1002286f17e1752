"""Packed copies of L: what is read stays as it is, the newest is found, and no more are made than readers need."""

import threading
import time
from contextlib import AbstractContextManager

import numpy as np
import pytest

from nearfar.data.points import SparseRows
from nearfar.data.scratch import Scratch
from nearfar.objective import packing
from nearfar.objective.sparse_products import BlockProducts
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.packed_copies import PackedCopy
from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_rule import UpdateRule
from tests.commands import wait_until
from tests.parameter_server.stepping import push_of

D, K = 40, 30
EVERY = np.arange(D, dtype=np.int32)
ROWS = SparseRows(np.ones(5 * D, np.float32), np.tile(EVERY, 5), np.arange(6) * D, D)


@pytest.fixture
def server() -> Server:
    """One whose L is all zeros at version 0, and all -v at version v, as each push takes 1 off; it packs copies."""
    clocks = Clocks(float("inf"))
    clocks.join(0)
    server = Server(np.zeros((D, K), np.float32), UpdateRule("sgd", D, K), clocks, lambda _: 1.0, capacity=64)
    assert server.copies_for(products()) is server.copies_for(products())
    return server


def products() -> BlockProducts:
    return BlockProducts(ROWS, EVERY, np.empty(D, np.uint32), Scratch(), rounded=True)


def newest(server: Server) -> AbstractContextManager[PackedCopy]:
    return server.packed(server.copies_for(products()))


def packed_number(number: float) -> np.ndarray:
    """All of a packed L that is this number throughout."""
    return packing.pack(np.full((D, K), number, np.float32), EVERY, EVERY, Scratch(), rounded=True).memory.copy()


def push(server: Server, count: int) -> None:
    first = server.version
    for number in range(first, first + count):
        assert server.receive(push_of(np.ones((D, K)), number=number), timeout=0)
    server.update()


@pytest.mark.parametrize("counts", [(1, 1, 1), (2, 2, 2), (3, 2, 1, 4)])
def test_the_newest_is_found_however_pushes_came(server: Server, counts: tuple[int, ...]) -> None:
    for count in counts:
        push(server, count)
        with newest(server) as copy:
            assert copy.version == server.version
            np.testing.assert_array_equal(copy.packed.memory, packed_number(-server.version))


def test_an_update_that_goes_over_all_packs_on_its_way(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    monkeypatch.setattr(PackedCopy, "pack", lambda copy, Lt, features: packed.append(len(features)))
    push(server, 2)
    with newest(server):
        assert packed == [0]
    push(server, 1)
    with newest(server):
        assert packed == [0, D]  # nothing was left to the first; the second did not pack


def test_what_is_read_stays_as_it_is_and_no_more_copies_are_made_than_readers_need(server: Server) -> None:
    held = []
    for _ in range(3):
        push(server, 2)
        context = newest(server)
        held.append((context, context.__enter__(), server.version))
    for _ in range(20):
        push(server, 2)
    for context, copy, version in held:
        np.testing.assert_array_equal(copy.packed.memory, packed_number(-version))
        context.__exit__(None, None, None)
    for _ in range(20):
        push(server, 2)
    assert server._copies is not None
    assert len(server._copies._copies) == 3 + 2


def test_nobody_reads_what_is_being_written(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy is all of one version's number from when it is taken until it is given back, whatever is applied."""
    torn, read, stop = [], set(), threading.Event()
    numbers = [packed_number(-version) for version in range(201)]  # apart from each other when rounded
    write = PackedCopy.pack

    def slowly(copy: PackedCopy, Lt: np.ndarray, features: np.ndarray) -> None:
        copy.packed.memory.fill(np.nan)
        time.sleep(0.001)
        write(copy, Lt, EVERY)

    def keep_reading() -> None:
        while not stop.is_set():
            with newest(server) as copy:
                for _ in range(3):
                    if not np.array_equal(copy.packed.memory, numbers[copy.version]):
                        torn.append(copy.version)
                    time.sleep(0.0005)
                read.add(copy.version)

    monkeypatch.setattr(PackedCopy, "pack", slowly)
    readers = [threading.Thread(target=keep_reading) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(20):
            for count in (1, 2, 3, 4):
                push(server, count)
            wait_until(lambda: server.version in read, seconds=60)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not torn


def test_after_another_metric_was_taken_over_no_copy_of_the_old_one_is_read(server: Server) -> None:
    push(server, 2)
    with newest(server) as copy:
        np.testing.assert_array_equal(copy.packed.memory, packed_number(-2))
    server.restore(2, {"Lt": np.full((D, K), 5, np.float32)})
    with newest(server) as copy:
        np.testing.assert_array_equal(copy.packed.memory, packed_number(5))


def test_who_reads_does_not_wait_for_the_update_under_way(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    push(server, 2)
    under_way, may_end, read = threading.Event(), threading.Event(), threading.Event()
    apply = server.rule.apply

    def held_up(*given: object) -> bool:
        under_way.set()
        assert may_end.wait(10)
        return apply(*given)

    def read_newest() -> None:
        with newest(server) as copy:
            assert copy.version == 2
        read.set()

    monkeypatch.setattr(server.rule, "apply", held_up)
    updating, reading = threading.Thread(target=push, args=(server, 2)), threading.Thread(target=read_newest)
    updating.start()
    assert under_way.wait(10)
    reading.start()
    was_read = read.wait(10)
    may_end.set()
    updating.join()
    reading.join()
    assert was_read
