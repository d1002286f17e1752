"""The servers as the supervisor sees them: a copy of L in the driver, brought up to date when it is looked at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.points import Floats
from nearfar.parameter_server.server import Server


@dataclass
class Mirror:
    """A server of this process that shows what remote ones have, and holds the last cut.

    A cut is L and the state of the rule with the same pushes applied at every server: what a checkpoint holds, and what
    lost servers begin again with.
    """

    local: Server
    refresh: Callable[[], None] | None = None
    """Brings :attr:`local` up to date; None while no remote server is there."""
    cut: Callable[[], None] | None = None
    """Makes a cut of the remote servers, and writes it into :attr:`local`."""
    cut_version: int = 0
    _cut_Lt: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))  # noqa: N815 - the paper's letter

    @property
    def features(self) -> range:
        return self.local.features

    @property
    def version(self) -> int:
        return self.local.version

    def read(self) -> Floats:
        if self.refresh:
            self.refresh()
        return self.local.read()

    def pull(self, features: NDArray[np.int32], local: Floats, known: NDArray[np.int64]) -> int:
        return self.local.pull(features, local, known)

    def state(self) -> dict[str, NDArray[Any]]:
        if self.cut:
            self.cut()
        return self.local.state()

    def restore(self, version: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.local.restore(version, arrays)

    def is_finite(self) -> bool:
        return self.local.is_finite()

    def keep_cut(self) -> None:
        """What the local server has now is the cut to go back to. The rule's state changes with cuts only."""
        self.cut_version = self.local.version
        self._cut_Lt = self.local.Lt.copy()

    def cut_part(self, features: range) -> dict[str, NDArray[Any]]:
        """The arrays of the cut, of a range of features."""
        part = {key: array[features.start : features.stop] for key, array in self.local.state().items()}
        return part | {"Lt": self._cut_Lt[features.start : features.stop]}
