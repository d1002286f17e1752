"""Shared by all tests: the real data sets, where they are, and a small problem that trains in a moment."""

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from sklearn.datasets import load_digits

TESTS = Path(__file__).resolve().parent
ALONE = ("behaviour", "engine/test_ray.py", "engine/test_threads.py", "faults", "report/test_browser.py",
         "report/test_watching.py", "test_planning.py")  # fmt: skip
"""Files and folders whose tests need the machine for themselves."""
settings.register_profile("nearfar", deadline=None)  # on a busy machine any example may take its time
settings.load_profile("nearfar")
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the machine for themselves."""
    for item in items:
        if any(item.path.is_relative_to(TESTS / one) for one in ALONE):
            item.add_marker("alone")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with MNIST and 20 Newsgroups; the test is skipped where it is absent."""
    if not (SHARED_DATA / "mnist.npz").exists():
        pytest.skip("needs MNIST and 20 Newsgroups in ../shared/data")
    return SHARED_DATA


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's bundled digits: 1,797 points of 64 features, 10 classes."""
    return load_digits(return_X_y=True)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One Ray cluster for all tests that can share one: starting it takes longer than most of them."""
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        ray.init(
            address="local", num_cpus=8, object_store_memory=300 << 20, include_dashboard=False, log_to_driver=False,
            logging_level=logging.ERROR,
        )  # fmt: skip
    yield
    ray.shutdown()
