"""One ITML fit of metric-learn's, in its own environment: ``python -P fit_metric_learn.py PROBLEM.npz MATRIX.npy``."""

import sys
import warnings

import metric_learn
import numpy as np

warnings.simplefilter("ignore")  # metric-learn 0.7.0 calls what is deprecated
with np.load(sys.argv[1]) as problem:
    peer = metric_learn.ITML(
        gamma=float(problem["gamma"]), max_iter=int(problem["sweeps"]), tol=1e-12, preprocessor=problem["X"]
    )
    peer.fit(problem["pairs"], problem["y"], bounds=problem["bounds"])
np.save(sys.argv[2], peer.get_mahalanobis_matrix())
