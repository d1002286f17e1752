"""Checkpoints: kept, pruned, and never trusted when damaged."""

import numpy as np
import pytest

from nearfar.errors import InvalidRun
from nearfar.parameter_server.checkpoint import Checkpoint, Checkpoints


def checkpoint(step: int) -> Checkpoint:
    rng = np.random.default_rng(step)
    arrays = {"Lt": rng.normal(size=(50, 4)).astype(np.float32)}
    return Checkpoint(step, arrays, {"seconds": 1.5, "positions": [[0, step]]})


def test_the_newest_comes_back_exactly(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    for step in (10, 20):
        checkpoints.save(checkpoint(step))
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == 20
    assert newest.values == checkpoint(20).values
    np.testing.assert_array_equal(newest.arrays["Lt"], checkpoint(20).arrays["Lt"])


def test_only_the_last_few_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 30, 4000):
        checkpoints.save(checkpoint(step))
    assert [path.name for path in checkpoints.paths()] == ["step-0000004000.safetensors", "step-0000000030.safetensors"]
    assert len(list(tmp_path.iterdir())) == 2


def test_there_may_be_none(tmp_path):
    assert Checkpoints(tmp_path / "nowhere", keep=2).newest() is None


@pytest.mark.parametrize("damage", ["flip a byte", "cut short", "empty", "another file"])
def test_a_damaged_one_gives_way_with_a_warning(tmp_path, damage):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(checkpoint(1))
    path = checkpoints.save(checkpoint(2))
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    damaged = {"flip a byte": bytes(content), "cut short": content[:-100], "empty": b"", "another file": b"hello" * 50}
    path.write_bytes(damaged[damage])
    with pytest.warns(UserWarning, match="going back"):
        newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == 1


def test_if_all_are_damaged_it_says_so(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    checkpoints.save(checkpoint(1)).write_bytes(b"gone")
    with pytest.warns(UserWarning, match="not a complete"), pytest.raises(InvalidRun, match="every checkpoint"):
        checkpoints.newest()
