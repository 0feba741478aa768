"""Kernels of Gorilla: what changed from one value to the next as bits.

A value is XORed with the one before it; in what is left only a *window* of bits between leading and trailing zeros is
set. `0` is nothing, `10` is followed by the bits of the last window that was written in full, `11` by the number of
zero bits above a new window (3 to 6 bits, by the width of values), its length (one bit more) and its bits.

Source: ClickHouse, `CompressionCodecGorilla.cpp`; Pelkonen et al., "Gorilla: a fast, scalable, in-memory time series
database".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.core.jit.intrinsics import inlined, kernel, leading_zeros, store32, trailing_zeros
from mergelake.format.kernels.kernels_bits import COUNT_BYTES, LOW_32_BITS, WINDOW_BITS, load, put, store, take, window

VALUE_BYTES_MAX = 10
"""Bytes that a value takes at most: 2 + 6 + 7 + 64 bits."""
_0, _SAME_WINDOW, _NEW_WINDOW = np.uint64(0), np.uint64(0b10), np.uint64(0b11)
_PREFIX_BITS = 2


@inlined
def _length_bits(width: int) -> int:
    """Bits of the length of a window, 1 to 8 `width`; the number of zeros above it takes one bit less."""
    return 4 + (width > 1) + (width > 2) + (width > 4)


@kernel
def gorilla_encode(source: int, count: int, width: int, out: int) -> int:
    """Write `count` values.

    Returns the bytes written: at most `VALUE_BYTES_MAX` a value, and `STREAM_SPARE`.
    """
    start = out
    store32(out, np.uint64(count))
    out += COUNT_BYTES
    if count == 0:
        return COUNT_BYTES
    last = load(source, width)
    store(out, width, last)
    out += width
    unused = 64 - 8 * width
    length_bits = _length_bits(width)
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
            out, waiting, filled = put(out, waiting, filled, _SAME_WINDOW, _PREFIX_BITS)
        else:
            lead, trail, length = before, after, 8 * width - before - after
            head = (((_NEW_WINDOW << (length_bits - 1)) | np.uint64(lead)) << length_bits) | np.uint64(length)
            out, waiting, filled = put(out, waiting, filled, head, _PREFIX_BITS + 2 * length_bits - 1)
        data = changed >> trail
        if length > 32:  # in two pieces: `put` takes 56 bits at most
            out, waiting, filled = put(out, waiting, filled, data >> 32, length - 32)
            out, waiting, filled = put(out, waiting, filled, data & LOW_32_BITS, 32)
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
    length_bits = _length_bits(width)
    trail: Any = 0
    length: Any = 0
    for i in range(1, count):
        if bit >= limit:
            return -1
        word = window(source, bit)
        prefix = word >> (64 - _PREFIX_BITS)
        if prefix < _SAME_WINDOW:
            bit += 1
        else:
            bit += _PREFIX_BITS
            if prefix == _NEW_WINDOW:
                lead = np.int64((word << _PREFIX_BITS) >> (65 - length_bits))
                length = np.int64((word << (_PREFIX_BITS + length_bits - 1)) >> (64 - length_bits))
                bit += 2 * length_bits - 1
                trail = 8 * width - lead - length
            # The limit is checked again before the data are read: so far only the start of the window was in it.
            if length == 0 or trail < 0 or bit + length > limit:
                return -1
            data = window(source, bit) >> (64 - length) if length <= WINDOW_BITS else take(source, bit, length)
            value ^= data << trail
            bit += length
        store(out + i * width, width, value)
    return 0 if bit <= limit else -1
