"""What is most like this? Search among embeddings most of whose directions say nothing about what is asked."""

import sys

import matplotlib as mpl
import numpy as np

import nearfar as nf
from nearfar.evaluation.retrieval import judge_neighbours
from nearfar.model.euclidean import Euclidean

mpl.use("Agg")
import matplotlib.pyplot as plt


def embeddings(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """128 numbers a point: 8 of them tell its topic, the others its author, its length, the time of day."""
    topics = np.random.default_rng(99).normal(size=(50, 8))
    turned = np.linalg.qr(np.random.default_rng(98).normal(size=(128, 128)))[0]
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 50, n)
    signal = topics[y] + 0.4 * rng.normal(size=(n, 8))
    return (np.hstack((signal, 1.5 * rng.normal(size=(n, 120)))) @ turned).astype(np.float32), y


def main(figure: str = "retrieval.png") -> None:
    (X, y), (queries, asked) = embeddings(5000, 0), embeddings(500, 1)
    learner = nf.LabelLearner(n_components=16, loss="neighbour", steps=150, random_state=0).fit(X, y)
    ks = (1, 5, 10, 20, 50)
    for name, metric in (("Euclid", Euclidean()), ("learned", learner.metric_)):
        recall = judge_neighbours(metric, X, y, queries, asked, ks=ks).recall
        print(f"{name}: recall@1 {recall[1]:.3f}, recall@10 {recall[10]:.3f}")
        plt.plot(ks, [recall[k] for k in ks], marker="o", label=name)
    indices, distances = nf.search(learner.metric_, queries[:1], X, k=3)
    print(f"nearest to the first query: {indices[0].tolist()} at {np.round(distances[0], 2).tolist()}")

    plt.title("Share of queries that find their topic among the k nearest")
    plt.xlabel("k")
    plt.ylabel("recall")
    plt.legend()
    plt.savefig(figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
