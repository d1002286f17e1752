"""A dataset folder gives back what was written, and says what is wrong with it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from nearfar.data import description as description_module
from nearfar.data.constraints import Comparisons, Pairs
from nearfar.data.dataset import Dataset, store_constraints, write_dataset
from nearfar.data.points import SparseRows, as_points
from nearfar.data.stored import ValueType
from nearfar.errors import InvalidConstraints, InvalidFile, InvalidInput, InvalidPoints

PAIRS = Pairs([[0, 1], [2, 3]], [[0, 4]])


def dense(n: int = 6, d: int = 4) -> np.ndarray:
    return np.arange(n * d, dtype=np.float32).reshape(n, d)


def sparse(n: int = 6, d: int = 9) -> sp.csr_matrix:
    counts = np.random.default_rng(0).poisson(0.5, (n, d)).astype(np.uint16)
    return sp.csr_matrix(counts)


def all_rows(dataset: Dataset) -> np.ndarray:
    rows = dataset.points.rows(np.arange(len(dataset.points)))
    return rows.to_scipy().toarray() if isinstance(rows, SparseRows) else rows


@pytest.mark.parametrize("points", [dense(), sparse()], ids=["dense", "sparse"])
@pytest.mark.parametrize("labels", [None, np.array([0, 1, 2, 0, 1, 2]), np.array(["é", "b", "c", "é", "b", "c"])])
@pytest.mark.parametrize(
    "constraints", [None, PAIRS, Comparisons([[0, 1, 2]]), Comparisons([[0, 1, 2, 3], [3, 4, 5, 0]])]
)
def test_what_is_written_is_read(tmp_path: Path, points, labels, constraints) -> None:
    write_dataset(tmp_path / "digits", points, labels, constraints)
    read = Dataset.open(tmp_path / "digits")
    expected = points.toarray() if sp.issparse(points) else points
    np.testing.assert_array_equal(all_rows(read), expected)
    assert read.name == "digits"
    assert (read.labels is None) == (labels is None)
    if labels is not None:
        np.testing.assert_array_equal(read.labels, labels)
    assert type(read.constraints) is type(constraints)
    if isinstance(constraints, Pairs):
        np.testing.assert_array_equal(read.constraints.similar, constraints.similar)
        np.testing.assert_array_equal(read.constraints.dissimilar, constraints.dissimilar)
    elif constraints is not None:
        np.testing.assert_array_equal(read.constraints.indices, constraints.indices)


def test_the_files_have_the_names_that_others_rely_on(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a", dense(), np.arange(6) % 2, PAIRS)
    write_dataset(tmp_path / "b", sparse(), None, Comparisons([[0, 1, 2]]))
    names = {folder: {path.name for path in (tmp_path / folder).iterdir()} for folder in "ab"}
    assert names["a"] == {"dataset.json", "points.npy", "labels.npy", "similar.npy", "dissimilar.npy"}
    csr = {"points.data.npy", "points.indices.npy", "points.indptr.npy"}
    assert names["b"] == {"dataset.json", "triplets.npy"} | csr
    assert np.load(tmp_path / "a" / "similar.npy").dtype == np.int32
    assert np.load(tmp_path / "b" / "points.indptr.npy").dtype == np.int64


def test_the_description_holds_the_counts(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a", sparse(), np.array([3, 3, 5, 5, 5, 5]), PAIRS, source="words.npz")
    description = json.loads((tmp_path / "a" / "dataset.json").read_text())
    assert (description["n_points"], description["n_features"], description["kind"]) == (6, 9, "sparse")
    assert (description["n_classes"], description["source"]) == (2, "words.npz")
    assert description["arrays"]["similar"] == {"dtype": "<i4", "shape": [2, 2]}
    assert description["arrays"]["points.data"]["dtype"] == "|u1"


@pytest.mark.parametrize(
    ("given_type", "values", "stored"),
    [
        ("uint8", [0, 255], "uint8"),
        ("bool", [False, True], "uint8"),
        ("uint16", [0, 7], "uint8"),
        ("uint16", [0, 40000], "uint16"),
        ("float32", [0, 7], "uint8"),
        ("float64", [-1, 300], "int16"),
        ("float64", [0, 3e9], "float32"),
        ("int64", [0, 255], "uint8"),
        ("int8", [-1, 1], "int16"),
        ("int64", [0, 256], "int16"),
        ("int64", [-40000, 0], "int32"),
        ("uint64", [0, 2**40], "float32"),
        ("float64", [0.5, 1.5], "float32"),
        ("float16", [0.5, 1.5], "float16"),
        (">f4", [0.5, 1.5], "float32"),
        (">u2", [1, 513], "int16"),
    ],
)
def test_points_take_the_smallest_type_that_holds_them(tmp_path: Path, given_type, values, stored) -> None:
    points = np.array([values, values], given_type)
    assert write_dataset(tmp_path / "a", points).points.n_features == 2
    on_disk = np.load(tmp_path / "a" / "points.npy")
    assert on_disk.dtype == np.dtype(stored)
    np.testing.assert_array_equal(on_disk, points)


@given(
    arrays.arrays(
        arrays.integer_dtypes() | arrays.unsigned_integer_dtypes(),
        arrays.array_shapes(min_dims=2, max_dims=2, max_side=5),
    )
)
@settings(deadline=None, max_examples=100)
def test_whole_numbers_keep_their_value_to_float32(points: np.ndarray) -> None:
    kept = points.astype(ValueType().hold(points))
    np.testing.assert_array_equal(kept.astype(np.float32), points.astype(np.float32))


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 300), st.integers(0, 2**31))
def test_the_fingerprint_tells_other_points_and_labels(n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    points = as_points(random.standard_normal((n, 3)).astype(np.float32))
    others = as_points(random.standard_normal((n, 3)).astype(np.float32))
    fewer = as_points(random.standard_normal((n + 1, 3)).astype(np.float32))
    labels = np.zeros(n, int)
    prints = [
        description_module.fingerprint(points, None),
        description_module.fingerprint(others, None),
        description_module.fingerprint(fewer, None),
        description_module.fingerprint(points, labels),
        description_module.fingerprint(points, labels + 1),
    ]
    assert len(set(prints)) == 5
    assert description_module.fingerprint(points, labels) == prints[3]
    assert all(len(text) == 16 for text in prints)


def test_points_that_are_not_sorted_are_stored_sorted_and_the_caller_keeps_theirs(tmp_path: Path) -> None:
    given_points = sp.csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    dataset = write_dataset(tmp_path / "a", given_points)
    np.testing.assert_array_equal(all_rows(dataset), [[2, 0, 5]])
    np.testing.assert_array_equal(given_points.indices, [2, 0, 2])


def _with(value: float) -> np.ndarray:
    points = dense().astype(np.float64)
    points[3, 1] = value
    return points


def _unsound_csr() -> sp.csr_matrix:
    matrix = sp.csr_matrix(np.eye(3, dtype=np.float32))
    matrix.indices[1] = 99
    return matrix


WRONG_INPUT: dict[str, tuple[tuple, type[InvalidInput], str]] = {
    "NaN": ((_with(np.nan),), InvalidPoints, "point 3 has NaN or infinity in feature 1"),
    "infinity": ((_with(-np.inf),), InvalidPoints, "point 3"),
    "too large for float32": ((_with(1e300),), InvalidPoints, "point 3"),
    "NaN in sparse": ((sp.csr_matrix(_with(np.nan)),), InvalidPoints, "point 3"),
    "column out of range": ((_unsound_csr(),), InvalidPoints, "no sound CSR matrix"),
    "no points": ((np.empty((0, 3)),), InvalidPoints, "at least one point"),
    "one dimension": ((np.ones(3),), InvalidPoints, "two dimensions"),
    "text points": ((np.array([["a"]]),), InvalidPoints, "real numbers"),
    "labels too short": ((dense(), np.arange(5)), InvalidConstraints, "5 labels for 6 points"),
    "labels with a header": ((dense(), np.array(list("labcdef"))), InvalidConstraints, "a header"),
    "labels of two dimensions": ((dense(), np.ones((6, 2))), InvalidConstraints, r"shape \(6, 2\)"),
    "labels with fractions": ((dense(), np.full(6, 0.5)), InvalidConstraints, "fractions"),
    "labels with NaN": ((dense(), np.full(6, np.nan)), InvalidConstraints, "NaN"),
    "labels that are objects": ((dense(), np.array([{}] * 6)), InvalidConstraints, "whole numbers or text"),
    "labels that are dates": ((dense(), np.zeros(6, "M8[s]")), InvalidConstraints, "whole numbers or text"),
    "pairs out of range": ((dense(), None, Pairs([[0, 6]], [[0, 1]])), InvalidConstraints, "index 6"),
    "triplets out of range": ((dense(), None, Comparisons([[0, -1, 2]])), InvalidConstraints, "index -1"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), WRONG_INPUT.values(), ids=WRONG_INPUT.keys())
def test_wrong_input_is_refused_and_nothing_is_written(tmp_path: Path, arguments, error, message) -> None:
    with pytest.raises(error, match=message):
        write_dataset(tmp_path / "a", *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("labels", "stored"),
    [
        (np.array([True, False] * 3), [1, 0] * 3),
        (np.array([[0.0], [1.0]] * 3), [0, 1] * 3),
        (np.array([b"x", b"yy"] * 3), ["x", "yy"] * 3),
        (np.array(["x", "yy"] * 3, object), ["x", "yy"] * 3),
    ],
)
def test_labels_of_other_types_are_turned_into_numbers_or_text(tmp_path: Path, labels, stored) -> None:
    read = write_dataset(tmp_path / "a", dense(), labels).labels
    assert read is not None
    assert read.tolist() == stored
    assert np.load(tmp_path / "a" / "labels.npy", allow_pickle=False).dtype.kind in "iuU"


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-3])


def put(name: str, array: np.ndarray) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / name, array)


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def described(**changes: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "dataset.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "points missing": ("dense", removed("points.npy"), "points.npy is missing"),
    "points truncated": ("dense", cut("points.npy"), "points.npy is not a complete"),
    "points shorter": ("dense", put("points.npy", dense(5)), r"points.npy .*\(5, 4\).*\(6, 4\)"),
    "points of another type": ("dense", put("points.npy", dense().astype(int)), "points.npy has type <i8"),
    "other points": ("dense", put("points.npy", (dense() + 1).astype("u1")), "not those it was made with"),
    "labels missing": ("dense", removed("labels.npy"), "labels.npy is missing"),
    "labels shorter": ("dense", put("labels.npy", np.arange(5)), "labels.npy"),
    "pairs missing": ("dense", removed("dissimilar.npy"), "dissimilar.npy is missing"),
    "pairs truncated": ("dense", cut("similar.npy"), "similar.npy is not a complete"),
    "unlisted constraints": ("dense", put("triplets.npy", np.ones((1, 3), int)), "not listed .*remove it"),
    "data truncated": ("sparse", cut("points.data.npy"), "points.data.npy"),
    "indices shorter": ("sparse", put("points.indices.npy", np.zeros(2, "i4")), "points.indices.npy"),
    "indptr moved": ("sparse", put("points.indptr.npy", np.full(7, 1)), "do not form a matrix"),
    "other width": ("dense", described(n_features=5), "do not form a matrix"),
    "other length": ("sparse", described(n_points=5), "do not form a matrix"),
    "newer version": ("dense", described(format_version=2), "format version 2"),
    "nothing listed": ("dense", described(arrays={}), "does not describe a dataset"),
    "listed wrongly": ("dense", described(arrays={"points": 3}), "does not describe a dataset"),
    "unknown kind": ("dense", described(kind="odd"), "does not describe a dataset"),
    "unknown field": ("dense", described(more=1), "does not describe a dataset"),
    "no JSON": ("dense", lambda folder: (folder / "dataset.json").write_text("{"), "JSON"),
    "no description": ("dense", removed("dataset.json"), "no dataset; make one with `nearfar ingest"),
    "no folder": ("dense", shutil.rmtree, "does not exist; make one with `nearfar ingest"),
}


@pytest.mark.parametrize(("kind", "damage", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_folder_is_said(tmp_path: Path, kind, damage, message) -> None:
    folder = tmp_path / "a"
    write_dataset(folder, dense() if kind == "dense" else sparse(), np.arange(6), PAIRS)
    damage(folder)
    with pytest.raises(InvalidFile, match=message) as error:
        Dataset.open(folder)
    assert "\n" not in str(error.value)


def test_labels_that_do_not_match_the_points_are_said(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    write_dataset(folder, dense(), np.arange(6))
    np.save(folder / "labels.npy", np.arange(5))
    listed = json.loads((folder / "dataset.json").read_text())["arrays"]
    described(arrays=listed | {"labels": {"dtype": "<i8", "shape": [5]}})(folder)
    with pytest.raises(InvalidFile, match=r"\(5,\), but there are 6 points"):
        Dataset.open(folder)


@pytest.mark.parametrize("old", [None, PAIRS, Comparisons([[0, 1, 2]])])
@pytest.mark.parametrize("new", [PAIRS, Comparisons([[3, 4, 5]]), Comparisons([[0, 1, 2, 3]])])
def test_stored_constraints_replace_all_earlier_ones(tmp_path: Path, old, new) -> None:
    folder = tmp_path / "a"
    write_dataset(folder, dense(), None, old)
    write_dataset(tmp_path / "fresh", dense(), None, new)
    assert store_constraints(folder, new) == []
    assert {path.name for path in folder.iterdir()} == {path.name for path in (tmp_path / "fresh").iterdir()}
    assert (folder / "dataset.json").read_text() == (tmp_path / "fresh" / "dataset.json").read_text()
    assert type(Dataset.open(folder).constraints) is type(new)


def test_constraints_can_be_replaced_by_some_of_their_own(tmp_path: Path) -> None:
    opened = write_dataset(tmp_path / "a", dense(), None, PAIRS).constraints
    assert isinstance(opened, Pairs)
    store_constraints(tmp_path / "a", Pairs(opened.similar[1:], opened.dissimilar))
    again = Dataset.open(tmp_path / "a").constraints
    assert isinstance(again, Pairs)
    np.testing.assert_array_equal(again.similar, [[2, 3]])
    np.testing.assert_array_equal(again.dissimilar, [[0, 4]])


def test_odd_constraints_are_stored_and_remarked(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a", dense())
    assert "with itself" in store_constraints(tmp_path / "a", Pairs([[1, 1]], [[0, 1]]))[0]


def test_a_wrong_constraint_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a", dense(), None, PAIRS)
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    with pytest.raises(InvalidConstraints, match="index 6"):
        store_constraints(tmp_path / "a", Comparisons([[0, 1, 6]]))
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before


@pytest.mark.parametrize("survived_writes", [0, 1])
def test_interrupted_replacement_never_opens_as_a_mixture(tmp_path: Path, monkeypatch, survived_writes: int) -> None:
    """The description is written twice; an interruption at either must not pair new with old constraints."""
    folder = tmp_path / "a"
    write_dataset(folder, dense(), None, PAIRS)
    written = []

    def interrupted(path: Path, value: dict) -> None:
        if len(written) == survived_writes:
            raise KeyboardInterrupt
        written.append(path)
        path.write_text(json.dumps(value))

    monkeypatch.setattr(description_module, "write_json", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store_constraints(folder, Pairs([[4, 5]], [[1, 2]]))
    if survived_writes:
        with pytest.raises(InvalidFile, match="not listed"):
            Dataset.open(folder)
    else:
        np.testing.assert_array_equal(Dataset.open(folder).constraints.similar, PAIRS.similar)
    monkeypatch.undo()
    store_constraints(folder, Pairs([[4, 5]], [[1, 2]]))
    np.testing.assert_array_equal(Dataset.open(folder).constraints.similar, [[4, 5]])


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a", dense())
    with pytest.raises(InvalidFile, match="exists already"):
        write_dataset(tmp_path / "a", dense() + 1)
    np.testing.assert_array_equal(all_rows(Dataset.open(tmp_path / "a")), dense())


def test_points_written_in_several_blocks_are_whole(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("nearfar.data.dataset._WRITE_BYTES", 100)
    points = np.random.default_rng(0).standard_normal((50, 7))
    np.testing.assert_array_equal(all_rows(write_dataset(tmp_path / "a", points)), points.astype(np.float32))
