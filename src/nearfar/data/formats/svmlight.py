"""Sparse points and labels in svmlight (LIBSVM) text, a point a line: ``label index:value ...``."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.data.formats.table import Choice, Table
from nearfar.data.formats.text import (
    BLANK,
    COMMENT,
    NEWLINE,
    RETURN,
    TAB,
    Bytes,
    line_at,
    number,
    parsed_number,
    past_blanks,
    past_line,
    text_blocks,
)
from nearfar.errors import InvalidFile

Array = NDArray[Any]

_LARGEST_INDEX = 2**31 - 1
_FEWEST_ENTRY_BYTES = 4


def read(source: Path, choice: Choice) -> Iterator[Table]:
    """The points and labels of the file. Indices stay as they are written: they may start at 0 or at 1."""
    yield from read_lines(source, counted=False)


def read_lines(source: Path, *, counted: bool) -> Iterator[Table]:
    """Points and labels, block by block; with ``counted``, the number of entries stands before them."""
    line, empty = 0, True
    for text in text_blocks(source):
        parsed = _Parsed(text)
        while parsed.position < len(text):
            line += parsed.advance(counted)
            if parsed.position < len(text):
                line += 1
                words, end = line_at(text, parsed.position)
                parsed.add(_read_line(words.split("#")[0].split(), counted, f"{source}:{line}"), end)
        if parsed.n_rows:
            empty = False
            yield parsed.table()
    if empty:
        form = "label nnz id:value ..." if counted else "label index:value index:value ..."
        raise InvalidFile(f"{source} holds no points; expected lines of the form: {form}")


class _Parsed:
    """The points found so far in a block of text."""

    def __init__(self, text: Bytes) -> None:
        self._text = text
        most_entries, most_rows = len(text) // _FEWEST_ENTRY_BYTES + 1, len(text) // 2 + 1
        self._labels, self._starts = np.empty(most_rows), np.zeros(most_rows + 1, np.int64)
        self._columns, self._values = np.empty(most_entries, np.int32), np.empty(most_entries)
        self.position, self.n_rows, self._n_entries = 0, 0, 0

    def advance(self, counted: bool) -> int:
        """Read on, to the end or to a line that needs a closer look; how many lines were read is returned."""
        self.position, self.n_rows, self._n_entries, lines = _parse_lines(
            self._text, self.position, counted, self._labels, self._starts, self._columns, self._values, self.n_rows,
            self._n_entries,
        )  # fmt: skip
        return int(lines)

    def add(self, point: tuple[float, list[int], list[float]] | None, end: int) -> None:
        """Take a line that was read otherwise, and go on at ``end``."""
        self.position = end
        if point is None:
            return
        label, columns, values = point
        first, self._n_entries = self._n_entries, self._n_entries + len(columns)
        self._columns[first : self._n_entries], self._values[first : self._n_entries] = columns, values
        self._labels[self.n_rows] = label
        self.n_rows += 1
        self._starts[self.n_rows] = self._n_entries

    def table(self) -> Table:
        columns, values = self._columns[: self._n_entries], self._values[: self._n_entries]
        width = int(columns.max()) + 1 if len(columns) else 1
        starts = self._starts[: self.n_rows + 1]
        points = sp.csr_matrix((values, columns, starts), shape=(self.n_rows, width))
        return Table(points, self._labels[: self.n_rows], size=len(self._text))


@compiled()
def _parse_lines(
    text: Bytes, position: int, counted: bool, labels: Array, starts: Array, columns: Array, values: Array, row: int,
    entry: int,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Read lines from ``position`` on, up to one that needs a closer look; where that is, and how much was read."""
    lines = 0
    while position < len(text):
        first_entry, words, announced, before = entry, 0, 0, -1
        i = position
        while True:
            i = past_blanks(text, i)
            if text[i] == NEWLINE or text[i] == COMMENT:
                break
            start = i
            i, colon = _word(text, start)
            words += 1
            is_entry = words > (2 if counted else 1)
            value, clear = number(text, colon + 1 if is_entry else start, i)
            if not clear or (is_entry and colon < 0):
                return position, row, first_entry, lines
            if words == 1:
                labels[row] = value
            elif not is_entry:
                announced = int(value) if value == np.floor(value) else -1
            else:
                index = _index(text, start, colon)
                if index <= before:
                    return position, row, first_entry, lines
                before = index
                columns[entry], values[entry] = index, value
                entry += 1
        if counted and words > 0 and (words == 1 or announced != entry - first_entry):
            return position, row, first_entry, lines
        position = past_line(text, i)
        lines += 1
        if words > 0:
            row += 1
            starts[row] = entry
    return position, row, entry, lines


@compiled()
def _word(text: Bytes, i: int) -> tuple[int, int]:
    """Where the word from ``i`` on ends, and where its colon is: negative if it has none, or several."""
    colon = -1
    while text[i] not in (BLANK, TAB, RETURN, NEWLINE, COMMENT):
        if text[i] == 58:
            colon = i if colon == -1 else -2
        i += 1
    return i, colon


@compiled()
def _index(text: Bytes, start: int, end: int) -> int:
    """The whole number in ``text[start:end]``, or -1 if there is none, or one too large."""
    index = 0 if start < end else -1
    for i in range(start, end):
        if not 48 <= text[i] <= 57:
            return -1
        index = 10 * index + int(text[i]) - 48
        if index > _LARGEST_INDEX:
            return -1
    return index


def _read_line(words: list[str], counted: bool, place: str) -> tuple[float, list[int], list[float]] | None:
    """Label, columns and values of one line, None if it is empty, or the error that says what is wrong with it."""
    if not words:
        return None
    label = parsed_number(words[0])
    if label is None:
        raise InvalidFile(f"{place}: the label is {words[0]!r}; expected one number, then index:value entries")
    entries = words[1:]
    if counted:
        announced = parsed_number(entries[0]) if entries else None
        if announced is None:
            found = repr(entries[0]) if entries else "nothing"
            raise InvalidFile(f"{place}: after the label is {found}; expected the number of entries, then id:value")
        entries = entries[1:]
        if announced != len(entries):
            raise InvalidFile(f"{place}: {len(entries)} entries, but {announced:g} announced after the label")
    columns: list[int] = []
    values: list[float] = []
    for entry in entries:
        index, colon, text = entry.partition(":")
        if index == "qid" and not counted:
            continue
        value = parsed_number(text)
        if not (colon and index.isascii() and index.isdigit() and value is not None):
            raise InvalidFile(
                f"{place}: {entry!r} is not an entry; expected index:value with a whole index from 0 or 1 and a number"
            )
        if columns and int(index) <= columns[-1]:
            raise InvalidFile(
                f"{place}: index {index} comes after {columns[-1]}; expected ascending indices, each once"
            )
        if int(index) > _LARGEST_INDEX:
            raise InvalidFile(f"{place}: index {index} is too large; expected at most {_LARGEST_INDEX}: hash them")
        if not math.isfinite(value):
            raise InvalidFile(f"{place}: {entry!r} is NaN or infinity; points must be finite: fill or drop such rows")
        columns.append(int(index))
        values.append(value)
    return label, columns, values
