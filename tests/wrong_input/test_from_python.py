"""Bad input from Python raises an error of the package's own."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import nearfar as nf
from nearfar.data.constraints import Comparisons, Labels, Pairs
from nearfar.data.dataset import Dataset
from nearfar.data.formats import read_points
from nearfar.errors import InvalidConstraints, InvalidFile, InvalidInput, InvalidPoints, InvalidRun, InvalidSettings
from nearfar.model.metric import Metric, load_metric
from tests.wrong_input.making import D, N, blobs, foreign_safetensors, spoiled, texted

Y = np.arange(N) % 3
X = blobs(Y)
QUICK = nf.TrainingSettings(rank=2, steps=3)
SIMILAR, DISSIMILAR = [[0, 3], [1, 4]], [[0, 1], [1, 2]]

IN_PYTHON: dict[str, tuple[Callable[[Path], object], type[InvalidInput], str]] = {
    "NaN in an array": (
        lambda _: nf.train(spoiled(X, np.nan), Y, QUICK),
        InvalidPoints,
        "point 7 has NaN or infinity in feature 2",
    ),
    "NaN in a sparse matrix": (
        lambda _: nf.train(sp.csr_matrix(spoiled(X, np.nan)), Y, QUICK),
        InvalidPoints,
        "point 7 has NaN or infinity in feature 2",
    ),
    "infinity": (lambda _: nf.train(spoiled(X, np.inf), Y, QUICK), InvalidPoints, "point 7 has NaN or infinity"),
    "NaN to transform": (
        lambda _: Metric(np.ones((2, D))).transform(spoiled(X, np.nan)),
        InvalidPoints,
        "point 7 has NaN or infinity",
    ),
    "points of one dimension": (lambda _: nf.train(X[0], Y, QUICK), InvalidPoints, "expected two dimensions"),
    "points of objects": (lambda _: nf.train(X.astype(object), Y, QUICK), InvalidPoints, "expected real numbers"),
    "points of another width": (
        lambda _: Metric(np.ones((2, D + 1))).transform(X),
        InvalidPoints,
        "points have 5 features.* 6",
    ),
    "index out of range": (
        lambda _: nf.train(X, Pairs([[0, N]], DISSIMILAR), QUICK),
        InvalidConstraints,
        "similar pairs have index 60, but there are 60 points",
    ),
    "negative index": (
        lambda _: nf.train(X, Comparisons([[0, 3, -1]]), QUICK),
        InvalidConstraints,
        "triplets have index -1",
    ),
    "no pairs": (lambda _: Pairs([], []), InvalidConstraints, "no pairs.*expected at least one"),
    "fractions for indices": (lambda _: Pairs([[0.5, 1]], DISSIMILAR), InvalidConstraints, "fractions.*whole numbers"),
    "triplets for pairs": (lambda _: Pairs([[0, 1, 2]], DISSIMILAR), InvalidConstraints, r"\(1, 3\).*\(n, 2\)"),
    "only similar pairs": (
        lambda _: nf.train(X, Pairs(SIMILAR, []), QUICK),
        InvalidConstraints,
        "no dissimilar pairs.*both kinds",
    ),
    "one class": (lambda _: nf.train(X, 0 * Y, QUICK), InvalidConstraints, "all labels are 0.*two classes"),
    "singletons": (lambda _: nf.train(X, np.arange(N), QUICK), InvalidConstraints, "every class has one point"),
    "labels of the wrong length": (lambda _: nf.train(X, Y[1:], QUICK), InvalidConstraints, "59 labels for 60 points"),
    "labels of NaN": (lambda _: Labels([1.0, np.nan]), InvalidConstraints, "NaN"),
    "rank above the features": (
        lambda _: nf.train(X, Y, nf.TrainingSettings(rank=D + 1)),
        InvalidSettings,
        "rank is 6, but points have 5 features",
    ),
    "rank of nothing": (lambda _: nf.TrainingSettings(rank=0), InvalidSettings, "rank is 0"),
    "unknown loss": (lambda _: nf.TrainingSettings(loss="softmax"), InvalidSettings, "'softmax'.*hinge"),  # type: ignore[arg-type]
    "unknown engine": (lambda _: nf.train(X, Y, QUICK, engine="spark"), InvalidSettings, "'spark'.*threads"),  # type: ignore[arg-type]
    "unknown consistency": (lambda _: nf.TrainingSettings(consistency="ssp:x"), InvalidSettings, "'ssp:x'.*ssp:3"),
    "neighbour loss on pairs": (
        lambda _: nf.train(X, Pairs(SIMILAR, DISSIMILAR), nf.TrainingSettings(loss="neighbour")),
        InvalidSettings,
        "does not take pairs",
    ),
    "resume without a run": (lambda _: nf.train(X, Y, QUICK, resume=True), InvalidRun, "no run to resume"),
    "resume of a missing run": (
        lambda place: nf.train(X, Y, QUICK, run=place / "no", resume=True),
        InvalidRun,
        "no run folder",
    ),
    "run in a folder that exists": (lambda place: nf.train(X, Y, QUICK, run=place), InvalidRun, "exists already"),
    "run below a file": (
        lambda place: nf.train(X, Y, QUICK, run=texted(place / "file", "") / "new"),
        InvalidFile,
        "Not a directory",
    ),
    "missing dataset": (lambda place: Dataset.open(place / "no"), InvalidFile, "does not exist.*nearfar ingest"),
    "missing file": (lambda place: read_points(place / "no.npz"), InvalidFile, "is missing"),
    "foreign safetensors": (lambda place: load_metric(foreign_safetensors(place)), InvalidFile, "not a metric"),
    "metric saved below a file": (
        lambda place: Metric(np.ones((2, 3))).save(texted(place / "file", "") / "m.safetensors"),
        InvalidFile,
        "cannot write.*choose",
    ),
}


@pytest.mark.parametrize("name", IN_PYTHON)
def test_bad_input_from_python_raises_an_error_of_its_own(name: str, tmp_path: Path) -> None:
    call, kind, message = IN_PYTHON[name]
    with pytest.raises(kind, match=message) as raised:
        call(tmp_path)
    assert isinstance(raised.value, InvalidInput)
    assert isinstance(raised.value, ValueError)
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "model.safetensors"}
