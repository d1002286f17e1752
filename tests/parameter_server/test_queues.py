"""The bounded queue: order, bound, and waiting."""

import threading
import time

from nearfar.parameter_server.queues import BoundedQueue


def test_items_come_out_in_order() -> None:
    queue: BoundedQueue[int] = BoundedQueue(10)
    for i in range(5):
        assert queue.put(i, timeout=0)
    assert queue.take_all() == [0, 1, 2, 3, 4]
    assert queue.take_all(timeout=0) == []


def test_a_full_queue_refuses_and_never_grows() -> None:
    queue: BoundedQueue[int] = BoundedQueue(2)
    assert queue.put(1, timeout=0)
    assert queue.put(2, timeout=0)
    assert not queue.put(3, timeout=0.01)
    assert len(queue) == 2


def test_who_finds_it_full_waits_until_there_is_room() -> None:
    queue: BoundedQueue[int] = BoundedQueue(1)
    queue.put(1)
    done = threading.Event()

    def put() -> None:
        queue.put(2)
        done.set()

    threading.Thread(target=put, daemon=True).start()
    time.sleep(0.05)
    assert not done.is_set()
    assert queue.take_all() == [1]
    assert done.wait(5)
    assert queue.take_all() == [2]


def test_the_first_one_waits_a_while_for_a_second() -> None:
    queue: BoundedQueue[int] = BoundedQueue(4)
    queue.put(1)
    began = time.monotonic()
    assert queue.take_all(then=0.05) == [1]
    assert time.monotonic() - began >= 0.05
    queue.put(2)
    threading.Timer(0.05, queue.put, [3]).start()
    assert queue.take_all(then=30.0) == [2, 3]
    assert queue.take_all(timeout=0, then=30.0) == []  # nothing waits for nothing
    assert time.monotonic() - began < 20


def test_nothing_is_lost_or_doubled_between_many_threads() -> None:
    queue: BoundedQueue[tuple[int, int]] = BoundedQueue(7)
    taken: list[tuple[int, int]] = []

    def put(name: int) -> None:
        for i in range(2000):
            queue.put((name, i))

    threads = [threading.Thread(target=put, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    while len(taken) < 8000:
        items = queue.take_all(timeout=5)
        assert 0 < len(items) <= 7
        taken += items
    for thread in threads:
        thread.join()
    assert sorted(taken) == [(name, i) for name in range(4) for i in range(2000)]
    for name in range(4):
        assert [i for n, i in taken if n == name] == list(range(2000))
