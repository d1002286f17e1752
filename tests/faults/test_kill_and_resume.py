"""A real process is killed in mid-training; what it learned is not lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nearfar.data.dataset import write_dataset
from nearfar.model.metric import load_metric
from nearfar.model.run import RunFolder

ENGINES = {
    "serial": ["--engine", "serial"],
    "bsp": ["--workers", "2", "--consistency", "bsp"],
    "asp": ["--workers", "2", "--consistency", "asp"],
}
STEPS = 1500


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, digits) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "digits"
    write_dataset(folder, digits[0].astype(np.float32), digits[1])
    return folder


def command(dataset: Path, run: Path, engine: str, *more: str) -> list[str]:
    return [
        sys.executable, "-c", "from nearfar.cli import main; main()", "train", str(dataset), "--out", str(run),
        "--steps", str(STEPS), "--block-size", "300", "--checkpoint-every", "0.2", *ENGINES[engine], *more,
    ]  # fmt: skip


def history(run: Path) -> list[dict]:
    path = run / "history.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def newest_step(run: Path) -> int:
    paths = RunFolder(run).checkpoints(3).paths()
    return int(paths[0].stem.removeprefix("step-")) if paths else 0


def kill_in_mid_training(dataset: Path, run: Path, engine: str) -> None:
    process = subprocess.Popen(command(dataset, run, engine), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(RunFolder(run).checkpoints(3).paths()) < 2 or newest_step(run) < STEPS // 10:
        assert process.poll() is None, "training ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_run_goes_on_where_its_newest_checkpoint_was(engine, dataset, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(dataset, whole, engine), check=True, capture_output=True)
    kill_in_mid_training(dataset, killed, engine)
    assert not (killed / "metric.safetensors").exists()
    saved = newest_step(killed)
    lost = [line["seconds"] for line in history(killed) if line["step"] > saved]
    at_checkpoint = [line["seconds"] for line in history(killed) if line["step"] <= saved]
    if lost:
        assert lost[-1] - at_checkpoint[-1] < 2.0  # an interval of 0.2 s, and what a busy machine adds

    resumed = subprocess.run(command(dataset, killed, engine, "--resume"), check=False, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    lines = history(killed)
    steps = [line["step"] for line in lines]
    assert steps == sorted(set(steps))
    assert steps[-1] == STEPS
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds)

    ours, theirs = load_metric(killed / "metric.safetensors"), load_metric(whole / "metric.safetensors")
    if engine == "asp":
        assert lines[-1]["objective"] == pytest.approx(history(whole)[-1]["objective"], rel=0.05)
        assert lines[-1]["ap"] == pytest.approx(history(whole)[-1]["ap"], abs=0.01)
    else:
        assert (killed / "metric.safetensors").read_bytes() == (whole / "metric.safetensors").read_bytes()
        np.testing.assert_array_equal(ours.components, theirs.components)


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(dataset, tmp_path):
    run = tmp_path / "run"
    whole = tmp_path / "whole"
    subprocess.run(command(dataset, whole, "serial"), check=True, capture_output=True)
    kill_in_mid_training(dataset, run, "serial")
    checkpoints = RunFolder(run).checkpoints(3).paths()
    assert len(checkpoints) >= 2
    content = bytearray(checkpoints[0].read_bytes())
    content[-1000] ^= 0xFF
    checkpoints[0].write_bytes(content)
    resumed = subprocess.run(command(dataset, run, "serial", "--resume"), check=True, capture_output=True, text=True)
    assert f"{checkpoints[0].name} is damaged" in resumed.stderr
    np.testing.assert_array_equal(
        load_metric(run / "metric.safetensors").components, load_metric(whole / "metric.safetensors").components
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_saved_and_says_how_to_go_on(number, dataset, tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(
        command(dataset, run, "asp"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    while not (run / "history.jsonl").exists() or len(history(run)) < 4:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--resume" in output
    assert newest_step(run) == history(run)[-1]["step"]
    resumed = subprocess.run(command(dataset, run, "asp", "--resume"), check=False, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert history(run)[-1]["step"] == STEPS
