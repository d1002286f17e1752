"""Compiled loops are kept where that can be, are left when any of their sources changes, and disturb nobody else's."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nearfar
from nearfar import compiled

USED = """
import os, numba
import nearfar as nf
from nearfar import compiled
from nearfar.data.synthesis_kernels import chance
assert numba.config.CACHE_DIR == os.environ.get("NUMBA_CACHE_DIR", "")
print(nf.__file__)
print(chance(1, 2))
print(compiled._folder())
"""
"""What it prints between the two paths is of a loop that has one of another file, ``draw.py``, within it."""
WEEK = 7 * 24 * 3600


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
    draw, display = package / "nearfar" / "data" / "draw.py", package / "nearfar" / "display.py"
    printed = [run(package, *places)]
    for path, old, new in ((display, '"""', '"""Another '), (draw, "np.uint64(31)", "np.uint64(32)")):
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))
        printed.append(run(package, *places))
    assert printed[0] == printed[1]  # it has no loop
    assert printed[2][-2] != printed[1][-2]  # what the changed loop gives, by way of one whose file is as it was
    assert printed[2][-1] != printed[1][-1]


def test_imported_from_an_archive_loops_are_compiled_and_kept_nowhere(package, places, tmp_path):
    home, temporary = places
    archive = shutil.make_archive(tmp_path / "archive", "zip", package)
    own = tmp_path / "own"
    _, given, _ = run(Path(archive), home, temporary, NUMBA_CACHE_DIR=str(own))
    assert 0 <= float(given) < 1
    assert not [path for place in (own, home, temporary) for path in place.rglob("*") if path.is_file()]


def test_of_what_nobody_used_for_a_week_only_folders_of_this_name_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "_places", lambda: iter([tmp_path]))
    choose = compiled._folder.__wrapped__  # anew at each call
    chosen = choose()
    of_others = [tmp_path / name for name in ("loops-mine", f"loops-{16 * 'a'}", f"{compiled._PREFIX}mine")]
    old, new = (tmp_path / (compiled._PREFIX + 16 * digit) for digit in "01")
    for folder in (*of_others, old, new):
        folder.mkdir()
    for folder in (*of_others, old, chosen):
        os.utime(folder, 2 * (time.time() - WEEK - 60,))
    assert choose() == chosen
    assert {*tmp_path.iterdir()} == {chosen, new, *of_others}


def test_a_folder_that_is_used_is_as_new(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "_places", lambda: iter([tmp_path]))
    choose = compiled._folder.__wrapped__
    chosen = choose()
    os.utime(chosen, 2 * (time.time() - WEEK - 60,))
    choose()
    monkeypatch.setattr(compiled, "_digest_of_sources", lambda: 16 * "0")  # another version, which removes what is old
    assert {choose(), chosen} == {*tmp_path.iterdir()}
