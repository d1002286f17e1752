"""The user's own constraints in files, read by blocks: .npy arrays, or text with one constraint a line.

Text may be separated by commas, tabs or blanks, may have ``#`` comments, and one header line.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.constraints import index_array
from nearfar.data.formats.delimited import LOOSE, Fields, fields_of, split_lines
from nearfar.data.formats.table import user_array
from nearfar.data.formats.text import line_at, parsed_number, text_blocks
from nearfar.data.ids import PointNames
from nearfar.errors import InvalidConstraints, InvalidFile
from nearfar.files import open_file

_TEXT_SUFFIXES = (".txt", ".csv", ".tsv")
_ROWS_AT_ONCE = 1 << 19


@dataclass(frozen=True)
class ConstraintBlock:
    """Some constraints of one kind, as rows of points."""

    kind: str
    indices: NDArray[np.integer[Any]]
    size: int
    """How many bytes of the source it stands for, about."""


@dataclass(frozen=True)
class _Layout:
    """What the columns of a file are."""

    widths: dict[int, str]
    """How many columns there may be, and what they mean then."""
    has_signs: bool = False
    """Whether the last column says +1 (similar) or -1 (dissimilar), and names no point."""

    @property
    def described(self) -> str:
        return "expected " + " or ".join(f"{width} columns ({meaning})" for width, meaning in self.widths.items())


_SIGNED = _Layout({3: "i, j, +1 or -1"}, has_signs=True)
_UNSIGNED = _Layout({2: "i, j"})
_COMPARED = _Layout({3: "anchor, near, far", 4: "the nearer pair, the farther pair"})


def read_pairs(path: Path, points: PointNames) -> Iterator[ConstraintBlock]:
    """Pairs from rows ``i, j, y``, with y = +1 for similar and -1 for dissimilar."""
    for indices, signs, size in _read(path, _SIGNED, points):
        yield ConstraintBlock("similar", indices[signs > 0], size)
        yield ConstraintBlock("dissimilar", indices[signs < 0], 0)


def read_index_pairs(path: Path, kind: str, points: PointNames) -> Iterator[ConstraintBlock]:
    """Pairs of one kind from rows ``i, j``."""
    for indices, _, size in _read(path, _UNSIGNED, points):
        yield ConstraintBlock(kind, indices, size)


def read_triplets(path: Path, points: PointNames) -> Iterator[ConstraintBlock]:
    """Triplets from rows ``anchor, near, far``; rows of four are quadruplets, the first pair nearer."""
    for indices, _, size in _read(path, _COMPARED, points):
        yield ConstraintBlock("triplets" if indices.shape[1] == 3 else "quadruplets", indices, size)


def check_file(path: Path) -> None:
    """Raise if the file cannot be opened or is of a kind that is not read, before the points are read for its sake."""
    open_file(path).close()
    suffix = path.suffix.lower()
    if suffix not in (".npy", *_TEXT_SUFFIXES):
        raise InvalidFile(
            f"{path} ends in {suffix or 'no suffix'!r}; expected one of .npy, {', '.join(_TEXT_SUFFIXES)}"
        )


_Rows = tuple[NDArray[np.integer[Any]], NDArray[Any], int]


def _read(path: Path, layout: _Layout, points: PointNames) -> Iterator[_Rows]:
    """Rows of points, the sign of each if there are signs, and the bytes they stand for."""
    check_file(path)
    return (_read_npy if path.suffix.lower() == ".npy" else _read_text)(path, layout, points)


def _read_npy(path: Path, layout: _Layout, points: PointNames) -> Iterator[_Rows]:
    rows = user_array(path)
    kinds = "U" if points.are_text and not layout.has_signs else "iuf"
    if rows.ndim != 2 or rows.shape[1] not in layout.widths or rows.dtype.kind not in kinds:
        expected = "text" if kinds == "U" else "whole numbers"
        raise InvalidFile(
            f"{path} has shape {rows.shape} and type {rows.dtype}; expected {expected}, "
            f"{layout.described.removeprefix('expected ')}"
        )
    for start in range(0, max(1, len(rows)), _ROWS_AT_ONCE):
        block = rows[start : start + _ROWS_AT_ONCE]
        names = block if kinds == "U" else index_array(block, (rows.shape[1],), f"the constraints in {path}")

        def place(row: int, start: int = start) -> str:
            return f"{path}, row {start + row}"

        n_names = rows.shape[1] - layout.has_signs
        signs = _signs(names[:, -1], place) if layout.has_signs else names[:, -1]
        yield points.rows(names[:, :n_names], place), signs, block.nbytes


def _read_text(path: Path, layout: _Layout, points: PointNames) -> Iterator[_Rows]:
    skip, width = _first_row(path, layout, points)

    def refuse(line: str, place: str) -> None:
        found = len(fields_of(line, LOOSE))
        if found in layout.widths and found != width:
            raise InvalidFile(f"{place}: {found} columns, but {width} in the lines before")
        raise InvalidFile(f"{place}: {found} columns; {layout.described}")

    for fields in split_lines(path, LOOSE, width, skip, refuse):
        if not len(fields):
            continue
        n_names = width - layout.has_signs
        names = np.column_stack([_names(fields, column, layout, points) for column in range(n_names)])
        signs = names[:, -1]
        if layout.has_signs:
            signs = _signs(fields.whole_numbers(n_names, layout.described), fields.place)
        yield points.rows(names, fields.place), signs, len(fields.text)


def _names(fields: Fields, column: int, layout: _Layout, points: PointNames) -> NDArray[Any]:
    if points.are_text:
        return fields.words(column).astype(np.str_)
    return fields.whole_numbers(column, layout.described)


def _signs(signs: NDArray[Any], place: Any) -> NDArray[Any]:
    wrong = np.flatnonzero((signs != 1) & (signs != -1))
    if len(wrong):
        raise InvalidConstraints(
            f"{place(int(wrong[0]))}: y is {signs[wrong[0]]}; expected +1 (similar) or "
            "-1 (dissimilar): 0/1 must be turned into -1/+1"
        )
    return signs


def _first_row(path: Path, layout: _Layout, points: PointNames) -> tuple[int, int]:
    """How many lines to pass over before the first row, and how many columns that has."""
    number, header_allowed = 0, True
    for text in text_blocks(path):
        position = 0
        while position < len(text):
            line, position = line_at(text, position)
            number += 1
            fields = fields_of(line, LOOSE)
            if fields and not (header_allowed and not any(_names_a_point(field, points) for field in fields)):
                if len(fields) not in layout.widths:
                    raise InvalidFile(f"{path}:{number}: {len(fields)} columns; {layout.described}")
                return number - 1, len(fields)
            header_allowed = header_allowed and not fields
    raise InvalidFile(f"{path} holds no rows; expected one constraint a line")


def _names_a_point(field: str, points: PointNames) -> bool:
    """Whether a field may be part of a row, and not of a header."""
    if parsed_number(field) is not None:
        return True
    return points.are_text and points.lookup is not None and bool(points.lookup.rows(np.array([field]))[0] >= 0)
