"""Each format gives the points it holds, and a wrong file gives one line that says what is wrong where."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from nearfar.data.formats import Choice, Table, read_blocks, read_points
from nearfar.data.formats import constraint_files as constraints
from nearfar.data.formats.label_files import read_labels
from nearfar.data.ids import PointNames
from nearfar.errors import InvalidFile, InvalidInput

POINTS = np.arange(12, dtype=np.float32).reshape(4, 3)
LABELS = np.array([0, 1, 1, 0])
SPARSE = sp.csr_matrix(np.array([[0, 2, 0], [1, 0, 0], [0, 0, 0], [0, 0, 3]], np.uint16))


def as_dense(points: object) -> np.ndarray:
    return points.toarray() if sp.issparse(points) else np.asarray(points)


def read_all(path: Path, *keys: str | None) -> Table:
    """All blocks of a file as one."""
    blocks = list(read_blocks(path, Choice(*keys)))
    stacked = sp.vstack if sp.issparse(blocks[0].points) else np.concatenate
    labels = None if blocks[0].labels is None else np.concatenate([block.labels for block in blocks])
    return Table(stacked([block.points for block in blocks]), labels)


MANY = PointNames(2**40)


def collected(blocks: Iterable[constraints.ConstraintBlock]) -> dict[str, np.ndarray]:
    """The constraints of each kind, all blocks together."""
    found: dict[str, list[np.ndarray]] = {}
    for block in blocks:
        found.setdefault(block.kind, []).append(block.indices)
    return {kind: np.concatenate(parts) for kind, parts in found.items()}


def read_pairs(path: Path) -> dict[str, np.ndarray]:
    return collected(constraints.read_pairs(path, MANY))


def read_index_pairs(path: Path) -> np.ndarray:
    return collected(constraints.read_index_pairs(path, "similar", MANY))["similar"]


def read_triplets(path: Path) -> np.ndarray:
    return next(iter(collected(constraints.read_triplets(path, MANY)).values()))


def csr_arrays(**changes: object) -> dict[str, object]:
    arrays = {"data": SPARSE.data, "indices": SPARSE.indices, "indptr": SPARSE.indptr, "shape": SPARSE.shape}
    return arrays | changes


def test_npy_is_mapped_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", POINTS)
    (table,) = read_blocks(tmp_path / "a.npy")
    assert isinstance(table.points, np.memmap)
    assert table.labels is None
    np.testing.assert_array_equal(table.points, POINTS)
    np.testing.assert_array_equal(read_points(tmp_path / "a.npy").rows(np.arange(4)), POINTS)


@pytest.mark.parametrize(
    ("arrays", "keys", "labelled"),
    [
        ({"points": POINTS, "labels": LABELS}, (None, None), True),
        ({"X": POINTS, "y": LABELS, "other": np.ones(2)}, (None, None), True),
        ({"X": POINTS}, (None, None), False),
        ({"x_train": POINTS, "y_train": LABELS}, ("x_train", "y_train"), True),
        ({"x_train": POINTS, "y_train": LABELS}, ("x_train", None), False),
        ({"X": POINTS + 1, "A": POINTS, "y": LABELS}, ("A", None), True),
        ({"X": POINTS.reshape(4, 1, 3)}, (None, None), False),
    ],
)
def test_npz_arrays_by_their_usual_or_given_names(tmp_path: Path, arrays, keys, labelled) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    table = read_all(tmp_path / "a.npz", *keys)
    np.testing.assert_array_equal(table.points, POINTS)
    if labelled:
        np.testing.assert_array_equal(table.labels, LABELS)
    else:
        assert table.labels is None


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_images_become_rows(tmp_path: Path, name: str) -> None:
    images = np.arange(5 * 28 * 28).reshape(5, 28, 28)
    np.save(tmp_path / name, images) if name == "a.npy" else np.savez(tmp_path / name, X=images)
    np.testing.assert_array_equal(read_all(tmp_path / name).points, images.reshape(5, 784))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_scipys_own_files(tmp_path: Path, kind: str) -> None:
    sp.save_npz(tmp_path / "a.npz", SPARSE.asformat(kind))
    table = read_all(tmp_path / "a.npz")
    assert table.points.format == "csr"
    assert table.points.dtype == np.uint16
    np.testing.assert_array_equal(table.points.toarray(), SPARSE.toarray())


def test_csr_arrays_with_labels_beside(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **csr_arrays(y=LABELS))
    table = read_all(tmp_path / "a.npz")
    np.testing.assert_array_equal(table.points.toarray(), SPARSE.toarray())
    np.testing.assert_array_equal(table.labels, LABELS)


@pytest.mark.parametrize("suffix", [".svm", ".svmlight", ".libsvm", ".SVM"])
@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight(tmp_path: Path, suffix: str, zero_based: bool) -> None:
    path = tmp_path / f"a{suffix}"
    first_used = sp.csr_matrix(POINTS + 1)
    dump_svmlight_file(first_used, LABELS, str(path), zero_based=zero_based)
    rows = read_points(path).rows(np.arange(4))
    np.testing.assert_array_equal(rows.to_scipy().toarray(), POINTS + 1)
    np.testing.assert_array_equal(read_all(path).labels, LABELS)


WRONG_NPZ: dict[str, tuple[dict[str, object], tuple[str | None, str | None], str]] = {
    "other names": (
        {"a": POINTS, "b": LABELS},
        (None, None),
        "arrays a, b, none named points or X.*--points-key",
    ),
    "no such points": ({"X": POINTS}, ("Z", None), "no array 'Z'; it has X.*--points-key"),
    "no such labels": ({"X": POINTS}, (None, "z"), "no array 'z'; it has X.*--labels-key"),
    "objects": (
        {"X": POINTS, "y": np.array(["a", 1], object)},
        (None, None),
        "'y' of .*Python objects.*astype",
    ),
    "one dimension": ({"X": LABELS}, (None, None), r"a.npz: points have shape \(4,\)"),
    "no points": ({"X": POINTS[:0]}, (None, None), "at least one point"),
    "text": ({"X": np.array([["a"]])}, (None, None), "real numbers"),
    "index too large": (csr_arrays(indices=np.array([0, 1, 9])), (None, None), "no CSR matrix"),
    "index negative": (csr_arrays(indices=np.array([0, 1, -1])), (None, None), "no CSR matrix"),
    "indptr falls": (csr_arrays(indptr=np.array([0, 3, 1, 2, 3])), (None, None), "no CSR matrix"),
    "indptr short": (csr_arrays(indptr=np.array([0, 1])), (None, None), "no CSR matrix"),
    "lengths differ": (csr_arrays(data=np.ones(2)), (None, None), "no CSR matrix"),
    "shape of one": (csr_arrays(shape=np.array([4])), (None, None), "no CSR matrix"),
    "SciPy's with a bad index": (
        csr_arrays(format=np.array(b"csr"), indices=np.array([0, 1, 9])),
        (None, None),
        "save_npz",
    ),
    "SciPy's of unknown format": (csr_arrays(format=np.array(b"odd")), (None, None), "save_npz"),
}


@pytest.mark.parametrize(("arrays", "keys", "message"), WRONG_NPZ.values(), ids=WRONG_NPZ.keys())
def test_a_wrong_npz_is_said(tmp_path: Path, arrays, keys, message) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InvalidInput, match=message) as error:
        read_all(tmp_path / "a.npz", *keys)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_cut_or_damaged_anywhere_is_said(tmp_path: Path, save) -> None:
    path = tmp_path / "a.npz"
    save(path, X=np.random.default_rng(0).standard_normal((40, 5)))
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidFile, match=r"a\.npz"):
            read_all(path)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :])
    with pytest.raises(InvalidFile, match="damaged"):
        read_all(path)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_reading_never_unpickles(tmp_path: Path) -> None:
    trapped = tmp_path / "trapped"
    objects = np.array([[Trap(trapped)]], object)
    np.savez(tmp_path / "a.npz", X=objects, allow_pickle=True)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    for name in ("a.npz", "a.npy"):
        with pytest.raises(InvalidFile):
            read_all(tmp_path / name)
    assert not trapped.exists()


WRONG_FILES: dict[str, tuple[str, bytes | None, str]] = {
    "unknown suffix": ("a.docx", b"", "suffix .docx; expected one of .npy, .npz, .svm"),
    "no suffix": ("a", b"", "no suffix; expected one of"),
    "missing": ("a.npz", None, "a.npz is missing"),
    "npz that is text": ("a.npz", b"1 2 3\n", "not an .npz archive"),
    "npy that is text": ("a.npy", b"1 2 3\n", "not a complete .npy"),
    "svmlight without a label": ("a.svm", b"1 1:2\n1:2 3:4\n", r"a\.svm:2: the label is '1:2'"),
    "svmlight word": ("a.svm", b"# a comment\n1 1:2\n\n0 two:3\n", r"a\.svm:4: 'two:3'"),
    "svmlight value": ("a.svm", b"1 1:2\n0 2:x\n", r"a\.svm:2: '2:x'"),
    "svmlight without a colon": ("a.svm", b"1 1:2\n0 7\n", r"a\.svm:2: '7'"),
    "svmlight negative": ("a.svm", b"1 1:2\n0 -1:7\n", r"a\.svm:2: '-1:7'"),
    "svmlight unsorted": ("a.svm", b"1 1:2\n0 3:1 2:1\n", r"a\.svm:2: index 2 comes after 3"),
    "svmlight several labels": ("a.svm", b"1 1:2\n0,1 1:1\n", r"a\.svm:2: the label is '0,1'"),
    "svmlight binary": ("a.svm", b"\xff\xfe\x00\x01", r"a\.svm"),
    "svmlight empty": ("a.svm", b"", "no points"),
}


@pytest.mark.parametrize(("name", "content", "message"), WRONG_FILES.values(), ids=WRONG_FILES.keys())
def test_a_wrong_file_is_said(tmp_path: Path, name, content, message) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=message) as error:
        read_all(tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_folder_and_an_array_under_another_name_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.npz").mkdir()
    with pytest.raises(InvalidFile, match="is a folder; give its files"):
        read_all(tmp_path / "a.npz")
    np.save(tmp_path / "b.npy", POINTS)
    (tmp_path / "b.npy").rename(tmp_path / "b.npz")
    with pytest.raises(InvalidFile, match=r"single array.*\.npy"):
        read_all(tmp_path / "b.npz")


def test_keys_are_for_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", POINTS)
    with pytest.raises(InvalidInput, match="--points-key"):
        read_all(tmp_path / "a.npy", "X")


ROWS = np.array([[0, 1, 1], [2, 3, -1], [4, 5, 1]])
SAME_ROWS = {
    "commas": "0,1,1\n2,3,-1\n4,5,1\n",
    "commas and blanks": "0, 1, +1\n2, 3, -1\n4 , 5 ,1\n",
    "tabs": "0\t1\t1\n2\t3\t-1\n4\t5\t1",
    "blanks, comments and empty lines": "# pairs\n\n  0 1   1\n2 3 -1 # far\n\n4 5 1\n",
    "a header": "left,right,y\n0,1,1\n2,3,-1\n4,5,1\n",
    "a comment, then a header": "# mine\nleft right y\n0 1 1\n2 3 -1\n4 5 1\n",
    "np.savetxt": "0.0e+00 1.000e+00 1.0e+00\n2.0e+00 3.0e+00 -1.0e+00\n4.0 5.0 1.0\n",
    "Windows and a byte order mark": "\ufeffi,j,y\r\n0,1,1\r\n2,3,-1\r\n4,5,1\r\n",
    "a byte order mark without a header": "\ufeff0,1,1\n2,3,-1\n4,5,1\n",
    "mixed separators": "0,1,1\n2 3 -1\n4\t5\t1\n",
}


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".tsv"])
@pytest.mark.parametrize("text", SAME_ROWS.values(), ids=SAME_ROWS.keys())
def test_pairs_from_text(tmp_path: Path, text: str, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_text(text, encoding="utf-8", newline="")
    pairs = read_pairs(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(pairs["similar"], [[0, 1], [4, 5]])
    np.testing.assert_array_equal(pairs["dissimilar"], [[2, 3]])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64, np.int8])
def test_pairs_from_npy(tmp_path: Path, dtype) -> None:
    np.save(tmp_path / "a.npy", ROWS.astype(dtype))
    pairs = read_pairs(tmp_path / "a.npy")
    np.testing.assert_array_equal(pairs["similar"], [[0, 1], [4, 5]])
    np.testing.assert_array_equal(pairs["dissimilar"], [[2, 3]])


def test_index_pairs_and_triplets(tmp_path: Path) -> None:
    (tmp_path / "pairs.txt").write_text("0 1\n5 6\n")
    np.testing.assert_array_equal(read_index_pairs(tmp_path / "pairs.txt"), [[0, 1], [5, 6]])
    (tmp_path / "one.csv").write_text("anchor,near,far\n7,8,9\n")
    np.testing.assert_array_equal(read_triplets(tmp_path / "one.csv"), [[7, 8, 9]])
    np.save(tmp_path / "four.npy", [[1, 2, 3, 4]])
    np.testing.assert_array_equal(read_triplets(tmp_path / "four.npy"), [[1, 2, 3, 4]])


WRONG_CONSTRAINTS: dict[str, tuple[object, str, str | np.ndarray, str]] = {
    "a word": (read_pairs, "a.csv", "0,1,1\n2,x,-1\n", r"a\.csv:2: 'x' is not a whole number"),
    "a word far down": (read_pairs, "a.txt", "0 1 1\n" * 5000 + "0 1 one\n", r"a\.txt:5001: 'one'"),
    "two headers": (read_pairs, "a.csv", "i,j,y\nint,int,int\n0,1,1\n", r"a\.csv:2: 'int'"),
    "a fraction": (read_index_pairs, "a.txt", "0 1\n0.5 1\n", r"a\.txt:2: '0\.5'"),
    "nan": (read_index_pairs, "a.txt", "0 1\nnan 1\n", r"a\.txt:2: 'nan'"),
    "infinity": (read_index_pairs, "a.txt", "0 1\n0 inf\n", r"a\.txt:2: 'inf'"),
    "too large": (read_index_pairs, "a.txt", "0 1\n0 99999999999999999999\n", r"a\.txt:2: '9+'"),
    "a short line": (read_triplets, "a.txt", "# t\n0 1 2\n0 1\n", r"a\.txt:3: 2 columns; expected 3 columns"),
    "widths mixed": (read_triplets, "a.txt", "0 1 2\n0 1 2 3\n", r"a\.txt:2: 4 columns, but 3"),
    "an empty field": (read_pairs, "a.csv", "0,1,1\n0,,1\n", r"a\.csv:2: ''"),
    "two columns": (
        read_pairs,
        "a.csv",
        "0,1\n",
        r"a\.csv:1: 2 columns; expected 3 columns \(i, j, \+1 or -1\)",
    ),
    "three columns": (read_index_pairs, "a.csv", "0,1,1\n", r"a\.csv:1: 3 columns; expected 2"),
    "0 and 1": (read_pairs, "a.csv", "i,j,y\n0,1,1\n\n2,3,0\n", r"a\.csv:4: y is 0; .*0/1 must be turned"),
    "0 and 1 in npy": (read_pairs, "a.npy", np.abs(ROWS) * [1, 1, 0], r"a\.npy, row 0: y is 0; .*-1/\+1"),
    "empty": (read_pairs, "a.csv", "", "no rows"),
    "only a header": (read_pairs, "a.csv", "# x\ni,j,y\n", "no rows"),
    "npy of two columns": (read_pairs, "a.npy", ROWS[:, :2], r"shape \(3, 2\).*expected .*3 columns"),
    "npy of one dimension": (read_index_pairs, "a.npy", ROWS[0], r"shape \(3,\)"),
    "npy of text": (read_index_pairs, "a.npy", np.array([["a", "b"]]), "expected whole numbers"),
    "fractions in npy": (read_triplets, "a.npy", ROWS + 0.5, "fractions"),
    "another suffix": (read_pairs, "a.json", "[]", r"\.json'; expected one of \.npy, \.txt"),
}


@pytest.mark.parametrize(
    ("read", "name", "content", "message"), WRONG_CONSTRAINTS.values(), ids=WRONG_CONSTRAINTS.keys()
)
def test_wrong_constraints_are_said(tmp_path: Path, read, name, content, message) -> None:
    if isinstance(content, str):
        (tmp_path / name).write_text(content)
    else:
        np.save(tmp_path / name, content)
    with pytest.raises(InvalidInput, match=message) as error:
        read(tmp_path / name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("read", [read_pairs, read_index_pairs, read_triplets])
@pytest.mark.parametrize("suffix", [".npy", ".txt"])
def test_constraints_that_are_missing_or_not_text_are_said(tmp_path: Path, read, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    with pytest.raises(InvalidFile, match="missing"):
        read(path)
    path.write_bytes(b"0 1\n\xff\xfe\x80")
    with pytest.raises(InvalidFile, match=rf"a\{suffix}"):
        read(path)


def test_an_npy_of_fractions_is_not_rounded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[0.0, 1.5, 1.0]]))
    with pytest.raises(InvalidInput, match="fractions"):
        read_pairs(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("3\n-1\n3\n", [3, -1, 3]),
        ("cat\ndog\n7\n", ["cat", "dog", "7"]),
        ("\ufeffé\r\nb c\r\n", ["é", "b c"]),
    ],
)
def test_labels_from_text(tmp_path: Path, text: str, labels: list[object]) -> None:
    (tmp_path / "labels.txt").write_text(text, encoding="utf-8", newline="")
    assert np.concatenate(list(read_labels(tmp_path / "labels.txt"))).tolist() == labels


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", r"txt:1: "), (b"a\n\nb\n", r"txt:2: the line is empty"), (b"\xff\xfe", "not readable as text")],
)
def test_wrong_labels_are_said(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "labels.txt").write_bytes(content)
    with pytest.raises(InvalidFile, match=message):
        list(read_labels(tmp_path / "labels.txt"))
