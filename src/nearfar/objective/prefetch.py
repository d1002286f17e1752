"""Asking for memory before it is needed, where compiled loops go to places that the processor cannot foresee."""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from nearfar.objective.vectors import WORD

LINE = 64
"""Bytes of memory that caches move at a time."""


def emit_prefetch(builder: Any, address: Any, *, nearest: bool) -> None:
    """Ask for a line of memory to be brought to the nearest cache, or to the second; nothing waits for it."""
    pointer = ir.IntType(8).as_pointer()
    prefetch = builder.module.declare_intrinsic(
        "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, WORD, WORD, WORD])
    )
    to_read, locality, data = 0, 3 if nearest else 2, 1
    options = [ir.Constant(WORD, option) for option in (to_read, locality, data)]
    builder.call(prefetch, [builder.inttoptr(address, pointer), *options])


def _prefetcher() -> Any:
    @intrinsic
    def prefetch(_typing: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            emit_prefetch(builder, arguments[0], nearest=True)
            return context.get_dummy_value()

        return types.void(address), emit

    return prefetch


_prefetch = _prefetcher()


@njit(nogil=True, inline="always")
def bring_near(address: int, n_bytes: int) -> None:
    """Ask for all lines of a run of memory; in compiled code only."""
    for place in range(0, n_bytes, LINE):
        _prefetch(address + place)
    _prefetch(address + n_bytes - 1)  # in one line more, where the run does not begin with a line
