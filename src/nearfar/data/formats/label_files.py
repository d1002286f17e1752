"""Labels in a file of their own: an .npy array, or text with one label a line."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.formats.table import user_array
from nearfar.errors import InvalidFile


def read_labels(path: Path) -> NDArray[Any]:
    """One label a point, in the order of the points; in text, numbers if all of them are whole numbers."""
    if path.suffix.lower() == ".npy":
        return user_array(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
    except FileNotFoundError as error:
        raise InvalidFile(f"{path} is missing") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path} is not readable as text: {error}; expected .npy, or one label a line") from error
    labels = [line.strip() for line in lines]
    if not labels or "" in labels:
        number = labels.index("") + 1 if labels else 1
        raise InvalidFile(f"{path}:{number}: the line is empty; expected one label a line, as many as points")
    try:
        return np.array([int(label) for label in labels], np.int64)
    except (ValueError, OverflowError):
        return np.array(labels, np.str_)
