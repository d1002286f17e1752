"""Environments for peers, made on first use under build/ and layered on the running one.

A layer holds only what its pins in benchmarks/requirements ask for and the running environment has not, or has in
another version. So both sides share NumPy and its BLAS, the running environment stays as it is, and a layer takes
seconds to make (longer where PyTorch has to be fetched). Of several processes that want the same one, the first makes
it, and the others wait for it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = Path(__file__).parent / "requirements"
LAYERS = ROOT / "build" / "environments"


class NoEnvironment(RuntimeError):
    """A peer's environment cannot be made, most likely for want of a network."""


def layer(name: str) -> Path:
    """The Python of the environment with these requirements; made if it is missing or older than its pins."""
    requirements = REQUIREMENTS / f"{name}.txt"
    base = sysconfig.get_path("purelib")
    made_of = hashlib.sha256(f"{base}\n{sys.version}\n{requirements.read_text()}".encode()).hexdigest()
    folder = LAYERS / name
    python, made = folder / "bin" / "python", folder / "made"
    with _alone(name):
        if made.exists() and made.read_text() == made_of:
            return python
        shutil.rmtree(folder, ignore_errors=True)
        _call([sys.executable, "-m", "venv", "--without-pip", str(folder)], name)
        (_packages(python, name) / "below.pth").write_text(f"{base}\n")
        pins = ["--requirement", str(requirements), "--disable-pip-version-check", "--quiet"]
        _call([sys.executable, "-m", "pip", "--python", str(python), "install", *pins], name)
        made.write_text(made_of)
    return python


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """No other process makes or looks for this environment meanwhile; if this one dies, the next goes on."""
    LAYERS.mkdir(parents=True, exist_ok=True)
    with (LAYERS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def surroundings() -> dict[str, str]:
    """Environment variables for a side that runs as a process of its own: this checkout, and one thread."""
    one_thread = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
    return {**os.environ, **one_thread, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}


def _packages(python: Path, name: str) -> Path:
    return Path(_call([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], name).strip())


def _call(command: list[str], name: str) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise NoEnvironment(f"the environment for {name} cannot be made: {ended.stderr.strip()[-500:]}")
    return ended.stdout
