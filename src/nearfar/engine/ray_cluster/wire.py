"""What travels between processes: pushes and rows of L as plain arrays, in float32 or in bfloat16.

A push goes to every server with what falls on that server's features: as rows of the gradient (all features, or the
touched ones with their numbers), or as factors that the server multiplies out. Each says by itself how to read it.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.compiled import compiled
from nearfar.data.points import Floats, SparseRows
from nearfar.data.scratch import Scratch
from nearfar.engine.ray_cluster.shared_slots import SharedSlots
from nearfar.objective.fast_gradient import Factors, Gradient, columns_of
from nearfar.parameter_server.messages import Form, Push

Precision = Literal["float32", "bfloat16"]
Array = NDArray[Any]


@dataclass(frozen=True)
class SentPush:
    """A push as it travels to one server."""

    push: Push
    """Without its gradient."""
    arrays: tuple[Array, ...]
    """``(values,)`` for all features of the server, ``(features, values)`` for some, ``(rows, C)`` for dense factors,
    ``(values, columns, starts, C)`` for sparse ones; nothing for values that are in shared memory."""
    n_features: int
    slot: int | None = None
    """Where in the memory shared with the server the values of all features are."""


def send(push: Push, features: range, precision: Precision, slot: int | None = None) -> SentPush:
    """What of a push goes to the server that owns these features: nothing but the slot, if it shares that memory."""
    assert push.gradient is not None
    form: Form
    arrays: tuple[Array, ...]
    if isinstance(push.gradient, Factors):
        arrays, form = _factors(push.gradient, features, precision), "factors"
    else:
        part = push.gradient.part(features)
        if slot is not None:
            header = replace(push, gradient=None, release=nothing, form="dense", nbytes=part.values.nbytes)
            return SentPush(header, (), len(features), slot)
        whole, values = len(part.features) == len(features), shorten(part.values, precision)
        arrays, form = ((values,), "dense") if whole else ((part.features, values), "columns")
    nbytes = sum(array.nbytes for array in arrays)
    return SentPush(replace(push, gradient=None, release=nothing, form=form, nbytes=nbytes), arrays, len(features))


def received(sent: SentPush, first_feature: int, shared: SharedSlots | None = None) -> Push:
    """The push again, as a server takes it: with features counted over all servers. Values in a slot stay there."""
    start = np.int32(first_feature)
    gradient: Gradient | Factors
    if sent.push.form == "dense":
        every = np.arange(start, start + sent.n_features, dtype=np.int32)
        if shared is not None and sent.slot is not None:
            values = shared[sent.slot][first_feature : first_feature + sent.n_features]
        else:
            values = lengthened(sent.arrays[0])
        gradient = Gradient(every, values, Scratch())
    elif sent.push.form == "columns":
        gradient = Gradient(sent.arrays[0] + start, lengthened(sent.arrays[1]), Scratch())
    else:
        gradient = _ShardFactors(*_read_factors(sent))
    return replace(sent.push, gradient=gradient)


class _ShardFactors(Factors):
    """Factors whose features are counted from the start of the one server's range."""

    def part(self, features: range) -> Gradient:
        return super().part(range(len(features)))


def _factors(factors: Factors, features: range, precision: Precision) -> tuple[Array, ...]:
    C = shorten(factors.C, precision)
    if isinstance(factors.rows, SparseRows):
        rows = columns_of(factors.rows, features)
        return shorten(rows.values, precision), rows.columns, rows.starts, C
    part = np.ascontiguousarray(factors.rows[:, features.start : features.stop])
    return shorten(part, precision), C


def _read_factors(sent: SentPush) -> tuple[Floats | SparseRows, NDArray[np.int32], Floats]:
    *of_rows, C = sent.arrays
    if len(of_rows) == 1:
        return lengthened(of_rows[0]), np.arange(sent.n_features, dtype=np.int32), lengthened(C)
    values, columns, starts = of_rows
    rows = SparseRows(lengthened(values), columns, starts, sent.n_features)
    return rows, np.unique(columns), lengthened(C)


def shorten(values: Floats, precision: Precision) -> Array:
    """The numbers as they travel: bfloat16 is the upper half of a float32, as an uint16, rounded to even."""
    if precision == "float32":
        return values
    short = np.empty(values.shape, np.uint16)
    _upper_halves(np.ascontiguousarray(values).reshape(-1).view(np.uint32), short.reshape(-1))
    return short


def lengthened(values: Array) -> Floats:
    """The numbers as float32 again."""
    if values.dtype != np.uint16:
        return values
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


@compiled()
def _upper_halves(bits: Array, out: Array) -> None:
    for i in range(len(bits)):
        one = bits[i]
        if (one & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000):
            out[i] = np.uint16(0x7FC0)  # a NaN stays one: its lower half may be all it has
        else:
            out[i] = np.uint16((one + np.uint32(0x7FFF) + ((one >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


def nothing() -> None:
    """A push that has travelled has no memory to give back."""
