"""A bounded queue between threads: who finds it full waits, who takes takes all that waits."""

import threading
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class BoundedQueue(Generic[Item]):
    """First in, first out, never longer than ``capacity``; safe between threads."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item, timeout: float | None = None) -> bool:
        """Add an item, waiting for room; False if there was none in time. ``timeout=0`` does not wait."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._items) < self.capacity, timeout):
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def take_all(self, timeout: float | None = None, *, then: float = 0.0) -> list[Item]:
        """All that waits, oldest first, waiting for the first one; empty if there was none in time.

        The first one waits up to ``then`` seconds for a second.
        """
        with self._changed:
            if self._changed.wait_for(lambda: bool(self._items), timeout) and then:
                self._changed.wait_for(lambda: len(self._items) > 1, then)
            items = list(self._items)
            self._items.clear()
            self._changed.notify_all()
            return items
