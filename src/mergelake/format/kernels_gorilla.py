"""Loops of Gorilla: what changed from one value to the next as bits.

`0` is nothing, `10` is followed by the bits of the last window that changed, `11` by the number of zero bits above a
new window (3 to 6 bits, by the width of values), its length (one bit more) and its bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.format.kernels_bits import load, put, store, take, window
from mergelake.jit.intrinsics import kernel, leading_zeros, store32, trailing_zeros

_0, _2, _3 = np.uint64(0), np.uint64(2), np.uint64(3)


@kernel
def gorilla_encode(source: int, count: int, width: int, out: int) -> int:
    """Write `count` values; returns the bytes written: at most 10 a value, and 24."""
    start = out
    store32(out, np.uint64(count))
    out += 4
    if count == 0:
        return 4
    last = load(source, width)
    store(out, width, last)
    out += width
    unused = 64 - 8 * width
    length_bits = 4 + (width > 1) + (width > 2) + (width > 4)
    lead, trail, length = 0, 0, 0
    waiting = _0
    filled = 0
    for i in range(1, count):
        value = load(source + i * width, width)
        changed = value ^ last
        last = value
        if changed == _0:
            out, waiting, filled = put(out, waiting, filled, _0, 1)
            continue
        before = leading_zeros(changed) - unused
        after = trailing_zeros(changed)
        if length and lead <= before and trail <= after:
            out, waiting, filled = put(out, waiting, filled, _2, 2)
        else:
            lead, trail, length = before, after, 8 * width - before - after
            head = (((_3 << (length_bits - 1)) | np.uint64(lead)) << length_bits) | np.uint64(length)
            out, waiting, filled = put(out, waiting, filled, head, 2 * length_bits + 1)
        data = changed >> trail
        if length > 32:
            out, waiting, filled = put(out, waiting, filled, data >> 32, length - 32)
            out, waiting, filled = put(out, waiting, filled, data & np.uint64(0xFFFFFFFF), 32)
        else:
            out, waiting, filled = put(out, waiting, filled, data, length)
    return out - start + (1 if filled else 0)


@kernel
def gorilla_decode(source: int, size: int, count: int, width: int, out: int) -> int:
    """Read `count` (1 at least) values from their first value on, `size` bytes, padded; 0, or -1: corrupt."""
    value = load(source, width)
    store(out, width, value)
    bit = 8 * width
    limit = 8 * size
    length_bits = 4 + (width > 1) + (width > 2) + (width > 4)
    trail: Any = 0
    length: Any = 0
    for i in range(1, count):
        if bit >= limit:
            return -1
        word = window(source, bit)
        prefix = word >> 62
        if prefix < _2:
            bit += 1
        else:
            bit += 2
            if prefix == _3:
                lead = np.int64((word << 2) >> (65 - length_bits))
                length = np.int64((word << (length_bits + 1)) >> (64 - length_bits))
                bit += 2 * length_bits - 1
                trail = 8 * width - lead - length
            # The limit is checked again before the data are read: the window was all we knew to be there.
            if length == 0 or trail < 0 or bit + length > limit:
                return -1
            data = window(source, bit) >> (64 - length) if length <= 57 else take(source, bit, length)
            value ^= data << trail
            bit += length
        store(out + i * width, width, value)
    return 0 if bit <= limit else -1
