"""The description of a cluster to simulate: machines, links, what a step costs on them, and what goes wrong."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from nearfar.errors import InvalidSettings
from nearfar.sizes import GATHER, Rates, Sizes, bandwidth_text, duration_text, memory_text

Pulls = Literal["with", "before", "behind"]

NOMINAL = Rates(gather=1e9, products=1.2e11, pull=1e10, update=1.5e10)
"""About those of one core with AVX2. Fixed, so that counted costs, unlike measured ones, are the same everywhere."""


@dataclass(frozen=True)
class Costs:
    """What a step costs.

    Parameters
    ----------
    compute_seconds : float
        What a computing thread spends on a batch, with a core of its own; its rows have been gathered.
    update_seconds : float
        What the server spends on a push, with a core of its own.
    push_bytes, pull_bytes : float, optional
        What a gradient, and a snapshot of all rows that it needs, take on a link; by default what they really take.
    crowding : float
        How many times as long work takes while all cores of its machine are busy, which share memory and caches; with
        fewer of them busy, in proportion less.
    gather_seconds : float
        What another thread of the worker spends meanwhile to gather the rows of the next batch.
    """

    compute_seconds: float
    update_seconds: float
    push_bytes: float | None = None
    pull_bytes: float | None = None
    crowding: float = 1.0
    gather_seconds: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 <= value < math.inf:
                raise InvalidSettings(f"{field.name} is {value}; expected a finite number, at least 0")
        if self.crowding < 1:
            raise InvalidSettings(f"crowding is {self.crowding}; expected at least 1")

    @classmethod
    def counted(cls, sizes: Sizes, rates: Rates = NOMINAL) -> "Costs":
        """The costs of a run by the rules of ``nearfar plan``."""
        parts = sizes.compute_seconds(rates)
        gather = parts.pop(GATHER)
        return cls(sum(parts.values()), sizes.update_seconds(rates), gather_seconds=gather)


@dataclass(frozen=True)
class Stragglers:
    """Some workers, the last ones, compute slower by a factor; a worker that is alone is none of them."""

    factor: float
    count: int = 0
    share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf or self.count < 0 or not 0 <= self.share <= 1:
            raise InvalidSettings(f"stragglers are {self}; expected a factor above 0, and a count or a share up to 1")

    @classmethod
    def parse(cls, text: str) -> "Stragglers":
        """From a text like ``1x4.0``, one worker slower by 4, or ``10%x2``, a tenth of them slower by 2."""
        how_many, _, factor = text.partition("x")
        try:
            if how_many.endswith("%"):
                return cls(float(factor), share=float(how_many[:-1]) / 100)
            return cls(float(factor), count=int(how_many))
        except ValueError as error:
            raise InvalidSettings(
                f"straggler is {text!r}; expected how many x how much slower, as in 1x4.0 or 10%x2"
            ) from error

    def among(self, workers: int) -> int:
        """How many they are."""
        return 0 if workers == 1 else min(workers, max(self.count, round(self.share * workers)))

    def __str__(self) -> str:
        return f"{self.count or f'{self.share:.3g} of all'}, slower by {self.factor:g}"


@dataclass(frozen=True)
class Pause:
    """A worker stands still for some seconds, before its first step that would begin at ``at`` or later."""

    worker: int
    at: float
    seconds: float

    def __str__(self) -> str:
        return f"worker {self.worker} at {duration_text(self.at)} for {duration_text(self.seconds)}"


@dataclass(frozen=True)
class Death:
    """A worker is gone from a moment on; its shards go to the others."""

    worker: int
    at: float

    def __str__(self) -> str:
        return f"worker {self.worker} at {duration_text(self.at)}"


@dataclass(frozen=True)
class SimulatedCluster:
    """Machines to simulate. Workers fill one machine after the other, a core for each computing thread.

    Parameters
    ----------
    machine_cores : int
        Cores of a machine.
    bandwidth : float
        Bytes a second of a machine's link, in each of its two directions; its workers share it.
    latency : float
        Seconds that a message takes beside the time of its bytes.
    server_bandwidth : float, optional
        Bytes a second of a server's link; by default as a machine's.
    servers : int
        Servers that share the features of L evenly, each with a core and a link of its own.
    server_apart : bool
        Whether the servers have machines of their own. If not, there is one, and it shares the cores and the link of
        the first machine, whose workers reach it without a link: with one machine that is the threads engine.
    pulls : {"with", "before", "behind"}
        How an asynchronous worker gets the rows of its next batch. ``behind``: they come while it computes the batch
        before, and it does not wait for rows that it has had before, as on Ray. ``before``: it asks for them when it
        has sent its push, and waits, as in the threads engine. ``with``: they come when its last push is applied, and
        it waits for that. Where the consistency is bounded, a worker always asks when it may begin; with ``behind``,
        also while it computes.
    costs : Costs, optional
        What a step costs; by default counted, at :data:`NOMINAL` rates.
    spread : float
        The relative standard deviation of computing times, which are log-normal.
    stragglers : Stragglers, optional
    pauses : tuple of Pause
    deaths : tuple of Death
    seed : int
        Decides the spread.
    """

    machine_cores: int = 16
    bandwidth: float = 1.25e9
    latency: float = 50e-6
    server_bandwidth: float | None = None
    servers: int = 1
    server_apart: bool = True
    pulls: Pulls = "behind"
    costs: Costs | None = None
    spread: float = 0.0
    stragglers: Stragglers | None = None
    pauses: tuple[Pause, ...] = ()
    deaths: tuple[Death, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("machine_cores", 1), ("servers", 1), ("latency", 0), ("spread", 0)):
            if not least <= getattr(self, name) < math.inf:
                raise InvalidSettings(f"{name} is {getattr(self, name)}; expected at least {least}, and finite")
        for name in ("bandwidth", "server_bandwidth"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidSettings(f"{name} is {value}; expected bytes a second, more than 0")
        if self.pulls not in get_args(Pulls):
            raise InvalidSettings(f"pulls is {self.pulls!r}; expected {', '.join(get_args(Pulls))}")
        if self.servers > 1 and not self.server_apart:
            raise InvalidSettings(f"servers is {self.servers}, but they have no machines of their own; expected 1")

    def machine_of(self, worker: int, threads_per_worker: int) -> int:
        """The machine that a worker is on."""
        return worker // (self.machine_cores // threads_per_worker)

    def check(self, workers: int, threads_per_worker: int) -> None:
        """Raise if such workers have no place here, or something is to happen to one that there is not."""
        if threads_per_worker > self.machine_cores:
            raise InvalidSettings(
                f"threads_per_worker is {threads_per_worker}, but a machine has {self.machine_cores} cores; "
                "expected at most that many"
            )
        events: tuple[Pause | Death, ...] = (*self.pauses, *self.deaths)
        for event in events:
            if not 0 <= event.worker < workers:
                kind = type(event).__name__.lower()
                raise InvalidSettings(f"a {kind} is of worker {event.worker}, but workers are 0 to {workers - 1}")

    def slowness(self, worker: int, workers: int) -> float:
        """By which factor a worker is slower than it might be."""
        slow = self.stragglers.among(workers) if self.stragglers else 0
        return self.stragglers.factor if self.stragglers and worker >= workers - slow else 1.0

    def variation(self, worker: int, clock: int) -> float:
        """The factor of a step's computing time, 1 in the mean: a function of the seed, the worker and the clock."""
        if self.spread == 0:
            return 1.0
        variance = math.log1p(self.spread**2)
        drawn = np.random.default_rng([self.seed, 5, worker, clock]).normal()
        return math.exp(math.sqrt(variance) * drawn - variance / 2)

    def describe(self) -> dict[str, str]:
        """Everything that is given, in words."""
        servers = "one" if self.servers == 1 else f"{self.servers}, each with a share of the features"
        apart = "on a machine of its own" if self.servers == 1 else "on machines of their own"
        happens = {"pauses": self.pauses, "deaths": self.deaths}
        return {
            "cores of a machine": str(self.machine_cores),
            "a machine's link": f"{bandwidth_text(self.bandwidth)} each way",
            "latency": duration_text(self.latency),
            "servers": f"{servers}, {apart}" if self.server_apart else "one, on the first machine's cores",
            "a server's link": f"{bandwidth_text(self.server_bandwidth or self.bandwidth)} each way",
            "pulls": {"with": "with pushes", "before": "before each step", "behind": "behind computing"}[self.pulls],
            **({} if self.costs is None else _described(self.costs)),
            "spread": f"{self.spread:g}",
            "stragglers": "none" if self.stragglers is None else str(self.stragglers),
            **{name: "; ".join(map(str, events)) for name, events in happens.items() if events},
        }

    def to_json(self) -> dict[str, Any]:
        """Everything that is given, as numbers; what is unlimited is None."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        rates = {"bandwidth": self.bandwidth, "server_bandwidth": self.server_bandwidth or self.bandwidth}
        plain |= {name: None if math.isinf(rate) else rate for name, rate in rates.items()}
        nested = ("costs", "stragglers")
        plain |= {name: None if plain[name] is None else vars(plain[name]) for name in nested}
        return plain | {name: [vars(event) for event in plain[name]] for name in ("pauses", "deaths")}


def _described(costs: Costs) -> dict[str, str]:
    push, pull = ("as it is" if count is None else memory_text(count) for count in (costs.push_bytes, costs.pull_bytes))
    return {
        "computing a batch": duration_text(costs.compute_seconds),
        "gathering the next one": duration_text(costs.gather_seconds),
        "updating by a push": duration_text(costs.update_seconds),
        "with all cores busy": "as long" if costs.crowding == 1 else f"{costs.crowding:.3g} times as long",
        "a push": push,
        "a pull, at most": pull,
    }
