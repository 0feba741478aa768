"""How byte loops become machine code (numba): the one place that knows how kernels are compiled and cached.

Kernels take raw addresses (`int64`) and lengths, never arrays: one signature serves numpy arrays, Arrow buffers
and `bytes`, read-only or not, and a call costs a fraction of a microsecond. The price is that **a kernel trusts its
arguments**; the Python function around each one checks every bound first, and keeps the owners of the memory alive.

Kernels are compiled once and kept in numba's on-disk cache (next to the module, or in the user's cache directory
where the installation is read-only); where neither can be written they are compiled anew in each process. They release
the GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic as _numba_intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def kernel(signature: str | None = None) -> Callable[[F], F]:
    """Compile a function without the GIL, cached on disk; eagerly for `signature`, else on first use."""

    def compile_it(function: F) -> F:
        make: Any = njit
        arguments = (signature,) if signature else ()
        try:
            compiled = make(*arguments, cache=True, nogil=True)(function)
        except RuntimeError:  # numba found no place that it may write its cache to
            compiled = make(*arguments, nogil=True)(function)
        return cast("F", compiled)

    return compile_it


def inlined(function: F) -> F:
    """A small helper that is compiled into the kernels that call it."""
    compiled: Any = njit(inline="never", nogil=True)(function)
    return cast("F", compiled)


def intrinsic(function: Callable[..., Any]) -> Any:
    """A function that writes its own machine code; typed loosely, since kernels are."""
    return _numba_intrinsic(function)


def _pointer(builder: Any, address: Any, to: Any) -> Any:
    return builder.inttoptr(address, to.as_pointer())


def _loader(bits: int, result: Any) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            value = builder.load(_pointer(builder, args[0], kind), align=1)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return result(types.int64), codegen

    return load


def _storer(bits: int) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(bits)
            # Narrow values come as 64-bit integers, whatever their sign.
            wide = context.cast(builder, args[1], signature.args[1], types.uint64)
            narrow = wide if bits == 64 else builder.trunc(wide, kind)
            builder.store(narrow, _pointer(builder, args[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.uint64), codegen

    return store


load8, load32, load64 = (_loader(bits, types.uint64) for bits in (8, 32, 64))
"""`load*(address) -> uint64`: a little-endian unsigned integer at any alignment."""
peek8, peek16, peek32, peek64 = (_loader(bits, types.int64) for bits in (8, 16, 32, 64))
"""The same as int64, for counting; mixing the two kinds in numba gives floating point."""
store8, store16, store32, store64 = _storer(8), _storer(16), _storer(32), _storer(64)
"""`store*(address, uint64)`: its low bits, at any alignment."""


@intrinsic
def copy16(typingctx: Any, target: Any, source: Any) -> Any:
    """`copy16(target, source)`: exactly 16 bytes as one vector."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.VectorType(ir.IntType(64), 2)
        value = builder.load(_pointer(builder, args[1], kind), align=1)
        builder.store(value, _pointer(builder, args[0], kind), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def copy(typingctx: Any, target: Any, source: Any, count: Any) -> Any:
    """`copy(target, source, count)`: memcpy."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8)
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]
            builder, _pointer(builder, args[0], byte), _pointer(builder, args[1], byte), args[2], 1, align=1
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def call_decompress(typingctx: Any, function: Any, source: Any, target: Any, size: Any, capacity: Any) -> Any:
    """Call `int LZ4_decompress_safe(src, dst, size, capacity)` at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(i32, [pointer, pointer, i32, i32])
        byte = ir.IntType(8)
        found = builder.call(
            builder.inttoptr(args[0], kind.as_pointer()),
            [
                _pointer(builder, args[1], byte),
                _pointer(builder, args[2], byte),
                builder.trunc(args[3], i32),
                builder.trunc(args[4], i32),
            ],
        )
        return builder.sext(found, ir.IntType(64))

    i8 = types.int64
    return i8(i8, i8, i8, i8, i8), codegen


@intrinsic
def call_compress(typingctx: Any, function: Any, source: Any, target: Any, size: Any, capacity: Any) -> Any:
    """Call `int LZ4_compress_fast(src, dst, size, capacity, 1)` at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(i32, [pointer, pointer, i32, i32, i32])
        byte = ir.IntType(8)
        found = builder.call(
            builder.inttoptr(args[0], kind.as_pointer()),
            [
                _pointer(builder, args[1], byte),
                _pointer(builder, args[2], byte),
                builder.trunc(args[3], i32),
                builder.trunc(args[4], i32),
                i32(1),
            ],
        )
        return builder.sext(found, ir.IntType(64))

    i8 = types.int64
    return i8(i8, i8, i8, i8, i8), codegen


def _bits(name: str, result: Any) -> Any:
    @intrinsic
    def count(typingctx: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if name == "bswap":
                return builder.bswap(args[0])
            return getattr(builder, name)(args[0], ir.Constant(ir.IntType(1), 0))

        return result(types.uint64), codegen

    return count


swap64 = _bits("bswap", types.uint64)
"""`swap64(uint64) -> uint64`: the bytes in reverse order."""
leading_zeros, trailing_zeros = _bits("ctlz", types.int64), _bits("cttz", types.int64)
"""`*_zeros(uint64) -> int64`: zero bits above the highest, below the lowest one; 64 for zero."""
