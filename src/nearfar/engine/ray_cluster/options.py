"""How a Ray cluster is used: declared and explained once; the command line follows."""

from dataclasses import dataclass, field
from typing import Any, Literal

from nearfar.errors import InvalidSettings
from nearfar.sizes import memory_bytes


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class RayOptions:
    """Where the servers and workers of a run are, and what may travel between them. For ``engine="ray"``."""

    address: str | None = _option(
        None, "ray: the cluster to join, auto for the one of this machine; else a new local one"
    )
    namespace: str | None = _option(None, "ray: the namespace of the run's actors; by default one of its own")
    servers: int = _option(1, "ray: servers that L is split over, by features")
    min_workers: int | None = _option(
        None, "ray: workers to begin with; others join when there is room. All by default"
    )
    cpus_per_worker: float = _option(1.0, "ray: CPUs to ask for, for each worker")
    cpus_per_server: float = _option(0.0, "ray: CPUs to ask for, for each server")
    placement: Literal["spread", "pack"] = _option("spread", "ray: over many nodes, or on as few as possible")
    object_store: str | None = _option(None, "ray: memory of a new local cluster's object store, as in 2GB")
    bandwidth: float | None = _option(None, "ray: gigabits a second to a server, to choose what travels; else measured")
    wire: Literal["float32", "bfloat16"] = _option("float32", "ray: numbers on the wire; bfloat16 halves the bytes")
    start_timeout: float = _option(60.0, "ray: seconds to wait for servers and workers to be placed")
    hang_after: float = _option(60.0, "ray: seconds without a sign after which a worker or server is replaced")

    def __post_init__(self) -> None:
        positive = ("servers", "cpus_per_worker", "start_timeout", "hang_after")
        for name in (*positive, "min_workers", "bandwidth"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidSettings(f"{name} is {value}; expected more than 0")
        if self.cpus_per_server < 0:
            raise InvalidSettings(f"cpus_per_server is {self.cpus_per_server}; expected 0 or more")
        for name, allowed in (("placement", ("spread", "pack")), ("wire", ("float32", "bfloat16"))):
            if getattr(self, name) not in allowed:
                raise InvalidSettings(f"{name} is {getattr(self, name)!r}; expected one of {', '.join(allowed)}")
        if self.object_store is not None:
            memory_bytes(self.object_store, "object_store")

    @property
    def bytes_a_second(self) -> float | None:
        """The declared bandwidth."""
        return None if self.bandwidth is None else self.bandwidth * 1e9 / 8
