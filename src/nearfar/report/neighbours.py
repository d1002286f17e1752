"""The nearest neighbours of a few points by each distance, as HTML."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.constraints import Labels
from nearfar.data.dataset import Dataset
from nearfar.evaluation.search import search
from nearfar.model.distance import Distance
from nearfar.report.figure import run_group
from nearfar.report.pictures import Looks
from nearfar.report.subject import Subject

_QUERIES = 6
_SHOWN_PICTURES, _SHOWN_TEXTS = 8, 5
_MOST_SEARCHED = 100_000


@dataclass(frozen=True, eq=False)
class Examples:
    """Some points, and where their neighbours are searched."""

    asked: Dataset
    rows: NDArray[np.int64]
    """The points whose neighbours are shown."""
    known: Dataset
    among_themselves: bool
    looks: Looks

    @classmethod
    def choose(cls, subject: Subject, looks: Looks, seed: int) -> "Examples":
        """Points at random, of different classes where there are some."""
        asked, rng = subject.asked, np.random.default_rng([seed, 14])
        order = rng.permutation(len(asked.points))
        if asked.labels is not None:
            _, first = np.unique(Labels(asked.labels).codes[order], return_index=True)
            order = np.concatenate((order[np.sort(first)], np.delete(order, first)))
        rows = order[:_QUERIES].astype(np.int64)
        if asked.labels is not None:
            rows = rows[np.argsort(Labels(asked.labels).codes[rows], kind="stable")]
        known = asked if subject.known is None else subject.known
        if subject.known is None and len(known.points) > _MOST_SEARCHED:
            searched = np.union1d(rng.choice(len(known.points), _MOST_SEARCHED, replace=False), rows)
            ids = searched if known.ids is None else np.asarray(known.ids)[searched]
            labels = None if known.labels is None else np.asarray(known.labels)[searched]
            known = replace(known, points=known.points.chosen(searched), labels=labels, ids=ids)
        return cls(asked, rows, known, subject.known is None, looks)

    def html(self, distances: Sequence[tuple[str, int | None, Distance]]) -> str:
        """For each point a block, in it for each distance (a name, the run's number, the distance) its neighbours."""
        found = [(name, run, self._found(distance)) for name, run, distance in distances]
        titles = [_title(self.asked, row) for row in self.rows]
        shown = self.looks.show(self.asked.points, self.rows, titles)
        blocks = []
        for i, (title, query) in enumerate(zip(titles, shown, strict=True)):
            label = None if self.asked.labels is None else self.asked.labels[self.rows[i]]
            lists = "".join(
                f'<h4{_of_run(run)}>{escape(name)}</h4><ol class="neighbours"{_of_run(run)}>'
                f"{self._items(indices[i], far[i], label)}</ol>"
                for name, run, (indices, far) in found
            )
            heading = f'<h3>{escape(title[:1].upper() + title[1:])}</h3><div class="query">{query}</div>'
            blocks.append(f'<article class="example">{heading}{lists}</article>')
        return f'<div class="examples{" pictures" if self.looks.shape else ""}">{"".join(blocks)}</div>'

    def _found(self, distance: Distance) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The nearest points, a point itself left out."""
        queries = self.asked.points.chosen(self.rows)
        extra = 1 if self.among_themselves else 0
        shown = _SHOWN_TEXTS if self.looks.shape is None else _SHOWN_PICTURES
        k = min(shown + extra, len(self.known.points))
        indices, distances = search(distance, queries, self.known.points, k)
        if not extra:
            return indices, distances
        names = indices if self.known is self.asked else np.asarray(self.known.ids)[indices]
        selves = (
            self.rows if self.known is self.asked or self.asked.ids is None else np.asarray(self.asked.ids)[self.rows]
        )
        is_self = names == selves[:, np.newaxis]
        is_self[~is_self.any(axis=1), -1] = True  # a copy of the point came first: leave out the farthest
        keep = np.argsort(is_self, axis=1, kind="stable")[:, : k - 1]
        return np.take_along_axis(indices, keep, axis=1), np.take_along_axis(distances, keep, axis=1)

    def _items(self, indices: NDArray[np.int64], distances: NDArray[np.float32], label: Any) -> str:
        titles = [_title(self.known, row, with_class=self.looks.shape is not None) for row in indices]
        shown = self.looks.show(self.known.points, indices, titles)
        items = []
        for row, far, look in zip(indices, distances, shown, strict=True):
            kind, mark = "", ""
            if label is not None and self.known.labels is not None:
                right = self.known.labels[row] == label
                kind = ' class="right"' if right else ' class="wrong"'
                sign, words = ("✓", "same class") if right else ("✗", "other class")
                name = escape(str(self.known.labels[row]))
                unseen = f'<span class="unseen">, {words}</span>'
                mark = f'<span class="mark"><span aria-hidden="true">{sign}</span> {name}{unseen}</span>'
            parts = f"{look}{mark}" if self.looks.shape is not None else f"{mark}{look}"
            items.append(f'<li{kind} title="distance {far:.4g}">{parts}</li>')
        return "".join(items)


def _of_run(run: int | None) -> str:
    return "" if run is None else f' data-group="{run_group(run)}"'


def _title(dataset: Dataset, row: int, *, with_class: bool = True) -> str:
    label = "" if dataset.labels is None or not with_class else f", class {dataset.labels[row]}"
    return f"point {row if dataset.ids is None else dataset.ids[row]}{label}"
