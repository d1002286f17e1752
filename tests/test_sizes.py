"""What is counted is what is allocated, and what does not fit is refused before it is taken."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf
from nearfar.errors import InvalidSettings
from nearfar.sizes import (
    BatchSizes,
    Sizes,
    bandwidth_bytes,
    bandwidth_text,
    duration_seconds,
    duration_text,
    memory_bytes,
    memory_text,
)
from tests.commands import ended, nearfar

DENSE = Sizes(784, 600, BatchSizes(1000, 784, 784, 1000, is_sparse=False, is_block=False))

WATCHED = """
import sys, threading, numpy as np, scipy.sparse as sp, nearfar as nf
from nearfar.model.preparation import prepare

def anonymous():
    return 1024 * int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("RssAnon")))

d, k, nonzeros, workers = map(int, sys.argv[1:])
if nonzeros < d:
    X = sp.random(2000, d, nonzeros / d, "csr", np.float32, random_state=0)
else:
    X = np.random.default_rng(0).integers(0, 255, (2000, d), dtype=np.uint8)
y = np.arange(2000) % 10
small = nf.TrainingSettings(rank=2, steps=3, workers=workers, held_out=100)
nf.train(X, y, small)
settings = nf.TrainingSettings(rank=k, steps=10, workers=workers, held_out=100)
before = anonymous()
most, stop = [0], threading.Event()

def watch():
    while not stop.wait(0.005):
        most[0] = max(most[0], anonymous())

watching = threading.Thread(target=watch)
watching.start()
nf.train(X, y, settings)
stop.set(); watching.join()
sizes = prepare(X, nf.Labels(y), settings, labels=None, loss=None, start=None).sizes
print(most[0] - before, sum(sizes.memory.values()) - sizes.memory["Python and libraries"], sizes.shares_packed_copies)
"""


@pytest.mark.parametrize(
    ("d", "k", "nonzeros", "workers"),
    [(10_000, 500, 10_000, 1), (10_000, 500, 10_000, 2), (100_000, 200, 50, 2), (10_000, 1000, 500, 2)],
)
def test_the_sum_is_what_a_run_allocates(d, k, nonzeros, workers):
    run = [sys.executable, "-c", WATCHED, *map(str, (d, k, nonzeros, workers))]
    ended = subprocess.run(run, capture_output=True, text=True, check=True)
    seen, counted, shares = ended.stdout.split()
    assert (shares == "True") == (nonzeros == 500)
    seen, counted = float(seen), float(counted)
    most = 1.5 if shares == "True" else 1.3  # as many packed copies as there may be are counted, and fewer are made
    assert 0.75 < counted / seen < most, f"counted {memory_text(counted)}, seen {memory_text(seen)}"


FAR = Sizes(
    21_504, 1000, BatchSizes(1000, 2000, 21_504, 1000, is_sparse=True, is_block=False), workers=2, has_copies=True,
    hands_over=True, slots=2,
)  # fmt: skip


def test_where_a_metric_is_far_pushes_share_a_pass_and_workers_have_no_copies():
    apart = replace(FAR, hands_over=False)
    assert FAR.goes_in_pairs
    assert FAR.shares_packed_copies
    filled_up = FAR.L_bytes * 1024 / FAR.rank
    assert FAR.memory["packed copies of L"] == 4 * filled_up
    assert replace(FAR, rounded=True).memory["packed copies of L"] == 2 * filled_up
    assert (FAR.memory["workers' copies of L"], FAR.pull_bytes) == (0, 0)
    assert apart.memory["workers' copies of L"] == 2 * FAR.L_bytes
    assert replace(FAR, begins_small=True).memory["workers' copies of L"] == 2 * FAR.L_bytes
    # The gradient, half of the way there and back of three arrays, and half of a packed copy.
    assert FAR.update_bytes == 4 * FAR.L_bytes + filled_up / 2
    assert replace(FAR, slots=1).update_bytes == 8 * FAR.L_bytes + filled_up  # the copy by a pass of its own
    assert apart.update_bytes / FAR.L_bytes == 7
    few = replace(FAR, batch=replace(FAR.batch, touched=2000, entries=100))
    assert (
        few.update_bytes == replace(few, hands_over=False).update_bytes
    )  # of different rows, a pass has nothing shared
    for other in (few, replace(FAR, workers=1), replace(FAR, rank=100), replace(FAR, batch=DENSE.batch)):
        assert not other.shares_packed_copies
        assert other.memory["packed copies of L"] == 0
        assert other.pull_bytes > 0
    assert not replace(FAR, slots=1).goes_in_pairs


def test_parts_grow_as_they_should():
    twice = replace(DENSE, rank=1200)
    for part in ("L", "state of adam", "gradients under way", "best L"):
        assert twice.memory[part] == pytest.approx(2 * DENSE.memory[part], rel=0.01)
    assert replace(DENSE, update_rule="sgd").memory["state of sgd"] == 0
    assert DENSE.memory["workers' copies of L"] == 0
    copies = replace(DENSE, has_copies=True, workers=3)
    assert copies.memory["workers' copies of L"] == 3 * 4 * 784 * 600
    assert DENSE.flops == 4 * 1000 * 784 * 600
    assert DENSE.update_bytes == 7 * 4 * 784 * 600
    assert copies.pull_bytes == 2 * 4 * 784 * 600
    assert DENSE.pull_bytes == 0


@pytest.mark.parametrize(
    ("text", "count"), [("8GB", 8e9), ("500 mb", 5e8), ("1.5TB", 1.5e12), ("12kb", 12e3), ("7B", 7)]
)
def test_memory_is_read_and_written(text, count):
    assert memory_bytes(text) == count
    assert memory_bytes(memory_text(count)) == pytest.approx(count, rel=0.01)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10Gbit", 1.25e9), ("100 Mbit/s", 1.25e7), ("1.25GB", 1.25e9), ("64kbit", 8e3), ("2Tbit", 2.5e11)],
)
def test_bandwidths_are_read_and_written(text, rate):
    assert bandwidth_bytes(text) == rate
    assert bandwidth_bytes(bandwidth_text(rate)) == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize(
    ("text", "seconds"), [("50us", 5e-5), ("0.5 ms", 5e-4), ("3s", 3.0), ("2min", 120.0), ("0s", 0.0)]
)
def test_durations_are_read_and_written(text, seconds):
    assert duration_seconds(text) == pytest.approx(seconds)
    assert duration_seconds(duration_text(seconds)) == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize("text", ["", "10", "Gbit", "-1Gbit", "0Gbit", "1.2.3GB", "10Gbits", "nanGbit"])
def test_a_bandwidth_that_is_none_is_refused(text):
    with pytest.raises(InvalidSettings, match=r"bandwidth is .*; expected a number and a unit"):
        bandwidth_bytes(text)


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "1 second"])
def test_a_duration_that_is_none_is_refused(text):
    with pytest.raises(InvalidSettings, match=r"latency is .*; expected a number and a unit, as in 50us"):
        duration_seconds(text, "latency")


@pytest.fixture
def points():
    return np.random.default_rng(0).random((300, 400), dtype=np.float32)


def test_too_little_memory_is_refused_with_the_sum_and_leaves_nothing(points, tmp_path):
    settings = nf.TrainingSettings(rank=400, memory="205MB", workers=2)
    with pytest.raises(InvalidSettings, match=r"memory is 205MB, but this run takes .* MB: .*L 640 KB.*lower rank"):
        nf.train(points, np.arange(300) % 3, settings, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("rank", "lift"), [(400, "none"), (1, "none"), (40, "rbf")])
def test_where_nothing_can_be_lowered_the_least_that_the_data_take_is_said(points, rank, lift):
    settings = nf.TrainingSettings(rank=rank, memory="10MB", lift=lift)
    with pytest.raises(InvalidSettings, match="such data take at least") as raised:
        nf.train(points, np.arange(300) % 3, settings)
    assert "lower" not in str(raised.value)
    least = re.search(r"at least (\S+ MB)", str(raised.value))[1]
    enough = memory_text(1.01 * memory_bytes(least))
    smallest = nf.TrainingSettings(
        rank=1, memory=enough, lift=lift, lift_dim=1, block_size=4, update_rule="sgd", steps=2, schedule="constant"
    )
    assert nf.train(points, np.arange(300) % 3, smallest).history[-1].step == 2
    with pytest.raises(InvalidSettings, match=r"lower .*rank"):
        nf.train(points, np.arange(300) % 3, nf.TrainingSettings(rank=rank, memory=enough, workers=99, lift=lift))


def test_memory_that_is_enough_changes_nothing_but_the_gradients_under_way(points):
    labels = np.arange(300) % 3
    common = {"rank": 400, "steps": 10, "workers": 2, "consistency": "bsp"}
    free = nf.train(points, labels, nf.TrainingSettings(**common))
    tight = nf.train(points, labels, nf.TrainingSettings(**common, memory="215MB"))
    np.testing.assert_array_equal(free.metric.components, tight.metric.components)


def test_what_no_machine_holds_is_refused_before_it_is_taken():
    X = sp.random(50, 2_000_000, 1e-5, "csr", np.float32, random_state=0)
    with pytest.raises(InvalidSettings, match=r"this machine has .* but this run takes .* TB"):
        nf.train(X, np.arange(50) % 2, nf.TrainingSettings(rank=2_000_000))


def test_the_command_line_says_it_in_one_line(tmp_path):
    np.savez(tmp_path / "points.npz", X=np.random.default_rng(0).random((100, 50)), y=np.arange(100) % 3)
    nearfar("ingest", tmp_path / "points.npz", "--out", tmp_path / "data")
    code, _, err = ended("train", tmp_path / "data", "--out", tmp_path / "run", "--memory", "100MB")
    assert code == 2
    assert err.splitlines()[-1].startswith("error: memory is 100MB, but this run takes")
    assert not (tmp_path / "run").exists()
