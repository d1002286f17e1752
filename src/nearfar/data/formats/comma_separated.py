"""Dense points in CSV or TSV: numbers in columns, maybe a header, maybe a column of labels and one of ids."""

from collections.abc import Iterator
from pathlib import Path

from nearfar.data.formats.delimited import Fields, fields_of, split_lines
from nearfar.data.formats.table import Choice, Table, chosen_column
from nearfar.data.formats.text import line_at, parsed_number, text_blocks
from nearfar.errors import InvalidFile


def read_commas(source: Path, choice: Choice) -> Iterator[Table]:
    """The numeric columns of a CSV file as points."""
    yield from _read(source, choice, ord(","))


def read_tabs(source: Path, choice: Choice) -> Iterator[Table]:
    """The numeric columns of a TSV file as points."""
    yield from _read(source, choice, ord("\t"))


def _read(source: Path, choice: Choice, delimiter: int) -> Iterator[Table]:
    skip, first = _first_line(source, delimiter)
    asked = {choice.label_column, choice.id_column} - {None}
    has_header = not any(parsed_number(field) is not None for field in first) or bool(asked & set(first))
    names = first if has_header else [str(place) for place in range(len(first))]
    label = chosen_column(source, names, choice.label_column, "--label-column")
    identity = chosen_column(source, names, choice.id_column, "--id-column")
    features = [place for place in range(len(names)) if place not in (label, identity)]
    if not features:
        raise InvalidFile(f"{source} has no column left for points; expected at least one of numbers")

    def refuse(line: str, place: str) -> None:
        found = len(fields_of(line, delimiter))
        if found == len(names):
            raise InvalidFile(f"{place}: a quoted field does not end where it should; write it without quotes in it")
        raise InvalidFile(f"{place}: {found} columns; expected {len(names)}, as in the first line")

    n_points = 0
    for fields in split_lines(source, delimiter, len(names), skip if has_header else skip - 1, refuse):
        if len(fields):
            n_points += len(fields)
            yield _table(fields, features, label, identity)
    if not n_points:
        raise InvalidFile(f"{source} holds no points; expected a line of numbers a point")


def _table(fields: Fields, features: list[int], label: int | None, identity: int | None) -> Table:
    expected = "a number; fill in what is missing, and name columns of text with --label-column or --id-column"
    return Table(
        fields.numbers(features, expected),
        None if label is None else fields.words(label),
        None if identity is None else fields.words(identity),
        size=len(fields.text),
    )


def _first_line(source: Path, delimiter: int) -> tuple[int, list[str]]:
    """The number and the fields of the first line that is not empty."""
    number = 0
    for text in text_blocks(source):
        position = 0
        while position < len(text):
            line, position = line_at(text, position)
            number += 1
            if fields := fields_of(line, delimiter):
                return number, fields
    raise InvalidFile(f"{source} holds no points; expected a line of numbers a point")
