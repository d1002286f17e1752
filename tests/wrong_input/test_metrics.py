"""Wrong metrics, and wrong use of right ones: evaluate, transform and search."""

from pathlib import Path

import numpy as np
import pytest

from tests.wrong_input.making import (
    Case,
    D,
    Good,
    N,
    check_case,
    evaluating,
    flipped,
    foreign_safetensors,
    ingested,
    points_of,
    saved,
    searching,
    spoiled,
    texted,
    transforming,
    truncated,
)

CASES: dict[str, Case] = {
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


@pytest.mark.parametrize("name", CASES)
def test_bad_input_ends_in_one_clear_line_and_leaves_nothing_behind(name: str, good: Good, tmp_path: Path) -> None:
    check_case(CASES[name], good, tmp_path)
