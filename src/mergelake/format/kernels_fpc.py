"""Loops of FPC: each value against the better of two predictions, without the zero bytes on top.

DFCM predicts the last difference seen in the same context, FCM the last value. Both keep a table of 2^level entries.
Source: Burtscher and Ratanaworabhan, "FPC: a high-speed compressor for double-precision floating-point data".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.jit.intrinsics import inlined, kernel, leading_zeros, load32, load64, peek8, store8, store32, store64

_0 = np.uint64(0)


@inlined
def _next(tables: int, level: int, width: int, at: Any, other: Any, last: Any, value: Any) -> Any:
    """Teach both tables `value` (`last` came before); the new places in the tables.

    DFCM has the first 2^level entries of 8 bytes, FCM the second.
    """
    mask = (1 << level) - 1
    if width == 8:
        step = value - last
        store64(tables + 8 * at, step)
        at = ((at << 2) ^ np.int64(step >> 40)) & mask
        store64(tables + 8 * (other + mask + 1), value)
        other = ((other << 6) ^ np.int64(value >> 48)) & mask
    else:
        step = (value - last) & np.uint64(0xFFFFFFFF)
        store64(tables + 8 * at, step)
        at = ((at << 4) ^ np.int64(step >> 23)) & mask
        store64(tables + 8 * (other + mask + 1), value)
        other = ((other << 1) ^ np.int64(value >> 22)) & mask
    return at, other


@inlined
def _tail_code(zeros: int, width: int) -> int:
    """Three bits for the number of zero bytes; eight bytes have no code for four."""
    if width == 8 and zeros >= 4:
        zeros -= 1
    return min(zeros, 7)


@kernel
def fpc_encode(source: int, size: int, width: int, level: int, tables: int, out: int) -> int:
    """Write `size` bytes of values of `width` (4, 8); an odd value gets a zero for a partner, bytes too few likewise.

    `tables`: 2^(level + 1) zeros of 8 bytes. Returns the bytes written, at most 9 bytes for 8 and 24 more.
    """
    entries = 1 << level
    start = out
    at, other = 0, 0
    last = _0
    full = size // width
    count = (size + width - 1) // width
    head = out
    code = 0
    for i in range(count + (count & 1)):
        value = _0
        if i < full:
            value = load64(source + 8 * i) if width == 8 else load32(source + 4 * i)
        elif i < count:
            for j in range(size - full * width):
                value |= np.uint64(peek8(source + full * width + j)) << (8 * j)
        by_step = (load64(tables + 8 * at) + last) ^ value
        if width == 4:
            by_step &= np.uint64(0xFFFFFFFF)
        by_value = load64(tables + 8 * (other + entries)) ^ value
        at, other = _next(tables, level, width, at, other, last, value)
        last = value
        step_wins = leading_zeros(by_step) > leading_zeros(by_value)
        left = by_step if step_wins else by_value
        zeros = _tail_code((leading_zeros(left) - 64 + 8 * width) >> 3, width)
        if i & 1 == 0:
            head = out
            out += 1
            code = ((8 if step_wins else 0) | zeros) << 4
        else:
            store8(head, np.uint64(code | (8 if step_wins else 0) | zeros))
        store64(out, left)
        out += width - (zeros + 1 if width == 8 and zeros > 3 else zeros)
    return out - start


@kernel
def fpc_decode(source: int, size: int, plain: int, width: int, level: int, tables: int, out: int) -> int:
    """Read `plain` bytes of values from `size` bytes, padded; 0, or -1: corrupt."""
    entries = 1 << level
    at, other = 0, 0
    last = _0
    position = 0
    code = 0
    count = (plain + width - 1) // width
    full = plain // width
    for i in range(count + (count & 1)):
        if i & 1 == 0:
            if position >= size:
                return -1
            code = peek8(source + position)
            position += 1
        bits = code & 15 if i & 1 else code >> 4
        zeros = bits & 7
        if width == 8 and zeros > 3:
            zeros += 1
        bytes_left = width - zeros
        if bytes_left < 0 or position + bytes_left > size:
            return -1
        value = _0
        if bytes_left:
            value = (load64(source + position) << (64 - 8 * bytes_left)) >> (64 - 8 * bytes_left)
        position += bytes_left
        if bits & 8:
            value ^= load64(tables + 8 * at) + last
            if width == 4:
                value &= np.uint64(0xFFFFFFFF)
        else:
            value ^= load64(tables + 8 * (other + entries))
        at, other = _next(tables, level, width, at, other, last, value)
        last = value
        if i < full:
            if width == 8:
                store64(out + 8 * i, value)
            else:
                store32(out + 4 * i, value)
        elif i < count:
            for j in range(plain - full * width):
                store8(out + full * width + j, value >> (8 * j))
    return 0 if position == size else -1
