"""Wrong points, in files of every format: exit code 2, one last line that says how to mend it, nothing left behind."""

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.commands import ended
from tests.wrong_input.making import (
    Case,
    Command,
    Good,
    archived,
    assert_one_clear_line,
    check_case,
    ingesting,
    parqueted,
    points_of,
    saved,
    spoiled,
    texted,
    truncated,
)

CASES: dict[str, Case] = {
    # points
    "NaN in npz": (
        ingesting(lambda g, p: archived(p / "a.npz", X=spoiled(points_of(g), np.nan))),
        ("point 7 has NaN or infinity in feature 2", "must be finite", "fill or drop"),
    ),
    "NaN in npy": (
        ingesting(lambda g, p: saved(p / "a.npy", spoiled(points_of(g), np.nan))),
        ("point 7 has NaN or infinity in feature 2", "must be finite", "fill or drop"),
    ),
    "NaN in sparse": (
        ingesting(
            lambda g, p: (sp.save_npz(p / "a.npz", sp.csr_matrix(spoiled(points_of(g), np.nan))), p / "a.npz")[1]
        ),
        ("point 7 has NaN or infinity in feature 2", "must be finite", "fill or drop"),
    ),
    "infinity": (
        ingesting(lambda g, p: saved(p / "a.npy", spoiled(points_of(g), -np.inf))),
        ("point 7 has NaN or infinity in feature 2",),
    ),
    "too large for float32": (
        ingesting(lambda g, p: saved(p / "a.npy", spoiled(points_of(g), 1e300))),
        ("point 7 has 1e+300 in feature 2", "too large for float32; scale the feature"),
    ),
    "too large for float32 in sparse": (
        ingesting(lambda g, p: texted(p / "a.petuum", "1 1 0:1\n1 1 2:1e300\n")),
        ("1e+300", "too large for float32", "scale the feature"),
    ),
    "points to transform too large for float32": (
        lambda g, p: [
            "transform",
            g / "run",
            saved(p / "a.npy", spoiled(points_of(g), 1e300)),
            "--out",
            p / "new.npy",
        ],
        ("point 7 has NaN or infinity in feature 2", "scale the feature if float32"),
    ),
    "NaN in points to transform": (
        lambda g, p: [
            "transform",
            g / "run",
            saved(p / "a.npy", spoiled(points_of(g), np.nan)),
            "--out",
            p / "new.npy",
        ],
        ("point 7 has NaN or infinity in feature 2",),
    ),
    "no points": (ingesting(lambda g, p: saved(p / "a.npy", np.empty((0, 4)))), ("a.npy", "(0, 4)", "at least one")),
    "a single row": (ingesting(lambda g, p: saved(p / "a.npy", np.ones(4))), ("(4,)", "two dimensions")),
    "points of text": (
        ingesting(lambda g, p: saved(p / "a.npy", np.array([["a", "b"]]))),
        ("a.npy", "type <U1", "expected real numbers", "encode"),
    ),
    "sources of two widths": (
        lambda g, p: ["ingest", g / "labelled.npz", g / "wide.npz", "--out", p / "new"],
        ("10 features", "has 5", "as many in every source"),
    ),
    # files
    "missing source": (ingesting(lambda g, p: p / "no.npy"), ("no.npy is missing", "expected a .npy file")),
    "folder as source": (
        ingesting(lambda g, p: g / "labelled"),
        ("labelled is a folder", "give its files", "labelled/*.npy"),
    ),
    "folder as source, of a given format": (
        ingesting(lambda g, p: g / "labelled", "--format", "npy"),
        ("labelled is a folder", "give its files"),
    ),
    "unknown suffix": (ingesting(lambda g, p: texted(p / "a.xls", "1")), (".xls", "expected one of .npy", "convert")),
    "truncated npy": (
        ingesting(lambda g, p: truncated(g.copy("points.npy", p))),
        ("points.npy is not a complete .npy file", "expected an array that np.save wrote"),
    ),
    "truncated npz": (
        ingesting(lambda g, p: truncated(g.copy("labelled.npz", p))),
        ("labelled.npz is not a complete .npz file", "expected one that np.savez wrote"),
    ),
    "text called npz": (
        ingesting(lambda g, p: texted(p / "fake.npz", "1,2\n3,4\n")),
        ("fake.npz is not an .npz archive", "expected one that np.savez wrote"),
    ),
    "nothing called npz": (
        ingesting(lambda g, p: texted(p / "fake.npz", "")),
        ("fake.npz is not an .npz archive",),
    ),
    "foreign npz": (
        ingesting(lambda g, p: archived(p / "a.npz", weights=np.ones(3), bias=np.ones(1))),
        ("weights, bias", "none named points or X", "--points-key"),
    ),
    "wrong points key": (
        lambda g, p: ["ingest", g / "labelled.npz", "--points-key", "Z", "--out", p / "new"],
        ("no array 'Z'", "X, y", "--points-key"),
    ),
    "text called npy": (
        ingesting(lambda g, p: texted(p / "a.npy", "1,2\n3,4\n")),
        ("a.npy is not a complete .npy file", "expected an array that np.save wrote"),
    ),
    "pickled objects": (
        ingesting(lambda g, p: saved(p / "a.npy", np.array([[1, "a"], [None, 2]], object), allow_pickle=True)),
        ("a.npy holds Python objects", "never unpickled", "save it as numbers or as text"),
    ),
    "text in svmlight": (
        ingesting(lambda g, p: texted(p / "a.svm", "1 1:0.5 2:1\nspam and eggs\n")),
        ("a.svm:2", "'spam'", "expected one number, then index:value"),
    ),
    "a wrong count in Petuum's format": (
        ingesting(lambda g, p: texted(p / "a.petuum", "1 2 0:1 3:2\n0 3 1:1\n")),
        ("a.petuum:2: 1 entries", "3 announced"),
    ),
    "text in CSV": (
        ingesting(lambda g, p: texted(p / "a.csv", "a,b\n1,2\n3,red\n")),
        ("a.csv:3: 'red' is not a number", "--label-column"),
    ),
    "a short line in CSV": (
        ingesting(lambda g, p: texted(p / "a.csv", "a,b\n1,2\n3\n")),
        ("a.csv:3: 1 columns", "expected 2"),
    ),
    "a gap in TSV": (
        ingesting(lambda g, p: texted(p / "a.tsv", "1\t2\n3\t\n")),
        ("a.tsv:2: '' is not a number", "fill in"),
    ),
    "NaN in CSV": (
        ingesting(lambda g, p: texted(p / "a.csv", "1,2\n3,nan\n")),
        ("point 1 has NaN or infinity in feature 1",),
    ),
    "no such column": (
        ingesting(lambda g, p: texted(p / "a.csv", "a,b\n1,2\n"), "--label-column", "c"),
        ("no column 'c'", "it has a, b", "--label-column"),
    ),
    "columns of an npy": (
        ingesting(lambda g, p: g / "points.npy", "--id-column", "0"),
        ("no columns with names", "leave out --label-column"),
    ),
    "ragged Parquet": (
        ingesting(lambda g, p: parqueted(p / "a.parquet", x=[[1.0, 2.0], [3.0]])),
        ("a.parquet, row 1", "'x' has length 1, but those before have 2", "equal length"),
    ),
    "text in Parquet": (
        ingesting(lambda g, p: parqueted(p / "a.parquet", x=[1.0, 2.0], name=["a", "b"])),
        ("'name'", "holds", "expected numbers", "--label-column"),
    ),
    "a gap in Parquet": (
        ingesting(lambda g, p: parqueted(p / "a.parquet", x=[1.0, None])),
        ("a.parquet, row 1", "'x' is empty"),
    ),
    "a gap in a list of Parquet": (
        ingesting(lambda g, p: parqueted(p / "a.parquet", x=[[1.0, 2.0], [None, 2.0]])),
        ("a.parquet, row 1", "missing in column 'x'"),
    ),
    "truncated Parquet": (
        ingesting(lambda g, p: truncated(parqueted(p / "a.parquet", x=[1.0] * 100))),
        ("a.parquet is not a complete Parquet file",),
    ),
    "unknown format": (
        ingesting(lambda g, p: g / "points.npy", "--format", "arff"),
        ("'arff'", "expected one of npy, npz"),
    ),
    "unknown dtype": (
        ingesting(lambda g, p: g / "points.npy", "--dtype", "int4"),
        ("'int4'", "float16", "nearfar ingest --help"),
    ),
    "too large for float16": (
        ingesting(lambda g, p: saved(p / "a.npy", spoiled(points_of(g), 7e4)), "--dtype", "float16"),
        ("point 7 has 70000 in feature 2", "too large for float16", "float32, or scale the feature"),
    ),
    "more features than asked for": (
        ingesting(lambda g, p: texted(p / "a.petuum", "1 2 0:1 3:2\n"), "--features", "3"),
        ("points have a column 3", "expected columns below 3", "as --features 3 was given"),
    ),
    "more features than asked for, counted from 1": (
        ingesting(lambda g, p: texted(p / "a.svm", "1 1:1 5:2\n"), "--features", "3"),
        ("points have a column 5", "below 4, counted from 1", "as --features 3 was given"),
    ),
    "NaN in svmlight": (
        ingesting(lambda g, p: texted(p / "a.svm", "1 1:1\n1 1:nan\n")),
        ("a.svm:2: '1:nan' is NaN or infinity", "must be finite", "fill or drop"),
    ),
    "no points in svmlight": (
        ingesting(lambda g, p: texted(p / "a.svm", "")),
        ("a.svm holds no points", "label index:value"),
    ),
    "no points in Petuum's format": (
        ingesting(lambda g, p: texted(p / "a.petuum", "")),
        ("a.petuum holds no points", "label nnz id:value"),
    ),
    "other features than an npy has": (
        ingesting(lambda g, p: g / "points.npy", "--features", "6"),
        ("points.npy has 5 features", "6 are asked for", "leave out --features"),
    ),
    "svmlight beside Petuum's format": (
        lambda g, p: [
            "ingest",
            texted(p / "a.svm", "1 1:1\n"),
            texted(p / "a.petuum", "1 1 1:1\n"),
            "--out",
            p / "new",
        ],
        ("a.petuum is petuum", "is svmlight", "ingest them apart"),
    ),
    # ids
    "an id twice": (
        ingesting(lambda g, p: texted(p / "a.csv", "name,x\nu,1\nv,2\nu,3\n"), "--id-column", "name"),
        ("id u stands for point 0 and for point 2", "each id once"),
    ),
    "an unknown id": (
        lambda g, p: [
            "ingest",
            texted(p / "a.csv", "name,x\nu,1\nv,2\n"),
            "--id-column",
            "name",
            "--similar",
            texted(p / "s.txt", "u v\nu w\n"),
            "--out",
            p / "new",
        ],
        ("s.txt:2: no point has the id w",),
    ),
    "an unknown whole id": (
        lambda g, p: [
            "ingest",
            texted(p / "a.csv", "10,1\n20,2\n"),
            "--id-column",
            "0",
            "--similar",
            texted(p / "s.txt", "10 20\n10 0\n"),
            "--out",
            p / "new",
        ],
        ("s.txt:2: no point has the id 0",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_ends_in_one_clear_line_and_leaves_nothing_behind(name: str, good: Good, tmp_path: Path) -> None:
    check_case(CASES[name], good, tmp_path)


FILES: dict[str, tuple[str, Callable[[Good, Path], Command]]] = {
    "npy to ingest": ("points.npy", lambda g, file: ["ingest", file, "--out", file.parent / "new"]),
    "csv to ingest": ("pairs.csv", lambda g, file: ["ingest", file, "--out", file.parent / "new"]),
    "npz to ingest": ("labelled.npz", lambda g, file: ["ingest", file, "--out", file.parent / "new"]),
    "labels": (
        "similar.csv",
        lambda g, file: ["ingest", g / "points.npy", "--labels", file, "--out", file.parent / "new"],
    ),
    "pairs": ("pairs.csv", lambda g, file: ["ingest", g / "points.npy", "--pairs", file, "--out", file.parent / "new"]),
    "points of a dataset": ("labelled/points.npy", lambda g, file: ["evaluate", g / "run", file.parent]),
    "dataset.json": ("labelled/dataset.json", lambda g, file: ["evaluate", g / "run", file.parent]),
    "metric": ("run/metric.safetensors", lambda g, file: ["evaluate", file, g / "labelled"]),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_may_not_be_read_is_said_so(
    name: str, good: Good, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so the answer of the system is given in its place."""
    path, command = FILES[name]
    file = good.copy(path.split("/")[0], tmp_path) / Path(path).name if "/" in path else good.copy(path, tmp_path)
    opened = Path.open

    def refused(self: Path, *given: str, **named: str) -> object:
        if self == file:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refused)
    outcome = ended(*command(good, file))
    assert_one_clear_line(outcome, (f"{file} may not be read", "chmod"))
    assert "ingest the source again" not in outcome.err


@pytest.mark.parametrize("path", ["labelled/points.npy", "labelled/dataset.json", "run/metric.safetensors"])
def test_a_folder_in_place_of_a_file_is_said_so(path: str, good: Good, tmp_path: Path) -> None:
    folder, name = path.split("/")
    file = good.copy(folder, tmp_path) / name
    file.unlink()
    file.mkdir()
    places = {"run": good / "run", "labelled": good / "labelled"} | {folder: tmp_path / folder}
    outcome = ended("evaluate", places["run"], places["labelled"])
    assert_one_clear_line(outcome, (f"{file} is a folder; expected a file",))
