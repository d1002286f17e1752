"""The two products of a batch's sparse rows V: Z = V Lᵀ forward, and G = CᵀV backward, each in its cheapest form.

Three forms, told apart by counting (cost.py): made dense and given to BLAS, where most entries are there; cut into
blocks (sparse_kernels.py), where each column is used many times; else entry by entry (kernels.py), as memory is the
limit. None touches a column that is not in the rows, whatever the number of features.
"""

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearfar import cost
from nearfar.data.points import Floats, SparseRows
from nearfar.data.scratch import Scratch
from nearfar.objective import kernels, packing, sparse_cut, sparse_kernels

Places = NDArray[np.int32]


class TouchedFeatures:
    """Finds the features that stand in some rows; its buffers are kept and used again."""

    def __init__(self, n_features: int) -> None:
        self._scratch = Scratch()
        self._marks = np.zeros(n_features // 64 + 1, np.uint64)

    def of(self, rows: SparseRows) -> Places:
        """The features, rising; valid until it is asked again."""
        most = min(len(rows.columns), rows.n_features)
        touched: Places = self._scratch.array("touched", (most,), np.int32)
        return touched[: kernels.touched_columns(rows.columns, self._marks, touched)]


class SparseProducts:
    """Products for one computing thread; its buffers are kept and used again.

    Parameters
    ----------
    n_features : int
        Columns of all rows to come.
    rounded : bool
        Whether what is packed may be rounded, see packing.py.
    """

    def __init__(self, n_features: int, *, rounded: bool = False) -> None:
        self._scratch, self._rounded = Scratch(), rounded
        self._codes = np.empty(n_features, np.uint32)

    def of(self, rows: SparseRows, features: Places, rank: int) -> "RowProducts":
        """The products of these rows, which have entries in these features only; valid until it is asked again."""
        form = cost.sparse_form(len(rows), len(rows.columns), len(features), rank)
        return _FORMS[form](rows, features, self._codes, self._scratch, self._rounded)


class SparseProjection:
    """Projects one block of sparse rows after another by the same L. Rows of L are packed once, where most are needed.

    Parameters
    ----------
    Lt : array of shape (features, k)
        L, transposed.
    scratch : Scratch
        Holds the packed rows.
    """

    def __init__(self, Lt: Floats, scratch: Scratch) -> None:
        self._Lt = Lt
        self._products, self._touched = SparseProducts(len(Lt)), TouchedFeatures(len(Lt))
        self._scratch = scratch
        self._order: sparse_cut.ColumnOrder | None = None
        """Of all features, by the first block of rows."""

    def project(self, rows: SparseRows, out: Floats) -> None:
        """``out = V Lᵀ`` (rows, k)."""
        features, rank = self._touched.of(rows), self._Lt.shape[1]
        form = cost.sparse_form(len(rows), len(rows.columns), len(features), rank)
        if form != "blocks" or not cost.are_most_features(len(features), len(self._Lt)):
            self._products.of(rows, features, rank).project(self._Lt, out)
            return
        if self._order is None:
            self._order = order = sparse_cut.order_of_all(rows)
            self._packed = packing.pack(self._Lt, order.columns, order.places, self._scratch)
        sparse_kernels.multiply(sparse_cut.cut(rows, self._order, self._scratch), self._packed, out, self._scratch)


class RowProducts(ABC):
    """The two products of some rows, in one form. What both need is made by the first."""

    def __init__(
        self, rows: SparseRows, features: Places, codes: NDArray[np.uint32], scratch: Scratch, rounded: bool
    ) -> None:
        self.rounded = rounded
        """Whether what is packed is rounded."""
        self._rows, self._features, self._scratch, self._codes = rows, features, scratch, codes

    @abstractmethod
    def project(self, Lt: Floats, out: Floats) -> None:
        """``out = V Lᵀ`` (rows, k)."""

    @abstractmethod
    def gradient(self, kept: Places, C: Floats, out: Floats) -> None:
        """``out = VᵀC`` (features, k), of the kept rows only; the others have no part in it."""

    def _places_of_entries(self) -> NDArray[np.uint32]:
        """For each entry of the rows, the place of its column among the features."""
        rows, n_words = self._rows, self._rows.n_features // 64 + 1
        marks = self._scratch.array("marks", (n_words,), np.uint64)
        before = self._scratch.array("marks before", (n_words,), np.uint32)
        out: NDArray[np.uint32] = self._scratch.array("places", (len(rows.columns),), np.uint32)
        kernels.number(rows.columns, self._features, marks, before, out)
        return out

    def _take(self, name: str, array: Floats, chosen: Places) -> Floats:
        out: Floats = self._scratch.array(name, (len(chosen), array.shape[1]))
        return np.take(array, chosen, axis=0, out=out, mode="clip")  # any other mode copies once more


class _DenseProducts(RowProducts):
    def project(self, Lt: Floats, out: Floats) -> None:
        whole = len(self._features) == len(Lt)
        np.matmul(self._dense, Lt if whole else self._take("base", Lt, self._features), out=out)

    def gradient(self, kept: Places, C: Floats, out: Floats) -> None:
        V = self._dense
        if len(kept) < len(V):
            V, C = self._take("kept rows", V, kept), C[kept]
        np.matmul(V.T, C, out=out)

    @cached_property
    def _dense(self) -> Floats:
        dense: Floats = self._scratch.array("dense", (len(self._rows), len(self._features)))
        kernels.made_dense(self._rows.starts, self._places_of_entries(), self._rows.values, dense)
        return dense


class BlockProducts(RowProducts):
    """In blocks, with packed rows of L: those that the products need, in an order of their own, or all in a given one.

    With a given order (``arrange``) and an L that was packed in it (``take``), L itself is not needed.
    """

    def project(self, Lt: Floats, out: Floats) -> None:
        order = self._order
        self.take(packing.pack(Lt, order.columns, order.places, self._scratch, rounded=self.rounded))
        self.project_packed(out)

    def order_of_all(self) -> sparse_cut.ColumnOrder:
        """An order of all features that suits these rows, and others like them."""
        return sparse_cut.order_of_all(self._rows)

    def arrange(self, order: sparse_cut.ColumnOrder) -> None:
        """Prepare the products in an order of all features; L is not needed for that."""
        self._order = order
        _ = self._cut

    def take(self, packed: packing.Packed) -> None:
        """Take L, packed in the order of these products; it is to stay as it is until it has been projected by."""
        self._packed = packed

    def project_packed(self, out: Floats) -> None:
        """``out = V Lᵀ``, of the L that was taken."""
        sparse_kernels.multiply(self._cut, self._packed, out, self._scratch)

    def gradient(self, kept: Places, C: Floats, out: Floats) -> None:
        turned = sparse_cut.transposed(self._cut, self._order, kept, self._results, self._scratch)
        places = np.arange(len(kept), dtype=np.int32)
        packed = packing.pack(C, kept, places, self._scratch, rounded=self.rounded)
        sparse_kernels.multiply(turned, packed, out, self._scratch)

    @cached_property
    def _order(self) -> sparse_cut.ColumnOrder:
        return sparse_cut.by_frequency(self._rows, self._features, self._codes)

    @property
    def _results(self) -> Places:
        """For each column in its order the row of the gradient; columns that are not in these rows have none."""
        order = self._order
        if len(order.columns) == len(self._features):
            return order.ranks
        rows = self._scratch.array("rows of the gradient", (len(order.columns),), np.int32)
        rows.fill(-1)
        rows[self._features] = np.arange(len(self._features), dtype=np.int32)
        return rows[order.ranks]

    @cached_property
    def _cut(self) -> sparse_cut.CutMatrix:
        return sparse_cut.cut(self._rows, self._order, self._scratch, rounded=self.rounded)


class _EntryProducts(RowProducts):
    """Entry by entry. Of the rows of L and those of Z or C, the fewer are visited in no order, the others in theirs."""

    def project(self, Lt: Floats, out: Floats) -> None:
        rows, features = self._rows, self._features
        if len(rows) < len(features):
            kernels.weighted_sums_by_column(*self._by_column, features, Lt, out)
        else:
            kernels.weighted_sums(rows.starts, rows.columns, rows.values, Lt, out)

    def gradient(self, kept: Places, C: Floats, out: Floats) -> None:
        kernels.weighted_sums(*self._of_kept_rows(kept), C, out)

    @cached_property
    def _by_column(self) -> tuple[NDArray[np.int64], Places, Floats]:
        """Where the entries of each feature begin, their rows, their values."""
        rows, out = self._rows, self._entries("by column")
        kernels.by_column(rows.starts, self._places_of_entries(), rows.values, *out)
        return out

    def _of_kept_rows(self, kept: Places) -> tuple[NDArray[np.int64], Places, Floats]:
        n_rows = len(self._rows)
        if len(kept) == n_rows:
            return self._by_column
        is_kept: NDArray[np.uint8] = np.zeros(n_rows, np.uint8)
        is_kept[kept] = 1
        out = self._entries("by column, kept")
        kernels.of_kept_rows(*self._by_column, is_kept, *out)
        return out

    def _entries(self, name: str) -> tuple[NDArray[np.int64], Places, Floats]:
        count = len(self._rows.columns)
        starts = self._scratch.array(f"{name}: starts", (len(self._features) + 1,), np.int64)
        rows = self._scratch.array(f"{name}: rows", (count + 1,), np.int32)  # one more, as all are written
        return starts, rows, self._scratch.array(f"{name}: values", (count + 1,))


_FORMS: dict[str, type[RowProducts]] = {"dense": _DenseProducts, "blocks": BlockProducts, "entries": _EntryProducts}
