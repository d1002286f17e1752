"""The methods that the paper compares with, against ours, on the same pairs: the table of docs/guide/baselines.md."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import nearfar as nf
from benchmarks.environments import ROOT
from benchmarks.metric_learn import write_table
from benchmarks.problems import Labelled, labelled
from nearfar.baselines import ITML, KISS, LDA, RCA, Euclidean, Xing2002
from nearfar.data.from_labels import LabelDraws, draw_pairs

GUIDE = ROOT / "docs" / "guide" / "baselines.md"
BEGIN, END = "<!-- table of `python -m benchmarks baselines` -->", "<!-- end of the table -->"
LIMIT = 600.0
"""Seconds that a method may iterate."""


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """Each method once, in one thread; times are of the processor, which a busy machine disturbs least."""
    data, count, limit = labelled(small=small), 200 if small else 100_000, 0.5 if small else LIMIT
    drawn = draw_pairs(LabelDraws(nf.Labels(data.y)), count, count, seed=0)
    of_pairs = np.concatenate((drawn.similar, drawn.dissimilar)), np.repeat([1, -1], count)
    compile_kernels(data)
    own, own_seconds = timed(lambda: nf.PairLearner(preprocessor=data.X, random_state=0).fit(*of_pairs))
    rows = [("`nf.PairLearner()`", own_seconds, data.average_precision(own.metric_), "")]
    for name, make in methods(data, limit, small=small).items():
        method = make()
        given = (data.X, data.y) if isinstance(method, RCA | LDA) else of_pairs
        made, seconds = timed(partial(method.fit, *given))
        precision = data.average_precision(made.metric_)
        rows.append((f"`{name}`", seconds, precision, getattr(made, "cut_", None) or ""))
        yield {
            "method": name, "data": data.name, "pairs": 2 * count, "seconds": round(seconds, 2),
            "average_precision": round(precision, 4), "ours_seconds": round(own_seconds, 2),
            "ours_average_precision": round(rows[0][2], 4), "cut": getattr(made, "cut_", None),
            "ratio": round(seconds / own_seconds, 2),
        }  # fmt: skip
    if not small:
        write_table(GUIDE, table(rows), BEGIN, END)


def methods(data: Labelled, limit: float, *, small: bool) -> dict[str, Callable[[], Any]]:
    """The methods by name; the names are how to make them."""
    X, (wide, narrow) = data.X, (30, 20) if small else (600, 100)
    return {
        "Euclidean()": lambda: Euclidean(preprocessor=X),
        f"KISS(n_components={wide})": lambda: KISS(preprocessor=X, n_components=wide),
        f"KISS(n_components={narrow})": lambda: KISS(preprocessor=X, n_components=narrow),
        "RCA(n_components=20)": lambda: RCA(n_components=20),
        "LDA()": lambda: LDA(shrinkage=1e-3 if small else 0.0),
        "ITML(gamma=0.001)": lambda: ITML(preprocessor=X, gamma=0.001, max_seconds=limit, random_state=0),
        "Xing2002(diagonal=True)": lambda: Xing2002(preprocessor=X, diagonal=True, max_seconds=limit / 5),
        "Xing2002()": lambda: Xing2002(preprocessor=X, max_seconds=limit),
    }


def timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    """What a fit in one thread gives, and the seconds of the processor that it took."""
    with threadpool_limits(1):
        began = time.process_time()
        return fit(), time.process_time() - began


def compile_kernels(data: Labelled) -> None:
    """Fit a few pairs, so that no time is spent on compiling later."""
    drawn = draw_pairs(LabelDraws(nf.Labels(data.y)), 20, 20, seed=0)
    pairs, y = np.concatenate((drawn.similar, drawn.dissimilar)), np.repeat([1, -1], 20)
    for made in (
        nf.PairLearner(preprocessor=data.X, steps=2),
        ITML(preprocessor=data.X, max_seconds=1e-3, tol=0.5),
        Xing2002(preprocessor=data.X, max_seconds=1e-3),
    ):
        made.fit(pairs, y)


def table(rows: list[tuple[str, float, float, str]]) -> str:
    """The figures in Markdown."""
    lines = ["| method | processor time | AP on 10,000 + 10,000 test pairs | |", "|---|---|---|---|"]
    lines += [f"| {name} | {seconds:.1f} s | {precision:.3f} | {cut} |" for name, seconds, precision, cut in rows]
    return "\n".join(lines)
