"""The Ray cluster: connected to or started, and the actors placed on it."""

import contextlib
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError

from nearfar.engine.ray_cluster.options import RayOptions
from nearfar.engine.ray_cluster.server_actor import ServerActor
from nearfar.engine.ray_cluster.worker_actor import WorkerActor
from nearfar.errors import InvalidSettings, TrainingFailed
from nearfar.sizes import memory_bytes

_AT_ONCE = 4
"""Pushes, and pulls, that a server deals with at a time; the others wait in line."""
_TRIES = "RAY_gcs_server_port_wait_time_s"
"""How often Ray tries to reach a head, for 40 seconds each time: 20 times unless it is told otherwise."""
_END_TIMEOUT = 10.0
"""Seconds for which it is waited that actors are known to be dead."""
_END_LOOK = 0.005


@contextlib.contextmanager
def connected(options: RayOptions, workers: int) -> Iterator[None]:
    """Join a cluster, or start one on this machine for as long as this lasts. One that is joined already stays so."""
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": options.namespace}
    try:
        if options.address is None:
            cpus = math.ceil(workers * options.cpus_per_worker + options.servers * options.cpus_per_server)
            store = None if options.object_store is None else memory_bytes(options.object_store)
            with _own_signals():
                ray.init(
                    address="local", num_cpus=max(cpus, os.cpu_count() or 1), object_store_memory=store,
                    include_dashboard=False, **quiet,
                )  # fmt: skip
        else:
            with _own_signals(), _tried_once():
                ray.init(address=options.address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        what = str(error).strip().splitlines()[0]
        raise InvalidSettings(
            f"no Ray cluster at address {options.address!r} ({what}); start one with ray start --head, or leave the "
            "address out"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """SIGTERM does what it did before: Ray's own handler would end the process, and nothing would be saved."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:  # else it is not Python's
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _tried_once() -> Iterator[None]:
    """Not for longer than one call: a head that is started takes the same variable for the time it may take."""
    if _TRIES in os.environ:
        yield
        return
    os.environ[_TRIES] = "1"
    try:
        yield
    finally:
        del os.environ[_TRIES]


def place_server(options: RayOptions) -> Any:
    """A server, blank; it is started again, blank, when its process or its node dies."""
    actor = ray.remote(
        num_cpus=options.cpus_per_server,
        max_restarts=-1,
        max_task_retries=0,
        concurrency_groups={"push": _AT_ONCE, "pull": _AT_ONCE, "driver": 2},
        scheduling_strategy=_strategy(options),
    )(ServerActor)
    return actor.remote(options.wire)


def place_worker(options: RayOptions, number: int, parcel: Any, servers: list[Any]) -> Any:
    """A worker; when its process or its node dies, another one is asked for."""
    actor = ray.remote(
        num_cpus=options.cpus_per_worker,
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=_strategy(options),
    )(WorkerActor)
    return actor.remote(number, parcel, servers)


def end(actors: Iterable[Any]) -> None:
    """End actors at once, whatever they do, and return when Ray knows of it.

    A kill is only asked for. Where the last handle of an actor is given up before that arrives, Ray lets the actor
    finish what it does instead, and a call that waits for what is over may keep its process for ever.
    """
    left = list(actors)
    for actor in left:
        ray.kill(actor)
    deadline = time.monotonic() + _END_TIMEOUT
    while left and time.monotonic() < deadline:
        signs = [actor.ready.remote() for actor in left]
        ray.wait(signs, num_returns=len(signs), timeout=deadline - time.monotonic())
        left = [actor for actor, sign in zip(left, signs, strict=True) if not _is_of_a_dead(sign)]
        time.sleep(_END_LOOK)


def _is_of_a_dead(sign: Any) -> bool:
    try:
        ray.get(sign, timeout=0)
    except ActorDiedError:
        return True
    except (GetTimeoutError, RayActorError):
        pass  # not known yet
    return False


def not_placed(what: str, options: RayOptions) -> TrainingFailed:
    """The error for actors that found no room in time."""
    there, free = ray.cluster_resources().get("CPU", 0), ray.available_resources().get("CPU", 0)
    return TrainingFailed(
        f"{what} could not be placed within {options.start_timeout:g} s: the cluster has {there:g} CPUs, {free:g} of "
        f"them free; a worker asks for {options.cpus_per_worker:g}, a server for {options.cpus_per_server:g}. Ask for "
        "fewer workers or CPUs, add nodes, or raise start_timeout"
    )


def reason(error: BaseException) -> str:
    """Why an actor is gone, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, RayActorError) and len(lines) > 1:
        return f"{lines[0]} {lines[-1]}"
    return lines[-1] if lines else type(error).__name__


def _strategy(options: RayOptions) -> str:
    return "SPREAD" if options.placement == "spread" else "DEFAULT"
