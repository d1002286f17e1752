"""Bits of a word, in compiled code only: each of these is one instruction."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _of_a_word(emit_instruction: Any) -> Any:
    @intrinsic
    def of_a_word(_typing: Any, word: Any) -> Any:
        def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return emit_instruction(builder, arguments[0])

        return types.uint64(word), emit

    return of_a_word


lowest_bit = _of_a_word(lambda builder, word: builder.cttz(word, ir.Constant(ir.IntType(1), 1)))
"""The place of the lowest bit that is set; the word is not 0."""
count_of_bits = _of_a_word(lambda builder, word: builder.ctpop(word))
"""How many bits are set."""
