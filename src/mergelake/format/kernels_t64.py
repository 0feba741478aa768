"""Loops of T64: 64 values at a time as a matrix of bits that is turned on its side and loses its upper rows.

A block lies as rows of 64 bytes, row b holding byte b of each value; rows that hold a part of the bits only, and all
rows in the "bit" variant, are turned further into one u64 for each bit. Rows go to values and back in vectors of 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from mergelake.format.jit import _intrinsic, copy, inlined, kernel, load64, peek8, store8, store64

_M7, _K7 = np.uint64(0x00AA00AA00AA00AA), np.uint64(0xAA55AA55AA55AA55)
_M14, _K14 = np.uint64(0x0000CCCC0000CCCC), np.uint64(0xCCCC3333CCCC3333)
_M28, _K28 = np.uint64(0x00000000F0F0F0F0), np.uint64(0xF0F0F0F00F0F0F0F)


def _vector(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _weaver(width: int) -> Any:
    """`weave(rows, out, low, high, sign)`: 16 values from `width` rows of bytes.

    `low` is or-ed to values that have a bit of `sign`, `high` to the others.
    """

    @_intrinsic
    def weave(typingctx: Any, rows: Any, out: Any, low: Any, high: Any, sign: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            i64 = ir.IntType(64)
            row = ir.VectorType(ir.IntType(8), 16)
            parts = []
            for b in range(width):
                at = builder.add(args[0], ir.Constant(i64, 64 * b))
                parts.append(builder.load(_vector(builder, at, row), align=1))
            bits = 8
            order = ir.Constant(ir.VectorType(ir.IntType(32), 32), [i // 2 + 16 * (i % 2) for i in range(32)])
            while len(parts) > 1:
                bits *= 2
                pairs = zip(parts[::2], parts[1::2], strict=True)
                kind = ir.VectorType(ir.IntType(bits), 16)
                parts = [builder.bitcast(builder.shuffle_vector(a, b, order), kind) for a, b in pairs]
            values = parts[0]
            kind = ir.VectorType(ir.IntType(bits), 16)
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), 16), [0] * 16)

            def splat(number: Any) -> Any:
                narrow = number if bits == 64 else builder.trunc(number, ir.IntType(bits))
                one = builder.insert_element(ir.Constant(kind, ir.Undefined), narrow, ir.Constant(ir.IntType(32), 0))
                return builder.shuffle_vector(one, one, zeros)

            signed = builder.icmp_unsigned("!=", builder.and_(values, splat(args[4])), ir.Constant(kind, [0] * 16))
            values = builder.or_(values, builder.select(signed, splat(args[2]), splat(args[3])))
            builder.store(values, _vector(builder, args[1], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.uint64, types.uint64, types.uint64), codegen

    return weave


def _splitter(width: int) -> Any:
    """`split(values, rows)`: 16 values to `width` rows of bytes."""

    @_intrinsic
    def split(typingctx: Any, values: Any, rows: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            i64 = ir.IntType(64)
            row = ir.VectorType(ir.IntType(8), 16)
            kind = ir.VectorType(ir.IntType(8 * width), 16)
            source = builder.load(_vector(builder, args[0], kind), align=1)
            for b in range(width):
                moved = builder.lshr(source, ir.Constant(kind, [8 * b] * 16)) if b else source
                part = builder.trunc(moved, row) if width > 1 else moved
                at = builder.add(args[1], ir.Constant(i64, 64 * b))
                builder.store(part, _vector(builder, at, row), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return split


_weave1, _weave2, _weave4, _weave8 = (_weaver(width) for width in (1, 2, 4, 8))
_split1, _split2, _split4, _split8 = (_splitter(width) for width in (1, 2, 4, 8))


@inlined
def _turn(x: Any) -> Any:
    """An 8 x 8 matrix of bits, byte i bit j, as byte j bit i."""
    x = (x & _K7) | ((x & _M7) << 7) | ((x >> 7) & _M7)
    x = (x & _K14) | ((x & _M14) << 14) | ((x >> 14) & _M14)
    return (x & _K28) | ((x & _M28) << 28) | ((x >> 28) & _M28)


@kernel("void(int64, int64, int64, int64, int64, int64, int64)")
def t64_encode(source: int, count: int, width: int, bits: int, by_bits: int, scratch: int, out: int) -> None:
    """Write `count` values as blocks of 8 `bits` bytes; `scratch`: 1024 bytes."""
    full = 0 if by_bits else bits >> 3
    tail = scratch + 512
    for first in range(0, count, 64):
        block = source + first * width
        if count - first < 64:
            for j in range(64):
                store64(tail + 8 * j, np.uint64(0))
            copy(tail, block, (count - first) * width)
            block = tail
        for quarter in range(4):
            at = block + 16 * width * quarter
            row = scratch + 16 * quarter
            if width == 4:
                _split4(at, row)
            elif width == 8:
                _split8(at, row)
            elif width == 2:
                _split2(at, row)
            else:
                _split1(at, row)
        copy(out, scratch, 64 * full)
        for b in range(full, (bits + 7) >> 3):
            planes = min(bits - 8 * b, 8)
            for j in range(8):
                turned = _turn(load64(scratch + 64 * b + 8 * j))
                for i in range(planes):
                    store8(out + 64 * b + 8 * i + j, turned >> (8 * i))
        out += 8 * bits


@kernel("void(int64, int64, int64, int64, int64, uint64, uint64, uint64, int64, int64)")
def t64_decode(
    source: int,
    count: int,
    width: int,
    bits: int,
    by_bits: int,
    low: int,
    high: int,
    sign: int,
    scratch: int,
    out: int,
) -> None:
    """Read `count` values from blocks of 8 `bits` bytes; `low`, `high`, `sign` as in `weave`; `scratch`: 1024 bytes."""
    full = 0 if by_bits else bits >> 3
    rows = (bits + 7) >> 3
    for j in range(128):
        store64(scratch + 8 * j, np.uint64(0))
    for first in range(0, count, 64):
        copy(scratch, source, 64 * full)
        for b in range(full, rows):
            planes = min(bits - 8 * b, 8)
            for j in range(8):
                gathered = np.uint64(0)
                for i in range(planes):
                    gathered |= np.uint64(peek8(source + 64 * b + 8 * i + j)) << (8 * i)
                store64(scratch + 64 * b + 8 * j, _turn(gathered))
        whole = count - first >= 64
        block = out + first * width if whole else scratch + 512
        for quarter in range(4):
            at = block + 16 * width * quarter
            row = scratch + 16 * quarter
            if width == 4:
                _weave4(row, at, low, high, sign)
            elif width == 8:
                _weave8(row, at, low, high, sign)
            elif width == 2:
                _weave2(row, at, low, high, sign)
            else:
                _weave1(row, at, low, high, sign)
        if not whole:
            copy(out + first * width, block, (count - first) * width)
        source += 8 * bits
