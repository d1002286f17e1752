"""What a reader returns: points, and labels where the file has them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.errors import InvalidFile
from nearfar.files import read_npy


@dataclass(frozen=True)
class Table:
    """Points, one row each (an array, maybe memory-mapped, or a CSR matrix), and one label a point if any."""

    points: NDArray[Any] | sp.csr_matrix
    labels: NDArray[Any] | None = None


def user_array(path: Path) -> NDArray[Any]:
    """The array of a user's .npy file, memory-mapped, or an error that says how to mend the file."""
    try:
        return read_npy(path)
    except InvalidFile as error:
        if "Python objects" in str(error):
            raise InvalidFile(
                f"{path} holds Python objects, which are never unpickled; save it as numbers or as text (.astype(str))"
            ) from error
        raise InvalidFile(f"{error}; expected an array that np.save wrote") from error


def one_row_a_point(array: NDArray[Any]) -> NDArray[Any]:
    """Points of more than one dimension each, such as images, made flat: (n, 28, 28) becomes (n, 784)."""
    return array.reshape(len(array), -1) if array.ndim > 2 and array.size else array
