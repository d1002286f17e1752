"""Points in a NumPy .npy file, memory-mapped."""

from pathlib import Path

from nearfar.data.formats.table import Table, one_row_a_point, user_array


def read(source: Path) -> Table:
    """The array of the file as points, without labels."""
    return Table(one_row_a_point(user_array(source)))
