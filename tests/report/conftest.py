"""Real runs on digits: two that ended, to report and to watch."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nearfar.data.dataset import write_dataset
from nearfar.model.training import train
from nearfar.settings import TrainingSettings


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory, digits: tuple[np.ndarray, np.ndarray]) -> Path:
    """A folder with the datasets ``digits`` and ``unseen``, and the runs ``pairs`` and ``paper`` on the first."""
    folder = tmp_path_factory.mktemp("report")
    X, y = digits
    seen = write_dataset(folder / "digits", X[:1200], y[:1200])
    write_dataset(folder / "unseen", X[1200:], y[1200:])
    for name, more in {
        "pairs": {"workers": 2, "rank": 16},
        "paper": {"loss": "hinge", "rank": 8, "workers": 2, "consistency": "bsp"},
    }.items():
        settings = TrainingSettings(steps=60, report_every=4, block_size=200, **more)
        source = {"dataset": str(folder / "digits")}
        train(seen.points, seen.labels, settings, labels=seen.labels, run=folder / name, source=source)
    return folder


@pytest.fixture
def copied(place: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copies a run to a place of its own, to be changed."""

    def copy(name: str) -> Path:
        return shutil.copytree(place / name, tmp_path / name)

    return copy
