"""The demonstration: small real data, two asynchronous workers, and what the metric is worth."""

import time

import numpy as np
from sklearn.datasets import load_digits

from nearfar.data.constraints import Labels
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.display import TrainingDisplay, print_table
from nearfar.evaluation.retrieval import judge_neighbours
from nearfar.evaluation.verification import judge_pairs
from nearfar.model.euclidean import Euclidean
from nearfar.model.training import train
from nearfar.settings import TrainingSettings


def run_demo() -> None:
    """Learn a metric for scikit-learn's digits, and print how well it does on points it has not seen."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    seen, unseen = order[:1200], order[1200:]
    settings = TrainingSettings(workers=2, steps=600)
    began = time.perf_counter()
    with TrainingDisplay(settings.workers) as display:
        result = train(X[seen], y[seen], settings, on_report=[display])
    seconds = time.perf_counter() - began
    pairs = draw_pairs(LabelDraws(Labels(y[unseen])), 10_000, 10_000)
    rows = []
    for name, distance in (("before: Euclidean", Euclidean()), ("after: learned", result.metric)):
        verification = judge_pairs(distance, X[unseen], pairs)
        retrieval = judge_neighbours(distance, X[seen], y[seen], X[unseen], y[unseen])
        figures = (f"{verification.average_precision:.4f}", f"{verification.roc_auc:.4f}", f"{retrieval.error:.2%}")
        rows.append([name, *figures])
    last = result.history[-1]
    print_table(
        f"Digits: {last.pairs:,} pairs in {seconds:.1f} s on two asynchronous workers",
        ["distance", "average precision", "ROC AUC", "3-NN error"],
        rows,
    )
