"""Kinds of values, and intrinsics: words that write their own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

INT, WORD, BOOL, FLOAT, POINTER = "i", "u", "b", "f", "p"
"""int64, uint64, truth, float64; an address as LLVM's pointer to bytes (of intrinsics only)."""

i1, i8, i32, i64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
f64 = ir.DoubleType()
TYPES = {INT: i64, WORD: i64, BOOL: i1, FLOAT: f64, POINTER: i8.as_pointer()}


class Value(NamedTuple):
    """A number that the code computes."""

    kind: str
    code: Any
    """The LLVM value."""


class Array(NamedTuple):
    """A C-contiguous numpy array: address and lengths are values."""

    item: str
    """Kind and bytes of an item, as numpy spells it: u1, i4, f8, b1."""
    address: Any
    shape: tuple[Any, ...]


class Intrinsic(NamedTuple):
    """A word of the language."""

    result: str
    """Kind; empty if it gives nothing."""
    parameters: tuple[str, ...]
    emit: Callable[..., Any]
    """`emit(builder, *codes)` -> LLVM value."""


def intrinsic(result: str, *parameters: str) -> Callable[[Callable[..., Any]], Any]:
    """Make a word of a function `emit(builder, *codes)`; typed loosely, since kernels are."""
    return lambda emit: Intrinsic(result, parameters, emit)


class KernelError(Exception):
    """A function that is not in the language, or a call that does not fit it."""
