"""Servers and workers as Ray actors: thin shells around the same plain classes.

One process, the driver, has the clocks, the budget, the supervisor and the list of who takes part; it grants steps to
workers. Workers pull from and push to the servers directly. What the servers say was applied is what counts.
"""

import importlib.util
import time

from nearfar.engine.engine import Job, Supervisor
from nearfar.engine.ray_cluster.mirror import Mirror
from nearfar.engine.ray_cluster.options import RayOptions
from nearfar.errors import MissingExtra
from nearfar.parameter_server.server import Server
from nearfar.settings import EngineName

__all__ = ["RayEngine", "RayOptions"]


class RayEngine:
    """Runs servers and workers on a Ray cluster, until the budget is used up or the supervisor says stop."""

    name: EngineName = "ray"
    now = staticmethod(time.monotonic)

    def __init__(self, options: RayOptions | None = None) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MissingExtra("engine ray needs Ray; install it with: pip install 'nearfar[ray]'")
        self.options = options or RayOptions()
        self._mirror: Mirror | None = None

    def servers(self, server: Server) -> Mirror:
        """The remote servers as one; until they run, the local one stands for them."""
        self._mirror = Mirror(server)
        return self._mirror

    def run(self, job: Job, supervisor: Supervisor) -> None:
        from nearfar.engine.ray_cluster.driver import Driver  # noqa: PLC0415 - an extra

        mirror = self._mirror or self.servers(job.server)
        with Driver(job, supervisor, self.options, mirror) as driver:
            driver.until_done()
