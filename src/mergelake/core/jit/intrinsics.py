"""Intrinsics by which kernels read and write memory.

Kernels take raw addresses (`int`) and lengths, or numpy arrays: an address may be that of a numpy array, an Arrow
buffer or `bytes`, and a call costs about a microsecond. **A kernel does not check its arguments**: the Python function
around it checks all bounds and keeps the owners of the memory alive.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mergelake.core.jit.kernel import kernel
from mergelake.core.jit.language import INT, POINTER, WORD, i32, i64, intrinsic

__all__ = [
    "copy", "copy16", "inlined", "intrinsic", "kernel", "leading_zeros", "load8", "load32", "load64", "lz4_compress",
    "lz4_decompress", "null_bits", "peek8", "peek16", "peek32", "peek64", "store8", "store16", "store32", "store64",
    "swap64", "trailing_zeros", "typed", "zstd_compress", "zstd_decompress",
]  # fmt: skip


def inlined(function: Any) -> Any:
    """Decorator of a small helper that is inlined into the kernels that call it."""
    return function


def typed(builder: Any, pointer: Any, kind: Any) -> Any:
    """Cast a pointer to bytes to a pointer to `kind`."""
    return builder.bitcast(pointer, kind.as_pointer())


def _loader(bits: int, result: str) -> Any:
    @intrinsic(result, POINTER)
    def load(builder: Any, pointer: Any) -> Any:
        value = builder.load(typed(builder, pointer, ir.IntType(bits)), align=1)
        return value if bits == 64 else builder.zext(value, i64)

    return load


def _storer(bits: int) -> Any:
    @intrinsic("", POINTER, INT)
    def store(builder: Any, pointer: Any, value: Any) -> None:
        kind = ir.IntType(bits)
        narrow = value if bits == 64 else builder.trunc(value, kind)
        builder.store(narrow, typed(builder, pointer, kind), align=1)

    return store


load8, load32, load64 = (_loader(bits, WORD) for bits in (8, 32, 64))
"""`load*(address) -> uint64`: a little-endian unsigned integer at any alignment."""
peek8, peek16, peek32, peek64 = (_loader(bits, INT) for bits in (8, 16, 32, 64))
"""`peek*(address) -> int64`: a little-endian unsigned integer at any alignment."""
store8, store16, store32, store64 = _storer(8), _storer(16), _storer(32), _storer(64)
"""`store*(address, number)`: store the low bits of a number at any alignment."""


@intrinsic("", POINTER, POINTER)
def copy16(builder: Any, target: Any, source: Any) -> None:
    """`copy16(target, source)`: exactly 16 bytes as one vector."""
    kind = ir.VectorType(i64, 2)
    builder.store(builder.load(typed(builder, source, kind), align=1), typed(builder, target, kind), align=1)


@intrinsic("", POINTER, POINTER, INT)
def copy(builder: Any, target: Any, source: Any, count: Any) -> None:
    """`copy(target, source, count)`: memcpy."""
    kind = ir.FunctionType(ir.VoidType(), [target.type, source.type, i64, ir.IntType(1)])
    memcpy = builder.module.declare_intrinsic("llvm.memcpy", (target.type, source.type, i64), kind)
    builder.call(memcpy, [target, source, count, ir.IntType(1)(0)])


def _call(builder: Any, function: Any, result: Any, arguments: list[tuple[Any, Any]]) -> Any:
    """Call the C function at an address; `arguments` are (LLVM type, value)."""
    kind = ir.FunctionType(result, [of for _, of in arguments])
    narrow = [builder.trunc(value, i32) if of == i32 else value for value, of in arguments]
    return builder.call(builder.inttoptr(function, kind.as_pointer()), narrow)


@intrinsic(INT, INT, POINTER, POINTER, INT, INT)
def lz4_decompress(builder: Any, function: Any, source: Any, target: Any, size: Any, capacity: Any) -> Any:
    """Call `int LZ4_decompress_safe(src, dst, size, capacity)` at an address."""
    arguments = [(source, source.type), (target, target.type), (size, i32), (capacity, i32)]
    return builder.sext(_call(builder, function, i32, arguments), i64)


@intrinsic(INT, INT, POINTER, POINTER, INT, INT)
def lz4_compress(builder: Any, function: Any, source: Any, target: Any, size: Any, capacity: Any) -> Any:
    """Call `int LZ4_compress_fast(src, dst, size, capacity, 1)` at an address."""
    arguments = [(source, source.type), (target, target.type), (size, i32), (capacity, i32), (i64(1), i32)]
    return builder.sext(_call(builder, function, i32, arguments), i64)


@intrinsic(INT, INT, POINTER, POINTER, INT, POINTER, INT)
def zstd_decompress(
    builder: Any, function: Any, context: Any, target: Any, capacity: Any, source: Any, size: Any
) -> Any:
    """Call `size_t ZSTD_decompressDCtx(context, dst, capacity, src, size)` at an address; errors are negative."""
    pointer = source.type
    arguments = [(context, pointer), (target, pointer), (capacity, i64), (source, pointer), (size, i64)]
    return _call(builder, function, i64, arguments)


@intrinsic(INT, INT, POINTER, POINTER, INT, POINTER, INT, INT)
def zstd_compress(
    builder: Any, function: Any, context: Any, target: Any, capacity: Any, source: Any, size: Any, level: Any
) -> Any:
    """Call `size_t ZSTD_compressCCtx(context, dst, capacity, src, size, level)` at an address; errors are negative."""
    pointer = source.type
    arguments = [(context, pointer), (target, pointer), (capacity, i64), (source, pointer), (size, i64), (level, i32)]
    return _call(builder, function, i64, arguments)


@intrinsic(WORD, WORD)
def swap64(builder: Any, value: Any) -> Any:
    """`swap64(uint64) -> uint64`: the bytes in reverse order."""
    return builder.bswap(value)


@intrinsic(INT, WORD)
def leading_zeros(builder: Any, value: Any) -> Any:
    """Number of leading zero bits; 64 for zero."""
    return builder.ctlz(value, ir.IntType(1)(0))


@intrinsic(INT, WORD)
def trailing_zeros(builder: Any, value: Any) -> Any:
    """Number of trailing zero bits; 64 for zero."""
    return builder.cttz(value, ir.IntType(1)(0))


@intrinsic(INT, POINTER, POINTER)
def null_bits(builder: Any, numbers: Any, bits: Any) -> Any:
    """`null_bits(numbers, bits)`: store a bit for each of 16 i32 that is not negative, and set negative ones to zero.

    Returns the number of negative ones.
    """
    kind = ir.VectorType(i32, 16)
    zero = ir.Constant(kind, [0] * 16)
    place = typed(builder, numbers, kind)
    values = builder.load(place, align=1)
    valid = builder.icmp_signed(">=", values, zero)
    builder.store(builder.select(valid, values, zero), place, align=1)
    word = ir.IntType(16)
    mask = builder.bitcast(valid, word)
    builder.store(mask, typed(builder, bits, word), align=1)
    return builder.zext(builder.ctpop(builder.not_(mask)), i64)
