"""Compiled loops are kept where that can be, are left when any of their sources changes, and disturb nobody else's."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nearfar

USED = """
import numpy as np, numba
import nearfar as nf
from nearfar import compiled
assert numba.config.CACHE_DIR == __import__("os").environ.get("NUMBA_CACHE_DIR", "")
print(nf.__file__)
print(compiled._folder())
nf.train(np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3, nf.TrainingSettings(steps=3))
"""


def as_one_who_may_not_write(command: list[str]) -> list[str]:
    """A command of a user who is kept to permissions: root is not, unless it gives that up."""
    if os.geteuid() != 0:
        return command
    without = ["setpriv", "--bounding-set", "-dac_override", *command]
    if not shutil.which("setpriv") or subprocess.run([*without[:3], "true"], check=False).returncode:
        pytest.skip("root may write anywhere, and setpriv cannot change that here")
    return without


def run(package: Path, home: Path, temporary: Path, **more: str) -> list[str]:
    """The lines that USED prints, of a copy of the package."""
    of_others = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = {**of_others, "PYTHONPATH": str(package), "HOME": str(home), "TMPDIR": str(temporary), **more}
    command = as_one_who_may_not_write([sys.executable, "-c", USED])
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert str(package) in ended.stdout
    return ended.stdout.splitlines()


@pytest.fixture
def package(tmp_path):
    """A copy of the package that cannot be written to."""
    place = tmp_path / "installed"
    shutil.copytree(Path(nearfar.__file__).parent, place / "nearfar", ignore=shutil.ignore_patterns("__pycache__"))
    folders = [folder for folder in (place, *place.rglob("*")) if folder.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    yield place
    for folder in folders:
        folder.chmod(0o755)


@pytest.fixture
def places(tmp_path):
    """A home, and a place for temporary files."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    return home, temporary


def test_where_nothing_can_be_kept_it_is_kept_for_one_process(package, places):
    home, temporary = places
    home.chmod(0o555)
    *_, used = run(package, home, temporary)
    assert Path(used).parent == temporary
    assert not Path(used).exists()
    assert not list(temporary.iterdir())
    assert not list(package.rglob("*.nbi"))


def test_the_user_s_cache_and_a_folder_of_one_s_own_are_used_where_they_can_be(package, places, tmp_path):
    home, temporary = places
    for place, more in ((home / ".cache" / "nearfar", {}), (tmp_path / "own", {"NUMBA_CACHE_DIR": f"{tmp_path}/own"})):
        *_, used = run(package, home, temporary, **more)
        assert Path(used).parent == place
        assert list(Path(used).rglob("*.nbi"))


def test_what_was_compiled_is_left_when_the_source_of_any_loop_changes(package, places):
    packing, display = package / "nearfar" / "objective" / "packing.py", package / "nearfar" / "display.py"
    used = []
    for path in (display, display, packing):
        path.write_text(path.read_text() + "# another version\n")
        used.append(run(package, *places)[-1])
    assert used[0] == used[1]  # it has no loop
    assert used[2] != used[1]
