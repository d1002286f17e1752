"""What a reader returns: points, and labels where the file has them."""

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
from numpy.typing import NDArray


@dataclass(frozen=True)
class Table:
    """Points, one row each (an array, maybe memory-mapped, or a CSR matrix), and one label a point if any."""

    points: NDArray[Any] | sp.csr_matrix
    labels: NDArray[Any] | None = None


def one_row_a_point(array: NDArray[Any]) -> NDArray[Any]:
    """Points of more than one dimension each, such as images, made flat: (n, 28, 28) becomes (n, 784)."""
    return array.reshape(len(array), -1) if array.ndim > 2 and array.size else array
