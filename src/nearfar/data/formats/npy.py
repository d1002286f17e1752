"""Points in a NumPy .npy file, memory-mapped."""

from pathlib import Path

from nearfar.data.formats.table import Table, one_row_a_point
from nearfar.files import read_npy


def read(source: Path) -> Table:
    """The array of the file as points, without labels."""
    return Table(one_row_a_point(read_npy(source)))
