"""Sparse points and labels as Petuum's metric learning reads them: ``label nnz id:value ...``, ids from 0."""

from collections.abc import Iterator
from pathlib import Path

from nearfar.data.formats.svmlight import read_lines
from nearfar.data.formats.table import Choice, Table


def read(source: Path, choice: Choice) -> Iterator[Table]:
    """The points and labels of the file; each line says how many entries it has."""
    yield from read_lines(source, counted=True)
