"""Words for compiled loops that say themselves which vector registers to use; what Numba makes of NumPy does not."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core.registry import cpu_target

emitting: Any = cgutils  # which has no types

_FEATURES = cpu_target.target_context.codegen().magic_tuple()[-1]
"""What Numba compiles for: what this processor has, unless Numba's environment says otherwise."""
HAS_AVX512 = "+avx512f" in _FEATURES.split(",")
LANES = 16 if HAS_AVX512 else 8
"""Numbers of a register."""

LONG, WORD, SHORT, NUMBER = ir.IntType(64), ir.IntType(32), ir.IntType(16), ir.FloatType()
NUMBERS, WORDS = ir.VectorType(NUMBER, LANES), ir.VectorType(WORD, LANES)
FUSED = ("contract",)
"""Marks a product and a sum that are to become one operation."""


def long(number: int) -> Any:
    return ir.Constant(LONG, number)


def words(number: int) -> Any:
    """The same word in each lane."""
    return ir.Constant(WORDS, [number] * LANES)


def loaded(builder: Any, address: Any, index: Any, kind: Any) -> Any:
    """One item of an array at this address."""
    return builder.load(builder.gep(builder.inttoptr(address, kind.as_pointer()), [index]))


def vector_at(builder: Any, address: Any, offset: Any, kind: Any = NUMBERS) -> Any:
    """A pointer to the vector so many bytes behind an address."""
    return builder.inttoptr(builder.add(address, offset), kind.as_pointer())


def in_all_lanes(builder: Any, number: Any) -> Any:
    first = builder.insert_element(ir.Constant(NUMBERS, ir.Undefined), number, ir.Constant(WORD, 0))
    return builder.shuffle_vector(first, first, ir.Constant(WORDS, [0] * LANES))
