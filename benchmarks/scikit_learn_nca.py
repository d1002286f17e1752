"""scikit-learn's NeighborhoodComponentsAnalysis at the largest size it can do, and ours with as many points."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.problems import labelled
from benchmarks.survival import SEARCH_SECONDS, doubling, largest_survived


def run(*, small: bool) -> Iterator[dict[str, Any]]:
    """The largest size that NCA survives in a search of five minutes; in the small form, of ten seconds on digits."""
    data = labelled(small=small)
    sizes, limit = ([200, 400], 10.0) if small else (doubling(500, len(data.X)), SEARCH_SECONDS)
    yield largest_survived(Path(sys.executable), "NCA", "neighbour", data, sizes, limit)
