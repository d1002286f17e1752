"""From the user's files to a dataset folder: complete and right, or one line of error and nothing on disk."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from nearfar.data.constraints import Comparisons, Pairs
from nearfar.data.dataset import Dataset
from nearfar.data.formats import Choice
from nearfar.data.ingest import ConstraintFiles, ingest
from nearfar.data.points import SparseRows
from nearfar.errors import InvalidInput

POINTS = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
LABELS = np.array([0, 1, 2, 0, 1, 2])
KINDS = ("pairs", "similar", "dissimilar", "triplets")
CHOSEN = ("points_key", "labels_key", "label_column", "id_column")


def all_rows(dataset: Dataset) -> np.ndarray:
    rows = dataset.points.rows(np.arange(len(dataset.points)))
    return rows.to_scipy().toarray() if isinstance(rows, SparseRows) else rows


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of sources, right and wrong."""
    folder = tmp_path / "files"
    folder.mkdir()
    np.savez(folder / "both.npz", X=POINTS, y=LABELS)
    np.savez(folder / "named.npz", a=POINTS, b=LABELS)
    np.savez(folder / "text.npz", X=POINTS, y=np.array(list("abcabc")))
    np.save(folder / "points.npy", POINTS)
    np.save(folder / "wide.npy", np.ones((2, 5)))
    np.save(folder / "nan.npy", np.where(np.arange(18).reshape(6, 3) == 14, np.nan, POINTS))
    sp.save_npz(folder / "sparse.npz", sp.csr_matrix(POINTS))
    dump_svmlight_file(POINTS, LABELS, str(folder / "points.svm"))
    (folder / "labels.txt").write_text("\n".join("uvwuvw") + "\n")
    (folder / "header.txt").write_text("label\n" + "\n".join("uvwuvw") + "\n")
    (folder / "pairs.csv").write_text("i,j,y\n0,3,1\n1,4,1\n0,1,-1\n")
    (folder / "similar.txt").write_text("0 3\n1 4\n")
    (folder / "dissimilar.txt").write_text("0 1\n")
    (folder / "triplets.tsv").write_text("0\t3\t1\n")
    (folder / "outside.txt").write_text("0 3\n1 6\n")
    (folder / "odd.csv").write_text("0,0,1\n1,2,1\n2,1,-1\n")
    return folder


@pytest.mark.parametrize("name", ["both.npz", "points.npy", "sparse.npz", "points.svm"])
def test_every_format_gives_the_same_points(files: Path, tmp_path: Path, name: str) -> None:
    dataset, _ = ingest([files / name], tmp_path / "out")
    np.testing.assert_allclose(all_rows(dataset), POINTS, rtol=1e-6)
    assert dataset.points.is_sparse == (name in {"sparse.npz", "points.svm"})
    assert (dataset.labels is not None) == (name in {"both.npz", "points.svm"})
    assert dataset.folder == tmp_path / "out"


def test_sources_are_stacked_in_order(files: Path, tmp_path: Path) -> None:
    dataset, _ = ingest([files / "both.npz", files / "both.npz"], tmp_path / "dense")
    np.testing.assert_array_equal(all_rows(dataset), np.vstack([POINTS, POINTS]))
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [*LABELS, *LABELS]
    dataset, _ = ingest([files / "sparse.npz", files / "sparse.npz"], tmp_path / "sparse")
    np.testing.assert_array_equal(all_rows(dataset), np.vstack([POINTS, POINTS]))


def test_named_arrays_and_a_file_of_labels(files: Path, tmp_path: Path) -> None:
    dataset, _ = ingest([files / "named.npz"], tmp_path / "named", choice=Choice(points_key="a", labels_key="b"))
    assert dataset.labels is not None
    assert dataset.labels.tolist() == LABELS.tolist()
    dataset, _ = ingest([files / "both.npz"], tmp_path / "file", labels=files / "labels.txt")
    assert dataset.labels is not None
    assert dataset.labels.tolist() == list("uvwuvw")


def test_pairs_in_one_file_and_in_two_are_the_same(files: Path, tmp_path: Path) -> None:
    one, remarks = ingest(
        [files / "points.npy"], tmp_path / "one", constraints=ConstraintFiles(pairs=files / "pairs.csv")
    )
    two, _ = ingest(
        [files / "points.npy"],
        tmp_path / "two",
        constraints=ConstraintFiles(similar=files / "similar.txt", dissimilar=files / "dissimilar.txt"),
    )
    assert remarks == []
    for dataset in (one, two):
        assert isinstance(dataset.constraints, Pairs)
        assert dataset.constraints.similar.tolist() == [[0, 3], [1, 4]]
        assert dataset.constraints.dissimilar.tolist() == [[0, 1]]


def test_triplets(files: Path, tmp_path: Path) -> None:
    dataset, remarks = ingest(
        [files / "both.npz"], tmp_path / "out", constraints=ConstraintFiles(triplets=files / "triplets.tsv")
    )
    assert isinstance(dataset.constraints, Comparisons)
    assert dataset.constraints.indices.tolist() == [[0, 3, 1]]
    assert dataset.labels is not None
    assert remarks == []


def test_what_is_odd_is_remarked_and_kept(files: Path, tmp_path: Path) -> None:
    _, remarks = ingest([files / "points.npy"], tmp_path / "odd", constraints=ConstraintFiles(pairs=files / "odd.csv"))
    assert any("1 pairs join a point with itself" in remark for remark in remarks)
    assert any("1 pairs are both similar and dissimilar" in remark for remark in remarks)
    _, remarks = ingest(
        [files / "points.npy"], tmp_path / "one kind", constraints=ConstraintFiles(similar=files / "similar.txt")
    )
    assert any("no dissimilar pairs" in remark for remark in remarks)
    _, remarks = ingest([files / "points.npy"], tmp_path / "bare")
    assert any("neither labels nor constraints" in remark for remark in remarks)
    np.save(files / "same.npy", np.zeros(6, int))
    _, remarks = ingest([files / "points.npy"], tmp_path / "same", labels=files / "same.npy")
    assert any("at least two classes" in remark for remark in remarks)


WRONG: dict[str, tuple[list[str], dict[str, str], str]] = {
    "no sources": ([], {}, "no sources"),
    "a missing source": (["absent.npz"], {}, "absent.npz is missing"),
    "widths differ": (["points.npy", "wide.npy"], {}, "wide.npy has 5 features, but .*points.npy has 3"),
    "dense and sparse": (["points.npy", "sparse.npz"], {}, "not both sparse"),
    "labels in one only": (["both.npz", "points.npy"], {}, "points.npy has no labels.*--labels"),
    "text and numbers": (["both.npz", "text.npz"], {}, "text in one source and numbers in another"),
    "two kinds of labels": (["both.npz"], {"labels": "labels.txt", "labels_key": "y"}, "one of the two"),
    "labels with a header": (["points.npy"], {"labels": "header.txt"}, "7 labels for 6 points.*header"),
    "missing labels": (["points.npy"], {"labels": "absent.txt"}, "absent.txt is missing"),
    "NaN": (["nan.npy"], {}, "point 4 has NaN or infinity in feature 2"),
    "index outside": (["points.npy"], {"similar": "outside.txt"}, "index 6, but there are 6 points"),
    "two kinds of constraints": (
        ["points.npy"],
        {"pairs": "pairs.csv", "triplets": "triplets.tsv"},
        "several ways",
    ),
    "pairs where triplets go": (["points.npy"], {"triplets": "similar.txt"}, r"similar\.txt:1: 2 columns"),
    "no such array": (["both.npz"], {"points_key": "Z"}, "no array 'Z'; it has X, y"),
}


def arguments(files: Path, options: dict[str, str]) -> dict[str, object]:
    """The arguments of ingest for what the command line calls by these names."""
    paths = {name: files / value for name, value in options.items() if name in KINDS}
    chosen = {name: value for name, value in options.items() if name in CHOSEN}
    given: dict[str, object] = {"constraints": ConstraintFiles(**paths), "choice": Choice(**chosen)}
    if "labels" in options:
        given["labels"] = files / options["labels"]
    return given


@pytest.mark.parametrize(("sources", "options", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_input_is_said_and_leaves_nothing(files: Path, tmp_path: Path, sources, options, message) -> None:
    with pytest.raises(InvalidInput, match=message) as error:
        ingest([files / source for source in sources], tmp_path / "out", **arguments(files, options))
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == [files]


def test_an_existing_folder_is_refused_before_anything_is_read(files: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidInput, match="exists already"):
        ingest([files / "absent.npz"], tmp_path / "out")
