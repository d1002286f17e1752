"""Losses: each gives its value and its slope for squared distances, and nothing more.

A loss of your own is one small class: derive from :class:`PairLoss`, :class:`ComparisonLoss` or :class:`BlockLoss`,
write the one or two methods it asks for, and hand an instance to ``nf.train(..., loss=...)``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import InvalidSettings

Floats = NDArray[np.floating[Any]]

ValuesAndSlopes = tuple[Floats, Floats]


@dataclass(frozen=True)
class PairLoss(ABC):
    """A loss of similar and dissimilar pairs: mean over similar + ``weight`` · mean over dissimilar.

    Both methods take squared distances s and return, for each, the value and the slope ∂value/∂s.
    """

    margin: float = 1.0
    weight: float = 1.0

    @abstractmethod
    def similar(self, s: Floats) -> ValuesAndSlopes: ...

    @abstractmethod
    def dissimilar(self, s: Floats) -> ValuesAndSlopes: ...


@dataclass(frozen=True)
class Hinge(PairLoss):
    """The paper's Eq. 4: s for similar pairs, max(0, c - s) for dissimilar ones."""

    def similar(self, s: Floats) -> ValuesAndSlopes:
        return s, np.ones_like(s)

    def dissimilar(self, s: Floats) -> ValuesAndSlopes:
        return np.maximum(self.margin - s, 0), np.where(s < self.margin, s.dtype.type(-1), s.dtype.type(0))


@dataclass(frozen=True)
class Logistic(PairLoss):
    """log(1 + exp(s - c)) for similar pairs, log(1 + exp(c - s)) for dissimilar ones."""

    margin: float = 5.0

    def similar(self, s: Floats) -> ValuesAndSlopes:
        return _softplus_and_slope(s - s.dtype.type(self.margin))

    def dissimilar(self, s: Floats) -> ValuesAndSlopes:
        values, slopes = _softplus_and_slope(s.dtype.type(self.margin) - s)
        return values, np.negative(slopes, out=slopes)


@dataclass(frozen=True)
class ComparisonLoss(ABC):
    """A loss of comparisons: the mean over (near pair, far pair) of a function of their two squared distances."""

    margin: float = 1.0

    @abstractmethod
    def compare(self, near: Floats, far: Floats) -> tuple[Floats, Floats, Floats]:
        """For each comparison: the value, the slope in the near distance, the slope in the far distance."""


@dataclass(frozen=True)
class ComparisonHinge(ComparisonLoss):
    """max(0, c + s(near) - s(far))."""

    def compare(self, near: Floats, far: Floats) -> tuple[Floats, Floats, Floats]:
        gap = near.dtype.type(self.margin) + near - far
        slopes = (gap > 0).astype(near.dtype)
        return np.maximum(gap, 0), slopes, -slopes


class BlockLoss(ABC):
    """A loss of all squared distances among the points of a block."""

    @abstractmethod
    def block(self, s: Floats, layout: "BlockLayout") -> tuple[float, Floats]:
        """The value, and the slope in every entry of the square matrix ``s``.

        ``layout`` says which entries belong to one class; every point has a partner of its own class. The slopes on the
        diagonal are ignored. ``s`` may be overwritten.
        """


@dataclass(frozen=True)
class Neighbour(BlockLoss):
    """Neighbourhood components: the mean of -log of the share of softmax(-s) that falls on the anchor's own class."""

    def block(self, s: Floats, layout: "BlockLayout") -> tuple[float, Floats]:
        np.fill_diagonal(s, np.inf)
        # An anchor's own class and all other points each have their own exponent, so that neither share vanishes,
        # however far the points are.
        own_shares, own_logs = [], []
        for run in layout.runs:
            own = s[run, run]
            nearest_own = own.min(axis=1, keepdims=True)
            own = np.exp(nearest_own - own)
            total = own.sum(axis=1, keepdims=True)
            own_shares.append(own / total)
            own_logs.append(np.log(total) - nearest_own)
        nearest = s.min(axis=1, keepdims=True)
        np.subtract(nearest, s, out=s)
        slopes = np.exp(s, out=s)
        total = slopes.sum(axis=1, keepdims=True)
        values = np.log(total) - nearest - np.concatenate(own_logs)
        slopes /= -len(s) * total
        for run, own in zip(layout.runs, own_shares, strict=True):
            slopes[run, run] += own / s.dtype.type(len(s))
        return float(values.mean()), slopes


Loss = PairLoss | ComparisonLoss | BlockLoss


def value_and_slopes(
    loss: PairLoss | ComparisonLoss, near: Floats, far: Floats, weights: Floats | None = None
) -> tuple[float, Floats, Floats]:
    """The objective of a batch, and its slope in each squared distance; an empty half adds nothing.

    Weights are one a comparison, or one a pair with those of near pairs first. Their mean over all constraints is 1,
    so a batch is divided by how many it has, not by what its own weights add up to.
    """
    if isinstance(loss, ComparisonLoss):
        values, near_slopes, far_slopes = loss.compare(near, far)
        count = near.dtype.type(max(1, len(values)))
        if weights is not None:
            values, near_slopes, far_slopes = weights * values, weights * near_slopes, weights * far_slopes
        return float(values.sum()) / float(count), near_slopes / count, far_slopes / count
    near_values, near_slopes = loss.similar(near)
    far_values, far_slopes = loss.dissimilar(far)
    if weights is not None:
        of_near, of_far = weights[: len(near)], weights[len(near) :]
        near_values, near_slopes = of_near * near_values, of_near * near_slopes
        far_values, far_slopes = of_far * far_values, of_far * far_slopes
    near_share, far_share = 1.0 / max(1, len(near)), loss.weight / max(1, len(far))
    value = near_share * float(near_values.sum()) + far_share * float(far_values.sum())
    return value, near_slopes * near.dtype.type(near_share), far_slopes * far.dtype.type(far_share)


def block_value_and_slopes(loss: PairLoss | BlockLoss, s: Floats, sizes: tuple[int, ...]) -> tuple[float, Floats]:
    """The objective of a block, and its slope in every entry of the matrix of squared distances.

    A pair loss is taken over all pairs i < j, similar where both are of one class. ``s`` may be overwritten.
    """
    layout = block_layout(sizes)
    if isinstance(loss, BlockLoss):
        return loss.block(s, layout)
    flat = s.reshape(-1)
    value, near_slopes, far_slopes = value_and_slopes(loss, flat[layout.similar], flat[layout.dissimilar])
    slopes = np.zeros_like(s)
    slopes.reshape(-1)[layout.similar] = near_slopes
    slopes.reshape(-1)[layout.dissimilar] = far_slopes
    return value, slopes


@dataclass(frozen=True)
class BlockLayout:
    """Where the pairs of a block stand in its matrix of distances."""

    runs: tuple[slice, ...]
    """The points of each class."""
    similar: NDArray[np.intp]
    """Flat positions of the pairs i < j of one class."""
    dissimilar: NDArray[np.intp]
    """Flat positions of the pairs i < j of two classes."""


@lru_cache(maxsize=8)
def block_layout(sizes: tuple[int, ...]) -> BlockLayout:
    """The layout of a block with these class sizes; most blocks of a run have the same one."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    rows, columns = np.triu_indices(len(codes), 1)
    positions, same = rows * len(codes) + columns, codes[rows] == codes[columns]
    ends = np.cumsum(sizes).tolist()
    runs = tuple(slice(end - size, end) for size, end in zip(sizes, ends, strict=True))
    return BlockLayout(runs, positions[same], positions[~same])


def make_loss(name: str, margin: float | None, weight: float) -> Loss:
    """The loss with this name; a margin of None is the loss's own."""
    given: dict[str, float] = {} if margin is None else {"margin": margin}
    if name == "hinge":
        return Hinge(weight=weight, **given)
    if name == "logistic":
        return Logistic(weight=weight, **given)
    if name == "comparison":
        return ComparisonHinge(**given)
    if name == "neighbour":
        if margin is not None:
            raise InvalidSettings("the neighbour loss has no margin; leave it out")
        return Neighbour()
    raise InvalidSettings(f"loss is {name!r}; expected hinge, logistic, comparison or neighbour")


def _softplus_and_slope(x: Floats) -> ValuesAndSlopes:
    """log(1 + exp(x)) and its derivative, without overflow; x is overwritten."""
    small = np.exp(-np.abs(x))
    slopes = np.where(x > 0, x.dtype.type(1), small)
    small += 1
    slopes /= small
    values = np.maximum(x, 0, out=x)
    values += np.log(small, out=small)
    return values, slopes
