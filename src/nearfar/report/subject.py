"""What distances are judged on for a report: some points with pairs among them, and points to find neighbours in.

Both are bounded, so that a report of a million points is made in about a minute. Wherever labels allow it they are the
points that the run itself held out and the points that it learned from.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.constraints import Comparisons, Labels, Pairs
from nearfar.data.dataset import Dataset
from nearfar.data.description import fingerprint
from nearfar.data.from_labels import LabelDraws, draw_pairs
from nearfar.data.held_out import split_points
from nearfar.errors import InvalidConstraints, InvalidPoints, InvalidRun, NearfarError
from nearfar.report.reading import ReportedRun

_MOST_ASKED = 10_000
_MOST_PAIRS = 50_000
_DRAWN_PAIRS = 10_000
_WORK = 1e12
"""Products of two numbers that finding all neighbours may take."""
_SPARSE_COST = 10
"""How much dearer a product of two sparse numbers is than one of two dense ones."""
_FEWEST_KNOWN = 10_000

Indices = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Subject:
    """What a distance is judged on."""

    asked: Dataset
    """The points, with the pairs to judge by as their constraints."""
    known: Dataset | None
    """Where neighbours are searched; None: among the asked points themselves."""
    description: str


class Subjects:
    """The subjects of some runs: those that can share one do, and then their figures can be compared."""

    def __init__(self, dataset: Path | None, seed: int, note: Callable[[str], None]) -> None:
        self._given = None if dataset is None else Dataset.open(dataset)
        self._seed, self._note = seed, note
        self._made: dict[tuple[Any, ...], Subject] = {}

    def of(self, run: ReportedRun) -> Subject | None:
        """The subject of a run with a metric; None, with a note that says why, where there is none."""
        assert run.metric is not None
        own = self._own(run)
        asked = own if self._given is None else self._given
        if asked is None:
            return None
        if asked.points.n_features != run.metric.n_features:
            self._note(
                f"{run.name} measures points of {run.metric.n_features} features, but those of {asked.name} have "
                f"{asked.points.n_features}: it is left out of all figures of pairs and points"
            )
            return None
        is_own = own is not None and own.fingerprint == asked.fingerprint
        held_out = (run.settings.held_out, run.settings.seed) if is_own else None
        key = (asked.fingerprint, own and own.fingerprint, held_out)
        if key not in self._made:
            try:
                self._made[key] = self._make(run, asked, own, is_own)
            except NearfarError as error:
                self._note(f"{run.name} could not be judged: {error}")
                return None
        return self._made[key]

    def check_given(self, runs: list[ReportedRun]) -> None:
        """Raise if the dataset given fits none of the runs."""
        widths = {run.metric.n_features for run in runs if run.metric is not None}
        if self._given is not None and widths and self._given.points.n_features not in widths:
            measured = " or ".join(str(width) for width in sorted(widths))
            raise InvalidPoints(
                f"the points of {self._given.folder} have {self._given.points.n_features} features, but the runs "
                f"measure points of {measured}; give a dataset of that width"
            )

    def _own(self, run: ReportedRun) -> Dataset | None:
        """What the run was trained on, where that is known, still there and still the same."""
        try:
            dataset = Dataset.open(Path(run.source["dataset"]))
            from_labels = run.source.get("learns_from") == "labels"
            labels = Labels(dataset.labels).codes if from_labels and dataset.labels is not None else None
            if fingerprint(dataset.points, labels) != run.source.get("points_fingerprint"):
                raise InvalidRun(f"{dataset.folder} holds other points or labels than it learned from")
        except KeyError:
            fault = "run.toml does not name its dataset"
        except NearfarError as error:
            fault = str(error)
        else:
            return dataset
        if self._given is None:
            self._note(
                f"{run.name} is not judged on points: {fault}; give points to judge it on with --dataset DATASET"
            )
        return None

    def _make(self, run: ReportedRun, asked: Dataset, own: Dataset | None, is_own: bool) -> Subject:
        if asked.labels is None:
            seen = ", among which it learned" if is_own else ""
            return Subject(
                replace(asked, constraints=_stored_pairs(asked)), None, f"the stored pairs of {asked.name}{seen}"
            )
        points: Indices = np.arange(len(asked.points))
        known, what = None if is_own else own, f"points of {asked.name}"
        if is_own:
            held_out = run.settings.held_out
            split = split_points(Labels(asked.labels), held_out, run.settings.seed) if held_out else None
            what += ", which it learned from" if split is None else " that it held out"
            if split is not None:
                points, known = split.aside, _chosen(asked, split.training, "learned from")
        if len(points) > _MOST_ASKED:
            rng = np.random.default_rng([self._seed, 11])
            points, what = np.sort(rng.choice(points, _MOST_ASKED, replace=False)), f"{what} (a sample)"
        subset = _chosen(asked, points, "asked") if len(points) < len(asked.points) else asked
        if subset is asked and isinstance(asked.constraints, Pairs):
            pairs = _stored_pairs(asked)
        else:
            draws = LabelDraws(Labels(asked.labels[points]))
            pairs = draw_pairs(draws, _DRAWN_PAIRS, _DRAWN_PAIRS, self._seed)
        known, searched = self._bounded(known, subset, run)
        return Subject(replace(subset, constraints=pairs), known, f"{len(points):,} {what}{searched}")

    def _bounded(self, known: Dataset | None, asked: Dataset, run: ReportedRun) -> tuple[Dataset | None, str]:
        """As many of the known points as can be searched in reasonable time, and words for it."""
        if known is None or known.labels is None or known.points.n_features != asked.points.n_features:
            return None, "; neighbours among themselves"
        width = known.points.stored_per_point * (_SPARSE_COST if known.points.is_sparse else 1)
        width += run.metric.rank if run.metric is not None else 0
        most = max(_FEWEST_KNOWN, int(_WORK / (len(asked.points) * width)))
        if len(known.points) <= most:
            return known, f"; neighbours among {len(known.points):,} of {known.name}"
        rng = np.random.default_rng([self._seed, 12])
        sample = np.sort(rng.choice(len(known.points), most, replace=False))
        return _chosen(known, sample, "sample"), f"; neighbours among a sample of {most:,} of {known.name}"


def _chosen(dataset: Dataset, indices: Indices, part: str) -> Dataset:
    """A part of a dataset as one of its own."""
    return replace(
        dataset,
        points=dataset.points.chosen(indices),
        labels=None if dataset.labels is None else np.asarray(dataset.labels)[indices],
        ids=indices if dataset.ids is None else np.asarray(dataset.ids)[indices],
        constraints=None,
        fingerprint=f"{dataset.fingerprint} {part} {len(indices)}",
    )


def _stored_pairs(dataset: Dataset) -> Pairs:
    constraints = dataset.constraints
    if isinstance(constraints, Comparisons):
        constraints = Pairs(_some(constraints.near), _some(constraints.far))
    if constraints is None:
        raise InvalidConstraints(f"{dataset.folder} has neither pairs nor labels to judge a metric by")
    return Pairs(_some(constraints.similar), _some(constraints.dissimilar))


def _some(indices: Indices) -> Indices:
    """All of them, or evenly spread ones if they are many."""
    if len(indices) <= _MOST_PAIRS:
        return indices
    return np.asarray(indices[np.linspace(0, len(indices) - 1, _MOST_PAIRS).astype(np.int64)])
