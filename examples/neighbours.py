"""What class is this? A metric from labels in front of a k-nearest-neighbour classifier, where units are mixed."""

import sys

import matplotlib as mpl
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import nearfar as nf

mpl.use("Agg")
import matplotlib.pyplot as plt


def main(figure: str = "neighbours.png") -> None:
    X, y = load_wine(return_X_y=True)
    plain = KNeighborsClassifier(3)
    learned = make_pipeline(nf.LabelLearner(loss="neighbour", steps=100, random_state=0), KNeighborsClassifier(3))
    scores = {name: cross_val_score(model, X, y, cv=5) for name, model in (("Euclid", plain), ("learned", learned))}
    for name, score in scores.items():
        print(f"{name}: accuracy {score.mean():.3f}")

    plt.boxplot(list(scores.values()), tick_labels=list(scores))
    plt.title("3-NN accuracy on wine, five folds")
    plt.ylabel("accuracy")
    plt.savefig(figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
