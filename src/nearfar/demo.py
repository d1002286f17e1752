"""The demonstration: small real data, two asynchronous workers, what the metrics are worth, and a report of it."""

import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from nearfar.data.constraints import Labels
from nearfar.data.dataset import write_dataset
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.display import TrainingDisplay, print_table
from nearfar.evaluation.retrieval import judge_neighbours
from nearfar.evaluation.verification import judge_pairs
from nearfar.model.distance import Distance
from nearfar.model.euclidean import Euclidean
from nearfar.model.training import train
from nearfar.report.building import Choices, check_out, write_report
from nearfar.settings import LossName, TrainingSettings

_LOSSES: dict[str, tuple[LossName, int]] = {
    "for telling pairs apart": ("logistic", 300),
    "for finding neighbours": ("neighbour", 100),
}
_SEEN = 400
"""Digits to learn from; with many more, plain distances find nearly every neighbour, and there is little to learn."""


def run_demo(out: Path) -> None:
    """Learn metrics for scikit-learn's digits, print how well they do on unseen points, and write a report."""
    check_out(out)
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    seen, unseen = order[:_SEEN], order[_SEEN:]
    with tempfile.TemporaryDirectory(prefix="nearfar-demo-") as place:
        folder = Path(place)
        write_dataset(folder / "digits", X[seen], y[seen])
        write_dataset(folder / "unseen digits", X[unseen], y[unseen])
        began = time.perf_counter()
        distances: dict[str, Distance] = {"before": Euclidean()}
        for name, (loss, steps) in _LOSSES.items():
            settings = TrainingSettings(loss=loss, workers=2, steps=steps)
            source = {"dataset": str(folder / "digits")}
            with TrainingDisplay(settings.workers) as display:
                result = train(X[seen], y[seen], settings, run=folder / name, source=source, on_report=[display])
            distances[f"after, {name}"] = result.metric
        seconds = time.perf_counter() - began
        write_report([folder / name for name in _LOSSES], out, Choices(dataset=folder / "unseen digits"))
    pairs = draw_pairs(LabelDraws(Labels(y[unseen])), 10_000, 10_000)
    rows = []
    for name, distance in distances.items():
        verification = judge_pairs(distance, X[unseen], pairs)
        retrieval = judge_neighbours(distance, X[seen], y[seen], X[unseen], y[unseen])
        shown = (verification.average_precision, retrieval.map_at_r)
        rows.append([name, *(f"{share:.4f}" for share in shown), f"{100 * retrieval.error:.2f} %"])
    title = f"{len(unseen):,} unseen digits, after {seconds:.1f} s of learning from {_SEEN} on two workers"
    print_table(title, ["distance", "average precision", "MAP@R", "3-NN error"], rows)
