"""``python -m benchmarks [NAME ...] [--small]``: runs benchmarks and writes their lines to benchmarks/RESULTS.md."""

import argparse
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    baselines,
    evaluation,
    growth,
    limit,
    memory,
    metric_learn,
    paper_clusters,
    pytorch_metric_learning,
    ray_cluster,
    scale,
    scikit_learn_nca,
    simulation,
    text_step,
    workers,
)
from benchmarks.environments import NoEnvironment
from benchmarks.results import record
from benchmarks.survival import PeerFailed

BENCHMARKS = {
    "limit": limit.run,
    "workers": workers.run,
    "ray": ray_cluster.run,
    "simulation": simulation.run,
    "paper-clusters": paper_clusters.run,
    "growth": growth.run,
    "memory": memory.run,
    "text-step": text_step.run,
    "scale": scale.run,
    "evaluation": evaluation.run,
    "pytorch-metric-learning": pytorch_metric_learning.run,
    "scikit-learn-nca": scikit_learn_nca.run,
    "metric-learn": metric_learn.run,
    "baselines": baselines.run,
}
RESULTS = Path(__file__).parent / "RESULTS.md"
_FORESEEN = (NoEnvironment, PeerFailed, subprocess.CalledProcessError)
"""Errors that say by themselves what went wrong; of others, one wants to know where."""


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--small", action="store_true", help="a form that takes seconds, to see that it runs")
    arguments = parser.parse_args(given)
    unknown = set(arguments.names) - BENCHMARKS.keys()
    if unknown:
        parser.error(f"unknown benchmark {min(unknown)}; expected any of {', '.join(BENCHMARKS)}")
    left_out = 0
    for name in arguments.names or BENCHMARKS:
        lines = []
        try:
            for figures in BENCHMARKS[name](small=arguments.small):
                lines.append({**figures, "load": round(os.getloadavg()[0], 2)})
                print(json.dumps({"benchmark": name, **lines[-1]}), flush=True)
        except Exception as error:  # whatever it is, the others are run
            if not isinstance(error, _FORESEEN):
                traceback.print_exc()
            print(f"{name} is left out: {error}", file=sys.stderr)
            left_out += 1
        else:
            if not arguments.small:
                record(RESULTS, name, lines, list(BENCHMARKS))
    sys.exit(1 if left_out else 0)


if __name__ == "__main__":
    main()
