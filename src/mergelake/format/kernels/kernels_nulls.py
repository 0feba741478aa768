"""Kernels over NULLs: Arrow's bitmaps, ClickHouse's bytes (1 for each NULL), and what lies under them."""

from __future__ import annotations

import numpy as np

from mergelake.core.jit.intrinsics import (
    copy,
    kernel,
    load8,
    load64,
    null_bits,
    peek8,
    peek32,
    store8,
    store32,
    store64,
)

_SPREAD = np.uint64(0x0101010101010101)
"""The lowest bit of each byte: times it, a byte is repeated eight times."""
_PICK = np.uint64(0x8040201008040201)
"""Bit i of byte i."""
_CARRY = np.uint64(0x7F7F7F7F7F7F7F7F)
"""Added to bytes, it carries into the highest bit of those that are not zero."""
_SIGN = 0x80000000
"""The sign bit of an i32 as `peek32` reads it."""
_VECTOR = 16
"""Numbers that `null_bits` takes at once."""


@kernel
def null_map(bits: int, first: int, rows: int, out: int) -> None:
    """Write a byte a row, 1 where the bit `first` + row of the validity bitmap at `bits` is 0."""
    shift = first & 7
    at = bits + (first >> 3)
    row = 0
    while row + 8 <= rows:
        octet = load8(at)
        if shift:
            octet = (octet >> shift) | ((load8(at + 1) << (8 - shift)) & 255)
        # Each bit into a byte of its own: it is picked there, and carries into the byte's highest bit.
        spread = (octet * _SPREAD) & _PICK
        store64(out + row, (((spread + _CARRY) >> 7) & _SPREAD) ^ _SPREAD)
        at += 1
        row += 8
    while row < rows:
        bit = first + row
        store8(out + row, 1 - ((peek8(bits + (bit >> 3)) >> (bit & 7)) & 1))
        row += 1


@kernel
def blank_nulls(source: int, nulls: int, rows: int, width: int, out: int) -> None:
    """Copy `rows` values of `width` bytes; those whose byte of `nulls` is 1 become zeros."""
    if width == 8:
        for row in range(rows):
            store64(out + 8 * row, load64(source + 8 * row) & (load8(nulls + row) - 1))
    elif width == 4:
        for row in range(rows):
            store32(out + 4 * row, peek32(source + 4 * row) & (peek8(nulls + row) - 1))
    elif width == 1:
        for row in range(rows):
            store8(out + row, peek8(source + row) & (peek8(nulls + row) - 1))
    else:
        for row in range(rows):
            target = out + width * row
            if peek8(nulls + row):
                for i in range(width):
                    store8(target + i, 0)
            else:
                copy(target, source + width * row, width)


@kernel
def mark_nulls(ids: int, rows: int, bits: int) -> int:
    """Of `rows` i32, write a bit for each that is not negative, and make those that are zero; returns their number."""
    row = 0
    missing = 0
    while row + _VECTOR <= rows:
        missing += null_bits(ids + 4 * row, bits + (row >> 3))
        row += _VECTOR
    while row < rows:
        if row & 7 == 0:
            store8(bits + (row >> 3), 0)
        if peek32(ids + 4 * row) & _SIGN:
            store32(ids + 4 * row, 0)
            missing += 1
        else:
            store8(bits + (row >> 3), peek8(bits + (row >> 3)) | (1 << (row & 7)))
        row += 1
    return missing
