"""Are these two alike? A metric from pairs of digits, and the threshold that decides."""

import sys

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_digits

import nearfar as nf

mpl.use("Agg")
import matplotlib.pyplot as plt


def main(figure: str = "verification.png") -> None:
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    seen, unseen = np.split(rng.permutation(len(X)), [1200])

    def pairs_among(points: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        drawn = nf.draw_pairs(nf.LabelDraws(nf.Labels(y), points), count, count, seed=1)
        return np.concatenate((drawn.similar, drawn.dissimilar)), np.repeat([1, -1], count)

    pairs, same = pairs_among(seen, 10_000)
    learner = nf.PairLearner(preprocessor=X, random_state=0).fit(pairs, same)
    learner.calibrate_threshold(*pairs_among(seen, 2_000), strategy="accuracy")
    test, truth = pairs_among(unseen, 5_000)
    distances = learner.pair_distance(test)
    print(f"ROC AUC {learner.score(test, truth):.4f}, accuracy {np.mean(learner.predict(test) == truth):.4f}")

    for value, name in ((1, "similar"), (-1, "dissimilar")):
        plt.hist(distances[truth == value], bins=60, alpha=0.6, label=name)
    plt.axvline(-learner.threshold_, color="black", label="threshold")
    plt.title("Learned distance of unseen pairs of digits")
    plt.xlabel("distance")
    plt.legend()
    plt.savefig(figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
