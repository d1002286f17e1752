"""Wrong settings, and runs and datasets that training cannot use or may not replace."""

import contextlib
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nearfar.model.metric import load_metric
from tests.commands import Ended, ended, nearfar, process, running
from tests.wrong_input.making import (
    TRAINING,
    Case,
    Good,
    N,
    all_flipped,
    assert_one_clear_line,
    check_case,
    contents,
    evaluating,
    flipped,
    points_of,
    resampled,
    resuming,
    sampled,
    saved,
    texted,
    training,
    transforming,
    truncated,
    without,
)

CASES: dict[str, Case] = {
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
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_ends_in_one_clear_line_and_leaves_nothing_behind(name: str, good: Good, tmp_path: Path) -> None:
    check_case(CASES[name], good, tmp_path)


IN_A_PROCESS = ("missing dataset", "rank above the features", "resume with other settings", "unknown loss")


def test_the_same_in_a_process_of_its_own(good: Good, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in IN_A_PROCESS}
    started = {}
    with contextlib.ExitStack() as stack:
        for name, place in places.items():
            place.mkdir()
            command, before = CASES[name][0](good, place), contents(place)
            begun = running(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            started[name] = (stack.enter_context(begun), before)
        for name, (begun, before) in started.items():
            out, err = begun.communicate()
            assert_one_clear_line(Ended(begun.returncode, out, err), CASES[name][1])
            assert contents(places[name]) == before


def test_an_address_where_nobody_answers_is_an_error_in_time(good: Good, tmp_path: Path) -> None:
    """In a process of its own, as Ray keeps what it tried."""
    out = tmp_path / "run"
    command = process("train", good / "labelled", "--out", out, "--engine", "ray", "--address", "127.0.0.1:1")
    answered = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
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
