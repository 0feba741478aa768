"""Kinds of values, and intrinsics: functions that emit LLVM code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

INT, WORD, BOOL, FLOAT, POINTER = "i", "u", "b", "f", "p"
"""int64, uint64, bool, float64; an address as LLVM's pointer to bytes (only for parameters of intrinsics)."""

i1, i8, i32, i64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
f64 = ir.DoubleType()
TYPES = {INT: i64, WORD: i64, BOOL: i1, FLOAT: f64, POINTER: i8.as_pointer()}


class Value(NamedTuple):
    """A number that is computed at run time."""

    kind: str
    code: Any
    """The LLVM value."""


class KernelArray(NamedTuple):
    """A C-contiguous numpy array: address and lengths are values."""

    item: str
    """Type of an item in numpy's notation: u1, i4, f8, b1."""
    address: Any
    shape: tuple[Any, ...]


class Intrinsic(NamedTuple):
    """A function of the language that emits its own code."""

    result: str
    """Kind of the result; empty if there is none."""
    parameters: tuple[str, ...]
    emit: Callable[..., Any]
    """`emit(builder, *codes)` -> LLVM value."""


def intrinsic(result: str, *parameters: str) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: make an intrinsic of `emit(builder, *codes)`."""
    return lambda emit: Intrinsic(result, parameters, emit)


class KernelError(Exception):
    """A function is not in the language, or a call does not match its parameters."""
