"""Points in a NumPy .npy file, memory-mapped."""

from collections.abc import Iterator
from pathlib import Path

from nearfar.data.formats.table import Choice, Table, flat_shape, rows_at_once, user_array
from nearfar.data.points import check_shape


def read(source: Path, choice: Choice) -> Iterator[Table]:
    """The array of the file as points, without labels."""
    array = user_array(source)
    shape = flat_shape(array.shape)
    check_shape(shape, array.dtype)
    size = rows_at_once(shape[1], array.dtype)
    for start in range(0, shape[0], size):
        block = array[start : start + size]
        yield Table(block.reshape(-1, shape[1]), size=block.nbytes)
