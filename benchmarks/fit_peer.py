"""One fit of a peer, as a process of its own: ``python -P fit_peer.py PROBLEM.npz ALGORITHM COMPONENTS.npy``.

The problem holds X and y, or X, pairs (of indices) and y of +1 and -1. The learned components are written to the last
file; what is printed is one JSON object with the seconds that the call of ``fit`` took. It runs in the peer's
environment, so it knows nothing of nearfar; ``-P`` keeps this folder, whose modules are named for the peers, out of its
imports.
"""

import json
import sys
import time
import warnings
from typing import Any

import numpy as np


def estimator(algorithm: str, X: np.ndarray, n: int) -> Any:
    """The peer, with its defaults but for the seed and what is needed to end at all."""
    if algorithm == "NCA":
        from sklearn.neighbors import NeighborhoodComponentsAnalysis  # noqa: PLC0415  # this peer needs no other

        return NeighborhoodComponentsAnalysis(random_state=0)
    import metric_learn  # noqa: PLC0415  # only in its own environment

    makers = {
        "ITML on pairs": lambda: metric_learn.ITML(max_iter=1, preprocessor=X, random_state=0),
        "ITML": lambda: metric_learn.ITML_Supervised(max_iter=1, n_constraints=n, random_state=0),
        "MMC": lambda: metric_learn.MMC_Supervised(n_constraints=n, random_state=0),
        "LMNN": lambda: metric_learn.LMNN(random_state=0),
        "SCML": lambda: metric_learn.SCML_Supervised(random_state=0),
    }
    return makers[algorithm]()


def main() -> None:
    problem_file, algorithm, components_file = sys.argv[1:]
    warnings.simplefilter("ignore")  # metric-learn 0.7.0 calls what is deprecated
    with np.load(problem_file) as file:
        problem = {key: file[key] for key in file.files}
    X, y = problem["X"].astype(np.float64), problem["y"]
    peer = estimator(algorithm, X, len(X))
    began = time.perf_counter()
    peer.fit(problem.get("pairs", X), y)
    seconds = time.perf_counter() - began
    np.save(components_file, peer.components_)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
