"""The promises on real data, by the commands of the README: MNIST and 20 Newsgroups, where they are at hand."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

import nearfar as nf
from nearfar.data.dataset import Dataset
from nearfar.evaluation.retrieval import judge_neighbours
from tests.commands import nearfar, used_by

pytestmark = [pytest.mark.shared_data, pytest.mark.slow]


def average_precision(run: Path, dataset: Path) -> float:
    figures = json.loads(nearfar("evaluate", run, dataset, "--neighbours", "0", "--json"))
    return figures["learned"]["average_precision"]


def neighbour_error(run: Path, training: Path, test: Path) -> float:
    """As `nearfar evaluate` has it, which would search the neighbours by plain distance as well."""
    known, asked = Dataset.open(training), Dataset.open(test)
    metric = nf.load_metric(run / "metric.safetensors")
    return judge_neighbours(metric, known.points, known.labels, asked.points, asked.labels, k=3).error


@pytest.fixture(scope="module")
def mnist(shared_data, tmp_path_factory) -> Path:
    """A folder with the datasets ``train`` and ``test``."""
    folder = tmp_path_factory.mktemp("mnist")
    for part in ("train", "test"):
        keys = ("--points-key", f"x_{part}", "--labels-key", f"y_{part}")
        nearfar("ingest", shared_data / "mnist.npz", *keys, "--out", folder / part)
    nearfar("sample", folder / "train", "--similar", "100000", "--dissimilar", "100000")
    nearfar("sample", folder / "test", "--similar", "10000", "--dissimilar", "10000")
    return folder


def write_petuum(folder: Path, points: np.ndarray, labels: np.ndarray, pairs: nf.Pairs) -> None:
    """Points and pairs as the paper's own release reads them: text, with the pixels that are not 0."""
    with (folder / "points.petuum").open("w") as file:
        for row, label in zip(points, labels, strict=True):
            used = np.flatnonzero(row)
            entries = " ".join(f"{pixel}:{value}" for pixel, value in zip(used, row[used], strict=True))
            file.write(f"{label} {len(used)} {entries}\n")
    np.savetxt(folder / "similar.txt", pairs.similar, "%d", "\t")
    np.savetxt(folder / "dissimilar.txt", pairs.dissimilar, "%d", "\t")


def assert_the_same_from_petuum_and_npz(folder: Path, points: np.ndarray, labels: np.ndarray, pairs: nf.Pairs) -> None:
    write_petuum(folder, points, labels, pairs)
    np.savez(folder / "points.npz", X=points, y=labels)
    given = ("--similar", folder / "similar.txt", "--dissimilar", folder / "dissimilar.txt")
    said = f"{folder / 'of-text'}: {len(points)} points of 784 features, sparse\n"
    assert said == nearfar("ingest", folder / "points.petuum", "--features", "784", *given, "--out", folder / "of-text")
    nearfar("ingest", folder / "points.npz", *given, "--out", folder / "of-arrays")
    of_text, of_arrays = (Dataset.open(folder / name) for name in ("of-text", "of-arrays"))
    for place, rows in of_text.points.blocks():
        dense = of_arrays.points.rows(np.arange(place.start, place.stop))
        np.testing.assert_array_equal(rows.to_scipy().toarray(), dense)
    np.testing.assert_array_equal(of_text.labels, labels)
    for dataset in (of_text, of_arrays):
        np.testing.assert_array_equal(dataset.constraints.similar, pairs.similar)
        np.testing.assert_array_equal(dataset.constraints.dissimilar, pairs.dissimilar)


@pytest.mark.parametrize(("part", "count"), [("train", 4000), ("test", 2000)])
def test_mnist_in_the_format_of_the_papers_release_is_mnist(shared_data, tmp_path, part, count):
    with np.load(shared_data / "mnist.npz") as file:
        points, labels = file[f"x_{part}"][:count].reshape(count, 784), file[f"y_{part}"][:count]
    pairs = nf.draw_pairs(nf.LabelDraws(nf.Labels(labels)), 5000, 4000)
    assert_the_same_from_petuum_and_npz(tmp_path, points, labels, pairs)


def test_mnist_in_the_papers_setting(mnist, tmp_path):
    run = tmp_path / "run"
    nearfar(
        "train", mnist / "train", "--out", run, "--rank", "600", "--batch-size", "1000", "--loss", "hinge",
        "--margin", "1", "--dissimilar-weight", "1", "--workers", "2", "--consistency", "asp",
    )  # fmt: skip
    assert average_precision(run, mnist / "test") >= 0.905


def test_mnist_from_labels_with_no_setting_at_all(mnist, tmp_path):
    run = tmp_path / "run"
    nearfar("train", mnist / "train", "--out", run, "--from-labels")
    assert average_precision(run, mnist / "test") >= 0.93


def test_mnist_for_neighbours(mnist, tmp_path):
    run = tmp_path / "run"
    nearfar("train", mnist / "train", "--out", run, "--from-labels", "--loss", "neighbour", "--steps", "120")
    assert neighbour_error(run, mnist / "train", mnist / "test") <= 0.022


@pytest.mark.alone
def test_mnist_lifted_for_verification_in_a_minute_of_one_core(mnist, tmp_path):
    run = tmp_path / "run"
    began = time.process_time()
    nearfar("train", mnist / "train", "--out", run, "--from-labels", "--lift", "rbf", "--steps", "120")
    assert time.process_time() - began < 60
    assert average_precision(run, mnist / "test") >= 0.99


def test_mnist_triplets_for_neighbours(mnist, tmp_path):
    """Of 200,000 triplets among neighbours; plain Euclid's error is 2.95 %."""
    nearfar("sample", mnist / "train", "--triplets", "200000", "--among-neighbours")
    run = tmp_path / "run"
    nearfar("train", mnist / "train", "--out", run, "--steps", "400")
    assert neighbour_error(run, mnist / "train", mnist / "test") < 0.0295


def test_newsgroups_sparse_with_no_setting_at_all(shared_data, tmp_path):
    with np.load(shared_data / "20newsgroups.npz") as file:
        counts = sp.csr_matrix((file["data"].astype(np.float32), file["indices"], file["indptr"]), shape=file["shape"])
        labels, is_test = file["y"], file["is_test"].astype(bool)
    weigh = TfidfTransformer().fit(counts[~is_test])
    for name, chosen in (("train", ~is_test), ("test", is_test)):
        sp.save_npz(tmp_path / f"{name}.npz", weigh.transform(counts[chosen]).astype(np.float32))
        np.save(tmp_path / f"{name}-labels.npy", labels[chosen])
        nearfar(
            "ingest", tmp_path / f"{name}.npz", "--labels", tmp_path / f"{name}-labels.npy",
            "--out", tmp_path / name,
        )  # fmt: skip
    peak = used_by("train", tmp_path / "train", "--out", tmp_path / "run").peak_bytes
    assert peak < 1.5e9, f"{peak / 1e9:.2f} GB"
    assert average_precision(tmp_path / "run", tmp_path / "test") >= 0.90
