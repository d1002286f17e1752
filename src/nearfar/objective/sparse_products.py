"""The two products of a batch's sparse rows V: Z = V Lᵀ forward, and G = CᵀV backward, each in its cheapest form.

Three forms, told apart by counting (cost.py): made dense and given to BLAS, where most entries are there; cut into
blocks (sparse_kernels.py), where each column is used many times; else row by row (kernels.py), as memory is the limit.
None touches a column that is not in the rows, whatever the number of features.
"""

import numpy as np
from numpy.typing import NDArray

from nearfar import cost
from nearfar.data.points import Floats, SparseRows
from nearfar.data.scratch import Scratch
from nearfar.objective import kernels, sparse_kernels

Places = NDArray[np.int32]


class TouchedFeatures:
    """Finds the features that stand in some rows; its buffers are kept and used again."""

    def __init__(self, n_features: int) -> None:
        self._scratch = Scratch()
        self._marks = np.zeros(n_features // 64 + 1, np.uint64)

    def of(self, rows: SparseRows) -> Places:
        """The features, rising; valid until it is asked again."""
        touched: Places = self._scratch.array("touched", (min(len(rows.columns), rows.n_features),), np.int32)
        return touched[: kernels.touched_columns(rows.columns, self._marks, touched)]


class SparseProducts:
    """Products for one computing thread; its buffers are kept and used again.

    Parameters
    ----------
    n_features : int
        Columns of all rows to come.
    """

    def __init__(self, n_features: int) -> None:
        self._scratch = Scratch()
        self._place = np.empty(n_features, np.uint32)

    def project(self, rows: SparseRows, features: Places, Lt: Floats, out: Floats) -> None:
        """``out = V Lᵀ`` (rows, k), where the rows have entries in these features only."""
        form = cost.sparse_form(len(rows), len(rows.columns), len(features), out.shape[1])
        if form == "dense":
            whole = len(features) == len(Lt)
            base = Lt if whole else self._take("base", Lt, features)
            np.matmul(self._dense(rows, features), base, out=out)
        elif form == "blocks":
            cut = self._cut(rows, np.arange(len(rows), dtype=np.int32), features, transposed=False)
            sparse_kernels.multiply(cut, sparse_kernels.pack(Lt, features, self._scratch), out, self._scratch)
        else:
            kernels.weighted_sums(rows.starts, rows.columns, rows.values, Lt, out)

    def gradient(self, rows: SparseRows, features: Places, kept: Places, C: Floats, out: Floats) -> None:
        """``out = VᵀC`` (features, k), of the kept rows only; the others have no part in it."""
        form = cost.sparse_form(len(rows), len(rows.columns), len(features), out.shape[1])
        if form == "dense":
            V = self._dense(rows, features)
            if len(kept) < len(rows):
                V, C = self._take("kept rows", V, kept), C[kept]
            np.matmul(V.T, C, out=out)
        elif form == "blocks":
            cut = self._cut(rows, kept, features, transposed=True)
            sparse_kernels.multiply(cut, sparse_kernels.pack(C, kept, self._scratch), out, self._scratch)
        else:
            starts = self._scratch.array("by column starts", (len(features) + 1,), np.int64)
            in_rows = self._scratch.array("by column rows", rows.columns.shape, np.int32)
            values = self._scratch.array("by column values", rows.values.shape)
            kernels.by_column(
                rows.starts, rows.columns, rows.values, kept, features, self._place, starts, in_rows, values
            )
            kernels.weighted_sums(starts, in_rows, values, C, out)

    def _cut(self, rows: SparseRows, kept: Places, features: Places, *, transposed: bool) -> sparse_kernels.CutMatrix:
        kernels.number(features, self._place)
        return sparse_kernels.cut(rows, kept, self._place, len(features), self._scratch, transposed=transposed)

    def _dense(self, rows: SparseRows, features: Places) -> Floats:
        kernels.number(features, self._place)
        dense: Floats = self._scratch.array("dense", (len(rows), len(features)))
        kernels.made_dense(rows.starts, rows.columns, rows.values, self._place, dense)
        return dense

    def _take(self, name: str, array: Floats, chosen: Places) -> Floats:
        out: Floats = self._scratch.array(name, (len(chosen), array.shape[1]))
        return np.take(array, chosen, axis=0, out=out, mode="clip")  # any other mode copies once more
