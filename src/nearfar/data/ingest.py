"""From the user's files to a dataset folder, block by block: memory does not grow with the files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import scipy.sparse as sp

from nearfar.data.constraints import Pairs
from nearfar.data.dataset import Dataset
from nearfar.data.formats import Choice, Format, Table, format_of, read_blocks
from nearfar.data.formats.constraint_files import (
    ConstraintBlock,
    check_file,
    read_index_pairs,
    read_pairs,
    read_triplets,
)
from nearfar.data.formats.label_files import read_labels
from nearfar.data.ids import PointNames
from nearfar.data.stored import storable_labels
from nearfar.data.writer import DatasetWriter
from nearfar.errors import InvalidConstraints, InvalidFile, InvalidPoints, InvalidSettings
from nearfar.files import open_file

OnProgress = Callable[[int, int], None]
"""Told how many bytes of how many are read."""


@dataclass(frozen=True)
class ConstraintFiles:
    """Files of the user's own constraints: ``i, j, ±1``, or ``i, j`` of each kind, or ``anchor, near, far``."""

    pairs: Path | None = None
    similar: Path | None = None
    dissimilar: Path | None = None
    triplets: Path | None = None

    def __post_init__(self) -> None:
        if sum([bool(self.pairs), bool(self.similar or self.dissimilar), bool(self.triplets)]) > 1:
            raise InvalidSettings(
                "constraints come in several ways; give --pairs, or --similar and --dissimilar, or --triplets"
            )

    @property
    def given(self) -> list[Path]:
        """Those that there are."""
        return [path for path in (self.pairs, self.similar, self.dissimilar, self.triplets) if path]

    def read(self, points: PointNames) -> Iterator[ConstraintBlock]:
        """All constraints, as rows of points."""
        if self.pairs:
            yield from read_pairs(self.pairs, points)
        if self.triplets:
            yield from read_triplets(self.triplets, points)
        if self.similar:
            yield from read_index_pairs(self.similar, "similar", points)
        if self.dissimilar:
            yield from read_index_pairs(self.dissimilar, "dissimilar", points)


def ingest(
    sources: list[Path],
    out: Path,
    *,
    choice: Choice | None = None,
    format_name: str | None = None,
    labels: Path | None = None,
    constraints: ConstraintFiles | None = None,
    n_features: int | None = None,
    dtype: str = "auto",
    on_progress: OnProgress | None = None,
) -> tuple[Dataset, list[str]]:
    """Make a dataset folder of some files, and return it with what is odd about it, one sentence each.

    Several sources are stacked in the order given; indices in the constraints count over all of them, unless the
    points have ids, which constraints then name. Files are read in blocks, and written as they are read; the folder
    appears complete or not at all.

    Parameters
    ----------
    sources
        Files of points, see :data:`~nearfar.data.formats.FORMATS`.
    out
        The folder to make; it must not exist.
    choice
        Which arrays of .npz files, and which columns of tables, hold what.
    format_name
        The format of the sources, where the suffixes of their names do not say it.
    labels
        A file of labels, in place of those in the sources: .npy, or text with one a line.
    constraints
        Files of the user's own constraints.
    n_features
        Features of a point, where the sources do not tell: sparse text knows of a feature only if a point has it.
    dtype
        How values are stored: ``auto``, ``float16`` or ``float32``.
    on_progress
        Called after each block with the bytes read so far and those of all files.
    """
    choice, constraints = choice or Choice(), constraints or ConstraintFiles()
    if out.exists():
        raise InvalidFile(f"{out} exists already; choose another name or remove it")
    if not sources:
        raise InvalidSettings("there are no sources; expected at least one file of points")
    if labels is not None and (choice.labels_key or choice.label_column):
        raise InvalidSettings(
            f"labels come from {labels} and from {choice.labels_key or choice.label_column!r}; give one of the two"
        )
    for path in constraints.given:
        check_file(path)
    if labels is not None:
        open_file(labels).close()
    kind = _common_format(sources, format_name)
    tables = _stacked(sources, choice, format_name, own_labels=labels is None)
    first = next(tables)
    if not kind.open_width and n_features not in (None, first.points.shape[1]):
        raise InvalidSettings(
            f"{sources[0]} has {first.points.shape[1]} features, but {n_features} are asked for; leave out --features"
        )
    advance = _Advance([*sources, *constraints.given], on_progress)
    with DatasetWriter(
        out,
        n_features=n_features if kind.open_width else first.points.shape[1],
        sparse=sp.issparse(first.points),
        source=", ".join(source.name for source in sources),
        dtype=dtype,
        base_unknown=kind.base_unknown,
    ) as writer:
        for table in chain([first], tables):
            writer.append(table.points, table.labels, table.ids)
            advance(table.size)
        if labels is not None:
            for block in read_labels(labels):
                writer.append_labels(block)
        if constraints.given:
            for some in constraints.read(PointNames(writer.n_points, writer.id_lookup())):
                writer.append_constraints(some.kind, some.indices)
                advance(some.size)
    dataset = Dataset.open(out)
    return dataset, writer.remarks + _remarks(dataset)


class _Advance:
    """Counts the bytes read, and tells."""

    def __init__(self, files: list[Path], on_progress: OnProgress | None) -> None:
        self._total, self._done = sum(file.stat().st_size for file in files), 0
        self._tell = on_progress

    def __call__(self, size: int) -> None:
        self._done = min(self._total, self._done + size)
        if self._tell is not None:
            self._tell(self._done, self._total)


def _common_format(sources: list[Path], format_name: str | None) -> Format:
    """The format of the sources; those whose features are counted in different ways cannot be stacked."""
    kinds = [format_of(source, format_name) for source in sources]
    for source, kind in zip(sources, kinds, strict=True):
        if (kind.base_unknown, kind.open_width) != (kinds[0].base_unknown, kinds[0].open_width):
            raise InvalidPoints(
                f"{source} is {kind.name}, but {sources[0]} is {kinds[0].name}; convert one, or ingest them apart"
            )
    return kinds[0]


def _stacked(sources: list[Path], choice: Choice, format_name: str | None, own_labels: bool) -> Iterator[Table]:
    """The blocks of all sources, one after the other, after checking that they go together."""
    first: Table | None = None
    for source in sources:
        for number, block in enumerate(read_blocks(source, choice, format_name)):
            table = block if own_labels else replace(block, labels=None)
            if first is None:
                first = table
            elif number == 0:
                _check_alike(source, table, sources[0], first, format_of(source, format_name))
            yield table


def _check_alike(source: Path, table: Table, first_source: Path, first: Table, kind: Format) -> None:
    if sp.issparse(table.points) != sp.issparse(first.points):
        raise InvalidPoints(f"{source} and {first_source} are not both sparse; convert one, or ingest them apart")
    if not kind.open_width and table.points.shape[1] != first.points.shape[1]:
        raise InvalidPoints(
            f"{source} has {table.points.shape[1]} features, but {first_source} has {first.points.shape[1]}; "
            "expected as many in every source"
        )
    if (table.labels is None) != (first.labels is None):
        without = source if table.labels is None else first_source
        raise InvalidConstraints(f"{without} has no labels, but others have; give all of them with --labels FILE")
    labels = [storable_labels(found) for found in (table.labels, first.labels) if found is not None]
    if len({found.dtype.kind == "U" for found in labels}) > 1:
        raise InvalidConstraints("labels are text in one source and numbers in another; expected the same in all")


def _remarks(dataset: Dataset) -> list[str]:
    if dataset.constraints is None and dataset.labels is None:
        return ["there are neither labels nor constraints: these points can be searched, not trained on"]
    if not isinstance(dataset.constraints, Pairs):
        return []
    counts = {"similar": len(dataset.constraints.similar), "dissimilar": len(dataset.constraints.dissimilar)}
    return [f"there are no {kind} pairs: most losses need both kinds" for kind, count in counts.items() if not count]
