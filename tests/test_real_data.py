"""The promises on real data, by the commands of the README: MNIST and 20 Newsgroups, where they are at hand."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

pytestmark = [pytest.mark.shared_data, pytest.mark.slow]


def nearfar(*arguments: str) -> str:
    command = [sys.executable, "-c", "from nearfar.cli import main; main()", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def peak_bytes(*arguments: str) -> int:
    """The peak memory of one command.

    A small process starts it and looks: the kernel counts what the starting process had before it turned into the
    command, and a process of tests has much.
    """
    look = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    look += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    command = [sys.executable, "-c", look, str(Path(sys.executable).with_name("nearfar")), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def judged(run: Path, dataset: Path) -> dict[str, float]:
    return json.loads(nearfar("evaluate", str(run), str(dataset), "--json"))["learned"]


@pytest.fixture(scope="module")
def mnist(shared_data, tmp_path_factory) -> Path:
    """A folder with the datasets ``train`` and ``test``."""
    folder = tmp_path_factory.mktemp("mnist")
    for part in ("train", "test"):
        keys = ("--points-key", f"x_{part}", "--labels-key", f"y_{part}")
        nearfar("ingest", str(shared_data / "mnist.npz"), *keys, "--out", str(folder / part))
    nearfar("sample", str(folder / "train"), "--similar", "100000", "--dissimilar", "100000")
    nearfar("sample", str(folder / "test"), "--similar", "10000", "--dissimilar", "10000")
    return folder


def test_mnist_in_the_papers_setting(mnist, tmp_path):
    run = tmp_path / "run"
    nearfar(
        "train", str(mnist / "train"), "--out", str(run), "--rank", "600", "--batch-size", "1000", "--loss", "hinge",
        "--margin", "1", "--dissimilar-weight", "1", "--workers", "2", "--consistency", "asp",
    )  # fmt: skip
    assert judged(run, mnist / "test")["average_precision"] >= 0.905


def test_mnist_from_labels_with_no_setting_at_all(mnist, tmp_path):
    run = tmp_path / "run"
    nearfar("train", str(mnist / "train"), "--out", str(run), "--from-labels")
    assert judged(run, mnist / "test")["average_precision"] >= 0.93


def test_mnist_for_neighbours(mnist, tmp_path):
    run = tmp_path / "run"
    nearfar("train", str(mnist / "train"), "--out", str(run), "--from-labels", "--loss", "neighbour")
    assert judged(run, mnist / "test")["3nn_error"] <= 0.022


def test_mnist_lifted_for_verification(mnist, tmp_path):
    run = tmp_path / "run"
    began = time.perf_counter()
    nearfar("train", str(mnist / "train"), "--out", str(run), "--from-labels", "--lift", "rbf")
    took = time.perf_counter() - began
    assert judged(run, mnist / "test")["average_precision"] >= 0.99
    reports = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert next(report["seconds"] for report in reports if report["ap"] >= 0.99) < 60, f"{took:.0f} s in all"


def test_mnist_triplets_for_neighbours(mnist, tmp_path):
    """Of 200,000 triplets among neighbours; plain Euclid's error is 2.95 %."""
    nearfar("sample", str(mnist / "train"), "--triplets", "200000", "--among-neighbours")
    run = tmp_path / "run"
    nearfar("train", str(mnist / "train"), "--out", str(run), "--steps", "400")
    assert judged(run, mnist / "test")["3nn_error"] < 0.0295


def test_newsgroups_sparse_with_no_setting_at_all(shared_data, tmp_path):
    with np.load(shared_data / "20newsgroups.npz") as file:
        counts = sp.csr_matrix((file["data"].astype(np.float32), file["indices"], file["indptr"]), shape=file["shape"])
        labels, is_test = file["y"], file["is_test"].astype(bool)
    weigh = TfidfTransformer().fit(counts[~is_test])
    for name, chosen in (("train", ~is_test), ("test", is_test)):
        sp.save_npz(tmp_path / f"{name}.npz", weigh.transform(counts[chosen]).astype(np.float32))
        np.save(tmp_path / f"{name}-labels.npy", labels[chosen])
        nearfar(
            "ingest", str(tmp_path / f"{name}.npz"), "--labels", str(tmp_path / f"{name}-labels.npy"),
            "--out", str(tmp_path / name),
        )  # fmt: skip
    peak = peak_bytes("train", str(tmp_path / "train"), "--out", str(tmp_path / "run"))
    assert peak < 1.5e9, f"{peak / 1e9:.2f} GB"
    assert judged(tmp_path / "run", tmp_path / "test")["average_precision"] >= 0.90
