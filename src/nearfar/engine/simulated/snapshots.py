"""Snapshots on their way: what the server reads for a worker that asks, and what has come for it."""

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.parameter_server.server import Server
from nearfar.parameter_server.update_kernels import copy_newer

Floats = NDArray[np.float32]
Features = NDArray[np.int32]


@dataclass(frozen=True)
class Snapshot:
    """Rows of L on their way to a worker."""

    features: Features
    values: Floats
    versions: NDArray[np.int64]
    """At which each row last changed."""
    version: int
    """The server's version when it was read."""


class Snapshots:
    """Reads rows of the server's L for workers that ask: those that have changed since each was last sent them.

    All rows of one version are copied once, however many workers they travel to.
    """

    def __init__(self, server: Server, shape: tuple[int, int]) -> None:
        self._server = server
        self._Lt, self._versions = np.empty(shape, np.float32), np.full(shape[0], -1, np.int64)
        self._whole: Snapshot | None = None

    def read(self, features: Features, sent: NDArray[np.int64]) -> Snapshot:
        """What changed of these features; ``sent`` is for each feature the version last sent, and is brought up."""
        version = self._server.pull(features, self._Lt, self._versions)
        changed = features[self._versions[features] > sent[features]]
        sent[changed] = self._versions[changed]
        if len(changed) < len(self._Lt):
            return Snapshot(changed, self._Lt[changed], self._versions[changed], version)
        if self._whole is None or self._whole.version != version:
            self._whole = Snapshot(changed, self._Lt.copy(), self._versions.copy(), version)
        return self._whole


class Inbox:
    """The snapshots that have come for a worker; to the worker it is the server."""

    def __init__(self) -> None:
        self.version = 0
        self._came: deque[Snapshot] = deque()

    def put(self, snapshot: Snapshot, n_features: int) -> None:
        """Keep a snapshot that has come; one of all rows replaces those that were not taken."""
        if len(snapshot.features) == n_features:
            self._came.clear()
        self._came.append(snapshot)
        self.version = snapshot.version

    def pull(self, features: Features, local: Floats, known: NDArray[np.int64]) -> int:
        """Copy rows that have come into a worker's copy; the version it is then at is returned."""
        while self._came:
            snapshot = self._came.popleft()
            if len(snapshot.features) == len(local):
                copy_newer(snapshot.values, snapshot.versions, snapshot.features, 0, local, known)
                continue
            newer = snapshot.versions > known[snapshot.features]
            rows = snapshot.features[newer]
            local[rows] = snapshot.values[newer]
            known[rows] = snapshot.versions[newer]
        return self.version
