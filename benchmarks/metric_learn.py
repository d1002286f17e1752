"""metric-learn 0.7.0 against ours: how far its learners get, and the table of docs/guide/metric-learn.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import nearfar as nf
from benchmarks.environments import ROOT, layer
from benchmarks.problems import Labelled, labelled
from benchmarks.survival import SEARCH_SECONDS, doubling, fit_ours, fit_peer, judged, largest_survived
from nearfar.data.from_labels import LabelDraws, draw_pairs

GUIDE = ROOT / "docs" / "guide" / "metric-learn.md"
BEGIN, END = "<!-- table of `python -m benchmarks metric-learn` -->", "<!-- end of the table -->"
LIMIT = 300.0
"""Seconds that one fit on the same pairs may take."""
OUR_LOSS = {"ITML": "auto", "MMC": "auto", "LMNN": "neighbour", "SCML": "neighbour"}
"""What each algorithm is compared with: LMNN and SCML are for nearest neighbours."""


_INTRODUCTION = """\
The same index pairs for both, with the rows of the training set as preprocessor, in one thread each.
`python -m benchmarks metric-learn` measures it again and writes this table."""


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """The same pairs for both sides, then the largest size that each of metric-learn's learners survives.

    Each search takes five minutes of fitting at the most.
    """
    python, data = layer("metric-learn"), labelled(small=small)
    line = same_pairs(python, data, count=200 if small else 1000, rounds=1 if small else 3)
    if not small:
        write_table(GUIDE, table(line), BEGIN, END)
    yield line
    sizes, limit = ([150], 3.0) if small else (doubling(125, len(data.X)), SEARCH_SECONDS)
    for algorithm, loss in OUR_LOSS.items():
        yield largest_survived(python, algorithm, loss, data, sizes, limit)


def same_pairs(python: Path, data: Labelled, count: int, rounds: int) -> dict[str, Any]:
    """One sweep of ITML and our defaults on ``count`` similar and as many dissimilar index pairs of the same rows.

    In turns; the shortest time of each side counts, as a busy machine only ever adds to it.
    """
    drawn = draw_pairs(LabelDraws(nf.Labels(data.y)), count, count, seed=1)
    pairs = np.concatenate((drawn.similar, drawn.dissimilar))
    y = np.repeat([1, -1], count)
    peers, owns = [], []
    for _ in range(rounds):
        peer = fit_peer(python, "ITML on pairs", {"X": data.X, "pairs": pairs, "y": y}, LIMIT)
        if peer is None:
            raise RuntimeError(f"one sweep of ITML took more than {LIMIT:.0f} s, or all memory; use a larger machine")
        peers.append(peer)
        owns.append(fit_ours(lambda: nf.PairLearner(preprocessor=data.X, random_state=0), pairs, y))
    peer, own = (min(fits, key=lambda fit: fit.seconds) for fits in (peers, owns))
    return {
        "algorithm": "ITML on pairs", "data": data.name, "pairs": len(pairs), **judged("theirs", peer, data),
        **judged("ours", own, data), "ratio": round(peer.seconds / own.seconds, 2),
    }  # fmt: skip


def table(line: dict[str, Any]) -> str:
    """A line of :func:`same_pairs` in Markdown: what was measured, and a table."""
    rows = [_INTRODUCTION, ""]
    rows.append(
        f"| {line['pairs']:,} index pairs of {line['data'].upper()} | time | AP on 10,000 + 10,000 test pairs |"
    )
    rows.append("|---|---|---|")
    names = {"ours": "`PairLearner()`", "theirs": "`ITML(max_iter=1)`, metric-learn 0.7.0"}
    for side, name in names.items():
        rows.append(f"| {name} | {line[f'{side}_seconds']:.1f} s | {line[f'{side}_average_precision']:.3f} |")
    return "\n".join(rows)


def write_table(page: Path, text: str, first: str, last: str) -> None:
    """Put a table between two marks of a page, in place of the one that is there."""
    before, begin, rest = page.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{page} lacks the lines {first} and {last}, between which the table goes")
    page.write_text(f"{before}{first}\n\n{text}\n\n{last}{after}")
