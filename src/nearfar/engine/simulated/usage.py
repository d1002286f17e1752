"""What a simulated run was busy with, measured as it goes: by that its bottleneck is named."""

from dataclasses import dataclass
from typing import Literal

State = Literal["computing", "waiting for others", "waiting for messages"]


@dataclass(frozen=True)
class Usage:
    """How a simulated run spent its time, each as a share of it."""

    seconds: float
    steps: int
    computing: float
    """Computing threads computed; in the mean over them."""
    servers_update: float
    """The server updated L."""
    servers_link: float
    """The server's link sent or received."""
    machines_link: float
    """The busiest machine's link sent or received."""
    waiting_for_others: float
    """Computing threads were held back by the consistency, in the mean, while the server and its link stood idle."""
    latency: float
    """Computing threads waited for messages, in the mean, while the server and its link stood idle."""

    @property
    def parts(self) -> dict[str, float]:
        """All shares by their names."""
        return {
            "computing": self.computing,
            "server's update": self.servers_update,
            "server's link": self.servers_link,
            "a machine's link": self.machines_link,
            "waiting for others": self.waiting_for_others,
            "latency": self.latency,
        }

    @property
    def bottleneck(self) -> str:
        """What took the largest share. Computing is none where threads do it less than half of the time."""
        parts = {name: part for name, part in self.parts.items() if name != "computing" or part >= 0.5}
        return max(parts, key=parts.__getitem__)


class Meter:
    """Counts what threads do, second by second."""

    def __init__(self, now: float) -> None:
        self.began = self._now = now
        self._threads: dict[State, int] = {"computing": 0, "waiting for others": 0, "waiting for messages": 0}
        self._seconds: dict[State, float] = dict.fromkeys(self._threads, 0.0)

    def change(self, before: State | None, after: State | None) -> None:
        """A thread goes over from one state to another; None if it has not begun, or has ended."""
        if before is not None:
            self._threads[before] -= 1
        if after is not None:
            self._threads[after] += 1

    def advance(self, now: float, idle_from: float) -> None:
        """Time goes on to ``now``; the server and its link stand idle from ``idle_from`` on."""
        passed, idle = now - self._now, max(0.0, now - max(self._now, idle_from))
        for state, count in self._threads.items():
            self._seconds[state] += count * (passed if state == "computing" else idle)
        self._now = now

    def usage(
        self, steps: int, threads: int, servers_update: float, servers_link: float, machines_link: float
    ) -> Usage:
        """The shares so far; those of the server and of links are given in busy seconds."""
        seconds = self._now - self.began
        length = max(1e-300, seconds)
        return Usage(
            seconds=seconds,
            steps=steps,
            computing=self._seconds["computing"] / threads / length,
            servers_update=servers_update / length,
            servers_link=servers_link / length,
            machines_link=machines_link / length,
            waiting_for_others=self._seconds["waiting for others"] / threads / length,
            latency=self._seconds["waiting for messages"] / threads / length,
        )
