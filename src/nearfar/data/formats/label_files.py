"""Labels in a file of their own: an .npy array, or text with one label a line."""

from collections.abc import Iterator
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.formats.table import user_array
from nearfar.errors import InvalidFile
from nearfar.files import open_file

_AT_ONCE = 1 << 16


def read_labels(path: Path) -> Iterator[NDArray[Any]]:
    """One label a point, in the order of the points, by blocks; in text, numbers if all of them are whole numbers."""
    if path.suffix.lower() == ".npy":
        labels = user_array(path)
        for start in range(0, max(1, len(labels) if labels.ndim else 0), _AT_ONCE):
            yield labels[start : start + _AT_ONCE] if labels.ndim else labels
        return
    whole = all(_is_whole(label) for label in _lines(path))
    lines = _lines(path)
    while block := list(islice(lines, _AT_ONCE)):
        yield np.array([int(label) for label in block], np.int64) if whole else np.array(block, np.str_)


def _lines(path: Path) -> Iterator[str]:
    """The labels of a text file; lines at the end may be empty, others not."""
    number, first_empty = 0, None
    try:
        with TextIOWrapper(open_file(path), encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                label = line.strip()
                if label and first_empty is not None:
                    break
                if label:
                    yield label
                elif first_empty is None:
                    first_empty = number
            else:
                if number and first_empty != 1:
                    return
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path} is not readable as text: {error}; expected .npy, or one label a line") from error
    raise InvalidFile(f"{path}:{first_empty or 1}: the line is empty; expected one label a line, as many as points")


def _is_whole(label: str) -> bool:
    try:
        return -(2**63) <= int(label) < 2**63
    except ValueError:
        return False
