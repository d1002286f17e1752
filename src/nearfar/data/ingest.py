"""From the user's files to a dataset folder: read, stack, validate, and only then write."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data.constraints import Comparisons, Labels, Pairs
from nearfar.data.dataset import Dataset, write_dataset
from nearfar.data.formats import Table, read_points
from nearfar.data.formats.constraint_files import read_index_pairs, read_pairs, read_triplets
from nearfar.data.formats.label_files import read_labels
from nearfar.data.stored import storable_labels
from nearfar.errors import InvalidConstraints, InvalidFile, InvalidPoints, InvalidSettings


def ingest(
    sources: list[Path],
    out: Path,
    *,
    points_key: str | None = None,
    labels_key: str | None = None,
    labels: Path | None = None,
    pairs: Path | None = None,
    similar: Path | None = None,
    dissimilar: Path | None = None,
    triplets: Path | None = None,
) -> tuple[Dataset, list[str]]:
    """Make a dataset folder of some files, and return it with what is odd about it, one sentence each.

    Several sources are stacked in the order given; indices in the constraints count over all of them.
    Everything is validated before anything is written, and the folder appears complete or not at all.

    Parameters
    ----------
    sources
        Files of points, see :func:`~nearfar.data.formats.read_points`.
    out
        The folder to make; it must not exist.
    points_key, labels_key
        The names of the arrays in .npz files, where they are not the usual ones.
    labels
        A file of labels, in place of those in the sources: .npy, or text with one a line.
    pairs, similar, dissimilar, triplets
        Files of the user's own constraints: ``i, j, ±1``, or ``i, j`` of each kind, or ``anchor, near, far``.
    """
    if out.exists():
        raise InvalidFile(f"{out} exists already; choose another name or remove it")
    if not sources:
        raise InvalidSettings("there are no sources; expected at least one file of points")
    if labels is not None and labels_key is not None:
        raise InvalidSettings(f"labels come from {labels} and from array {labels_key!r}; give one of the two")
    constraints = _read_constraints(pairs, similar, dissimilar, triplets)
    tables = [read_points(source, points_key, labels_key) for source in sources]
    points = _stacked_points(sources, tables)
    n_points = points.shape[0]
    found_labels = read_labels(labels) if labels is not None else _stacked_labels(sources, tables)
    if found_labels is not None:
        found_labels = storable_labels(found_labels, n_points).array
    remarks = _constraint_remarks(constraints, n_points) + _label_remarks(found_labels, n_points)
    if constraints is None and found_labels is None:
        remarks.append("there are neither labels nor constraints: these points can be searched, not trained on")
    names = ", ".join(source.name for source in sources)
    return write_dataset(out, points, found_labels, constraints, names), remarks


def _read_constraints(
    pairs: Path | None, similar: Path | None, dissimilar: Path | None, triplets: Path | None
) -> Pairs | Comparisons | None:
    ways = [bool(pairs), bool(similar or dissimilar), bool(triplets)]
    if sum(ways) > 1:
        raise InvalidSettings(
            "constraints come in several ways; give --pairs, or --similar and --dissimilar, or --triplets"
        )
    if pairs:
        return read_pairs(pairs)
    if triplets:
        return read_triplets(triplets)
    if similar or dissimilar:
        none = np.empty((0, 2), np.int32)
        return Pairs(
            read_index_pairs(similar) if similar else none,
            read_index_pairs(dissimilar) if dissimilar else none,
        )
    return None


def _stacked_points(sources: list[Path], tables: list[Table]) -> NDArray[Any] | sp.csr_matrix:
    first = tables[0].points
    for source, table in zip(sources, tables, strict=True):
        if table.points.shape[1] != first.shape[1]:
            raise InvalidPoints(
                f"{source} has {table.points.shape[1]} features, but {sources[0]} has {first.shape[1]}; "
                "expected as many in every source"
            )
        if sp.issparse(table.points) != sp.issparse(first):
            raise InvalidPoints(f"{source} and {sources[0]} are not both sparse; convert one, or ingest them apart")
    if len(tables) == 1:
        return first
    stack = [table.points for table in tables]
    return sp.vstack(stack, format="csr") if sp.issparse(first) else np.concatenate(stack)


def _stacked_labels(sources: list[Path], tables: list[Table]) -> NDArray[Any] | None:
    found = [table.labels for table in tables if table.labels is not None]
    if not found:
        return None
    if len(found) < len(tables):
        without = next(source for source, table in zip(sources, tables, strict=True) if table.labels is None)
        raise InvalidConstraints(f"{without} has no labels, but others have; give all of them with --labels FILE")
    stored = [storable_labels(labels, table.points.shape[0]).array for labels, table in zip(found, tables, strict=True)]
    if len({labels.dtype.kind == "U" for labels in stored}) > 1:
        raise InvalidConstraints("labels are text in one source and numbers in another; expected the same in all")
    return np.concatenate(stored) if len(stored) > 1 else stored[0]


def _constraint_remarks(constraints: Pairs | Comparisons | None, n_points: int) -> list[str]:
    if constraints is None:
        return []
    remarks = constraints.check(n_points)
    if isinstance(constraints, Pairs):
        for kind, count in (
            ("similar", len(constraints.similar)),
            ("dissimilar", len(constraints.dissimilar)),
        ):
            if not count:
                remarks.append(f"there are no {kind} pairs: most losses need both kinds")
    return remarks


def _label_remarks(labels: NDArray[Any] | None, n_points: int) -> list[str]:
    """Labels that cannot teach are kept, since constraints may, but not in silence."""
    if labels is None:
        return []
    try:
        return Labels(labels).check(n_points)
    except InvalidConstraints as error:
        return [f"labels alone cannot be trained on: {error}"]
