"""The server: owns a range of L's features, and their version."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import Diverged
from nearfar.objective.fast_gradient import Gradient
from nearfar.objective.sparse_products import BlockProducts
from nearfar.parameter_server import update_kernels
from nearfar.parameter_server.clocks import Clocks
from nearfar.parameter_server.messages import Applied, Push, PushNumbers
from nearfar.parameter_server.packed_copies import PackedCopies, PackedCopy
from nearfar.parameter_server.queues import BoundedQueue
from nearfar.parameter_server.update_rule import UpdateRule

Floats = NDArray[np.float32]

_RULE = "rule."
"""How the arrays of the update rule begin among those of a state."""


class Server:
    """Takes pushes, applies them, and lets workers pull; any thread may push and pull, one thread updates.

    Parameters
    ----------
    Lt : array (features of the range, k)
        The starting L, transposed, of the range; the server owns it from now on and changes it in place.
    rule : UpdateRule
        How a gradient is applied.
    clocks : Clocks
        Told of every step applied; says what is ready to be applied.
    step_size : callable
        The step size at a version.
    capacity : int
        Pushes that may wait.
    first_feature : int
        Where the range begins. Pushes and pulls name features by their number in the whole L.
    staleness_scaling : bool
        Divide a push's step size by 1 + its staleness.
    """

    def __init__(
        self,
        Lt: Floats,
        rule: UpdateRule,
        clocks: Clocks,
        step_size: Callable[[int], float],
        capacity: int,
        *,
        first_feature: int = 0,
        staleness_scaling: bool = False,
    ) -> None:
        self.Lt, self.rule = Lt, rule
        self.features = range(first_feature, first_feature + len(Lt))
        """The features it owns."""
        self.version = 0
        """How many pushes have been applied."""
        self.inbound: BoundedQueue[Push] = BoundedQueue(capacity)
        self.repeats = 0
        """Pushes that came again and were dropped."""
        self._clocks, self._step_size, self._staleness_scaling = clocks, step_size, staleness_scaling
        self._held: list[Push] = []
        self._seen: dict[int, PushNumbers] = defaultdict(PushNumbers)
        self._row_versions = np.zeros(len(Lt), np.int64)
        self._copies: PackedCopies | None = None
        self._changing = threading.Lock()

    # Communication side

    def receive(self, push: Push, timeout: float | None = None) -> bool:
        """Queue a push, waiting for room; False if there was none in time."""
        return self.inbound.put(push, timeout)

    def pull(self, features: NDArray[np.int32], local: Floats, known: NDArray[np.int64]) -> int:
        """Bring rows of a worker's copy up to date, those that changed; the version they are then at is returned.

        Of ``features``, which rise, those in this server's range are looked at. ``local`` and ``known`` are of the
        whole L; ``known`` holds, for each feature, the version at which the worker last got it (-1: never).
        """
        first, last = np.searchsorted(features, (self.features.start, self.features.stop))
        with self._changing:
            update_kernels.copy_newer(
                self.Lt, self._row_versions, features[first:last], self.features.start, local, known
            )
            return self.version

    def newer(self, features: NDArray[np.int32], known: NDArray[np.int64]) -> tuple[NDArray[np.int32], Floats, int]:
        """A pull for who has no memory in common: which of ``features`` changed since ``known``, and their rows.

        ``features`` are in this server's range and rise; ``known`` has one version for each. Returned are the features
        that changed, their rows, and the version they are at.
        """
        rows = features - np.int32(self.features.start)
        with self._changing:
            changed = self._row_versions[rows] > known
            return features[changed], self.Lt[rows[changed]], self.version

    def copies_for(self, products: BlockProducts) -> PackedCopies:
        """Packed copies of L for products in the same memory, in the order of features that suits the first who ask.

        From then on updates pack L as they go over it, where they can.
        """
        copies = self._copies
        if copies is None:  # only then is there something to change, and so to wait for
            with self._changing:
                if self._copies is None:
                    self._copies = PackedCopies(products.order_of_all(), self.Lt.shape[1], rounded=products.rounded)
                copies = self._copies
        return copies

    @contextmanager
    def packed(self, copies: PackedCopies) -> Iterator[PackedCopy]:
        """The newest of its packed copies; it stays as it is until the reader has done.

        After an update that could not pack L, as one by a push that was alone, the first reader does.
        """
        copy = copies.take(self.version)
        if copy is None:
            with self._changing:  # an update may be under way
                copy = copies.take(self.version) or self._pack(copies)
        try:
            yield copy
        finally:
            copies.give_back(copy)

    def _pack(self, copies: PackedCopies) -> PackedCopy:
        """Pack all of L, for a reader."""
        fresh = copies.next()
        fresh.pack(self.Lt, copies.order.columns)
        fresh.readers = 1
        copies.publish(fresh, self.version)
        return fresh

    def copy_to(self, out: Floats) -> int:
        """Write all rows to ``out``, as they are at one version, which is returned."""
        with self._changing:
            np.copyto(out, self.Lt)
            return self.version

    # Update side

    def update(self, timeout: float | None = 0, *, then: float = 0.0) -> list[Applied]:
        """Apply what waits and is ready, and publish it as one new version; wait at most ``timeout``.

        A push that is alone waits up to ``then`` seconds for a second: a pass over a large L costs hardly more for two.
        """
        arrived = self.inbound.take_all(timeout, then=then)
        pushes, self._held = self._clocks.ready(self._held + arrived)
        fresh = self._without_repeats(pushes)
        applied = [Applied(push, self.version + i - push.version, len(arrived)) for i, push in enumerate(fresh)]
        try:
            self._check_finite(fresh)
            self._apply(applied)
        finally:
            for push in fresh:
                push.release()
        for push in pushes:
            self._clocks.applied(push.worker, push.clock)
        return applied

    def _apply(self, applied: list[Applied]) -> None:
        if not applied:
            return
        gradients = [_part(one.push, self.features) for one in applied]
        step_sizes = [self._step_size_for(self.version + i, one.staleness) for i, one in enumerate(applied)]
        with self._changing:
            copy = self._copies.next() if self._copies else None
            is_packed = self.rule.apply(self.Lt, gradients, step_sizes, copy)
            self.version += len(applied)
            for gradient in gradients:
                update_kernels.stamp(self._row_versions, gradient.features, self.version)
            if self._copies and copy and is_packed:
                self._copies.publish(copy, self.version)

    @property
    def waiting(self) -> int:
        """Pushes that are not applied yet."""
        return len(self.inbound) + len(self._held)

    # As a whole, for who watches

    def read(self) -> Floats:
        """The newest L, transposed; not to be changed. It may go on changing while it is read."""
        return self.Lt

    def overwrite(self, features: NDArray[np.int32], rows: Floats, version: int) -> None:
        """Take over rows from elsewhere, as changed at this version."""
        self._copies = None
        self.Lt[features - self.features.start] = rows
        self._row_versions[features - self.features.start] = version

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays that :meth:`restore` takes; called by the thread that updates, so they belong to one version."""
        return {"Lt": self.Lt} | {f"{_RULE}{key}": array for key, array in self.rule.state.items()}

    def restore(self, version: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        np.copyto(self.Lt, arrays["Lt"])
        self.rule.restore({key.removeprefix(_RULE): array for key, array in arrays.items() if key.startswith(_RULE)})
        self.version = version
        self._row_versions[:] = version
        self._copies = None

    def is_finite(self) -> bool:
        """Whether L holds no NaN and no infinity."""
        with self._changing:
            return bool(update_kernels.all_finite(self.Lt))

    def _step_size_for(self, version: int, staleness: int) -> float:
        step_size = self._step_size(version)
        return step_size / (1 + staleness) if self._staleness_scaling else step_size

    def _without_repeats(self, pushes: list[Push]) -> list[Push]:
        fresh = []
        for push in pushes:
            if self._seen[push.worker].add(push.number):
                fresh.append(push)
            else:
                self.repeats += 1
                push.release()
        return fresh

    def _check_finite(self, pushes: list[Push]) -> None:
        """An L that is not finite shows in the very next objective, so looking at the objectives is enough."""
        for push in pushes:
            if not np.isfinite(push.objective):
                raise Diverged(
                    f"the objective is {push.objective} after step {self.version}; "
                    "lower step_size, or look for extreme values in the points"
                )


def _part(push: Push, features: range) -> Gradient:
    assert push.gradient is not None, "a push is applied once"
    return push.gradient.part(features)
