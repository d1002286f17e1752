"""Files are transformed as points are, a part at a time, and what is wrong is named by its row in the source."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from nearfar.data.dataset import write_dataset
from nearfar.data.formats import read_points
from nearfar.data.points import as_points
from nearfar.errors import InvalidPoints
from nearfar.model.metric import Metric
from nearfar.model.transforming import transform_to_file

N, D, WRONG = 9000, 6, 8500
SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".parquet", ".svm", "")


def points(n: int = N) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 90, (n, D)).astype(np.float32)


def written(place: Path, X: np.ndarray, suffix: str) -> Path:
    """The points in a file of this kind, or in a dataset folder."""
    path = place / f"points{suffix}"
    if suffix == ".npy":
        np.save(path, X)
    elif suffix == ".npz":
        np.savez(path, X=X)
    elif suffix in {".csv", ".tsv"}:
        np.savetxt(path, X, "%.9g", "," if suffix == ".csv" else "\t")
    elif suffix == ".parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"x": list(X)}), path)
    elif suffix == ".svm":
        dump_svmlight_file(X, np.zeros(len(X)), str(path), zero_based=False)
    else:
        write_dataset(path, X)
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearfar.data.formats.table.BLOCK_BYTES", 1 << 15)
    monkeypatch.setattr("nearfar.data.formats.parquet.BLOCK_BYTES", 1 << 15)
    monkeypatch.setattr("nearfar.data.formats.text._BLOCK_BYTES", 1 << 15)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_is_transformed_as_its_points_are(tmp_path: Path, small_blocks: None, suffix: str) -> None:
    X, metric = points(), Metric(np.random.default_rng(1).normal(size=(3, D)), centre=np.ones(D))
    shape = transform_to_file(metric, written(tmp_path, X, suffix), tmp_path / "out.npy")
    assert shape == (N, 3)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), metric.transform(X), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_a_wrong_point_is_named_by_its_row_in_the_source(tmp_path: Path, small_blocks: None, suffix: str) -> None:
    X = points()
    X[WRONG, 2] = np.nan
    with pytest.raises(InvalidPoints, match=rf"point {WRONG} has NaN or infinity in feature 2"):
        transform_to_file(Metric(np.eye(D)), written(tmp_path, X, suffix), tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


def test_chosen_points_are_named_by_their_number_among_all() -> None:
    X = points(10)
    X[7, 2] = np.inf
    chosen = as_points(X).chosen(np.array([9, 7, 1]))
    for indices in (None, np.array([1])):
        with pytest.raises(InvalidPoints, match="point 7 has NaN"):
            chosen.check_finite(indices)
    chosen.check_finite(np.array([0, 2]))


def peak_of(action: object) -> int:
    """The most bytes of arrays there are at a time."""
    tracemalloc.start()
    try:
        action()  # type: ignore[operator]
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_memory_does_not_grow_with_the_points(tmp_path: Path, small_blocks: None, suffix: str) -> None:
    source = written(tmp_path, points(150_000).astype(np.float64), suffix)
    whole = 150_000 * D * 8
    peak_of(lambda: transform_to_file(Metric(np.eye(D)), source, tmp_path / "compiled.npy"))
    assert peak_of(lambda: transform_to_file(Metric(np.eye(D)), source, tmp_path / "out.npy")) < whole / 3


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".svm"])
def test_points_read_whole_take_four_bytes_a_number(tmp_path: Path, small_blocks: None, suffix: str) -> None:
    X = points(30_000).astype(np.float64)
    source = written(tmp_path, X, suffix)
    read, held = read_points(source), []
    np.testing.assert_array_equal(_dense(read.rows(np.arange(len(X)))), X)
    numbers = X.size * (8 if suffix == ".svm" else 4)  # with its column
    assert peak_of(lambda: held.append(read_points(source))) < 2.5 * numbers
    assert held[0].n_features == D


def _dense(rows: object) -> np.ndarray:
    return rows.to_scipy().toarray() if hasattr(rows, "to_scipy") else np.asarray(rows)


def test_numbers_that_are_narrow_already_stay_so(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=points(1000).astype(np.uint8))
    assert peak_of(lambda: read_points(tmp_path / "a.npz")) < 10 * 1000 * D


@pytest.mark.parametrize(("text", "width"), [("1 1:2\n1 3:4\n", 3), ("1 0:2\n1 3:4\n", 4), ("1\n2\n", 1)])
def test_columns_count_from_one_unless_there_is_a_column_0(tmp_path: Path, text: str, width: int) -> None:
    (tmp_path / "a.svm").write_text(text)
    read = read_points(tmp_path / "a.svm")
    assert (len(read), read.n_features) == (2, width)
    first = 1 if width == 3 else 0
    expected = np.zeros((2, width))
    for row, line in enumerate(text.splitlines()):
        for entry in line.split()[1:]:
            column, value = entry.split(":")
            expected[row, int(column) - first] = float(value)
    np.testing.assert_array_equal(_dense(read.rows(np.arange(2))), expected)


def test_a_sparse_archive_is_transformed(tmp_path: Path) -> None:
    X = sp.random(50, D, 0.3, "csr", random_state=0)
    sp.save_npz(tmp_path / "a.npz", X)
    assert transform_to_file(Metric(np.eye(D)), tmp_path / "a.npz", tmp_path / "out.npy") == (50, D)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), X.toarray(), rtol=1e-6)
