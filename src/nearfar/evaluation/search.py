"""The nearest points by a metric, with FAISS where it is installed and without it where not: the same answer."""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.dataset import Dataset
from nearfar.data.points import Floats, Points
from nearfar.errors import InvalidInput, InvalidSettings
from nearfar.evaluation.retrieval import neighbours
from nearfar.files import atomic_file, check_free
from nearfar.model.distance import Distance, places, squared_norms, too_far

Found = tuple[NDArray[np.int64], Floats]


def search(metric: Distance, queries: Any, references: Any, k: int = 10) -> Found:
    """The k nearest reference points of each query.

    The search is exact: it compares all with all, by FAISS where that is installed (``pip install
    'nearfar[search]'``), which holds the projected references in memory; else block by block, which holds none of
    them. Points whose squared distances differ by less than about 1e-6 of the squared spread of the points count as
    equally near when the k are chosen; the distances of those chosen are those of :meth:`Metric.distance`.

    Parameters
    ----------
    metric : Metric or Euclidean
    queries, references : points of shape (n, d) and (m, d)
        Dense, memory-mapped or sparse.
    k : int
        From 1 to the number of references.

    Returns
    -------
    (indices, distances)
        Arrays of shape (n, k): rows of the references, the nearest first, and how far they are.
    """
    if not isinstance(metric, Distance):
        raise InvalidInput(f"metric is a {type(metric).__name__}; expected a Metric, such as a learner's metric_")
    asked, known = metric.two_sets(queries, references)
    if not isinstance(k, (int, np.integer)) or not 1 <= k <= len(known):
        raise InvalidSettings(f"k is {k!r}; expected a whole number from 1 to {len(known)}, the number of references")
    origin = metric.origin(known, asked)
    faiss = None if origin is None else _faiss()  # FAISS takes no sparse points
    if faiss is None or origin is None:
        indices, _ = neighbours(metric, asked, known, int(k))
    else:
        indices = _found_by_faiss(faiss, metric, asked, known, int(k), origin)
    return _measured(metric, asked, known, indices, origin)


def _faiss() -> ModuleType | None:
    try:
        import faiss  # noqa: PLC0415 - optional
    except ImportError:
        return None
    module: ModuleType = faiss
    return module


def _found_by_faiss(
    faiss: Any, metric: Distance, asked: Points, known: Points, k: int, origin: Floats
) -> NDArray[np.int64]:
    # What an IndexFlatL2 does, without its copy of the references.
    right = metric.projected(known, np.arange(len(known)), origin)
    indices = np.empty((len(asked), k), np.int64)
    for place in places(len(asked), metric.width(asked) + 3 * k):
        left = metric.projected(asked, np.arange(place.start, place.stop), origin)
        _, indices[place] = faiss.knn(left, right, k)
    if (indices < 0).any():  # FAISS finds nothing at a distance that is not finite
        raise too_far()
    return indices


def _measured(
    metric: Distance, asked: Points, known: Points, indices: NDArray[np.int64], origin: Floats | None
) -> Found:
    """The points found, in the order of their distances from projected differences: near points lose no digits."""
    k = indices.shape[1]
    distances = np.empty(indices.shape, np.float32)
    for place in places(len(asked), 3 * k * metric.width(known)):
        rows = np.arange(place.start, place.stop)
        distinct, position = np.unique(indices[place], return_inverse=True)
        left = metric.projected(asked, rows, origin)[np.repeat(np.arange(len(rows)), k)]
        right = metric.projected(known, distinct, origin)[position.ravel()]
        squared = squared_norms(left - right).reshape(-1, k)
        order = np.lexsort((indices[place], squared))
        indices[place] = np.take_along_axis(indices[place], order, axis=1)
        distances[place] = np.take_along_axis(squared, order, axis=1)
    if not np.isfinite(distances).all():
        raise too_far()
    return indices, np.sqrt(distances, out=distances)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """What was found in a dataset, as the command line prints and writes it: arrays of shape (queries, k)."""

    indices: NDArray[np.int64]
    distances: Floats
    labels: NDArray[Any] | None
    """The labels of the points found, if the dataset has any."""

    @classmethod
    def search(cls, metric: Distance, dataset: Dataset, queries: Any, k: int) -> "Neighbours":
        """Find the k nearest points of the dataset for each query."""
        indices, distances = search(metric, queries, dataset.points, k)
        return cls(indices, distances, None if dataset.labels is None else dataset.labels[indices])

    def to_json(self) -> list[dict[str, Any]]:
        """One object a query: its row, and its neighbours, the nearest first."""
        names = ["index", "distance"] if self.labels is None else ["index", "distance", "label"]
        return [
            {
                "query": query,
                "neighbours": [dict(zip(names, values, strict=True)) for values in zip(*each, strict=True)],
            }
            for query, each in enumerate(zip(*(array.tolist() for array in self._arrays().values()), strict=True))
        ]

    def columns(self) -> list[str]:
        """The heads of the table."""
        return ["query", "rank", "index", *([] if self.labels is None else ["label"]), "distance"]

    def rows(self, most_queries: int) -> list[list[str]]:
        """The lines of the table, for no more than this many queries."""
        return [
            [
                str(query),
                str(rank + 1),
                str(self.indices[query, rank]),
                *([] if self.labels is None else [str(self.labels[query, rank])]),
                f"{self.distances[query, rank]:.6g}",
            ]
            for query in range(min(most_queries, len(self.indices)))
            for rank in range(self.indices.shape[1])
        ]

    def write(self, out: Path) -> None:
        """Write arrays ``indices``, ``distances`` and, if known, ``labels`` to an .npz file, atomically."""
        check_free(out, ".npz")
        with atomic_file(out) as file:
            np.savez(file, allow_pickle=False, **self._arrays())

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"indices": self.indices, "distances": self.distances}
        return arrays if self.labels is None else arrays | {"labels": self.labels}
