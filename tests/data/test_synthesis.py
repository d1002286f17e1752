"""Synthetic data: a seed decides it, it has the promised shape, and a metric learns what Euclid and PCA do not see."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf
from nearfar.data import synthesis, synthesis_kernels
from nearfar.data.dataset import Dataset
from nearfar.data.points import SparseRows
from nearfar.data.synthesis import Documents, Images, synthesize
from nearfar.data.writer import DatasetWriter
from nearfar.errors import InvalidFile, InvalidSettings
from nearfar.objective.ranking import average_precision

TRAINING, TEST = synthesis._TRAINING, synthesis._TEST
IMAGES, DOCUMENTS = Images(0), Documents(0, 100_000)
SOURCES = pytest.mark.parametrize("source", [IMAGES, DOCUMENTS], ids=["images", "documents"])


def matrix(dataset: Dataset) -> sp.csr_matrix:
    rows = dataset.points.rows(np.arange(len(dataset.points)))
    assert isinstance(rows, SparseRows)
    return rows.to_scipy()


def pair_ap(X: np.ndarray | sp.csr_matrix, labels: np.ndarray) -> float:
    """Average precision of Euclidean distance on as many similar as dissimilar pairs."""
    pairs = nf.draw_pairs(nf.LabelDraws(nf.Labels(labels)), 5000, 5000, seed=1)
    near, far = (
        np.concatenate([squares(X, part) for part in np.array_split(ij, 10)])
        for ij in (pairs.similar, pairs.dissimilar)
    )
    return average_precision(near, far)


def squares(X: np.ndarray | sp.csr_matrix, pairs: np.ndarray) -> np.ndarray:
    difference = X[pairs[:, 0]] - X[pairs[:, 1]]
    return np.asarray(difference.multiply(difference).sum(axis=1)).ravel() if sp.issparse(X) else (difference**2).sum(1)


@pytest.fixture(scope="module")
def images() -> tuple[sp.csr_matrix, np.ndarray, sp.csr_matrix, np.ndarray]:
    """Points to learn from and to judge on, with their labels."""
    X, labels = IMAGES.rows(TRAINING, 0, 6000)
    X_test, test_labels = IMAGES.rows(TEST, 0, 2000)
    return X.astype(np.float32), labels, X_test.astype(np.float32), test_labels


@SOURCES
def test_points_depend_on_their_number_alone(source) -> None:
    whole, labels = source.rows(TRAINING, 0, 700)
    part, part_labels = source.rows(TRAINING, 300, 200)
    assert (whole[300:500] != part).nnz == 0
    np.testing.assert_array_equal(labels[300:500], part_labels)


@SOURCES
def test_rows_are_sound_and_small_whole_numbers(source) -> None:
    X, _ = source.rows(TRAINING, 0, 300)
    X.check_format(full_check=True)
    assert X.has_canonical_format
    assert X.dtype == np.uint8
    assert X.data.min() > 0
    assert X.shape == (300, source.n_features)


@SOURCES
def test_classes_are_even(source) -> None:
    _, labels = source.rows(TEST, 0, 2 * source.n_classes)
    for turn in np.split(labels, 2):
        np.testing.assert_array_equal(np.sort(turn), np.arange(source.n_classes))
    assert (labels[: source.n_classes] != labels[source.n_classes :]).any()


@SOURCES
def test_training_and_test_points_are_apart(source) -> None:
    rows = [
        {row.tobytes() for row in np.split(X.indices, X.indptr[1:-1])}
        for X, _ in (source.rows(TRAINING, 0, 2000), source.rows(TEST, 0, 2000))
    ]
    assert [len(kind) for kind in rows] == [2000, 2000]
    assert not rows[0] & rows[1]


def test_images_are_sparse_codes_pooled_over_a_pyramid(images) -> None:
    X = images[0]
    assert X.shape[1] == 21 * 1024
    assert 0.045 < X.nnz / np.prod(X.shape) < 0.055
    assert (np.diff(X.tocsc().indptr) > 0).all()  # no column is idle
    regions = X[:50].toarray().reshape(50, 21, 1024)
    cells = regions[:, 5:].reshape(50, 2, 2, 2, 2, 1024)  # picture, quarter row, row in it, quarter column, ...
    np.testing.assert_array_equal(regions[:, 1:5], cells.max(axis=(2, 4)).reshape(50, 4, 1024))
    np.testing.assert_array_equal(regions[:, 0], regions[:, 1:5].max(axis=1))


def test_an_image_is_what_the_formula_says() -> None:
    """The kernel against a plain reading of the model."""
    X, labels = IMAGES.rows(TRAINING, 40, 3)
    for row, number in enumerate(range(40, 43)):
        key = synthesis_kernels.stream_key(0, TRAINING, number)
        expected = np.zeros((16, 1024))
        for part, likelihood in enumerate(IMAGES._likelihood[labels[row]]):
            seen, size, last = (synthesis_kernels.chance(key, 3 * part + i) for i in range(3))
            if seen < likelihood:
                words = [*IMAGES._codewords[part], int(last * 1024)]
                for word, weight in zip(words, IMAGES._weights[part], strict=True):
                    code = np.ceil(255 * (0.5 + 0.5 * size) * weight)
                    expected[part // 75, word] = max(expected[part // 75, word], code)
        np.testing.assert_array_equal(X[row].toarray().reshape(21, 1024)[5:], expected)


def test_telling_parts_are_as_frequent_as_any_other() -> None:
    shown = IMAGES._likelihood.mean(axis=0).reshape(16, 75)
    assert shown[:, :4].mean() == pytest.approx(shown[:, 4:].mean(), rel=1e-5)
    assert np.ptp(IMAGES._likelihood.reshape(1000, 16, 75)[:, :, 4:]) == 0


@pytest.mark.parametrize("n_features", [100_000, 1_000_000])
def test_documents_have_a_hundred_words_whatever_the_number_of_features(n_features: int) -> None:
    X, _ = Documents(0, n_features).rows(TRAINING, 0, 3000)
    words = np.diff(X.indptr)
    assert 95 < words.mean() < 105
    assert (words.min(), words.max()) == (50, 150)
    share = np.sort(np.asarray(X.sum(axis=0)).ravel())[::-1] / X.sum()
    assert share[0] > 5 * share[9] > 0  # Zipf: the first word ten times as often as the tenth
    assert X.max() > 5


@pytest.mark.slow
def test_neither_euclid_nor_whitening_sees_the_classes_of_images(images) -> None:
    X, _, X_test, test_labels = images
    X = X[:1000]
    euclid = pair_ap(X_test, test_labels)
    assert 0.5 < euclid <= 0.65
    mean = np.asarray(X.mean(axis=0)).ravel()
    gram = (X @ X.T).toarray()
    means = gram.mean(axis=0)
    values, vectors = np.linalg.eigh(gram - means - means[:, None] + means.mean())
    values, vectors = values[:-401:-1], vectors[:, :-401:-1]
    directions = (X.T @ vectors - np.outer(mean, vectors.sum(axis=0))) / values  # whitened: divided by the root twice
    projected = X_test @ directions
    for rank in (50, 200, 400):
        assert pair_ap(projected[:, :rank], test_labels) <= min(0.65, euclid + 0.03), rank


@pytest.mark.slow
def test_a_metric_learns_the_classes_of_images(images) -> None:
    X, labels, X_test, test_labels = images
    metric = nf.train(X, labels, nf.TrainingSettings(rank=100, steps=40, block_size=500)).metric
    assert pair_ap(metric.transform(X_test), test_labels) > pair_ap(X_test, test_labels) + 0.1


@pytest.mark.slow
def test_a_metric_learns_the_topics_of_documents() -> None:
    X, labels = DOCUMENTS.rows(TRAINING, 0, 6000)
    X_test, test_labels = DOCUMENTS.rows(TEST, 0, 2000)
    X, X_test = X.astype(np.float32), X_test.astype(np.float32)
    euclid = pair_ap(X_test, test_labels)
    assert euclid <= 0.65
    metric = nf.train(X, labels, nf.TrainingSettings(rank=50, steps=40)).metric
    assert pair_ap(metric.transform(X_test), test_labels) > euclid + 0.1


@pytest.mark.parametrize(("name", "fewest"), [("imnet-63k", 2000), ("imnet-1m", 2000), ("text-1m", 200)])
def test_the_folders_hold_the_points_of_the_seed(tmp_path: Path, name: str, fewest: int) -> None:
    training, test = synthesize(name, tmp_path / "d", points=2300, seed=5)
    assert {path.name for path in tmp_path.iterdir()} == {"d", "d-test"}
    assert (training.name, test.name) == ("d", "d-test")
    assert (len(training.points), len(test.points)) == (2300, max(fewest, 230))
    source = Documents(5, 1_000_000) if name == "text-1m" else Images(5)
    for dataset, stream in ((training, TRAINING), (test, TEST)):
        X, labels = source.rows(stream, 0, len(dataset.points))
        assert (matrix(dataset) != X).nnz == 0
        np.testing.assert_array_equal(dataset.labels, labels)
    described = json.loads((tmp_path / "d" / "dataset.json").read_text())
    assert described["n_classes"] == source.n_classes
    assert described["source"] == f"nearfar synthesize {name} --seed 5"
    other, _ = synthesize(name, tmp_path / "e", points=2300, seed=6)
    assert other.fingerprint != training.fingerprint


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_number_of_points(tmp_path: Path) -> None:
    script = """
import sys, threading, time
from pathlib import Path
from nearfar.data.synthesis import synthesize
most = 0
def watch():
    global most
    while True:
        status = Path("/proc/self/status").read_text()
        most = max(most, int(status.split("RssAnon:")[1].split()[0]) * 1024)
        time.sleep(0.01)
threading.Thread(target=watch, daemon=True).start()
for points in (20_000, 60_000):
    synthesize("imnet-1m", Path(sys.argv[1]) / str(points), points=points)
    print(most)
"""
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    before, after = (int(line) for line in ended.stdout.split())
    grown = [sum(file.stat().st_size for file in (tmp_path / part).iterdir()) for part in ("20000", "60000")]
    assert after - before < (grown[1] - grown[0]) / 2


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("imnet-2m", {}, "expected one of imnet-63k, imnet-1m, text-1m"),
        ("imnet-63k", {"points": 1999}, "points is 1999; expected at least 2000"),
        ("imnet-63k", {"points": 5000, "test_points": 1}, "test_points is 1; expected at least 2000"),
        ("text-1m", {"points": 199}, "points is 199; expected at least 200"),
        ("text-1m", {"features": 10}, "features is 10; expected from 10000"),
        ("imnet-1m", {"features": 100}, "always has 21504"),
        ("imnet-1m", {"seed": -1}, "seed is -1; expected a whole number from 0"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_left(tmp_path: Path, name: str, options: dict, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        synthesize(name, tmp_path / "d", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("existing", ["d", "d-test"])
def test_what_exists_stays(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).mkdir()
    with pytest.raises(InvalidFile, match="exists already"):
        synthesize("text-1m", tmp_path / "d", points=200)
    assert [path.name for path in tmp_path.iterdir()] == [existing]


def test_an_error_on_the_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Documents, stream: int, first: int, count: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Documents, "rows", broken)
    with pytest.raises(InvalidFile, match="No space left"):
        synthesize("text-1m", tmp_path / "d", points=200)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", [1, 2])
def test_an_error_at_the_end_of_either_leaves_neither(tmp_path: Path, monkeypatch, call: int) -> None:
    describe, calls = DatasetWriter._describe, []

    def broken(self: DatasetWriter) -> None:
        calls.append(self)
        if len(calls) == call:
            raise OSError(28, "No space left on device")
        describe(self)

    monkeypatch.setattr(DatasetWriter, "_describe", broken)
    with pytest.raises(InvalidFile, match="No space left"):
        synthesize("text-1m", tmp_path / "d", points=200)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("named", ["d", "d-test"])
def test_a_signal_between_the_names_leaves_neither(tmp_path: Path, monkeypatch, named: str) -> None:
    replace = Path.replace

    def interrupted(self: Path, target: Path) -> None:
        replace(self, target)
        if target == tmp_path / named:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            synthesize("text-1m", tmp_path / "d", points=200)
    assert not list(tmp_path.iterdir())
    synthesize("text-1m", tmp_path / "d", points=200)


def test_what_somebody_else_made_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = DatasetWriter.complete

    def late(self: DatasetWriter) -> None:
        complete(self)
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / "d" / "letter").touch()

    monkeypatch.setattr(DatasetWriter, "complete", late)
    with pytest.raises(InvalidFile, match="cannot write"):
        synthesize("text-1m", tmp_path / "d", points=200)
    assert [path.name for path in tmp_path.rglob("*")] == ["d", "letter"]
