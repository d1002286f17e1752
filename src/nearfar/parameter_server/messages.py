"""What travels between workers and servers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from nearfar.objective.fast_gradient import Factors, Gradient

Form = Literal["dense", "columns", "factors"]
"""How a gradient travels: all features, the touched ones with their numbers, or not multiplied out."""


@dataclass(frozen=True)
class Push:
    """A gradient on its way from a worker to a server."""

    worker: int
    number: int
    """Counts this worker's pushes from 0, and from 0 again where servers went back; none is applied twice."""
    clock: int
    """The worker's step that made it."""
    shard: int
    shard_clock: int
    """Which batch of which shard it was computed on."""
    version: int
    """The server's version that the worker's copy of L was at."""
    gradient: Gradient | Factors | None
    """None in what is told of a push elsewhere than where it is applied."""
    objective: float
    n_pairs: int
    n_points: int
    release: Callable[[], None]
    """Gives the gradient's memory back to the worker; called once, when the push is done with."""
    form: Form = "dense"
    nbytes: int = 0
    """Bytes that travelled."""


@dataclass(frozen=True)
class Applied:
    """What a server did with one push."""

    push: Push
    staleness: int
    """Versions between the L it was computed on and the L it was applied to."""
    waiting: int
    """Pushes that waited when it was taken."""


@dataclass
class PushNumbers:
    """The numbers of one worker's pushes that have come, in whatever order; memory is that of the gaps."""

    next: int = 0
    """All below have come."""
    _beyond: set[int] = field(default_factory=set)

    def add(self, number: int) -> bool:
        """Whether this number has not come before; from now on it has."""
        if number < self.next or number in self._beyond:
            return False
        self._beyond.add(number)
        while self.next in self._beyond:
            self._beyond.remove(self.next)
            self.next += 1
        return True

    def from_(self, first: int) -> set[int]:
        """Those that have come, from one on."""
        return {*range(first, self.next), *(number for number in self._beyond if number >= first)}
