"""Which belong together? k-means on digits, before and after a metric learned from the labels of some of them."""

import sys

import matplotlib as mpl
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score

import nearfar as nf

mpl.use("Agg")
import matplotlib.pyplot as plt


def main(figure: str = "clustering.png") -> None:
    X, y = load_digits(return_X_y=True)
    seen, unseen = np.split(np.random.default_rng(0).permutation(len(X)), [600])
    learner = nf.LabelLearner(steps=150, random_state=0).fit(X[seen], y[seen])

    _, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for axis, name, Z in ((axes[0], "before", X[unseen]), (axes[1], "after", learner.transform(X[unseen]))):
        clusters = KMeans(10, n_init=5, random_state=0).fit_predict(Z)
        score = normalized_mutual_info_score(y[unseen], clusters)
        print(f"{name}: normalised mutual information {score:.3f}")
        axis.scatter(*PCA(2).fit_transform(Z).T, c=y[unseen], s=5, cmap="tab10")
        axis.set(title=f"{name}: NMI {score:.2f}", xticks=[], yticks=[])
    plt.savefig(figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
