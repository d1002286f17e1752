"""metric-learn 0.7.0 against ours: how far its learners get, and the table of docs/guide/metric-learn.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import nearfar as nf
from benchmarks.environments import ROOT, layer
from benchmarks.problems import Labelled, labelled
from benchmarks.survival import doubling, fit_ours, fit_peer, judged, largest_survived
from nearfar.data.from_labels import LabelDraws, draw_pairs

GUIDE = ROOT / "docs" / "guide" / "metric-learn.md"
BEGIN, END = "<!-- table of `python -m benchmarks metric-learn` -->", "<!-- end of the table -->"
OUR_LOSS = {"ITML": "auto", "MMC": "auto", "LMNN": "neighbour", "SCML": "neighbour"}
"""What each algorithm is compared with: LMNN and SCML are for nearest neighbours."""


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """The same pairs for both sides, then the largest size each of metric-learn's learners survives in five minutes."""
    python, data = layer("metric-learn"), labelled(small=small)
    line = same_pairs(python, data, count=200 if small else 1000, limit=20.0 if small else 300.0)
    if not small:
        write_table(GUIDE, table(line))
    yield line
    sizes, limit = ([150], 5.0) if small else (doubling(125, len(data.X)), 300.0)
    for algorithm, loss in OUR_LOSS.items():
        yield largest_survived(python, algorithm, loss, data, sizes, limit)


def same_pairs(python: Path, data: Labelled, count: int, limit: float) -> dict[str, Any]:
    """One sweep of ITML and our defaults on ``count`` similar and as many dissimilar index pairs of the same rows."""
    drawn = draw_pairs(LabelDraws(nf.Labels(data.y)), count, count, seed=1)
    pairs = np.concatenate((drawn.similar, drawn.dissimilar))
    y = np.repeat([1, -1], count)
    peer = fit_peer(python, "ITML on pairs", {"X": data.X, "pairs": pairs, "y": y}, limit)
    own = fit_ours(lambda: nf.PairLearner(preprocessor=data.X, random_state=0), pairs, y)
    line = {"algorithm": "ITML on pairs", "data": data.name, "pairs": len(pairs), **judged("ours", own, data)}
    if peer is None:
        return {**line, "limit_seconds": limit, "ratio": 0.0}
    return {**line, **judged("theirs", peer, data), "ratio": round(peer.seconds / own.seconds, 2)}


def table(line: dict[str, Any]) -> str:
    """A Markdown table of a line of :func:`same_pairs`."""
    rows = [f"| {line['pairs']:,} index pairs of {line['data'].upper()} | time | AP on 10,000 + 10,000 test pairs |"]
    rows.append("|---|---|---|")
    names = {"ours": "`PairLearner()`", "theirs": "`ITML(max_iter=1)`, metric-learn 0.7.0"}
    for side, name in names.items():
        if f"{side}_seconds" in line:
            rows.append(f"| {name} | {line[f'{side}_seconds']:.1f} s | {line[f'{side}_average_precision']:.3f} |")
    return "\n".join(rows)


def write_table(page: Path, text: str) -> None:
    """Put a table between the marks of a page, in place of the one that is there."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} lacks the lines {BEGIN} and {END}, between which the table goes")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
