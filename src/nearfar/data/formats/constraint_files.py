"""The user's own constraints in files: .npy arrays, or text with one constraint a line.

Text may be separated by commas, tabs or blanks, may have ``#`` comments, and one header line. It is parsed
at once; only when that fails is it read line by line, to say which line is wrong.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.constraints import Comparisons, Pairs
from nearfar.data.formats.table import user_array
from nearfar.errors import InvalidConstraints, InvalidFile

_TEXT_SUFFIXES = (".txt", ".csv", ".tsv")
_LARGEST_WHOLE_FLOAT = 2**53


def read_pairs(path: Path) -> Pairs:
    """Pairs from rows ``i, j, y``, with y = +1 for similar and -1 for dissimilar."""
    rows = _read_rows(path, {3: "i, j, +1 or -1"})
    signs = rows[:, 2]
    wrong = np.flatnonzero((signs != 1) & (signs != -1))
    if len(wrong):
        raise InvalidConstraints(
            f"{_place(path, int(wrong[0]))}: y is {signs[wrong[0]]}; expected +1 (similar) or "
            "-1 (dissimilar): 0/1 must be turned into -1/+1"
        )
    return Pairs(rows[signs == 1, :2], rows[signs == -1, :2])


def read_index_pairs(path: Path) -> NDArray[Any]:
    """Pairs of one kind from rows ``i, j``: an array (n, 2)."""
    return _read_rows(path, {2: "i, j"})


def read_triplets(path: Path) -> Comparisons:
    """Triplets from rows ``anchor, near, far``; rows of four are quadruplets, the first pair nearer."""
    return Comparisons(_read_rows(path, {3: "anchor, near, far", 4: "the nearer pair, the farther pair"}))


def _read_rows(path: Path, columns: dict[int, str]) -> NDArray[Any]:
    """The rows of the file, as wide as one of ``columns``, which maps a width to what it means."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        rows = user_array(path)
        if rows.ndim != 2 or rows.shape[1] not in columns or rows.dtype.kind not in "iuf":
            raise InvalidFile(
                f"{path} has shape {rows.shape} and type {rows.dtype}; expected whole numbers, {_described(columns)}"
            )
        return rows
    if suffix not in _TEXT_SUFFIXES:
        raise InvalidFile(
            f"{path} ends in {suffix or 'no suffix'!r}; expected one of .npy, {', '.join(_TEXT_SUFFIXES)}"
        )
    try:
        parsed = _parsed_at_once(path)
        return parsed if parsed is not None and parsed.shape[1] in columns else _parsed_by_line(path, columns)
    except FileNotFoundError as error:
        raise InvalidFile(f"{path} is missing") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path} is not readable as text: {error}") from error


def _parsed_at_once(path: Path) -> NDArray[np.int64] | None:
    """All rows, or None if something is wrong somewhere."""
    first = next(_data_lines(path), None)
    if first is None:
        raise InvalidFile(f"{path} holds no rows; expected one constraint a line")
    number, line = first
    for dtype in (np.int64, np.float64):  # np.savetxt writes whole numbers as 1.0e+00
        try:
            rows = np.loadtxt(
                path,
                dtype=dtype,
                delimiter="," if "," in line else None,
                skiprows=number - 1,
                ndmin=2,
                encoding="utf-8-sig",
            )
        except UnicodeDecodeError:
            raise
        except ValueError:
            continue
        if dtype is np.int64 or bool((np.abs(rows) < _LARGEST_WHOLE_FLOAT).all() and (rows % 1 == 0).all()):
            return rows.astype(np.int64)
    return None


def _parsed_by_line(path: Path, columns: dict[int, str]) -> NDArray[np.int64]:
    """All rows, or the error that names the first wrong line."""
    rows: list[list[int]] = []
    for number, line in _data_lines(path):
        fields = _fields(line)
        numbers = [_whole_number(field) for field in fields]
        if len(fields) not in columns:
            raise InvalidFile(f"{path}:{number}: {len(fields)} columns; expected {_described(columns)}")
        if None in numbers:
            wrong = fields[numbers.index(None)]
            raise InvalidFile(f"{path}:{number}: {wrong!r} is not a whole number; expected {_described(columns)}")
        if rows and len(fields) != len(rows[0]):
            raise InvalidFile(f"{path}:{number}: {len(fields)} columns, but {len(rows[0])} in the lines before")
        rows.append([whole for whole in numbers if whole is not None])
    return np.array(rows, np.int64)


def _data_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that hold a row, with their numbers: no comments, no blank lines, no header."""
    header_allowed = True
    with path.open(encoding="utf-8-sig") as lines:
        for number, raw in enumerate(lines, 1):
            line = raw.split("#")[0].strip()
            if not line:
                continue
            if not header_allowed or any(_is_number(field) for field in _fields(line)):
                yield number, line
            header_allowed = False


def _fields(line: str) -> list[str]:
    return [field.strip() for field in line.split(",")] if "," in line else line.split()


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _whole_number(field: str) -> int | None:
    if not _is_number(field) or not float(field).is_integer() or abs(float(field)) >= _LARGEST_WHOLE_FLOAT:
        return None
    return int(float(field))


def _place(path: Path, row: int) -> str:
    """Where a row is, in the words an editor knows: file:line for text."""
    if path.suffix.lower() == ".npy":
        return f"{path}, row {row}"
    return next(f"{path}:{number}" for place, (number, _) in enumerate(_data_lines(path)) if place == row)


def _described(columns: dict[int, str]) -> str:
    return " or ".join(f"{width} columns ({meaning})" for width, meaning in columns.items())
