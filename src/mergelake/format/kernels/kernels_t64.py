"""Kernels of T64: 64 values at a time as a matrix of bits that is turned on its side and loses its upper rows.

All values of a payload agree in their upper bits, as the least and the greatest of them tell; only the lower `bits` are
written, 64 values in 8 `bits` bytes. Such a *matrix* lies as rows of 64 bytes, row b holding byte b of each value; rows
that hold a part of the bits only, and all rows in the "bit" variant, are turned further into one u64 for each bit.
Bytes are moved in vectors: between values and rows 16 values at a time, between a row and its bits the whole row.

Source: ClickHouse, `CompressionCodecT64.cpp`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from mergelake.core.jit.intrinsics import copy, intrinsic, kernel, load64, store64, typed

VALUES = 64
"""Values of a matrix, and bytes of each row of it."""
SCRATCH_BYTES = 1024
"""Room that both kernels need: the rows of a matrix, and its values where they are fewer than 64."""
_ROWS_BYTES = 8 * VALUES
"""Rows of a matrix of values of 8 bytes."""
_LANES = 16
"""Values that are moved at once."""
_I32 = ir.IntType(32)
_ROW = ir.VectorType(ir.IntType(8), _LANES)


def _load(builder: Any, pointer: Any, kind: Any) -> Any:
    return builder.load(typed(builder, pointer, kind), align=1)


def _store(builder: Any, value: Any, pointer: Any) -> None:
    builder.store(value, typed(builder, pointer, value.type), align=1)


def _weaver(width: int) -> Any:
    """`weave(rows, out, low, high, sign)`: `_LANES` values from `width` rows of bytes.

    `low` is or-ed to values that have a bit of `sign`, `high` to the others: these are the upper bits, which all values
    share, or all negative and all other ones.
    """

    @intrinsic("", "p", "p", "u", "u", "u")
    def weave(builder: Any, rows: Any, out: Any, low: Any, high: Any, sign: Any) -> None:
        parts = [_load(builder, builder.gep(rows, [_I32(VALUES * b)]), _ROW) for b in range(width)]
        bits = 8
        # Byte, then byte pair, then quadruple by quadruple two rows become one of twice the width.
        order = ir.Constant(ir.VectorType(_I32, 2 * _LANES), [i // 2 + _LANES * (i % 2) for i in range(2 * _LANES)])
        while len(parts) > 1:
            bits *= 2
            pairs = zip(parts[::2], parts[1::2], strict=True)
            kind = ir.VectorType(ir.IntType(bits), _LANES)
            parts = [builder.bitcast(builder.shuffle_vector(a, b, order), kind) for a, b in pairs]
        values = parts[0]
        kind = ir.VectorType(ir.IntType(bits), _LANES)
        zeros = ir.Constant(ir.VectorType(_I32, _LANES), [0] * _LANES)

        def splat(number: Any) -> Any:
            narrow = number if bits == 64 else builder.trunc(number, ir.IntType(bits))
            one = builder.insert_element(ir.Constant(kind, ir.Undefined), narrow, _I32(0))
            return builder.shuffle_vector(one, one, zeros)

        signed = builder.icmp_unsigned("!=", builder.and_(values, splat(sign)), ir.Constant(kind, [0] * _LANES))
        _store(builder, builder.or_(values, builder.select(signed, splat(low), splat(high))), out)

    return weave


def _splitter(width: int) -> Any:
    """`split(values, rows)`: `_LANES` values to `width` rows of bytes."""

    @intrinsic("", "p", "p")
    def split(builder: Any, values: Any, rows: Any) -> None:
        kind = ir.VectorType(ir.IntType(8 * width), _LANES)
        source = _load(builder, values, kind)
        for b in range(width):
            moved = builder.lshr(source, ir.Constant(kind, [8 * b] * _LANES)) if b else source
            part = builder.trunc(moved, _ROW) if width > 1 else moved
            _store(builder, part, builder.gep(rows, [_I32(VALUES * b)]))

    return split


_weave1, _weave2, _weave4, _weave8 = (_weaver(width) for width in (1, 2, 4, 8))
_split1, _split2, _split4, _split8 = (_splitter(width) for width in (1, 2, 4, 8))


def _turner(*, bits_first: bool) -> Any:
    """`turn(source, out)`: 64 bytes and the bits of 64 bytes as 8 u64, one for each bit, into each other."""

    @intrinsic("", "p", "p")
    def turn(builder: Any, source: Any, out: Any) -> None:
        words, octets = ir.VectorType(ir.IntType(64), 8), ir.VectorType(ir.IntType(8), VALUES)

        def number(value: int) -> Any:
            return ir.Constant(words, [value] * 8)

        def turn_bits(value: Any) -> Any:
            # Each word is 8 x 8 bits; the two corners beside the diagonal of all 2 x 2, then of all 4 x 4 and of the
            # 8 x 8 bits change places (Hacker's Delight, 7-3).
            for shift, kept, moved in _STEPS:
                up = builder.shl(builder.and_(value, number(moved)), number(shift))
                down = builder.and_(builder.lshr(value, number(shift)), number(moved))
                value = builder.or_(builder.and_(value, number(kept)), builder.or_(up, down))
            return value

        def turn_bytes(value: Any) -> Any:
            order = ir.Constant(ir.VectorType(_I32, VALUES), [8 * (i % 8) + i // 8 for i in range(VALUES)])
            flat = builder.bitcast(value, octets)
            return builder.bitcast(builder.shuffle_vector(flat, flat, order), words)

        value = _load(builder, source, words)
        _store(builder, turn_bytes(turn_bits(value)) if bits_first else turn_bits(turn_bytes(value)), out)

    return turn


_STEPS = (
    (7, 0xAA55AA55AA55AA55, 0x00AA00AA00AA00AA),
    (14, 0xCCCC3333CCCC3333, 0x0000CCCC0000CCCC),
    (28, 0xF0F0F0F00F0F0F0F, 0x00000000F0F0F0F0),
)
"""Of each step the distance of the bits that change places, the bits that stay, and the lower of those that move."""
_to_planes, _to_bytes = _turner(bits_first=True), _turner(bits_first=False)


@kernel
def t64_encode(source: int, count: int, width: int, bits: int, by_bits: int, scratch: int, out: int) -> None:
    """Write `count` values as matrices of 8 `bits` bytes, the last one filled up with zeros.

    `scratch` has `SCRATCH_BYTES`.
    """
    full = 0 if by_bits else bits >> 3
    tail = scratch + _ROWS_BYTES
    for first in range(0, count, VALUES):
        values = source + first * width
        if count - first < VALUES:
            for j in range(VALUES):
                store64(tail + 8 * j, np.uint64(0))
            copy(tail, values, (count - first) * width)
            values = tail
        for quarter in range(VALUES // _LANES):
            at = values + _LANES * width * quarter
            row = scratch + _LANES * quarter
            if width == 4:
                _split4(at, row)
            elif width == 8:
                _split8(at, row)
            elif width == 2:
                _split2(at, row)
            else:
                _split1(at, row)
        copy(out, scratch, VALUES * full)
        for b in range(full, (bits + 7) >> 3):
            _to_planes(scratch + VALUES * b, scratch + VALUES * b)
            copy(out + VALUES * b, scratch + VALUES * b, 8 * min(bits - 8 * b, 8))
        out += 8 * bits


@kernel
def t64_decode(
    source: int, count: int, width: int, bits: int, by_bits: int, low: int, high: int, sign: int, scratch: int,
    out: int,
) -> None:  # fmt: skip
    """Read `count` values from matrices of 8 `bits` bytes.

    `low`, `high` and `sign` are as in `weave`; `scratch` has `SCRATCH_BYTES`.
    """
    full = 0 if by_bits else bits >> 3
    rows = (bits + 7) >> 3
    for j in range(SCRATCH_BYTES // 8):
        store64(scratch + 8 * j, np.uint64(0))
    for first in range(0, count, VALUES):
        copy(scratch, source, VALUES * full)
        for b in range(full, rows):
            planes = min(bits - 8 * b, 8)
            row = scratch + VALUES * b
            if planes == 8:
                _to_bytes(source + VALUES * b, row)
            else:
                for j in range(8):
                    store64(row + 8 * j, load64(source + VALUES * b + 8 * j) if j < planes else np.uint64(0))
                _to_bytes(row, row)
        whole = count - first >= VALUES
        values = out + first * width if whole else scratch + _ROWS_BYTES
        for quarter in range(VALUES // _LANES):
            at = values + _LANES * width * quarter
            row = scratch + _LANES * quarter
            if width == 4:
                _weave4(row, at, low, high, sign)
            elif width == 8:
                _weave8(row, at, low, high, sign)
            elif width == 2:
                _weave2(row, at, low, high, sign)
            else:
                _weave1(row, at, low, high, sign)
        if not whole:
            copy(out + first * width, values, (count - first) * width)
        source += 8 * bits
