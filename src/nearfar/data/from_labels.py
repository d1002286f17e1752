"""Drawing constraints from class labels, or from overlapping groups: evenly, and never on the wrong side."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from nearfar.data import draw
from nearfar.data.constraints import Comparisons, Groups, Labels, Pairs
from nearfar.errors import InvalidConstraints

_SIMILAR, _DISSIMILAR, _FAR, _BLOCK = range(4)


class _Groups:
    """Points group by group: what similar pairs are drawn from, be the groups classes or overlapping."""

    def __init__(self, order: NDArray[np.integer[Any]], starts: NDArray[np.int64]) -> None:
        self._order, self._starts = order, starts
        self.sizes = np.diff(starts)
        self._similar = np.cumsum(self.sizes * (self.sizes - 1))

    @property
    def n_similar(self) -> int:
        """How many similar pairs there are to draw from; one that shares several groups counts for each."""
        return int(self._similar[-1]) // 2 if len(self._similar) else 0

    def similar(self, count: int, seed: int, first: int = 0) -> NDArray[np.int64]:
        """Similar pairs number ``first`` to ``first + count`` of this seed's stream, evenly from all there are."""
        if count and not self.n_similar:
            raise InvalidConstraints(
                "no class or group has two points, so there is no similar pair to draw; give larger ones"
            )
        out = np.empty((count, 2), np.int64)
        if count:
            key = draw.stream_key(seed, _SIMILAR, 0)
            draw.similar_pairs(self._order, self._starts, self._similar, key, first, out)
        return out


def pairs_of_sizes(sizes: NDArray[np.int64]) -> tuple[int, int]:
    """How many similar and how many dissimilar pairs there are among classes of these sizes, each counted once."""
    return int((sizes * (sizes - 1)).sum()) // 2, int((sizes * (sizes.sum() - sizes)).sum()) // 2


class LabelDraws(_Groups):
    """Draws of pairs, triplets and blocks from class labels; a draw is a pure function of (seed, position).

    Parameters
    ----------
    labels : Labels
        The class of every point.
    among : array of int, optional
        The points that may be drawn; all by default.
    """

    def __init__(self, labels: Labels, among: NDArray[np.integer[Any]] | None = None) -> None:
        self._codes = labels.codes
        chosen = np.arange(len(labels)) if among is None else np.asarray(among)
        codes = labels.codes[chosen]
        order: NDArray[np.integer[Any]] = chosen[np.argsort(codes, kind="stable")].astype(
            np.int32 if len(labels) < 1 << 31 else np.int64
        )
        counts = np.bincount(codes, minlength=len(labels.classes))
        super().__init__(order, np.concatenate(([0], np.cumsum(counts))))
        self._dissimilar = np.cumsum(self.sizes * (len(chosen) - self.sizes))
        self.n_points = len(chosen)
        self.n_classes = int((self.sizes > 0).sum())
        self.n_blockable_classes = int((self.sizes > 1).sum())
        self.n_blockable = int(self.sizes[self.sizes > 1].sum())
        """Points that have a partner of their class, and so may stand in a block."""

    @property
    def n_dissimilar(self) -> int:
        """How many dissimilar pairs there are to draw from, each counted once."""
        return int(self._dissimilar[-1]) // 2

    def dissimilar(self, count: int, seed: int, first: int = 0) -> NDArray[np.int64]:
        """Dissimilar pairs number ``first`` to ``first + count`` of this seed's stream, evenly from all there are."""
        if count and not self.n_dissimilar:
            raise InvalidConstraints(
                "there is one class only, so there is no dissimilar pair to draw; give two or more"
            )
        out = np.empty((count, 2), np.int64)
        if count:
            key = draw.stream_key(seed, _DISSIMILAR, 0)
            draw.dissimilar_pairs(self._order, self._starts, self._dissimilar, key, first, out)
        return out

    def triplets(self, count: int, seed: int, first: int = 0) -> NDArray[np.int64]:
        """Triplets (anchor, near, far): a similar pair, and an evenly drawn point of another class."""
        if count and not self.n_dissimilar:
            raise InvalidConstraints("there is one class only, so there is no far point to draw; give two or more")
        out = np.empty((count, 3), np.int64)
        out[:, :2] = self.similar(count, seed, first)
        if count:
            key = draw.stream_key(seed, _FAR, 0)
            draw.far_points(self._order, self._starts, self._codes, key, first, out)
        return out

    def block(
        self, size: int, per_class: int, seed: int, shard: int, clock: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """At most ``size`` points, class by class, and how many of each class; no class has fewer than two."""
        points, sizes = np.empty(size, np.int64), np.empty(size, np.int64)
        key = draw.stream_key(seed ^ _BLOCK << 60, shard, clock)
        used = draw.block_points(self._order, self._starts, per_class, key, points, sizes)
        return points[: sizes[:used].sum()], sizes[:used]


class GroupDraws(_Groups):
    """Draws of pairs from overlapping groups: similar points share a group, dissimilar ones share none.

    A pair that shares several groups is drawn as similar that many times as often; points in no group are not drawn.

    Parameters
    ----------
    groups : Groups, or array or sparse matrix (n points, n groups)
        Non-zero where a point belongs to a group.
    among : array of int, optional
        The points that may be drawn; all by default.
    """

    def __init__(self, groups: Any, among: NDArray[np.integer[Any]] | None = None) -> None:
        rows = (groups if isinstance(groups, Groups) else Groups(groups)).membership
        if among is not None:
            chosen = np.zeros(rows.shape[0])
            chosen[among] = 1
            rows = sp.csr_matrix(sp.diags(chosen) @ rows)
            rows.eliminate_zeros()
            rows.sort_indices()
        members = rows.tocsc()
        super().__init__(members.indices, members.indptr.astype(np.int64))
        self._indptr, self._groups = rows.indptr, rows.indices
        self._grouped = np.flatnonzero(np.diff(rows.indptr))
        self.n_points = len(self._grouped)
        """Points in a group."""

    @property
    def has_dissimilar(self) -> bool:
        """Whether points that share no group are found."""
        try:
            self.dissimilar(1, 0)
        except InvalidConstraints:
            return False
        return True

    def dissimilar(self, count: int, seed: int, first: int = 0) -> NDArray[np.int64]:
        """Dissimilar pairs number ``first`` to ``first + count`` of this seed's stream."""
        out = np.full((count, 2), draw.NOT_FOUND, np.int64)
        if count and len(self._grouped) > 1:
            key = draw.stream_key(seed, _DISSIMILAR, 0)
            draw.apart_pairs(self._grouped, self._indptr, self._groups, key, first, out)
        if (out == draw.NOT_FOUND).any():
            raise InvalidConstraints(
                "nearly all points share a group: no dissimilar pair was found in 10,000 draws; leave out large groups"
            )
        return out


def draw_pairs(draws: LabelDraws | GroupDraws, n_similar: int, n_dissimilar: int, seed: int = 0) -> Pairs:
    """Draw pairs, with replacement."""
    return Pairs(draws.similar(n_similar, seed), draws.dissimilar(n_dissimilar, seed))


def draw_triplets(draws: LabelDraws, count: int, seed: int = 0) -> Comparisons:
    """Draw triplets, with replacement."""
    return Comparisons(draws.triplets(count, seed))
