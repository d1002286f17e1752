"""The same points and labels come out of every format they are written in, however they are cut into blocks."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from nearfar.data.constraints import Comparisons, Pairs
from nearfar.data.dataset import Dataset
from nearfar.data.formats import Choice, delimited, read_points, text
from nearfar.data.formats import svmlight as svmlight_module
from nearfar.data.ingest import ConstraintFiles, ingest
from nearfar.data.points import SparseRows
from nearfar.errors import InvalidPoints

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SLOW = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
IN_TABLES = Choice(label_column="label")


def all_rows(dataset: Dataset) -> np.ndarray:
    rows = dataset.points.rows(np.arange(len(dataset.points)))
    return rows.to_scipy().toarray() if isinstance(rows, SparseRows) else rows


def sparse_lines(points: np.ndarray, labels: np.ndarray, line: str, first: int) -> str:
    lines = []
    for row, label in zip(points, labels, strict=True):
        used = np.flatnonzero(row)
        entries = " ".join(f"{column + first}:{row[column]!r}" for column in used.tolist())
        lines.append(line.format(label=label, count=len(used), entries=entries))
    return "\n".join(lines) + "\n"


def as_svmlight(folder: Path, points: np.ndarray, labels: np.ndarray) -> Path:
    values = np.array(points.tolist(), object)
    (folder / "a.svm").write_text(sparse_lines(values, labels, "{label} {entries}", 1))
    return folder / "a.svm"


def as_petuum(folder: Path, points: np.ndarray, labels: np.ndarray) -> Path:
    values = np.array(points.tolist(), object)
    (folder / "a.petuum").write_text(sparse_lines(values, labels, "{label} {count} {entries}", 0))
    return folder / "a.petuum"


def as_table(suffix: str) -> Callable[[Path, np.ndarray, np.ndarray], Path]:
    def write(folder: Path, points: np.ndarray, labels: np.ndarray) -> Path:
        mark = "," if suffix == ".csv" else "\t"
        header = mark.join([*(f"f{column}" for column in range(points.shape[1])), "label"])
        lines = [mark.join([*map(repr, row), str(label)]) for row, label in zip(points.tolist(), labels, strict=True)]
        (folder / f"a{suffix}").write_text("\n".join([header, *lines]) + "\n")
        return folder / f"a{suffix}"

    return write


def as_parquet_lists(folder: Path, points: np.ndarray, labels: np.ndarray) -> Path:
    pq.write_table(pa.table({"x": points.tolist(), "label": labels}), folder / "a.parquet", row_group_size=100)
    return folder / "a.parquet"


def as_parquet_columns(folder: Path, points: np.ndarray, labels: np.ndarray) -> Path:
    columns = {f"f{column}": points[:, column] for column in range(points.shape[1])}
    pq.write_table(pa.table({**columns, "label": labels}), folder / "a.parquet")
    return folder / "a.parquet"


def as_npz(save: Callable[..., None]) -> Callable[[Path, np.ndarray, np.ndarray], Path]:
    def write(folder: Path, points: np.ndarray, labels: np.ndarray) -> Path:
        save(folder / "a.npz", X=points, y=labels)
        return folder / "a.npz"

    return write


WRITERS = {
    "npz": as_npz(np.savez),
    "npz, compressed": as_npz(np.savez_compressed),
    "npz, columns first": lambda folder, points, labels: as_npz(np.savez)(folder, np.asfortranarray(points), labels),
    "svmlight": as_svmlight,
    "petuum": as_petuum,
    "csv": as_table(".csv"),
    "tsv": as_table(".tsv"),
    "parquet lists": as_parquet_lists,
    "parquet columns": as_parquet_columns,
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reader cuts its file into many blocks."""
    monkeypatch.setattr("nearfar.data.formats.text._BLOCK_BYTES", 3000)
    monkeypatch.setattr("nearfar.data.formats.table.BLOCK_BYTES", 3000)
    monkeypatch.setattr("nearfar.data.formats.parquet._ROWS_AT_MOST", 70)
    monkeypatch.setattr("nearfar.data.formats.constraint_files._ROWS_AT_ONCE", 7)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("values", ["whole", "fractions"])
@pytest.mark.usefixtures("small_blocks")
def test_digits_are_the_same_in_every_format(tmp_path: Path, digits, kind: str, values: str) -> None:
    points, labels = (digits[0][:400] + (digits[0][:400] > 0)) / (3 if values == "fractions" else 1), digits[1][:400]
    points[0, 0] = points[1, 63] = 1  # sparse formats know of a feature only if a point has it
    np.save(tmp_path / "a.npy", points)
    reference, _ = ingest([tmp_path / "a.npy"], tmp_path / "reference")
    source = WRITERS[kind](tmp_path, points, labels)
    choice = IN_TABLES if source.suffix in {".csv", ".tsv", ".parquet"} else None
    dataset, _ = ingest([source], tmp_path / "out", choice=choice)
    np.testing.assert_array_equal(all_rows(dataset), all_rows(reference))
    np.testing.assert_array_equal(dataset.labels, labels)
    assert dataset.points.is_sparse == (kind in {"svmlight", "petuum"})
    stored = json.loads((tmp_path / "out" / "dataset.json").read_text())["arrays"]
    assert stored["points.data" if dataset.points.is_sparse else "points"]["dtype"] == (
        "|u1" if values == "whole" else "<f4"
    )


@pytest.mark.usefixtures("small_blocks")
def test_shards_are_stacked_in_order(tmp_path: Path, digits) -> None:
    X, y = digits
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", X[number * 100 : (number + 1) * 100])
    np.save(tmp_path / "labels.npy", y[:300])
    shards = [tmp_path / f"{number}.npy" for number in range(3)]
    dataset, _ = ingest(shards, tmp_path / "out", labels=tmp_path / "labels.npy")
    np.testing.assert_array_equal(all_rows(dataset), X[:300])
    np.testing.assert_array_equal(dataset.labels, y[:300])


def test_svmlight_shards_share_the_widest_width_and_the_base(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:5 3:6\n")
    (tmp_path / "b.svm").write_text("0 0:7\n")
    dataset, _ = ingest([tmp_path / "a.svm", tmp_path / "b.svm"], tmp_path / "out")
    np.testing.assert_array_equal(all_rows(dataset), [[0, 5, 0, 6], [7, 0, 0, 0]])


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.svm", "1 1:5 3:6\n0 2:7\n"), ("a.svm", "1 0:5 2:6\n0 1:7\n"), ("a.petuum", "1 2 0:5 2:6\n0 1 1:7\n")],
)
@pytest.mark.parametrize("n_features", [3, 5])
def test_features_that_no_point_has_are_there_if_asked_for(tmp_path: Path, name: str, text: str, n_features) -> None:
    (tmp_path / name).write_text(text)
    dataset, _ = ingest([tmp_path / name], tmp_path / "out", n_features=n_features)
    expected = np.zeros((2, n_features))
    expected[:, :3] = [[5, 0, 6], [0, 7, 0]]
    np.testing.assert_array_equal(all_rows(dataset), expected)
    with pytest.raises(InvalidPoints, match=r"points have a column \d; expected columns below \d"):
        ingest([tmp_path / name], tmp_path / "narrow", n_features=2)
    assert not (tmp_path / "narrow").exists()


def test_a_format_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "features.txt").write_text("3 2 0:1 4:2\n1 0\n")
    dataset, _ = ingest([tmp_path / "features.txt"], tmp_path / "out", format_name="petuum")
    np.testing.assert_array_equal(all_rows(dataset), [[1, 0, 0, 0, 2], [0, 0, 0, 0, 0]])
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [3, 1]


NUMBER = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.floats(-1e30, 1e30).map(repr),
    st.floats(-1e6, 1e6).map("{:.16g}".format),
    st.integers(-(10**25), 10**25).map(str),
    st.from_regex(r"[+-]?([0-9]{1,6}\.?[0-9]{0,6}|\.[0-9]{1,6})([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.text("0123456789.e+-_x", min_size=1, max_size=6),
)


@settings(SLOW, max_examples=500)
@given(NUMBER)
def test_compiled_numbers_are_pythons(word: str) -> None:
    value, clear = text.number(np.frombuffer(word.encode(), np.uint8), 0, len(word))
    expected = text.parsed_number(word)
    assert not clear or expected is not None
    if clear and expected is not None:
        with np.errstate(over="ignore"):
            assert np.float32(value) == np.float32(expected)
        digits = sum(letter.isdigit() for letter in word.lower().split("e")[0])
        assert digits > 15 or abs(value - expected) <= 1e-15 * abs(expected)


WORD = st.sampled_from(
    ["1", "0", "-1", "2.5", "1e3", "3:1", "7:2.5", "7:x", "12:0.1", "qid:4", "#", "#c", "99999999999:1"]
)


@settings(SLOW, max_examples=300)
@given(st.lists(st.lists(WORD, max_size=4).map(" ".join), min_size=1, max_size=5), st.booleans())
def test_compiled_svmlight_lines_are_pythons(lines: list[str], counted: bool) -> None:
    """The compiled loop reads a line as the reference does, or leaves it to that."""
    content = np.frombuffer(("\n".join(lines) + "\n").encode(), np.uint8)
    parsed = svmlight_module._Parsed(content)
    read = parsed.advance(counted)
    expected = []
    for line in lines[:read]:
        point = svmlight_module._read_line(line.split("#")[0].split(), counted, "here")
        expected += [point] if point else []
    table = parsed.table() if parsed.n_rows else None
    assert parsed.n_rows == len(expected)
    for row, (label, columns, values) in enumerate(expected):
        assert table is not None
        assert table.labels is not None
        assert table.labels[row] == label
        assert table.points[row].indices.tolist() == columns
        assert table.points[row].data.tolist() == values


FIELD = st.text("ab1 .,\t-#é", max_size=3)


@settings(SLOW, max_examples=300)
@given(st.lists(FIELD, min_size=1, max_size=4), st.sampled_from([ord(","), ord("\t"), delimited.LOOSE]))
def test_compiled_fields_are_pythons(tmp_path: Path, fields: list[str], delimiter: int) -> None:
    line = chr(delimiter or 44).join(fields)
    expected = delimited.fields_of(line, delimiter)
    (tmp_path / "a.txt").write_text(line + "\n", encoding="utf-8")
    refused: list[str] = []
    width = max(1, len(expected))
    blocks = list(delimited.split_lines(tmp_path / "a.txt", delimiter, width, 0, lambda line, _: refused.append(line)))
    found = [block.word(row, column) for block in blocks for row in range(len(block)) for column in range(width)]
    assert found == expected or refused == [line]


@SLOW
@given(
    arrays.arrays(
        np.float32, arrays.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(-1e9, 1e9, width=32)
    )
)
def test_any_numbers_survive_csv(tmp_path_factory: pytest.TempPathFactory, points: np.ndarray) -> None:
    folder = tmp_path_factory.mktemp("csv")
    np.savetxt(folder / "a.csv", points, delimiter=",", fmt="%.9g")
    np.testing.assert_array_equal(read_points(folder / "a.csv").rows(np.arange(len(points))), points)


def table(folder: Path, ids: list[object]) -> Path:
    (folder / "a.csv").write_text("name,x\n" + "".join(f"{name},{place}\n" for place, name in enumerate(ids)))
    return folder / "a.csv"


@pytest.mark.parametrize("ids", [["b", "a", "éè", "007"], [30, 10, 20, 2**53 + 1], [1, 2, 3, 5], [5, "x", 6, 7]])
@pytest.mark.parametrize("kind", ["text", "npy"])
@pytest.mark.usefixtures("small_blocks")
def test_constraints_name_points_by_their_ids(tmp_path: Path, ids: list[object], kind: str) -> None:
    named = [[ids[0], ids[1], ids[3]], [ids[2], ids[3], ids[0]]] * 5
    if kind == "npy":
        np.save(tmp_path / "t.npy", np.array(named))
    else:
        (tmp_path / "t.txt").write_text("anchor near far\n" + "".join(" ".join(map(str, row)) + "\n" for row in named))
    triplets = tmp_path / ("t.npy" if kind == "npy" else "t.txt")
    dataset, _ = ingest(
        [table(tmp_path, ids)],
        tmp_path / "out",
        choice=Choice(id_column="name"),
        constraints=ConstraintFiles(triplets=triplets),
    )
    assert dataset.ids is not None
    assert dataset.ids.tolist() == (ids if all(isinstance(name, int) for name in ids) else [str(name) for name in ids])
    assert isinstance(dataset.constraints, Comparisons)
    assert dataset.constraints.indices.tolist() == [[0, 1, 3], [2, 3, 0]] * 5
    np.testing.assert_array_equal(all_rows(dataset), [[0], [1], [2], [3]])


def test_ids_that_are_row_numbers_are_not_kept(tmp_path: Path) -> None:
    dataset, _ = ingest([table(tmp_path, [0, 1, 2])], tmp_path / "out", choice=Choice(id_column="0"))
    assert dataset.ids is None
    assert not (tmp_path / "out" / "ids.npy").exists()


def test_signed_pairs_of_text_ids(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("a,b,1\nc,a,-1\n")
    dataset, _ = ingest(
        [table(tmp_path, ["a", "b", "c"])],
        tmp_path / "out",
        choice=Choice(id_column="name"),
        constraints=ConstraintFiles(pairs=tmp_path / "p.csv"),
    )
    assert isinstance(dataset.constraints, Pairs)
    assert dataset.constraints.similar.tolist() == [[0, 1]]
    assert dataset.constraints.dissimilar.tolist() == [[2, 0]]


@pytest.mark.usefixtures("small_blocks")
def test_labels_may_turn_out_to_be_text_and_widen(tmp_path: Path) -> None:
    labels = [*range(2000), "later", "x" * 40]
    (tmp_path / "a.csv").write_text("".join(f"{place},{label}\n" for place, label in enumerate(labels)))
    dataset, _ = ingest([tmp_path / "a.csv"], tmp_path / "out", choice=Choice(label_column="1"))
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [str(label) for label in labels]


def test_sparse_points_of_parquet_lists_do_not_exist_but_half_floats_do(tmp_path: Path) -> None:
    points = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float16)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), 8)
    pq.write_table(pa.table({"x": lists, "note": ["left out"] * 50}), tmp_path / "a.parquet")
    dataset, _ = ingest([tmp_path / "a.parquet"], tmp_path / "out")
    np.testing.assert_array_equal(all_rows(dataset), points)
    assert np.load(tmp_path / "out" / "points.npy").dtype == np.float16


def test_a_query_file_is_read_as_ingest_reads_it(tmp_path: Path, digits) -> None:
    points = digits[0][:30]
    np.savetxt(tmp_path / "a.csv", points, delimiter=",", fmt="%g")
    np.testing.assert_array_equal(read_points(tmp_path / "a.csv").rows(np.arange(30)), points)
    sp.save_npz(tmp_path / "a.npz", sp.csr_matrix(points))
    np.testing.assert_array_equal(read_points(tmp_path / "a.npz").rows(np.arange(30)).to_scipy().toarray(), points)
