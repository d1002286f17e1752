"""Faults of a cluster, each with a real process or node that dies: the run ends, and nothing is counted twice.

What is promised is in docs/guide/cluster.md.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.soak import actors, soak

import nearfar as nf
from nearfar.data.dataset import write_dataset
from nearfar.engine.ray_cluster import driver
from nearfar.errors import TrainingFailed
from nearfar.parameter_server.progress import Report
from tests.commands import process, running, wait_until
from tests.faults.three_nodes import SETTINGS, slow_until

STEPS = SETTINGS["steps"]
UNDER_WAY = 2 * 2 * 64
"""Steps of two grants that each of two workers may have when a server is lost."""
BETTER, WORSE = 0.1, 0.02
"""The shares by which the objective of a disturbed run may be off. It is better where one worker takes most steps, as
nothing is stale then; and steps that are lost are made up for by others, on other batches."""
QUICK = {"start_timeout": 60.0, "hang_after": 4.0}


class At:
    """Does something once, from the first report at or after a step."""

    def __init__(self, step: int, do: Callable[[], object]) -> None:
        self._step, self._do, self.done = step, do, False

    def __call__(self, report: Report) -> None:
        if report.step >= self._step and not self.done:
            self.done = True
            self._do()


def kill(name: str, number: int = signal.SIGKILL) -> Callable[[], None]:
    return lambda: os.kill(actors(name)[0], number)


def train(
    digits, *on_report: Callable[[Report], None], options: dict | None = None, **settings: object
) -> nf.TrainingResult:
    chosen = nf.TrainingSettings(**SETTINGS | settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the faults are told as warnings
        engine = nf.RayEngine(nf.RayOptions(**QUICK | (options or {})))
        return nf.train(*digits, chosen, engine=engine, on_report=on_report)


def check(result: nf.TrainingResult, undisturbed: float) -> Report:
    last = result.history[-1]
    counted(last.step, last.lost, last.workers)
    assert is_as_good(last.objective, undisturbed)
    nothing_is_left()
    return last


def is_as_good(objective: float, undisturbed: float) -> bool:
    return (1 - BETTER) * undisturbed <= objective <= (1 + WORSE) * undisturbed


def counted(step: int, lost: int, workers: list[dict]) -> None:
    """Every step was applied once: those of the workers are those in L and those lost."""
    assert step == STEPS
    untold = step + lost - sum(worker["steps"] for worker in workers)
    assert 0 <= untold <= UNDER_WAY if lost else untold == 0  # taken, but lost before the driver was told


def nothing_is_left() -> None:
    """Ray ends what belonged to a driver, but not at once."""
    deadline = time.monotonic() + 60
    while left := actors("ServerActor") + actors("WorkerActor"):
        assert time.monotonic() < deadline, [Path(f"/proc/{one}/status").read_text() for one in left]
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(ray_cluster, digits) -> float:
    return train(digits).history[-1].objective


@pytest.mark.parametrize("consistency", ["asp", "ssp:2", "bsp"])
def test_a_worker_is_killed(consistency, digits, undisturbed):
    fault = At(200, kill("WorkerActor"))
    last = check(train(digits, fault, consistency=consistency), undisturbed)
    assert fault.done
    assert len(last.workers) >= 2


def test_a_worker_is_killed_while_it_starts(digits, undisturbed):
    """Nor does it come back by itself; a third one is asked for."""

    def strike() -> None:
        known = set(actors("WorkerActor"))
        os.kill(min(known), signal.SIGKILL)
        deadline = time.monotonic() + 60
        while not (new := set(actors("WorkerActor")) - known) and time.monotonic() < deadline:
            time.sleep(0.002)
        os.kill(min(new), signal.SIGKILL)

    fault = At(100, lambda: threading.Thread(target=strike).start())
    result = train(digits, fault, slow_until(workers=3), consistency="ssp:4", report_every=4)
    last = check(result, undisturbed)
    assert max(worker["worker"] for worker in last.workers) >= 3
    assert last.lost == 0


def test_a_worker_hangs(digits, undisturbed):
    fault = At(200, kill("WorkerActor", signal.SIGSTOP))
    last = check(train(digits, fault), undisturbed)
    assert fault.done
    assert last.lost == 0


@pytest.mark.parametrize("servers", [1, 2])
def test_a_server_hangs(servers, digits, undisturbed):
    fault = At(300, kill("ServerActor", signal.SIGSTOP))
    check(train(digits, fault, options={"servers": servers}), undisturbed)
    assert fault.done


def test_workers_and_a_server_hang_at_once(digits, undisturbed):
    def stop_all() -> None:
        for victim in [*actors("WorkerActor"), actors("ServerActor")[0]]:
            os.kill(victim, signal.SIGSTOP)

    fault = At(300, stop_all)
    check(train(digits, fault, options={"servers": 2}), undisturbed)
    assert fault.done


@pytest.mark.parametrize("servers", [1, 2])
def test_a_server_is_killed(servers, digits, undisturbed):
    fault = At(300, kill("ServerActor"))
    last = check(train(digits, fault, options={"servers": servers}, checkpoint_every=0.1), undisturbed)
    assert fault.done
    assert last.lost < 300  # no further back than the last cut, which may just have been made


def test_a_server_is_killed_in_step(digits, undisturbed):
    """With a cut every few rounds: none may wait for a part of a round that is not granted."""
    fault = At(300, kill("ServerActor"))
    check(train(digits, fault, consistency="bsp", checkpoint_every=0.05), undisturbed)
    assert fault.done


def test_a_server_is_killed_before_the_last_cut(digits, undisturbed):
    """The last report was made already; the steps that are lost, all of them, are taken again, and reported again."""
    fault = At(STEPS, kill("ServerActor"))
    last = check(train(digits, fault, options={"servers": 2}, checkpoint_every=100.0), undisturbed)
    assert fault.done
    assert last.lost == STEPS


def test_what_never_gets_further_ends_in_an_error(digits, undisturbed, monkeypatch):
    """In step, so that the step at which the server is killed is the same each time."""
    monkeypatch.setattr(driver, "_MOST_FAULTS", 1)
    struck = []

    def strike(report: Report) -> None:
        if report.step >= 50:
            struck.append(report.step)
            kill("ServerActor")()

    with pytest.raises(TrainingFailed, match="training got no further than step"):
        train(digits, strike, workers=1, consistency="bsp", checkpoint_every=100.0)
    assert struck == [50] * 5
    nothing_is_left()


def test_a_worker_and_a_server_are_killed_at_once_again_and_again(digits, undisturbed):
    """Neither can tell what the other did last; each time a new era begins, with pushes counted anew."""
    faults = [At(step, lambda: [kill("WorkerActor")(), kill("ServerActor")()]) for step in (150, 300, 450)]
    check(train(digits, *faults, options={"servers": 2}), undisturbed)
    assert all(fault.done for fault in faults)


@pytest.mark.parametrize("consistency", ["asp", "bsp"])
def test_a_worker_is_killed_after_servers_went_back(consistency, digits, undisturbed):
    """What it pushed since counts as in any other era: the run neither waits for it in vain nor takes it twice."""
    faults = [At(150, kill("ServerActor")), At(250, kill("WorkerActor")), At(400, kill("WorkerActor"))]
    check(train(digits, *faults, options={"servers": 2}, consistency=consistency), undisturbed)
    assert all(fault.done for fault in faults)


def test_the_driver_is_killed_and_the_run_resumed(digits, tmp_path):
    write_dataset(tmp_path / "data", digits[0].astype(np.float32), digits[1])
    run = tmp_path / "run"
    command = (
        "train", tmp_path / "data", "--out", run, "--engine", "ray", "--workers", "2", "--servers", "2",
        "--steps", "3000", "--block-size", "200", "--checkpoint-every", "0.5", "--object-store", "200MB",
    )  # fmt: skip
    with running(*command) as begun:
        wait_until(lambda: list((run / "checkpoints").glob("step-*")), begun)
    nothing_is_left()
    ended = subprocess.run(process(*command, "--resume"), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    last = lines[-1]
    assert last["step"] == sum(worker["steps"] for worker in last["workers"]) == 3000
    assert [line["step"] for line in lines] == sorted({line["step"] for line in lines})
    settings = nf.TrainingSettings(steps=3000, block_size=200, workers=2)
    never_killed = nf.train(digits[0].astype(np.float32), digits[1], settings).history[-1].objective
    assert last["objective"] == pytest.approx(never_killed, rel=0.02)
    assert {path.name for path in run.iterdir()} == {"checkpoints", "history.jsonl", "metric.safetensors", "run.toml"}
    assert not list((run / "checkpoints").glob(".*"))
    nothing_is_left()


@pytest.mark.parametrize("what", ["a node dies", "a node joins"])
def test_nodes_come_and_go(what, digits, undisturbed):
    script = Path(__file__).with_name("three_nodes.py")
    ended = subprocess.run([sys.executable, str(script), what], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    last = json.loads(ended.stdout.splitlines()[-1])
    assert last["happened"] == [what]
    if what == "a node joins":
        assert len(last["workers"]) == 4
        undisturbed = nf.train(*digits, nf.TrainingSettings(**SETTINGS | {"workers": 4})).history[-1].objective
    counted(last["step"], last["lost"], last["workers"])
    assert is_as_good(last["objective"], undisturbed)
    nothing_is_left()


def test_a_small_object_store_and_a_token_are_enough(tmp_path):
    """L is 10 MB, three workers pull it 40 times, and the store has 80 MB; only who has the token takes part."""
    rng = np.random.default_rng(0)
    y = np.arange(500) % 5
    X = (3 * y[:, None] + rng.normal(size=(500, 5000))).astype(np.float32)
    write_dataset(tmp_path / "data", X, y)
    command = process(
        "train", tmp_path / "data", "--out", tmp_path / "run", "--engine", "ray", "--workers", "3", "--steps", "40",
        "--rank", "500", "--block-size", "100", "--object-store", "80MB", "--bandwidth", "1000", "--consistency", "bsp",
    )  # fmt: skip
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5f" * 32}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | token)
    assert ended.returncode == 0, ended.stderr
    last = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1])
    assert last["step"] == sum(worker["steps"] for worker in last["workers"]) == 40
    assert last["pulled_bytes"] + last["bytes"] > 5 * 80e6
    settings = nf.TrainingSettings(steps=40, rank=500, block_size=100, workers=3, consistency="bsp", engine="threads")
    in_memory = nf.train(X, y, settings).history[-1].objective
    assert last["objective"] == pytest.approx(in_memory, rel=0.02)
    nothing_is_left()


def test_a_short_soak():
    """The form of an hour is ``make soak``."""
    figures = soak(minutes=0.7, every=8.0)
    assert sum(figures["faults"].values()) >= 3
    assert 0 <= figures["untold"] <= UNDER_WAY * sum(figures["faults"].values())
    assert figures["objective"][-1] < figures["objective"][0]
    nothing_is_left()
