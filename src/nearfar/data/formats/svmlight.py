"""Sparse points and labels in svmlight (LIBSVM) text, a point a line: ``label index:value ...``."""

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from nearfar.data.formats.table import Table
from nearfar.errors import InvalidFile


def read(source: Path) -> Table:
    """The points and labels of the file. Indices start at 1, or at 0 if the index 0 occurs."""
    try:
        points, labels = load_svmlight_file(str(source), dtype=np.float32)
    except (OSError, ValueError, OverflowError, IndexError, TypeError) as error:
        raise InvalidFile(_first_fault(source) or f"{source} is not svmlight text: {error}") from error
    if not points.shape[0]:
        raise InvalidFile(f"{source} holds no points; expected lines of the form: label index:value index:value ...")
    return Table(sp.csr_matrix(points), labels)


def _first_fault(source: Path) -> str | None:
    """``file:line: reason`` of the first line that is not svmlight."""
    try:
        with source.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if fault := _fault(line.split("#")[0].split()):
                    return f"{source}:{number}: {fault}"
    except (OSError, UnicodeDecodeError) as error:
        return f"{source} is not readable as text: {error}"
    return None


def _fault(words: list[str]) -> str | None:
    if not words:
        return None
    label, *entries = words
    if not _is_number(label):
        return f"the label is {label!r}; expected one number, then index:value entries"
    before = -1
    for entry in entries:
        index, colon, value = entry.partition(":")
        if index == "qid":
            continue
        if not (colon and index.isascii() and index.isdigit() and _is_number(value)):
            return f"{entry!r} is not an entry; expected index:value with a whole index from 0 or 1 and a number"
        if int(index) <= before:
            return f"index {index} comes after {before}; expected ascending indices, each once"
        before = int(index)
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
