"""Dense points in Parquet: one column of lists of equal length, or columns of numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data.formats.table import BLOCK_BYTES, Choice, Table, chosen_column
from nearfar.errors import InvalidFile, MissingExtra

_ROWS_AT_MOST = 1 << 16


def read(source: Path, choice: Choice) -> Iterator[Table]:
    """The points of the file, with labels and ids from the columns chosen for them.

    If a column holds lists, these are the points, and columns not chosen are left out; otherwise all columns that are
    not chosen must be numbers, and each is a feature.
    """
    try:
        import pyarrow  # noqa: PLC0415 - optional
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("pyarrow is not installed; pip install 'nearfar[parquet]'") from error
    try:
        with pyarrow.parquet.ParquetFile(source) as file:
            yield from _read(source, file, choice)
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidFile(f"{source} is not a complete Parquet file: {reason}") from error


def _read(source: Path, file: Any, choice: Choice) -> Iterator[Table]:
    schema = file.schema_arrow
    label = chosen_column(source, schema.names, choice.label_column, "--label-column")
    identity = chosen_column(source, schema.names, choice.id_column, "--id-column")
    features = _feature_columns(source, schema, {label, identity})
    used = sorted({*features, *(place for place in (label, identity) if place is not None)})
    n_points = max(1, file.metadata.num_rows)
    size = source.stat().st_size / n_points
    bytes_a_row = (
        sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)) / n_points
    )
    n_rows = int(min(_ROWS_AT_MOST, max(1, BLOCK_BYTES // max(1, bytes_a_row))))
    first, width = 0, None
    for batch in file.iter_batches(n_rows, columns=[schema.names[place] for place in used]):
        columns = {place: batch.column(used.index(place)) for place in used}
        for place, column in columns.items():
            _refuse_nulls(source, schema.names[place], column, first)
        if _is_list(schema.types[features[0]]):
            points = _lists(source, schema.names[features[0]], columns[features[0]], first, width)
            width = points.shape[1]
        else:
            points = np.column_stack([_numbers(columns[place]) for place in features])
        yield Table(
            points,
            None if label is None else _words(columns[label]),
            None if identity is None else _words(columns[identity]),
            size=int(size * len(points)),
        )
        first += len(points)
    if not first:
        raise InvalidFile(f"{source} holds no points; expected a row a point")


def _feature_columns(source: Path, schema: Any, chosen: set[int | None]) -> list[int]:
    others = [place for place in range(len(schema.names)) if place not in chosen]
    lists = [place for place in others if _is_list(schema.types[place])]
    if len(lists) > 1:
        names = ", ".join(schema.names[place] for place in lists)
        raise InvalidFile(f"{source} has lists in the columns {names}; expected one: write a file with one of them")
    if lists:
        others = lists
    for place in others:
        kind = schema.types[place].value_type if lists else schema.types[place]
        if not _is_numeric(kind):
            raise InvalidFile(
                f"column {schema.names[place]!r} of {source} holds {kind}; expected numbers: name a column of text "
                "with --label-column or --id-column, or leave it out"
            )
    if not others:
        raise InvalidFile(f"{source} has no column left for points; expected lists, or columns of numbers")
    return others


def _is_list(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415 - optional

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_numeric(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415 - optional

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _numbers(column: Any) -> NDArray[Any]:
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _words(column: Any) -> NDArray[Any]:
    """Labels or ids: numbers as they are, anything else as text."""
    values = _numbers(column)
    return values if values.dtype.kind in "iufb" else np.array([str(value) for value in values], np.str_)


def _lists(source: Path, name: str, column: Any, first: int, width: int | None) -> NDArray[Any]:
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    width = int(lengths[0]) if width is None else width
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        raise InvalidFile(
            f"{source}, row {first + int(wrong[0])}: the list in column {name!r} has length {int(lengths[wrong[0]])}, "
            f"but those before have {width}; expected lists of equal length"
        )
    flat = column.flatten()
    if flat.null_count:
        place = int(np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidFile(
            f"{source}, row {first + place // max(1, width)}: a number is missing in column {name!r}; fill or drop it"
        )
    return _numbers(flat).reshape(len(lengths), width)


def _refuse_nulls(source: Path, name: str, column: Any, first: int) -> None:
    if column.null_count:
        row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidFile(f"{source}, row {row}: column {name!r} is empty; fill or drop such rows")
