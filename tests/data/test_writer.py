"""A dataset written block by block is the one written at once, in bounded memory, complete or not there."""

import contextlib
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data.constraints import Classes, Comparisons, Labels, Pairs
from nearfar.data.dataset import Dataset, store_constraints, write_dataset
from nearfar.data.description import Description
from nearfar.data.drawn import draw_to_dataset
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.data.points import SparseRows
from nearfar.data.stored_constraints import ConstraintWriter
from nearfar.data.writer import DatasetWriter
from nearfar.errors import InvalidFile, InvalidInput, InvalidPoints
from tests.commands import ended, nearfar


def all_rows(dataset: Dataset) -> np.ndarray:
    rows = dataset.points.rows(np.arange(len(dataset.points)))
    return rows.to_scipy().toarray() if isinstance(rows, SparseRows) else rows


BLOCKS = st.lists(
    st.sampled_from([[0, 255], [1, 300], [-5, 3], [0, 40000], [-40000, 7], [0.5, 2], [0, 3e9]]), min_size=1, max_size=5
)


@settings(deadline=None, max_examples=25)
@given(BLOCKS, st.booleans())
def test_blocks_of_any_kind_are_stored_as_if_they_came_at_once(tmp_path_factory, blocks, sparse: bool) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    together = np.array(blocks, np.float64)
    kind = sp.csr_matrix if sparse else np.asarray
    with DatasetWriter(folder / "blocks", sparse=sparse, n_features=2) as writer:
        for block in blocks:
            writer.append(kind(np.array([block])), labels=[len(blocks)])
    write_dataset(folder / "whole", kind(together), np.full(len(blocks), len(blocks)))
    for path in (folder / "whole").iterdir():
        assert (folder / "blocks" / path.name).read_bytes() == path.read_bytes(), path.name
    np.testing.assert_array_equal(all_rows(Dataset.open(folder / "blocks")), together.astype(np.float32))


@pytest.mark.parametrize(("columns", "dtype"), [([0, 65535], "uint16"), ([0, 65536], "int32")])
@pytest.mark.parametrize("known", [True, False])
def test_columns_take_two_bytes_where_those_do(tmp_path: Path, columns: list[int], dtype: str, known: bool) -> None:
    with DatasetWriter(tmp_path / "a", sparse=True, n_features=columns[1] + 1 if known else None) as writer:
        for column in columns:
            writer.append(sp.csr_matrix(([1.0], ([0], [column])), shape=(1, column + 1)))
    assert np.load(tmp_path / "a" / "points.indices.npy").dtype == dtype
    rows = Dataset.open(tmp_path / "a").points.rows(np.arange(2))
    assert isinstance(rows, SparseRows)
    assert rows.columns.tolist() == columns
    assert rows.columns.dtype == np.int32
    assert rows.n_features == columns[1] + 1


def test_columns_from_one_fit_two_bytes_as_well(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "a", sparse=True, base_unknown=True) as writer:
        writer.append(sp.csr_matrix(([1.0, 2.0], ([0, 0], [1, 65536])), shape=(1, 65537)))
    assert np.load(tmp_path / "a" / "points.indices.npy").dtype == np.uint16
    assert np.load(tmp_path / "a" / "points.indices.npy").tolist() == [0, 65535]
    assert Dataset.open(tmp_path / "a").points.n_features == 65536


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("sparse", [True, False])
def test_values_are_stored_as_asked(tmp_path: Path, dtype: str, sparse: bool) -> None:
    points = np.random.default_rng(0).standard_normal((20, 5)).round(1)
    dataset = write_dataset(tmp_path / "a", sp.csr_matrix(points) if sparse else points, dtype=dtype)
    assert np.load(tmp_path / "a" / ("points.data.npy" if sparse else "points.npy")).dtype == dtype
    np.testing.assert_array_equal(all_rows(dataset), points.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_float16_is_refused_where_a_value_is_too_large(tmp_path: Path, kind) -> None:
    points = np.full((4, 3), 0.5)
    points[2, 1] = 70000
    with pytest.raises(InvalidPoints, match="point 2 has 70000 in feature 1, too large for float16"):
        write_dataset(tmp_path / "a", kind(points), dtype="float16")
    assert list(tmp_path.iterdir()) == []


WRONG = {
    "another width": (lambda w: (w.append(np.ones((2, 3))), w.append(np.ones((2, 4)))), "from 2 on have 4 features"),
    "NaN in a later block": (
        lambda w: (w.append(np.ones((2, 3))), w.append(np.full((1, 3), np.nan))),
        "point 2 has NaN",
    ),
    "too few labels": (lambda w: w.append(np.ones((2, 3)), labels=[1]), "1 labels for 2 points"),
    "too few ids": (lambda w: w.append(np.ones((2, 3)), ids=["a"]), "1 ids for 2 points"),
    "an id twice": (lambda w: w.append(np.ones((4, 3)), ids=[3, 9, 9, 3]), "id 9 stands for point 1 and for point 2"),
    "an id twice in text": (lambda w: w.append(np.ones((3, 3)), ids=["b", "a", "b"]), "id b .* 0 .* 2"),
    "no points": (lambda w: None, "no points"),
    "an index too large": (
        lambda w: (w.append(np.ones((2, 3))), w.append_constraints("similar", np.array([[0, 2]]))),
        "index 2",
    ),
}


@pytest.mark.parametrize(("write", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said_and_nothing_is_left(tmp_path: Path, write, message: str) -> None:
    with pytest.raises(InvalidInput, match=message), DatasetWriter(tmp_path / "a") as writer:
        write(writer)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with DatasetWriter(tmp_path / "a") as writer:
            writer.append(np.ones((2, 3)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_said_whenever_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("append", "close", "retype"):
        with monkeypatch.context() as patched:
            patched.setattr(f"nearfar.files.NpyAppender.{method}", full_disk)
            with pytest.raises(InvalidFile, match=r"cannot write .*/a: No space left on device; free some"):
                write_dataset(tmp_path / "a", np.ones((2, 3)))
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("needs leave to mount a file system")
    except OSError:
        pytest.skip("needs the command mount")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)  # what was written is still mapped


def test_a_small_disk_fills_up_and_is_left_as_it_was(tmp_path: Path, small_disk: Path) -> None:
    np.savez(tmp_path / "large.npz", X=np.random.default_rng(0).standard_normal((3000, 100)), y=np.arange(3000) % 3)
    np.savez(tmp_path / "small.npz", X=np.ones((1000, 2)), y=np.arange(1000) % 3)
    code, _, err = ended("ingest", tmp_path / "large.npz", "--out", small_disk / "out")
    assert code == 2, err
    assert err.splitlines()[-1].startswith(f"error: cannot write {small_disk / 'out'}: No space left on device")
    assert list(small_disk.iterdir()) == []
    nearfar("ingest", tmp_path / "small.npz", "--out", small_disk / "out")
    before = {path.name: path.read_bytes() for path in (small_disk / "out").iterdir()}
    code, _, err = ended("sample", small_disk / "out", "--similar", "200000", "--dissimilar", "5")
    assert code == 2, err
    assert "No space left on device" in err.splitlines()[-1]
    assert {path.name: path.read_bytes() for path in (small_disk / "out").iterdir()} == before


def test_draws_in_blocks_are_the_draws_made_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearfar.data.drawn._AT_ONCE", 7)
    labels = np.arange(30) % 4
    write_dataset(tmp_path / "a", np.ones((30, 2)), labels)
    draws, told = LabelDraws(Labels(labels)), []
    draw_to_dataset(tmp_path / "a", draws, {"similar": 50, "dissimilar": 20}, 3, lambda *done: told.append(done))
    stored, expected = Dataset.open(tmp_path / "a").constraints, draw_pairs(draws, 50, 20, 3)
    assert isinstance(stored, Pairs)
    np.testing.assert_array_equal(stored.similar, expected.similar)
    np.testing.assert_array_equal(stored.dissimilar, expected.dissimilar)
    assert told[-1] == (70, 70)
    draw_to_dataset(tmp_path / "a", draws, {"triplets": 20}, 3)
    np.testing.assert_array_equal(Dataset.open(tmp_path / "a").constraints.indices, draws.triplets(20, 3))


def test_classes_are_counted_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.random.default_rng(0).integers(0, 9, 100)
    whole = Classes.of(labels)
    monkeypatch.setattr("nearfar.data.constraints._COUNT_ROWS", 7)
    blocks = Classes.of(labels)
    np.testing.assert_array_equal(blocks.names, whole.names)
    np.testing.assert_array_equal(blocks.counts, whole.counts)


MEASURE = """
import sys
from pathlib import Path
from nearfar.data.ingest import ingest
def anonymous():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) * 1024
def peak(source):
    most = 0
    def look(done, total):
        nonlocal most
        most = max(most, anonymous())
    ingest([source], source.with_name(source.name + ".dataset"), on_progress=look)
    return most
for suffix in sys.argv[2:]:
    print(*(peak(Path(sys.argv[1]) / f"{name}{suffix}") for name in ("once", "often")))
"""
SUFFIXES = (".npy", ".npz", ".svm", ".csv")
POINTS = np.random.default_rng(0).integers(1, 1000, (30_000, 64))
TIMES = 10


def write_points(folder: Path, suffix: str) -> None:
    """The points once, and the same many times over."""
    once, often = folder / f"once{suffix}", folder / f"often{suffix}"
    if suffix in {".npy", ".npz"}:
        for path, rows in ((once, POINTS), (often, np.tile(POINTS, (TIMES, 1)))):
            np.save(path, rows) if suffix == ".npy" else np.savez(path, X=rows)
        return
    columns = ["0 ", *(f"{column}:{{}} " for column in range(1, 65))] if suffix == ".svm" else ["{},"] * 64
    line = "".join(columns)[:-1] + "\n"
    once.write_text("".join(line.format(*row) for row in POINTS.tolist()))
    often.write_bytes(once.read_bytes() * TIMES)


@pytest.fixture(scope="module")
def peaks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, int]]:
    """For each format the memory it takes to ingest points once, and the same points many times over."""
    folder = tmp_path_factory.mktemp("peaks")
    for suffix in SUFFIXES:
        write_points(folder, suffix)
    command = [sys.executable, "-c", MEASURE, str(folder), *SUFFIXES]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    for suffix in SUFFIXES:
        assert len(Dataset.open(folder / f"often{suffix}.dataset").points) == TIMES * len(POINTS)
    lines = [line.split() for line in ended.stdout.splitlines()]
    return {suffix: (int(once), int(often)) for suffix, (once, often) in zip(SUFFIXES, lines, strict=True)}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_memory_does_not_grow_with_the_file(peaks, suffix: str) -> None:
    once, often = peaks[suffix]
    assert often - once < TIMES * POINTS.nbytes / 4


def test_a_disk_that_is_full_at_the_very_end_leaves_the_old_constraints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "points"
    write_dataset(folder, np.eye(4), constraints=Pairs(np.array([[0, 1]]), np.array([[2, 3]])))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    writer = ConstraintWriter(folder).__enter__()
    writer.append("triplets", np.array([[0, 1, 2]]))
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(InvalidFile, match="No space left"):
        writer.__exit__(None, None, None)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


OLD, NEW = Pairs(np.array([[0, 1]]), np.array([[2, 3]])), Pairs(np.array([[4, 5], [1, 2]]), np.array([[0, 5]]))


def interrupted_at(step: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a signal come after the so-many-th change of a name; the list is of the changes made."""
    made: list[str] = []

    def interrupted(change: Callable[..., object]) -> Callable[..., None]:
        def changing(self: Path, *given: object, **named: object) -> None:
            change(self, *given, **named)
            made.append(self.name)
            if len(made) == step:
                raise KeyboardInterrupt

        return changing

    for operation in ("replace", "unlink"):
        monkeypatch.setattr(Path, operation, interrupted(getattr(Path, operation)))
    return made


@pytest.mark.parametrize("old", [OLD, Comparisons(np.array([[0, 1, 2]]))])
def test_a_signal_while_constraints_are_replaced_loses_none(tmp_path: Path, monkeypatch, old) -> None:
    step, reached = 0, True
    while reached:
        step += 1
        folder = tmp_path / str(step)
        write_dataset(folder, np.eye(6), constraints=old)
        with monkeypatch.context() as patched:
            made = interrupted_at(step, patched)
            with contextlib.suppress(KeyboardInterrupt):
                store_constraints(folder, NEW)
            reached = len(made) >= step
        stored = Dataset.open(folder).constraints
        assert isinstance(stored, Pairs), step
        np.testing.assert_array_equal(stored.similar, NEW.similar)
        np.testing.assert_array_equal(stored.dissimilar, NEW.dissimilar)
        assert not list(folder.glob(".*"))
    assert step > 4


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks of folders")
def test_of_two_writers_at_once_one_waits_for_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path / "a", np.eye(6), constraints=OLD)
    others = Comparisons(np.array([[0, 1, 2]]))
    thread = threading.Thread(target=store_constraints, args=(tmp_path / "a", others))
    write, ended = Description.write, []

    def meanwhile(self: Description, folder: Path) -> None:
        write(self, folder)
        if threading.current_thread() is not thread and not thread.ident:
            thread.start()
            thread.join(1)
            ended.append(not thread.is_alive())

    monkeypatch.setattr(Description, "write", meanwhile)
    store_constraints(tmp_path / "a", NEW)
    thread.join(60)
    assert ended == [False]
    stored = Dataset.open(tmp_path / "a").constraints
    assert isinstance(stored, Comparisons)
    np.testing.assert_array_equal(stored.indices, others.indices)
