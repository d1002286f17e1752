"""Wrong constraints and labels: exit code 2, one last line that says how to mend it, and nothing left behind."""

from pathlib import Path

import numpy as np
import pytest

from tests.wrong_input.making import (
    Case,
    Good,
    N,
    archived,
    both_ingested,
    check_case,
    ingesting,
    ingesting_with,
    points_of,
    saved,
    training,
)

CASES: dict[str, Case] = {
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
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_ends_in_one_clear_line_and_leaves_nothing_behind(name: str, good: Good, tmp_path: Path) -> None:
    check_case(CASES[name], good, tmp_path)
