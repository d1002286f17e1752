"""Transforming files: points in, Lx out, block by block."""

from pathlib import Path

import numpy as np

from nearfar.data.dataset import Dataset
from nearfar.data.formats import Choice, read_points
from nearfar.data.points import Points
from nearfar.files import atomic_npy, check_free
from nearfar.model.metric import Metric

_ROWS_AT_ONCE = 8192


def transform_to_file(
    metric: Metric, source: Path, out: Path, choice: Choice | None = None, format_name: str | None = None
) -> tuple[int, int]:
    """Write Lx of every point of a dataset folder or file to an .npy file, atomically; its shape is returned."""
    check_free(out, ".npy")
    points = open_points(source, choice, format_name)
    metric.points(points)  # says so before a file is begun if the width is wrong
    with atomic_npy(out, np.float32, (metric.rank,)) as appender:
        for start in range(0, len(points), _ROWS_AT_ONCE):
            chosen = np.arange(start, min(len(points), start + _ROWS_AT_ONCE))
            appender.append(metric.transform(points.chosen(chosen)))
    return len(points), metric.rank


def open_points(source: Path, choice: Choice | None = None, format_name: str | None = None) -> Points:
    """The points of a dataset folder, or of a file in any supported format."""
    if source.is_dir():
        return Dataset.open(source).points
    return read_points(source, choice, format_name)
