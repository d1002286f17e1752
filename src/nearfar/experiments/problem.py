"""What a study learns from and is judged by: points, pairs, and where they come from."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.constraints import Labels, Pairs
from nearfar.data.dataset import Dataset
from nearfar.data.description import fingerprint
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.data.points import Points, as_points
from nearfar.data.synthesis import synthesize
from nearfar.errors import InvalidConstraints, InvalidSettings
from nearfar.experiments.obtaining import obtain_mnist
from nearfar.experiments.protocol import Protocol

_TEST_SHARE = 10
"""One point in so many is set apart to be judged by, where there is no dataset for that."""
_FEWEST_SYNTHETIC = 2000
"""Two of each class."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Points to learn from, pairs of them, and pairs of other points to judge by."""

    protocol: Protocol
    points: Points
    labels: NDArray[Any]
    test_points: Points
    test_labels: NDArray[Any]
    source: str
    """Where the points come from, in words."""

    @cached_property
    def pairs(self) -> Pairs:
        """The pairs to learn from, drawn from the labels; the same each time."""
        count = self.protocol.pairs
        return draw_pairs(LabelDraws(Labels(self.labels)), count, count, self.protocol.seed + 1)

    @cached_property
    def test_pairs(self) -> Pairs:
        """The pairs to judge by."""
        count = self.protocol.test_pairs
        return draw_pairs(LabelDraws(Labels(self.test_labels)), count, count, self.protocol.seed)

    @property
    def fingerprint(self) -> str:
        """Tells the points and labels from others."""
        parts = ((self.points, self.labels), (self.test_points, self.test_labels))
        return "-".join(fingerprint(points, labels) for points, labels in parts)


def mnist_problem(protocol: Protocol, folder: Path, given: Path | None) -> Problem:
    """MNIST, or the user's images in its place; of many, the first ones that the scale asks for."""
    images = obtain_mnist(folder / "mnist", given)
    count = min(protocol.points, len(images.x_train))
    return Problem(
        protocol,
        as_points(images.x_train[:count]),
        images.y_train[:count],
        as_points(images.x_test),
        images.y_test,
        images.source,
    )


def imnet_problem(protocol: Protocol, folder: Path, dataset: Path | None) -> Problem:
    """Synthetic points of the paper's shape, kept in the study's folder, or a dataset of the user's."""
    if dataset is not None:
        return _of_dataset(protocol, dataset)
    if protocol.study == "mnist":
        raise InvalidSettings("mnist is not synthesized; give the images with --mnist FILE")
    out, test_out = folder / "points", folder / "points-test"
    if not out.exists():
        synthesize(protocol.study, out, points=max(_FEWEST_SYNTHETIC, protocol.points), seed=protocol.seed)
    return _problem(
        protocol, Dataset.open(out), Dataset.open(test_out), f"synthesized in the shape of {protocol.study}"
    )


def _of_dataset(protocol: Protocol, folder: Path) -> Problem:
    """A dataset; it is judged by the one beside it with -test added to its name, else by a tenth of it, set apart."""
    training = Dataset.open(folder)
    resolved = folder.resolve()
    test_folder = resolved.with_name(f"{resolved.name}-test")
    if test_folder.exists():
        source = f"the dataset {training.name}, judged by {test_folder.name}"
        return _problem(protocol, training, Dataset.open(test_folder), source)
    labels = _labels(training)
    order = np.random.default_rng(protocol.seed).permutation(len(labels))
    cut = max(1, len(order) // _TEST_SHARE)
    test, rest = np.sort(order[:cut]), np.sort(order[cut:][: protocol.points])
    source = f"the dataset {training.name}, a tenth of it set apart to be judged by"
    return Problem(
        protocol, training.points.chosen(rest), labels[rest], training.points.chosen(test), labels[test], source
    )


def _problem(protocol: Protocol, training: Dataset, test: Dataset, source: str) -> Problem:
    labels, points = _labels(training), training.points
    if len(points) > max(_FEWEST_SYNTHETIC, protocol.points):
        points = points.chosen(np.arange(protocol.points))
        labels = labels[: protocol.points]
    if test.points.n_features != points.n_features:
        raise InvalidSettings(
            f"{test.folder} has points of {test.points.n_features} features, but {training.folder} of "
            f"{points.n_features}; expected the same"
        )
    return Problem(protocol, points, labels, test.points, _labels(test), source)


def _labels(dataset: Dataset) -> NDArray[Any]:
    if dataset.labels is None:
        raise InvalidConstraints(f"{dataset.folder} has no labels to draw pairs from; ingest it again with --labels")
    return np.asarray(dataset.labels)
