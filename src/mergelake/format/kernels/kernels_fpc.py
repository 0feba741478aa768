"""Kernels of FPC: each value XORed with the better of two predictions, without the zero bytes on top.

DFCM (differential finite context method) predicts the value before plus the difference that was last seen in the same
context, FCM (finite context method) the value that was. A context is a hash of the values before; both predictors keep
a table of 2^level entries of 8 bytes by it, DFCM's before FCM's in memory. For each pair of values one byte holds a
code of 4 bits each, the first in the upper half: 8 where DFCM was better, and the number of zero bytes in three bits;
what is left of both values follows.

Source: ClickHouse, `CompressionCodecFPC.cpp`; Burtscher and Ratanaworabhan, "FPC: a high-speed compressor for
double-precision floating-point data".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.core.jit.intrinsics import (
    inlined,
    kernel,
    leading_zeros,
    load32,
    load64,
    peek8,
    store8,
    store32,
    store64,
)
from mergelake.format.kernels.kernels_bits import LOW_32_BITS

_0 = np.uint64(0)
_DFCM = 8
"""Bit of a code: DFCM's prediction was taken."""
_ZEROS_MASK = 7
"""Bits of a code for the number of zero bytes."""
_UNCODED = 4
"""Three bits cannot tell 0 to 8 zero bytes: of values of 8 bytes, 4 is written as 3, and more as one less."""
_CODE_BITS = 4
_DFCM_LEFT_8, _DFCM_RIGHT_8, _FCM_LEFT_8, _FCM_RIGHT_8 = 2, 40, 6, 48
_DFCM_LEFT_4, _DFCM_RIGHT_4, _FCM_LEFT_4, _FCM_RIGHT_4 = 4, 23, 1, 22
"""Shifts by the width of values: a context is the last one to the left XOR the difference or the value to the right."""
SPARE_BYTES = 24
"""Room beyond the values and a byte for each that the encoder needs: it fills up the last value and the last pair."""


@inlined
def _learn(tables: int, entries: int, width: int, dfcm: Any, fcm: Any, last: Any, value: Any) -> Any:
    """Teach both tables `value`, which came after `last`, in the contexts `dfcm` and `fcm`; the next contexts."""
    mask = entries - 1
    if width == 8:
        step = value - last
        store64(tables + 8 * dfcm, step)
        dfcm = ((dfcm << _DFCM_LEFT_8) ^ np.int64(step >> _DFCM_RIGHT_8)) & mask
        store64(tables + 8 * (fcm + entries), value)
        fcm = ((fcm << _FCM_LEFT_8) ^ np.int64(value >> _FCM_RIGHT_8)) & mask
    else:
        step = (value - last) & LOW_32_BITS
        store64(tables + 8 * dfcm, step)
        dfcm = ((dfcm << _DFCM_LEFT_4) ^ np.int64(step >> _DFCM_RIGHT_4)) & mask
        store64(tables + 8 * (fcm + entries), value)
        fcm = ((fcm << _FCM_LEFT_4) ^ np.int64(value >> _FCM_RIGHT_4)) & mask
    return dfcm, fcm


@inlined
def _zeros_code(zeros: int, width: int) -> int:
    """Three bits for the number of zero bytes."""
    if width == 8 and zeros >= _UNCODED:
        zeros -= 1
    return min(zeros, _ZEROS_MASK)


@inlined
def _bytes_left(code: int, width: int) -> int:
    """Bytes of a value that are written; below 0 for a code that no value of 4 bytes has."""
    zeros = code & _ZEROS_MASK
    if width == 8 and zeros >= _UNCODED:
        zeros += 1
    return width - zeros


@kernel
def fpc_encode(source: int, size: int, width: int, level: int, tables: int, out: int) -> int:
    """Write `size` bytes of values of `width` (4, 8); an odd value gets a zero for a partner, bytes too few likewise.

    `tables`: 2^(level + 1) zeros of 8 bytes. Returns the bytes written: at most `size`, a byte a value and
    `SPARE_BYTES`.
    """
    entries = 1 << level
    start = out
    dfcm, fcm = 0, 0
    last = _0
    full = size // width
    count = (size + width - 1) // width
    code_at = out
    first_code = 0
    for i in range(count + (count & 1)):
        value = _0
        if i < full:
            value = load64(source + 8 * i) if width == 8 else load32(source + 4 * i)
        elif i < count:
            for j in range(size - full * width):
                value |= np.uint64(peek8(source + full * width + j)) << (8 * j)
        by_step = (load64(tables + 8 * dfcm) + last) ^ value
        if width == 4:
            by_step &= LOW_32_BITS
        by_value = load64(tables + 8 * (fcm + entries)) ^ value
        dfcm, fcm = _learn(tables, entries, width, dfcm, fcm, last, value)
        last = value
        step_wins = leading_zeros(by_step) > leading_zeros(by_value)
        left = by_step if step_wins else by_value
        code = (_DFCM if step_wins else 0) | _zeros_code((leading_zeros(left) - 64 + 8 * width) >> 3, width)
        if i & 1 == 0:
            code_at = out
            out += 1
            first_code = code
        else:
            store8(code_at, np.uint64(first_code << _CODE_BITS | code))
        store64(out, left)
        out += _bytes_left(code, width)
    return out - start


@kernel
def fpc_decode(source: int, size: int, plain: int, width: int, level: int, tables: int, out: int) -> int:
    """Read `plain` bytes of values from `size` bytes, padded; 0, or -1: corrupt."""
    entries = 1 << level
    dfcm, fcm = 0, 0
    last = _0
    position = 0
    codes = 0
    count = (plain + width - 1) // width
    full = plain // width
    for i in range(count + (count & 1)):
        if i & 1 == 0:
            if position >= size:
                return -1
            codes = peek8(source + position)
            position += 1
        code = codes & ((1 << _CODE_BITS) - 1) if i & 1 else codes >> _CODE_BITS
        bytes_left = _bytes_left(code, width)
        if bytes_left < 0 or position + bytes_left > size:
            return -1
        value = _0
        if bytes_left:
            value = (load64(source + position) << (64 - 8 * bytes_left)) >> (64 - 8 * bytes_left)
        position += bytes_left
        if code & _DFCM:
            value ^= load64(tables + 8 * dfcm) + last
            if width == 4:
                value &= LOW_32_BITS
        else:
            value ^= load64(tables + 8 * (fcm + entries))
        dfcm, fcm = _learn(tables, entries, width, dfcm, fcm, last, value)
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
