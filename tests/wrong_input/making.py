"""Input that is right, ways to spoil it, and the commands that get it."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.commands import Ended, ended, nearfar

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


Case = tuple[Make, tuple[str, ...]]
"""A command, and what the line says that it ends in."""


def check_case(case: Case, good: Good, place: Path) -> None:
    """Bad input ends in one clear line, and leaves nothing behind."""
    make, says = case
    command = make(good, place)
    before, kept = contents(place), contents(good.folder)
    assert_one_clear_line(ended(*command), says)
    assert contents(place) == before
    assert contents(good.folder) == kept
