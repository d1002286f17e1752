"""Bad input: from the command line exit code 2, one last line that says how to mend it, and nothing left behind."""

import contextlib
import errno
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import save_file

import nearfar as nf
from nearfar.data.constraints import Comparisons, Labels, Pairs
from nearfar.data.dataset import Dataset
from nearfar.data.formats import read_points
from nearfar.errors import InvalidConstraints, InvalidFile, InvalidInput, InvalidPoints, InvalidRun, InvalidSettings
from nearfar.model.metric import Metric, load_metric
from tests.commands import Ended, ended, nearfar, process

N, D = 60, 5
TRAINING = ("--rank", "2", "--steps", "30", "--seed", "3")


def contents(folder: Path) -> dict[str, str]:
    """Every file and folder below, hidden ones too, with what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def assert_one_clear_line(outcome: Ended, says: tuple[str, ...]) -> None:
    lines = outcome.err.splitlines()
    assert outcome.code == 2, outcome
    assert lines[-1].startswith("error: "), outcome
    assert sum(line.lower().startswith("error") for line in lines) == 1, outcome
    assert "Traceback" not in outcome.out + outcome.err
    missing = [part for part in says if part not in lines[-1]]
    assert not missing, lines[-1]


@dataclass(frozen=True)
class Good:
    """Input that is right, made once, never changed: cases copy what they spoil."""

    folder: Path

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def copy(self, name: str, place: Path) -> Path:
        source = self.folder / name
        return Path((shutil.copytree if source.is_dir() else shutil.copy)(source, place / name))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    folder = tmp_path_factory.mktemp("good")
    y = np.arange(N) % 3
    X = blobs(y)
    np.savez(folder / "labelled.npz", X=X, y=y)
    np.savez(folder / "other.npz", X=X + 1, y=y)
    np.savez(folder / "wide.npz", X=np.hstack([X, X]), y=y)
    np.save(folder / "points.npy", X)
    np.savez(folder / "one-class.npz", X=X, y=np.zeros(N, int))
    np.savez(folder / "singletons.npz", X=X, y=np.arange(N))
    write_rows(folder / "pairs.csv", [(i, (i + 3) % N, 1) for i in range(N)] + [(i, (i + 1) % N, -1) for i in range(N)])
    write_rows(folder / "similar.csv", [(i, (i + 3) % N) for i in range(N)])
    write_rows(folder / "triplets.csv", [(i, (i + 3) % N, (i + 1) % N) for i in range(N)])
    for name in ("labelled", "other", "wide", "one-class", "singletons"):
        nearfar("ingest", folder / f"{name}.npz", "--out", folder / name)
    for name, option, file in (
        ("paired", "--pairs", "pairs.csv"),
        ("only-similar", "--similar", "similar.csv"),
        ("compared", "--triplets", "triplets.csv"),
    ):
        nearfar("ingest", folder / "points.npy", option, folder / file, "--out", folder / name)
    nearfar("ingest", folder / "points.npy", "--out", folder / "bare")
    nearfar(
        "train",
        folder / "labelled",
        "--out",
        folder / "run",
        *TRAINING,
        "--checkpoint-every",
        "1e-9",
        "--report-every",
        "5",
    )
    return Good(folder)


def blobs(y: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(len(y), D)) + 4 * y[:, None] * np.arange(D)


def write_rows(path: Path, rows: list[tuple[int, ...]]) -> Path:
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def spoiled(values: np.ndarray, value: float) -> np.ndarray:
    """The values with one of them, in row 7 and column 2, replaced."""
    values = values.copy()
    values[7, 2] = value
    return values


def saved(path: Path, array: np.ndarray, **options: bool) -> Path:
    np.save(path, array, **options)
    return path


def archived(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def parqueted(path: Path, **columns: list[object]) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), path)
    return path


def texted(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def truncated(path: Path, share: float = 0.6) -> Path:
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    return path


def flipped(path: Path) -> Path:
    """The file with its last byte changed."""
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 255]))
    return path


def without(folder: Path, name: str) -> Path:
    (folder / name).unlink()
    return folder


def foreign_safetensors(place: Path) -> Path:
    save_file({"weight": np.ones((2, 2), np.float32)}, place / "model.safetensors")
    return place / "model.safetensors"


def all_flipped(run: Path) -> Path:
    checkpoints = sorted((run / "checkpoints").iterdir())
    assert len(checkpoints) > 1
    for checkpoint in checkpoints:
        flipped(checkpoint)
    return run


Command = list[str | Path]
Make = Callable[[Good, Path], Command]


def ingesting(make: Callable[[Good, Path], Path], *options: str | Path) -> Make:
    """`nearfar ingest` of a source."""
    return lambda good, place: ["ingest", make(good, place), *options, "--out", place / "new"]


def ingesting_with(option: str, name: str, text: str) -> Make:
    """`nearfar ingest` of right points with a text file beside them."""
    return lambda good, place: [
        "ingest",
        good / "points.npy",
        option,
        texted(place / name, text),
        "--out",
        place / "new",
    ]


def training(dataset: str, *options: str) -> Make:
    return lambda good, place: ["train", good / dataset, "--out", place / "new", *TRAINING, *options]


def resuming(dataset: str, make: Callable[[Good, Path], Path], *options: str) -> Make:
    return lambda good, place: [
        "train",
        good / dataset,
        "--out",
        make(good, place),
        *TRAINING,
        "--checkpoint-every",
        "1e-9",
        "--report-every",
        "5",
        *options,
        "--resume",
    ]


def evaluating(make: Callable[[Good, Path], Path], dataset: str = "labelled", *options: str) -> Make:
    return lambda good, place: ["evaluate", make(good, place), good / dataset, *options]


def transforming(source: str, make_out: Callable[[Good, Path], Path] = lambda _, place: place / "new.npy") -> Make:
    return lambda good, place: ["transform", good / "run", good / source, "--out", make_out(good, place)]


def searching(
    make: Callable[[Good, Path], Path] = lambda good, _: good / "points.npy", *options: str, dataset: str = "labelled"
) -> Make:
    """`nearfar search` for the points of a file."""
    return lambda good, place: ["search", good / "run", good / dataset, "--query", make(good, place), *options]


def points_of(good: Good) -> np.ndarray:
    return np.load(good / "points.npy")


CASES: dict[str, tuple[Make, tuple[str, ...]]] = {
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
        ("a.parquet, row 1", "'x' has 1 numbers", "equal length"),
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
    # constraints
    "index out of range": (
        ingesting_with("--pairs", "p.csv", f"0,1,1\n2,{N},-1\n"),
        ("p.csv:2: ", f"index {N}", f"{N} points", f"from 0 to {N - 1}"),
    ),
    "negative index": (
        ingesting_with("--pairs", "p.csv", "0,1,1\n2,-1,-1\n"),
        ("p.csv:2: ", "index -1", f"{N} points", "from 0"),
    ),
    "index out of range in triplets": (
        ingesting_with("--triplets", "t.csv", f"0,1,2\n2,4,{N + 5}\n"),
        ("t.csv:2: index 65", "60 points"),
    ),
    "empty pairs": (ingesting_with("--pairs", "p.csv", ""), ("p.csv holds no rows", "one constraint a line")),
    "empty pairs in npy": (
        lambda g, p: [
            "ingest",
            g / "points.npy",
            "--pairs",
            saved(p / "p.npy", np.empty((0, 3), int)),
            "--out",
            p / "new",
        ],
        ("no pairs", "expected at least one"),
    ),
    "bad line of pairs": (
        ingesting_with("--pairs", "p.csv", "i,j,y\n0,1,1\n2,x,-1\n"),
        ("p.csv:3", "'x' is not a whole number", "i, j, +1 or -1"),
    ),
    "pairs of two columns": (ingesting_with("--pairs", "p.csv", "0,1\n"), ("p.csv:1", "2 columns", "expected 3")),
    "y of 0 and 1": (
        ingesting_with("--pairs", "p.csv", "0,1,1\n2,3,0\n"),
        ("p.csv:2", "y is 0", "expected +1 (similar) or -1 (dissimilar)", "0/1 must be turned"),
    ),
    "pairs and triplets": (
        lambda g, p: [
            "ingest",
            g / "points.npy",
            "--pairs",
            g / "pairs.csv",
            "--triplets",
            g / "triplets.csv",
            "--out",
            p / "new",
        ],
        ("several ways", "--pairs, or --similar"),
    ),
    "only similar pairs": (training("only-similar"), ("no dissimilar pairs", "both kinds")),
    "neither constraints nor labels": (training("bare"), ("neither constraints nor labels", "--labels or --pairs")),
    "no labels to learn from": (training("paired", "--from-labels"), ("no labels", "--labels")),
    # labels
    "one class": (training("one-class"), ("all labels are 0", "at least two classes")),
    "singletons": (training("singletons"), ("every class has one point", "two or more")),
    "labels of the wrong length": (
        ingesting_with("--labels", "l.txt", "0\n1\n" * 10),
        ("20 labels for 60 points", "expected one a point"),
    ),
    "labels of the wrong length in npz": (
        ingesting(lambda g, p: archived(p / "a.npz", X=points_of(g), y=np.zeros(N - 1, int))),
        ("59 labels for 60 points", "expected one a point"),
    ),
    "labels with an empty line": (
        ingesting_with("--labels", "l.txt", "0\n\n1\n"),
        ("l.txt:2", "the line is empty", "one label a line"),
    ),
    "labels of pickled objects": (
        lambda g, p: [
            "ingest",
            g / "points.npy",
            "--labels",
            saved(p / "l.npy", np.array(["a"] * N, object), allow_pickle=True),
            "--out",
            p / "new",
        ],
        ("l.npy holds Python objects", ".astype(str)"),
    ),
    "labels of fractions": (
        ingesting(lambda g, p: archived(p / "a.npz", X=points_of(g), y=np.linspace(0, 1, N))),
        ("NaN or fractions", "whole numbers or text"),
    ),
    "folder as labels": (
        lambda g, p: ["ingest", g / "points.npy", "--labels", g / "labelled", "--out", p / "new"],
        ("labelled is a folder; expected a file",),
    ),
    "folder as pairs": (
        lambda g, p: ["ingest", g / "points.npy", "--pairs", ".", "--out", p / "new"],
        (". is a folder; expected a file",),
    ),
    "missing labels file": (
        lambda g, p: ["ingest", g / "points.npy", "--labels", p / "no.txt", "--out", p / "new"],
        ("no.txt is missing",),
    ),
    # sampling
    "sample without labels": (lambda g, p: ["sample", g.copy("bare", p), "--similar", "5"], ("nor labels", "--labels")),
    "sample nothing": (
        lambda g, p: ["sample", g.copy("labelled", p)],
        ("--similar N --dissimilar N, or --triplets N",),
    ),
    "sample both": (
        lambda g, p: ["sample", g.copy("labelled", p), "--similar", "5", "--triplets", "5"],
        ("--similar N --dissimilar N, or --triplets N",),
    ),
    "sample fewer than none": (lambda g, p: ["sample", g / "labelled", "--similar", "-1"], ("--similar", "0")),
    "sample one class": (
        lambda g, p: ["sample", g.copy("one-class", p), "--similar", "5", "--dissimilar", "5"],
        ("one class", "two or more"),
    ),
    "sample singletons": (
        lambda g, p: ["sample", g.copy("singletons", p), "--triplets", "5"],
        ("group has two points",),
    ),
    "sample over ingested pairs": (
        lambda g, p: ["sample", both_ingested(g, p), "--triplets", "5"],
        ("not noted as drawn (60 similar, 60 dissimilar)", "replace them all", "--replace"),
    ),
    # settings
    "rank above the features": (training("labelled", "--rank", "6"), ("rank is 6", "5 features", "at most")),
    "rank of nothing": (training("labelled", "--rank", "0"), ("rank is 0", "more than 0")),
    "rank in words": (training("labelled", "--rank", "two"), ("--rank", "integer", "nearfar train --help")),
    "no steps": (training("labelled", "--steps", "0"), ("steps is 0", "more than 0")),
    "step size of NaN": (training("labelled", "--step-size", "nan"), ("step_size is nan", "finite")),
    "unknown loss": (training("labelled", "--loss", "softmax"), ("--loss", "'softmax'", "hinge", "logistic")),
    "unknown engine": (training("labelled", "--engine", "spark"), ("--engine", "'spark'", "serial", "threads")),
    "unknown consistency": (
        training("labelled", "--consistency", "ssp:x"),
        ("consistency is 'ssp:x'", "asp, bsp or ssp:S", "as in ssp:3"),
    ),
    "unknown option": (training("labelled", "--speed", "9"), ("--speed", "nearfar train --help")),
    "unknown command": (lambda g, p: ["teach"], ("'teach'", "nearfar --help")),
    "serial with two workers": (
        training("labelled", "--engine", "serial", "--workers", "2"),
        ("serial has one worker", "use engine threads"),
    ),
    "neighbour loss on pairs": (
        training("paired", "--loss", "neighbour"),
        ("the neighbour loss does not take pairs", "use hinge or logistic, or learn from labels"),
    ),
    "comparison loss on pairs": (
        training("paired", "--loss", "comparison"),
        ("the comparison loss does not take pairs", "use hinge or logistic"),
    ),
    "hinge loss on triplets": (
        training("compared", "--loss", "hinge"),
        ("the hinge loss does not take triplets", "use comparison"),
    ),
    # where to write
    "ingest below a file": (
        lambda g, p: ["ingest", g / "labelled.npz", "--out", texted(p / "file", "") / "new"],
        ("cannot write", "Not a directory", "choose a folder that exists"),
    ),
    "ingest to a missing folder": (
        lambda g, p: ["ingest", g / "labelled.npz", "--out", p / "no" / "new"],
        ("cannot write", "No such file", "choose a folder that exists"),
    ),
    "train below a file": (
        lambda g, p: ["train", g / "labelled", "--out", texted(p / "file", "") / "new", *TRAINING],
        ("cannot make the folder", "Not a directory", "choose"),
    ),
    "transform below a file": (
        transforming("points.npy", lambda _, place: texted(place / "file", "") / "new.npy"),
        ("cannot write", "no such folder", "choose a folder that exists"),
    ),
    "transform to a text file": (
        transforming("points.npy", lambda _, place: place / "p.txt"),
        ("p.txt is no name of a npy file", "expected one that ends in .npy"),
    ),
    "a name too long": (
        lambda g, p: ["ingest", g / "labelled.npz", "--out", p / ("x" * 300)],
        ("File name too long", "choose"),
    ),
    "ingest to what exists": (
        lambda g, p: ["ingest", g / "labelled.npz", "--out", g.copy("labelled", p)],
        ("labelled exists already", "choose another name"),
    ),
    "train to what exists": (
        lambda g, p: ["train", g / "labelled", "--out", g.copy("run", p), *TRAINING],
        ("run exists already", "another folder", "--resume"),
    ),
    "transform to what exists": (
        transforming("points.npy", lambda good, place: good.copy("points.npy", place)),
        ("points.npy exists already", "choose another name"),
    ),
    "nowhere to write": (lambda g, p: ["train", g / "labelled"], ("--out", "nearfar train --help")),
    # runs
    "resume without a run": (
        resuming("labelled", lambda g, p: p / "run"),
        ("run is no run folder", "no run.toml", "nearfar train"),
    ),
    "resume with other settings": (
        resuming("labelled", lambda g, p: g.copy("run", p), "--rank", "3", "--loss", "hinge"),
        ("other settings", "rank: 3 now, 2 before", "loss: hinge now, auto before", "resume it with the same"),
    ),
    "resume on other data": (
        resuming("other", lambda g, p: g.copy("run", p)),
        ("fingerprint", "now", "before"),
    ),
    "resume on constraints": (
        lambda g, p: resuming("labelled", lambda *_: g.copy("run", p))(Good(sampled(g, p)), p),
        ("learns_from: pairs now, labels before",),
    ),
    "resume on other constraints": (
        lambda g, p: resuming("labelled", lambda *_: p / "new")(Good(resampled(g, p)), p),
        ("constraints_fingerprint: ", "resume it with the same"),
    ),
    "all checkpoints damaged": (
        resuming("labelled", lambda g, p: all_flipped(g.copy("run", p))),
        ("every checkpoint in", "is damaged", "start the run again"),
    ),
    "run.toml is no TOML": (
        evaluating(lambda g, p: (texted(g.copy("run", p) / "run.toml", "rank = = 2\n"), p / "run")[1]),
        ("run.toml is not valid TOML",),
    ),
    "not a run": (evaluating(lambda g, p: g / "labelled"), ("is no run folder", "no run.toml", "nearfar train")),
    "missing run": (evaluating(lambda g, p: p / "no"), ("no", "nearfar train")),
    "run without a metric": (
        evaluating(lambda g, p: without(g.copy("run", p), "metric.safetensors")),
        ("metric.safetensors is missing", "--resume"),
    ),
    # metrics
    "foreign safetensors": (
        evaluating(lambda g, p: foreign_safetensors(p)),
        ("model.safetensors is a safetensors file, but not a metric", "expected one written by"),
    ),
    "metric that is no safetensors": (
        evaluating(lambda g, p: texted(p / "m.safetensors", "spam")),
        ("m.safetensors is not a complete safetensors file",),
    ),
    "truncated metric": (
        evaluating(lambda g, p: truncated(g.copy("run", p) / "metric.safetensors", 0.95)),
        ("metric.safetensors is not a complete safetensors file",),
    ),
    "damaged metric": (
        evaluating(lambda g, p: flipped(g.copy("run", p) / "metric.safetensors")),
        ("metric.safetensors is damaged", "checksum"),
    ),
    "metric of another width": (
        evaluating(lambda g, p: g / "run", "wide"),
        ("points have 10 features", "measures points of 5"),
    ),
    "transform of another width": (
        transforming("wide.npz"),
        ("points have 10 features", "measures points of 5"),
    ),
    # searches
    "search for points of another width": (
        searching(lambda g, _: g / "wide.npz"),
        ("points have 10 features", "measures points of 5"),
    ),
    "search in points of another width": (searching(dataset="wide"), ("points have 10 features", "points of 5")),
    "search for NaN": (
        searching(lambda g, p: saved(p / "a.npy", spoiled(points_of(g), np.nan))),
        ("point 7 has NaN or infinity in feature 2",),
    ),
    "search for nothing": (searching(lambda g, p: saved(p / "a.npy", np.empty((0, D)))), ("(0, 5)", "at least one")),
    "search for a missing file": (searching(lambda g, p: p / "no.npy"), ("no.npy is missing", "expected a .npy file")),
    "search for a folder that is no dataset": (
        searching(lambda g, _: g / "run"),
        ("no dataset.json", "nearfar ingest"),
    ),
    "search without a query": (
        lambda g, _: ["search", g / "run", g / "labelled"],
        ("--query", "nearfar search --help"),
    ),
    "search in a missing dataset": (searching(dataset="no"), ("no does not exist", "nearfar ingest")),
    "more neighbours than points": (searching(lambda g, _: g / "points.npy", "-k", "61"), ("k is 61", "from 1 to 60")),
    "no neighbours": (searching(lambda g, _: g / "points.npy", "-k", "0"), ("-k", "nearfar search --help")),
    "search to a text file": (
        searching(lambda g, _: g / "points.npy", "--out", "found.csv"),
        ("found.csv", "expected one that ends in .npz"),
    ),
    "search to what exists": (
        lambda g, p: [*searching()(g, p), "--out", g.copy("labelled.npz", p)],
        ("labelled.npz exists already", "choose another name"),
    ),
    "search to a missing folder": (
        lambda g, p: [*searching()(g, p), "--out", p / "no" / "found.npz"],
        ("cannot write", "choose a folder that exists"),
    ),
    # datasets
    "missing dataset": (training("no"), ("no does not exist", "nearfar ingest")),
    "not a dataset": (training("run"), ("has no dataset.json", "nearfar ingest")),
    "file as dataset": (training("labelled.npz"), ("nearfar ingest",)),
    "dataset without its points": (
        lambda g, p: ["train", without(g.copy("labelled", p), "points.npy"), "--out", p / "new", *TRAINING],
        ("points.npy is missing", "ingest the source again"),
    ),
    "dataset with points cut short": (
        lambda g, p: [
            "train",
            truncated(g.copy("labelled", p) / "points.npy").parent,
            "--out",
            p / "new",
            *TRAINING,
        ],
        ("points.npy is not a complete .npy file", "ingest the source again"),
    ),
    "dataset with fewer labels": (
        lambda g, p: [
            "train",
            saved(g.copy("labelled", p) / "labels.npy", np.zeros(N - 1, int)).parent,
            "--out",
            p / "new",
            *TRAINING,
        ],
        ("labels.npy", "shape (59,)", "(60,)", "ingest the source again"),
    ),
    "dataset without its labels": (
        lambda g, p: ["train", without(g.copy("labelled", p), "labels.npy"), "--out", p / "new", *TRAINING],
        ("labels.npy is missing", "ingest the source again"),
    ),
    "dataset of other points": (
        lambda g, p: [
            "train",
            saved(g.copy("labelled", p) / "points.npy", points_of(g).astype("f4") + 1).parent,
            "--out",
            p / "new",
            *TRAINING,
        ],
        ("not those it was made with", "ingest the source again"),
    ),
    "dataset to judge by without labels": (
        evaluating(lambda g, p: g / "run", "bare"),
        ("neither pairs nor labels to judge a metric by",),
    ),
    "dataset to judge by of one kind": (evaluating(lambda g, p: g / "run", "only-similar"), ("dissimilar",)),
    "dataset to judge by of one class": (evaluating(lambda g, p: g / "run", "one-class"), ("one class", "two")),
    # plans
    "a plan of nothing": (lambda *_: ["plan"], ("nothing to plan", "give a dataset, or --points and --features")),
    "a plan of more non-zeros than features": (
        lambda *_: ["plan", "--points", "10", "--features", "10", "--nonzeros", "20"],
        ("nonzeros is 20", "10 features", "at most that many"),
    ),
    "a plan of a dataset and of sizes": (
        lambda g, _: ["plan", g / "labelled", "--points", "100", "--features", "7"],
        ("both", "give a dataset, or --points"),
    ),
    "a plan of a dataset and of pairs": (lambda g, _: ["plan", g / "labelled", "--pairs", "100"], ("give a dataset",)),
    "a plan of a higher rank than features": (
        lambda *_: ["plan", "--points", "10", "--features", "10", "--rank", "20"],
        ("rank is 20", "10 features", "at most that many"),
    ),
    # a cluster
    "an object store of no size": (
        training("labelled", "--engine", "ray", "--object-store", "banana"),
        ("object_store is 'banana'", "8GB"),
    ),
    # judging
    "more voters than references": (
        evaluating(lambda g, p: g / "run", "other", "--neighbours", "61"),
        ("k is 61", "from 1 to 60"),
    ),
    "more voters than other points": (
        evaluating(lambda g, p: g / "run", "labelled", "--neighbours", "60"),
        ("k is 60", "from 1 to 59"),
    ),
    "no queries": (
        evaluating(lambda g, p: g / "run", "labelled", "--queries", "0"),
        ("--queries", "nearfar evaluate --help"),
    ),
    "resamples below 0": (
        evaluating(lambda g, p: g / "run", "labelled", "--resamples", "-1"),
        ("--resamples", "nearfar evaluate --help"),
    ),
    "points too far apart to judge by": (
        lambda g, p: ["evaluate", g / "run", ingested(p, X=1e25 * points_of(g), y=np.arange(N) % 3)],
        ("squared distances are too large for float32", "divide the points"),
    ),
    "curves to a text file": (
        evaluating(lambda g, p: g / "run", "labelled", "--curves", "curves.csv"),
        ("curves.csv", "expected one that ends in .json"),
    ),
    "curves to what exists": (
        lambda g, p: [*evaluating(lambda *_: g / "run")(g, p), "--curves", texted(p / "curves.json", "{}")],
        ("curves.json exists already", "choose another name"),
    ),
    "curves to a missing folder": (
        lambda g, p: [*evaluating(lambda *_: g / "run")(g, p), "--curves", p / "no" / "curves.json"],
        ("cannot write", "choose a folder that exists"),
    ),
}


def ingested(place: Path, **arrays: np.ndarray) -> Path:
    nearfar("ingest", archived(place / "source.npz", **arrays), "--out", place / "dataset")
    return place / "dataset"


def both_ingested(good: Good, place: Path) -> Path:
    """A dataset of labels and of pairs of the user's own."""
    nearfar("ingest", good / "labelled.npz", "--pairs", good / "pairs.csv", "--out", place / "both")
    return place / "both"


def sampled(good: Good, place: Path) -> Path:
    dataset = good.copy("labelled", place)
    nearfar("sample", dataset, "--similar", "50", "--dissimilar", "50")
    return dataset.parent


def resampled(good: Good, place: Path) -> Path:
    """A run on sampled pairs, and then as many other pairs in the same dataset."""
    datasets = Good(sampled(good, place))
    begun = [part for part in resuming("labelled", lambda *_: place / "new")(datasets, place) if part != "--resume"]
    nearfar(*begun)
    nearfar("sample", datasets / "labelled", "--similar", "50", "--dissimilar", "50", "--seed", "1")
    return datasets.folder


@pytest.mark.parametrize("name", CASES)
def test_bad_input_ends_in_one_clear_line_and_leaves_nothing_behind(name: str, good: Good, tmp_path: Path) -> None:
    make, says = CASES[name]
    command = make(good, tmp_path)
    before, kept = contents(tmp_path), contents(good.folder)
    assert_one_clear_line(ended(*command), says)
    assert contents(tmp_path) == before
    assert contents(good.folder) == kept


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


IN_A_PROCESS = ("NaN in npy", "y of 0 and 1", "resume with other settings", "unknown loss")


def test_the_same_in_a_process_of_its_own(good: Good, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in IN_A_PROCESS}
    started = {}
    with contextlib.ExitStack() as stack:
        for name, place in places.items():
            place.mkdir()
            command = process(*CASES[name][0](good, place))
            before = contents(place)
            begun = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            started[name] = (stack.enter_context(begun), before)
        for name, (begun, before) in started.items():
            out, err = begun.communicate()
            assert_one_clear_line(Ended(begun.returncode, out, err), CASES[name][1])
            assert contents(places[name]) == before


def test_an_address_where_nobody_answers_is_an_error_in_time(good: Good, tmp_path: Path) -> None:
    """In a process of its own, as Ray keeps what it tried."""
    out = tmp_path / "run"
    command = process("train", good / "labelled", "--out", out, "--engine", "ray", "--address", "127.0.0.1:1")
    answered = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert answered.returncode == 2
    assert "error: no Ray cluster at address '127.0.0.1:1'" in answered.stderr
    assert not out.exists()


def test_a_damaged_checkpoint_gives_way_to_the_one_before_with_a_warning(good: Good, tmp_path: Path) -> None:
    run = good.copy("run", tmp_path)
    newest = max((run / "checkpoints").iterdir())
    flipped(newest)
    code, out, err = ended(*resuming("labelled", lambda *_: run, "--steps", "40")(good, tmp_path))
    assert code == 0, err
    assert f"note: {newest} is damaged" in err
    assert "going back to the checkpoint before it" in err
    assert "error" not in err.lower().replace("objective", "")
    assert "40 steps" in out
    assert load_metric(run / "metric.safetensors").settings["steps"] == 40


def test_only_the_budget_may_change_on_resume(good: Good, tmp_path: Path) -> None:
    run = good.copy("run", tmp_path)
    assert "45 steps" in nearfar(
        *resuming("labelled", lambda *_: run, "--steps", "45", "--patience", "50")(good, tmp_path)
    )


Y = np.arange(N) % 3
X = blobs(Y)
QUICK = nf.TrainingSettings(rank=2, steps=3)
SIMILAR, DISSIMILAR = [[0, 3], [1, 4]], [[0, 1], [1, 2]]

IN_PYTHON: dict[str, tuple[Callable[[Path], object], type[InvalidInput], str]] = {
    "NaN in an array": (
        lambda _: nf.train(spoiled(X, np.nan), Y, QUICK),
        InvalidPoints,
        "point 7 has NaN or infinity in feature 2",
    ),
    "NaN in a sparse matrix": (
        lambda _: nf.train(sp.csr_matrix(spoiled(X, np.nan)), Y, QUICK),
        InvalidPoints,
        "point 7 has NaN or infinity in feature 2",
    ),
    "infinity": (lambda _: nf.train(spoiled(X, np.inf), Y, QUICK), InvalidPoints, "point 7 has NaN or infinity"),
    "NaN to transform": (
        lambda _: Metric(np.ones((2, D))).transform(spoiled(X, np.nan)),
        InvalidPoints,
        "point 7 has NaN or infinity",
    ),
    "points of one dimension": (lambda _: nf.train(X[0], Y, QUICK), InvalidPoints, "expected two dimensions"),
    "points of objects": (lambda _: nf.train(X.astype(object), Y, QUICK), InvalidPoints, "expected real numbers"),
    "points of another width": (
        lambda _: Metric(np.ones((2, D + 1))).transform(X),
        InvalidPoints,
        "points have 5 features.* 6",
    ),
    "index out of range": (
        lambda _: nf.train(X, Pairs([[0, N]], DISSIMILAR), QUICK),
        InvalidConstraints,
        "similar pairs have index 60, but there are 60 points",
    ),
    "negative index": (
        lambda _: nf.train(X, Comparisons([[0, 3, -1]]), QUICK),
        InvalidConstraints,
        "triplets have index -1",
    ),
    "no pairs": (lambda _: Pairs([], []), InvalidConstraints, "no pairs.*expected at least one"),
    "fractions for indices": (lambda _: Pairs([[0.5, 1]], DISSIMILAR), InvalidConstraints, "fractions.*whole numbers"),
    "triplets for pairs": (lambda _: Pairs([[0, 1, 2]], DISSIMILAR), InvalidConstraints, r"\(1, 3\).*\(n, 2\)"),
    "only similar pairs": (
        lambda _: nf.train(X, Pairs(SIMILAR, []), QUICK),
        InvalidConstraints,
        "no dissimilar pairs.*both kinds",
    ),
    "one class": (lambda _: nf.train(X, 0 * Y, QUICK), InvalidConstraints, "all labels are 0.*two classes"),
    "singletons": (lambda _: nf.train(X, np.arange(N), QUICK), InvalidConstraints, "every class has one point"),
    "labels of the wrong length": (lambda _: nf.train(X, Y[1:], QUICK), InvalidConstraints, "59 labels for 60 points"),
    "labels of NaN": (lambda _: Labels([1.0, np.nan]), InvalidConstraints, "NaN"),
    "rank above the features": (
        lambda _: nf.train(X, Y, nf.TrainingSettings(rank=D + 1)),
        InvalidSettings,
        "rank is 6, but points have 5 features",
    ),
    "rank of nothing": (lambda _: nf.TrainingSettings(rank=0), InvalidSettings, "rank is 0"),
    "unknown loss": (lambda _: nf.TrainingSettings(loss="softmax"), InvalidSettings, "'softmax'.*hinge"),  # type: ignore[arg-type]
    "unknown engine": (lambda _: nf.train(X, Y, QUICK, engine="spark"), InvalidSettings, "'spark'.*threads"),  # type: ignore[arg-type]
    "unknown consistency": (lambda _: nf.TrainingSettings(consistency="ssp:x"), InvalidSettings, "'ssp:x'.*ssp:3"),
    "neighbour loss on pairs": (
        lambda _: nf.train(X, Pairs(SIMILAR, DISSIMILAR), nf.TrainingSettings(loss="neighbour")),
        InvalidSettings,
        "does not take pairs",
    ),
    "resume without a run": (lambda _: nf.train(X, Y, QUICK, resume=True), InvalidRun, "no run to resume"),
    "resume of a missing run": (
        lambda place: nf.train(X, Y, QUICK, run=place / "no", resume=True),
        InvalidRun,
        "no run folder",
    ),
    "run in a folder that exists": (lambda place: nf.train(X, Y, QUICK, run=place), InvalidRun, "exists already"),
    "run below a file": (
        lambda place: nf.train(X, Y, QUICK, run=texted(place / "file", "") / "new"),
        InvalidFile,
        "Not a directory",
    ),
    "missing dataset": (lambda place: Dataset.open(place / "no"), InvalidFile, "does not exist.*nearfar ingest"),
    "missing file": (lambda place: read_points(place / "no.npz"), InvalidFile, "is missing"),
    "foreign safetensors": (lambda place: load_metric(foreign_safetensors(place)), InvalidFile, "not a metric"),
    "metric saved below a file": (
        lambda place: Metric(np.ones((2, 3))).save(texted(place / "file", "") / "m.safetensors"),
        InvalidFile,
        "cannot write.*choose",
    ),
}


@pytest.mark.parametrize("name", IN_PYTHON)
def test_bad_input_from_python_raises_an_error_of_its_own(name: str, tmp_path: Path) -> None:
    call, kind, message = IN_PYTHON[name]
    with pytest.raises(kind, match=message) as raised:
        call(tmp_path)
    assert isinstance(raised.value, InvalidInput)
    assert isinstance(raised.value, ValueError)
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "model.safetensors"}
