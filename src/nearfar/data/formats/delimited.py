"""Lines of fields, split by compiled loops: the ground of CSV, TSV and constraints in text.

Where a line cannot be split into the fields expected, or a field is no plain number, Python looks at it closely: it
passes over what may be passed over, reads what it can, and otherwise says ``file:line: reason``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.data.formats.text import (
    BLANK,
    COMMENT,
    NEWLINE,
    RETURN,
    TAB,
    Bytes,
    decoded,
    line_at,
    number,
    parsed_number,
    past_blanks,
    past_line,
    text_blocks,
)
from nearfar.errors import InvalidFile

Array = NDArray[Any]

LOOSE = 0
"""In place of a delimiter: fields are apart by blanks or tabs, or by commas; ``#`` begins a comment."""

_COMMA, _QUOTE, _MINUS, _ZERO, _NINE = 44, 34, 45, 48, 57
_MOST_PLAIN_DIGITS = 18
_LARGEST_WHOLE_FLOAT = 2**53


@dataclass(frozen=True)
class Fields:
    """Some lines of a file, split into as many fields each."""

    path: Path
    text: Bytes
    spans: NDArray[np.int32]
    """Where each field begins and ends in the text: (lines, fields, 2)."""
    lines: NDArray[np.int64]
    """The number of each line in the file, from 1."""

    def __len__(self) -> int:
        return len(self.spans)

    def place(self, row: int) -> str:
        """Where a row is, in the words an editor knows."""
        return f"{self.path}:{self.lines[row]}"

    def word(self, row: int, column: int) -> str:
        """The text of one field."""
        return decoded(self.text, *self.spans[row, column])

    def numbers(self, columns: list[int], expected: str) -> NDArray[np.float64]:
        """These columns as numbers, or an error that says which field is none, and what was expected."""
        out, wanted = np.empty((len(self), len(columns))), np.array(columns, np.int64)
        start = 0
        while (start := _convert(self.text, self.spans, wanted, out, start)) < out.size:
            row, place = divmod(start, len(columns))
            value = parsed_number(self.word(row, columns[place]))
            if value is None:
                raise InvalidFile(f"{self.place(row)}: {self.word(row, columns[place])!r} is not {expected}")
            out[row, place] = value
            start += 1
        return out

    def whole_numbers(self, column: int, expected: str) -> NDArray[np.int64]:
        """One column as whole numbers, or an error that says which field is none, and what was expected."""
        whole = np.empty(len(self), np.int64)
        if _plain_whole(self.text, self.spans[:, column], whole):
            return whole
        numbers = self.numbers([column], f"a whole number; {expected}")[:, 0]
        wrong = np.flatnonzero(~((np.abs(numbers) < _LARGEST_WHOLE_FLOAT) & (numbers == np.rint(numbers))))
        if len(wrong):
            row = int(wrong[0])
            raise InvalidFile(f"{self.place(row)}: {self.word(row, column)!r} is not a whole number; {expected}")
        return numbers.astype(np.int64)

    def words(self, column: int) -> Array:
        """One column as whole numbers if all of it, plainly written, are such, else as text."""
        spans = self.spans[:, column]
        empty = np.flatnonzero(spans[:, 0] == spans[:, 1])
        if len(empty):
            raise InvalidFile(f"{self.place(int(empty[0]))}: column {column} is empty; expected a label or an id")
        whole = np.empty(len(self), np.int64)
        if _plain_whole(self.text, spans, whole):
            return whole
        letters = np.zeros((len(self), max(1, int((spans[:, 1] - spans[:, 0]).max()))), np.uint8)
        _copy_letters(self.text, spans, letters)
        if letters.max() < 128:  # one byte a letter, so each can be widened by itself
            return letters.astype(np.uint32).view(f"U{letters.shape[1]}")[:, 0]
        return np.char.decode(letters.view(f"S{letters.shape[1]}")[:, 0], "utf-8", "replace")


def split_lines(
    path: Path, delimiter: int, width: int, skip: int, refuse: Callable[[str, str], None]
) -> Iterator[Fields]:
    """The lines after the first ``skip`` as fields, block by block.

    A line that is not ``width`` fields goes to ``refuse`` with its place, which raises or lets it be passed over.
    """
    line = 0
    for text in text_blocks(path):
        position, row = 0, 0
        while line < skip and position < len(text):
            position, line = line_at(text, position)[1], line + 1
        most = len(text) // width + 1
        spans, lines = np.empty((most, width, 2), np.int32), np.empty(most, np.int64)
        while position < len(text):
            position, row, line = _split(text, position, delimiter, spans, lines, row, line)
            if position < len(text):
                line += 1
                refused, position = line_at(text, position)
                refuse(refused, f"{path}:{line}")
        yield Fields(path, text, spans[:row], lines[:row])


def fields_of(line: str, delimiter: int) -> list[str]:
    """The fields of one line, as :func:`split_lines` finds them."""
    if delimiter == LOOSE:
        line = line.split("#", maxsplit=1)[0].strip()
        return [field.strip() for field in line.split(",")] if "," in line else line.split()
    fields = [field.strip() for field in line.split(chr(delimiter))] if line.strip() else []
    return [field[1:-1] if len(field) > 1 and field[0] == field[-1] == '"' else field for field in fields]


@compiled()
def _split(
    text: Bytes, position: int, delimiter: int, spans: Array, lines: Array, row: int, line: int
) -> tuple[int, int, int]:
    """Split lines from ``position`` on, up to one that needs a closer look; where that is, and how many were read."""
    while position < len(text):
        if delimiter == LOOSE:
            i, n_fields = _split_loose(text, position, spans[row])
        else:
            i, n_fields = _split_strict(text, position, delimiter, spans[row])
        if n_fields not in (0, spans.shape[1]):
            return position, row, line
        position = past_line(text, i)
        line += 1
        if n_fields > 0:
            lines[row] = line
            row += 1
    return position, row, line


@compiled()
def _split_loose(text: Bytes, i: int, spans: Array) -> tuple[int, int]:
    """Split one line at blanks, or at commas; its end and the number of fields, -1 if they are not as many as spans."""
    field, commas, apart_by_blanks = 0, 0, False
    while True:
        i = past_blanks(text, i)
        if text[i] == _COMMA and field > commas:
            commas += 1
            i += 1
            continue
        if text[i] == NEWLINE or text[i] == COMMENT:
            break
        if field == len(spans):
            return i, -1
        apart_by_blanks = apart_by_blanks or commas < field
        spans[field, 0] = i
        while text[i] not in (BLANK, TAB, RETURN, NEWLINE, _COMMA, COMMENT):
            i += 1
        spans[field, 1] = i
        field += 1
    sound = field == 0 or (field == len(spans) and commas == (0 if apart_by_blanks else field - 1))
    return i, field if sound else -1


@compiled()
def _split_strict(text: Bytes, i: int, delimiter: int, spans: Array) -> tuple[int, int]:
    """Split one line at each delimiter; its end and the number of fields, -1 if they are not as many as spans."""
    i = _within(text, i, delimiter)
    if text[i] == NEWLINE:
        return i, 0
    for field in range(len(spans)):
        i = _within(text, i, delimiter)
        quoted = text[i] == _QUOTE
        start = i = i + 1 if quoted else i
        while text[i] != NEWLINE and text[i] != (_QUOTE if quoted else delimiter):
            i += 1
        end = i
        if quoted:
            i = _within(text, i + 1, delimiter) if text[i] == _QUOTE else i
            quoted = text[end] == _QUOTE
            if not quoted:
                return i, -1
        else:
            while end > start and text[end - 1] in (BLANK, TAB, RETURN):
                end -= 1
        spans[field, 0], spans[field, 1] = start, end
        if text[i] != (NEWLINE if field == len(spans) - 1 else delimiter):
            return i, -1
        i += 1
    return i - 1, len(spans)


@compiled()
def _within(text: Bytes, i: int, delimiter: int) -> int:
    """Where the blanks from ``i`` on end, or a delimiter, which may be one of them, stands."""
    while text[i] != delimiter and (text[i] == BLANK or text[i] == TAB or text[i] == RETURN):
        i += 1
    return i


@compiled()
def _convert(text: Bytes, spans: Array, columns: Array, out: Array, start: int) -> int:
    """Fill ``out`` with numbers, from its entry ``start`` on; the entry that needs a closer look is returned."""
    first = start // len(columns)
    for row in range(first, out.shape[0]):
        for place in range(start - first * len(columns) if row == first else 0, len(columns)):
            span = spans[row, columns[place]]
            value, clear = number(text, span[0], span[1])
            if not clear:
                return row * len(columns) + place
            out[row, place] = value
    return out.size


@compiled()
def _plain_whole(text: Bytes, spans: Array, out: Array) -> bool:
    """Whether all fields are whole numbers that print as they are written; ``out`` receives them."""
    for row in range(len(out)):
        start, end = spans[row, 0], spans[row, 1]
        negative = start < end and text[start] == _MINUS
        first = start + 1 if negative else start
        if first == end or end - first > _MOST_PLAIN_DIGITS or (text[first] == _ZERO and (end - first > 1 or negative)):
            return False
        value = 0
        for i in range(first, end):
            if not _ZERO <= text[i] <= _NINE:
                return False
            value = 10 * value + text[i] - _ZERO
        out[row] = -value if negative else value
    return True


@compiled()
def _copy_letters(text: Bytes, spans: Array, out: Array) -> None:
    for row in range(len(out)):
        for i in range(spans[row, 1] - spans[row, 0]):
            out[row, i] = text[spans[row, 0] + i]
