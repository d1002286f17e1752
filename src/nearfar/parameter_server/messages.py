"""What travels between workers and servers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nearfar.objective.fast_gradient import Factors, Gradient

Form = Literal["dense", "columns", "factors"]
"""How a gradient travels: all features, the touched ones with their numbers, or not multiplied out."""


@dataclass(frozen=True)
class Push:
    """A gradient on its way from a worker to a server."""

    worker: int
    number: int
    """Counts this worker's pushes from 0; a server applies no number twice."""
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
