"""Draws the figures of the README: ``python docs/figures.py``."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_digits

import nearfar as nf
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.evaluation import judge_pairs, precision_recall
from nearfar.model.euclidean import Euclidean

mpl.use("Agg")
import matplotlib.pyplot as plt

IMAGES = Path(__file__).parent / "images"
NEAR, FAR = "#1f77b4", "#ff7f0e"


def digits_figure() -> None:
    """Distances of similar and dissimilar pairs of unseen digits, before and after, and precision against recall."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    seen, unseen = order[:1200], order[1200:]
    learned = nf.train(X[seen], y[seen], nf.TrainingSettings(workers=2, steps=300)).metric
    pairs = draw_pairs(LabelDraws(nf.Labels(y[unseen])), 10_000, 10_000)
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    for axis, name, metric in ((axes[0], "Euclidean", Euclidean()), (axes[1], "learned", learned)):
        near, far = (metric.pair_distances(X[unseen], kind) for kind in (pairs.similar, pairs.dissimilar))
        for distances, label, colour in ((near, "similar", NEAR), (far, "dissimilar", FAR)):
            axis.hist(distances, bins=60, alpha=0.6, label=label, color=colour, density=True)
        axis.set(title=f"{name} distance of unseen pairs", xlabel="distance", yticks=[])
        precision, recall, _ = precision_recall(near, far)
        ap = judge_pairs(metric, X[unseen], pairs).average_precision
        axes[2].plot(recall, precision, label=f"{name}, AP {ap:.3f}", color="gray" if name == "Euclidean" else NEAR)
    axes[0].legend()
    axes[2].set(title="finding similar pairs", xlabel="recall", ylabel="precision", ylim=(0.45, 1.02))
    axes[2].legend(loc="lower left")
    IMAGES.mkdir(exist_ok=True)
    figure.savefig(IMAGES / "digits.png", dpi=110)
    print(f"wrote {IMAGES / 'digits.png'}")


if __name__ == "__main__":
    digits_figure()
