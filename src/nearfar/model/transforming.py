"""Transforming files: points in, Lx out, block by block."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from nearfar.data.dataset import Dataset
from nearfar.data.formats import Choice, format_of, read_blocks, read_points
from nearfar.data.points import Floats, Points, as_points, check_finite_rows
from nearfar.errors import InvalidPoints
from nearfar.files import atomic_npy, check_free
from nearfar.model.metric import Metric

_ROWS_AT_ONCE = 8192


def transform_to_file(
    metric: Metric, source: Path, out: Path, choice: Choice | None = None, format_name: str | None = None
) -> tuple[int, int]:
    """Write Lx of every point of a dataset folder or file to an .npy file, atomically; its shape is returned.

    Memory does not grow with the number of points, but for formats that only tell at their end how many features
    there are, as svmlight does, and for sparse matrices in an .npz: their points are held in memory.
    """
    check_free(out, ".npy")
    blocks = _blocks(source, choice, format_name)
    first = next(blocks)
    metric.points(first)  # says so before a file is begun if the width is wrong
    n_points = 0
    with atomic_npy(out, np.float32, (metric.rank,)) as appender:
        for points in chain([first], blocks):
            appender.append(_transformed(metric, points, n_points))
            n_points += len(points)
    return n_points, metric.rank


def open_points(source: Path, choice: Choice | None = None, format_name: str | None = None) -> Points:
    """The points of a dataset folder, or of a file in any supported format."""
    if source.is_dir():
        return Dataset.open(source).points
    return read_points(source, choice, format_name)


def _blocks(source: Path, choice: Choice | None, format_name: str | None) -> Iterator[Points]:
    """The points in blocks of no more than so many, read as they are asked for where the format allows it."""
    for points in _read(source, choice, format_name):
        for start in range(0, len(points), _ROWS_AT_ONCE):
            yield points.chosen(np.arange(start, min(len(points), start + _ROWS_AT_ONCE)))


def _read(source: Path, choice: Choice | None, format_name: str | None) -> Iterator[Points]:
    if source.is_dir() or format_of(source, format_name).open_width:
        yield open_points(source, choice, format_name)
    else:
        yield from (as_points(table.points) for table in read_blocks(source, choice, format_name))


def _transformed(metric: Metric, block: Points, first: int) -> Floats:
    """Lx of a block, or an error that names a point by its row in the source; the block begins with row ``first``."""
    try:
        return metric.transform(block)
    except InvalidPoints:
        for place, rows in block.blocks():
            check_finite_rows(rows, np.arange(first + place.start, first + place.stop))
        raise
