"""The server on a virtual clock: the real one, and when it updates."""

from collections.abc import Callable

from nearfar.engine.engine import Job
from nearfar.engine.simulated.virtual_time import UPDATES, Cores, Events
from nearfar.parameter_server.messages import Applied, Push


class SimulatedServer:
    """Applies what waits and is ready, one update after the other; what comes meanwhile stays at the door.

    Parameters
    ----------
    job : Job
    events : Events
    cores : Cores
        Where it updates.
    update_seconds : float
        What it takes to apply one push.
    on_applied : function
        Called with what was applied, when that is done.
    """

    def __init__(
        self,
        job: Job,
        events: Events,
        cores: Cores,
        update_seconds: float,
        on_applied: Callable[[list[Applied]], None],
    ) -> None:
        self._job, self._events, self._cores = job, events, cores
        self._update_seconds, self._on_applied = update_seconds, on_applied
        self.is_updating = False
        self.busy_seconds = 0.0
        """Seconds of updates that are done."""
        self._at_the_door: list[Push] = []
        self._inside: list[Push] = []
        self._will_look = False
        self._began = 0.0

    def push_came(self, push: Push) -> None:
        """A push has arrived."""
        self._at_the_door.append(push)
        self.wake()

    def wake(self) -> None:
        """Look, at this moment but after all that arrives at it, whether something is ready to be applied."""
        if not self.is_updating and not self._will_look:
            self._will_look = True
            self._events.after(0.0, UPDATES, self._begin)

    def _begin(self) -> None:
        self._will_look = False
        ready, _ = self._job.clocks.ready(self._inside + self._at_the_door)
        if not ready:
            return
        for push in self._at_the_door:
            self._job.server.receive(push, timeout=0)
        self._inside += self._at_the_door
        self._at_the_door = []
        self.is_updating, self._began = True, self._events.now
        self._cores.run(len(ready) * self._update_seconds, UPDATES, self._end)

    def _end(self) -> None:
        """L, the clocks and the slots change when an update ends."""
        self.is_updating = False
        self.busy_seconds += self._events.now - self._began
        applied = self._job.server.update()
        done = {id(one.push) for one in applied}
        self._inside = [push for push in self._inside if id(push) not in done]
        self._on_applied(applied)
        if self._at_the_door or self._inside:
            self.wake()
