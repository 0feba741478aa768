"""Loops of DoubleDelta: differences of differences as bits.

`0` is no difference; `10`, `110`, `1110`, `11110` and `11111` are followed by a sign bit and the magnitude less one in
6, 8, 11, 31 and 63 bits.
"""

from __future__ import annotations

import numpy as np

from mergelake.format.kernels_bits import load, put, store, take, window
from mergelake.jit.intrinsics import kernel, leading_zeros, store32

_0, _1, _2 = np.uint64(0), np.uint64(1), np.uint64(2)


@kernel
def double_delta_encode(source: int, count: int, width: int, out: int) -> int:
    """Write `count` values; returns the bytes written: at most 9 a value, and 24."""
    store32(out, np.uint64(count))
    start = out
    out += 4
    if count == 0:
        return 4
    last = load(source, width)
    store(out, width, last)
    out += width
    if count == 1:
        return out - start
    value = load(source + width, width)
    delta = value - last
    store(out, width, delta)
    out += width
    last = value
    shift = 64 - 8 * width
    waiting = _0
    filled = 0
    for i in range(2, count):
        value = load(source + i * width, width)
        step = value - last
        second = np.int64((step - delta) << shift) >> shift
        last = value
        delta = step
        if second == 0:
            out, waiting, filled = put(out, waiting, filled, _0, 1)
            continue
        sign = _1 if second < 0 else _0
        size = np.uint64(-second if second < 0 else second) - _1
        if -63 < second < 64:
            out, waiting, filled = put(out, waiting, filled, (((_2 << 1) | sign) << 6) | size, 9)
        elif -255 < second < 256:
            out, waiting, filled = put(out, waiting, filled, ((np.uint64(12) | sign) << 8) | size, 12)
        elif -2047 < second < 2048:
            out, waiting, filled = put(out, waiting, filled, ((np.uint64(28) | sign) << 11) | size, 16)
        elif -2147483648 < second < 2147483647:
            out, waiting, filled = put(out, waiting, filled, ((np.uint64(60) | sign) << 31) | size, 37)
        else:
            out, waiting, filled = put(out, waiting, filled, ((np.uint64(62) | sign) << 31) | (size >> 32), 37)
            out, waiting, filled = put(out, waiting, filled, size & np.uint64(0xFFFFFFFF), 32)
    return out - start + (1 if filled else 0)


@kernel
def double_delta_decode(source: int, size: int, count: int, width: int, out: int) -> int:
    """Read `count` (2 at least) values from their first value on, `size` bytes, padded; 0, or -1: cut short."""
    value = load(source, width)
    store(out, width, value)
    delta = load(source + width, width)
    value += delta
    store(out + width, width, value)
    bit = 16 * width
    limit = 8 * size
    i = 2
    while i < count:
        if bit >= limit:
            return -1
        word = window(source, bit)
        run = leading_zeros(word)
        if run:
            # A run of zero bits: the difference stays for as many values.
            run = min(run, 56, count - i)
            for _ in range(run):
                value += delta
                store(out + i * width, width, value)
                i += 1
            bit += run
            continue
        ones = leading_zeros(~word)
        if ones == 1:
            at, bits = 2, 6
        elif ones == 2:
            at, bits = 3, 8
        elif ones == 3:
            at, bits = 4, 11
        elif ones == 4:
            at, bits = 5, 31
        else:
            at, bits = 5, 63
        negative = (word >> (63 - at)) & _1
        size_less_one = take(source, bit + 6, 63) if bits == 63 else (word << (at + 1)) >> (64 - bits)
        second = size_less_one + _1
        delta = delta - second if negative else delta + second
        value += delta
        store(out + i * width, width, value)
        bit += at + 1 + bits
        i += 1
    return 0 if bit <= limit else -1
