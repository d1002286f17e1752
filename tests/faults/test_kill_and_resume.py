"""A real process is killed in mid-training; what it learned is not lost."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nearfar.data.dataset import write_dataset
from nearfar.model.metric import load_metric
from nearfar.model.run import RunFolder
from tests.commands import Ended, ended, nearfar, running, wait_until

ENGINES = {
    "serial": ["--engine", "serial"],
    "bsp": ["--workers", "2", "--consistency", "bsp"],
    "asp": ["--workers", "2", "--consistency", "asp"],
}
FEWEST, ENDLESS = 400, 1_000_000
"""Steps that a run is at when it is killed, at the least, and that it would take if it were not."""
AT_ANY_COST = """
from nearfar.cli import main
from nearfar.engine import supervisor

supervisor._WRITING_SHARE = 1
main()
"""
"""A program in which checkpoints come often, also where the disk is slow."""
MORE = 400
"""Steps that a killed run takes when it goes on."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, digits) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "digits"
    write_dataset(folder, digits[0].astype(np.float32), digits[1])
    return folder


@pytest.fixture(scope="module")
def undisturbed(dataset) -> Callable[[str, int], Path]:
    """The run of an engine that takes so many steps, and that nothing disturbs."""

    def of(engine: str, steps: int) -> Path:
        run = dataset.parent / f"{engine}-{steps}"
        if not run.exists():
            nearfar(*training(dataset, run, engine, steps))
        return run

    return of


def training(dataset: Path, run: Path, engine: str, steps: int, *more: str) -> list[str | Path]:
    return [
        "train", dataset, "--out", run, "--steps", str(steps), "--block-size", "300", "--checkpoint-every", "0.1",
        "--schedule", "inverse-root", *ENGINES[engine], *more,  # a schedule that is the same whatever the budget
    ]  # fmt: skip


def resume(dataset: Path, run: Path, engine: str, steps: int) -> Ended:
    outcome = ended(*training(dataset, run, engine, steps, "--resume"))
    assert outcome.code == 0, outcome.err
    return outcome


def history(run: Path) -> list[dict]:
    path = run / "history.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def newest_step(run: Path) -> int:
    paths = RunFolder(run).checkpoints(3).paths()
    return int(paths[0].stem.removeprefix("step-")) if paths else 0


def kill_in_mid_training(dataset: Path, run: Path, engine: str) -> None:
    def has_two_checkpoints() -> bool:
        return len(RunFolder(run).checkpoints(3).paths()) >= 2 and newest_step(run) >= FEWEST

    with running(*training(dataset, run, engine, ENDLESS), program=AT_ANY_COST) as begun:  # which ends with SIGKILL
        wait_until(has_two_checkpoints, begun)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_run_goes_on_where_its_newest_checkpoint_was(engine, dataset, undisturbed, tmp_path):
    killed = tmp_path / "killed"
    kill_in_mid_training(dataset, killed, engine)
    assert not (killed / "metric.safetensors").exists()
    half_written = killed / "checkpoints" / ".step-0000000700.safetensors.k1ll3d.partial"
    half_written.write_bytes(b"what a kill in the midst of writing leaves")
    saved = newest_step(killed)
    before = [line for line in history(killed) if line["step"] <= saved]

    resume(dataset, killed, engine, saved + MORE)
    assert not list(killed.rglob(".*"))
    lines = history(killed)
    steps = [line["step"] for line in lines]
    assert steps == sorted(set(steps))
    assert steps[-1] == saved + MORE
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)
    assert lines[: len(before)] == before

    whole = undisturbed(engine, saved + MORE)
    if engine == "asp":
        gone_on = lines[len(before)]
        assert gone_on["objective"] == pytest.approx(before[-1]["objective"], rel=0.2)  # it began at twice that
        assert lines[-1]["objective"] == pytest.approx(history(whole)[-1]["objective"], rel=0.1)
        assert lines[-1]["ap"] == pytest.approx(history(whole)[-1]["ap"], abs=0.01)
    else:
        assert (killed / "metric.safetensors").read_bytes() == (whole / "metric.safetensors").read_bytes()


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(dataset, undisturbed, tmp_path):
    run = tmp_path / "run"
    kill_in_mid_training(dataset, run, "serial")
    checkpoints = RunFolder(run).checkpoints(3).paths()
    assert len(checkpoints) >= 2
    content = bytearray(checkpoints[0].read_bytes())
    content[-1000] ^= 0xFF
    checkpoints[0].write_bytes(content)
    steps = newest_step(run) + MORE
    assert f"{checkpoints[0].name} is damaged" in resume(dataset, run, "serial", steps).err
    np.testing.assert_array_equal(
        load_metric(run / "metric.safetensors").components,
        load_metric(undisturbed("serial", steps) / "metric.safetensors").components,
    )
