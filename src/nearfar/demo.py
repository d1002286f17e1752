"""The demonstration: small real data, two asynchronous workers, and what the metrics are worth."""

import time

import numpy as np
from sklearn.datasets import load_digits

from nearfar.data.constraints import Labels
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.display import TrainingDisplay, print_table
from nearfar.evaluation.retrieval import judge_neighbours
from nearfar.evaluation.verification import judge_pairs
from nearfar.model.distance import Distance
from nearfar.model.euclidean import Euclidean
from nearfar.model.training import train
from nearfar.settings import LossName, TrainingSettings


def run_demo() -> None:
    """Learn metrics for scikit-learn's digits, and print how well they do on points they have not seen."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    seen, unseen = order[:1200], order[1200:]
    began = time.perf_counter()
    distances: dict[str, Distance] = {"before": Euclidean()}
    losses: dict[str, tuple[LossName, int]] = {
        "after, for telling pairs apart": ("logistic", 300),
        "after, for finding neighbours": ("neighbour", 100),
    }
    for name, (loss, steps) in losses.items():
        settings = TrainingSettings(loss=loss, workers=2, steps=steps)
        with TrainingDisplay(settings.workers) as display:
            distances[name] = train(X[seen], y[seen], settings, on_report=[display]).metric
    seconds = time.perf_counter() - began
    pairs = draw_pairs(LabelDraws(Labels(y[unseen])), 10_000, 10_000)
    rows = []
    for name, distance in distances.items():
        verification = judge_pairs(distance, X[unseen], pairs)
        retrieval = judge_neighbours(distance, X[seen], y[seen], X[unseen], y[unseen])
        rows.append([name, f"{verification.average_precision:.4f}", f"{100 * retrieval.error:.2f} %"])
    title = f"Unseen digits, after {seconds:.1f} s of learning on two asynchronous workers"
    print_table(title, ["distance", "average precision", "3-NN error"], rows)
