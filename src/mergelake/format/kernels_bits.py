"""Loops of DoubleDelta and Gorilla: values as a stream of bits, the most significant first.

A reader may look up to 16 bytes past the stream, so its caller pads it; how far it has come is checked for each value.
A writer may write up to 8 bytes past what it has filled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.format.jit import (
    inlined,
    kernel,
    leading_zeros,
    load8,
    load32,
    load64,
    peek8,
    peek16,
    store8,
    store16,
    store32,
    store64,
    swap64,
    trailing_zeros,
)

_0, _1, _2, _3 = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)


@inlined
def load(address: int, width: int) -> Any:
    """A value of `width` bytes as uint64."""
    if width == 8:
        return load64(address)
    if width == 4:
        return load32(address)
    if width == 2:
        return np.uint64(peek16(address))
    return load8(address)


@inlined
def store(address: int, width: int, value: Any) -> None:
    """The low `width` bytes of a uint64."""
    if width == 8:
        store64(address, value)
    elif width == 4:
        store32(address, value)
    elif width == 2:
        store16(address, value)
    else:
        store8(address, value)


@inlined
def _put(out: int, waiting: Any, filled: int, value: Any, bits: int) -> Any:
    """Append the low `bits` (1 to 56) of `value` to the `filled` (below 8) that wait: new (out, waiting, filled)."""
    waiting = (waiting << bits) | value
    filled += bits
    store64(out, swap64(waiting << (64 - filled)))
    return out + (filled >> 3), waiting, filled & 7


@inlined
def _window(source: int, bit: int) -> Any:
    """The stream from `bit` on, in the upper bits; at least 57 of them."""
    return swap64(load64(source + (bit >> 3))) << (bit & 7)


@inlined
def _take(source: int, bit: int, bits: int) -> Any:
    """The next `bits` (1 to 64)."""
    word = _window(source, bit)
    used = bit & 7
    if used:
        word |= np.uint64(peek8(source + (bit >> 3) + 8) >> (8 - used))
    return word >> (64 - bits)


@kernel("int64(int64, int64, int64, int64)")
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
            out, waiting, filled = _put(out, waiting, filled, _0, 1)
            continue
        sign = _1 if second < 0 else _0
        size = np.uint64(-second if second < 0 else second) - _1
        if -63 < second and second < 64:
            out, waiting, filled = _put(out, waiting, filled, (((_2 << 1) | sign) << 6) | size, 9)
        elif -255 < second and second < 256:
            out, waiting, filled = _put(out, waiting, filled, ((np.uint64(12) | sign) << 8) | size, 12)
        elif -2047 < second and second < 2048:
            out, waiting, filled = _put(out, waiting, filled, ((np.uint64(28) | sign) << 11) | size, 16)
        elif -2147483648 < second and second < 2147483647:
            out, waiting, filled = _put(out, waiting, filled, ((np.uint64(60) | sign) << 31) | size, 37)
        else:
            out, waiting, filled = _put(out, waiting, filled, ((np.uint64(62) | sign) << 31) | (size >> 32), 37)
            out, waiting, filled = _put(out, waiting, filled, size & np.uint64(0xFFFFFFFF), 32)
    return out - start + (1 if filled else 0)


@kernel("int64(int64, int64, int64, int64, int64)")
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
        word = _window(source, bit)
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
        if bits == 63:
            second = _take(source, bit + 6, 63) + _1
        else:
            second = ((word << (at + 1)) >> (64 - bits)) + _1
        delta = delta - second if negative else delta + second
        value += delta
        store(out + i * width, width, value)
        bit += at + 1 + bits
        i += 1
    return 0 if bit <= limit else -1


@kernel("int64(int64, int64, int64, int64)")
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
            out, waiting, filled = _put(out, waiting, filled, _0, 1)
            continue
        before = leading_zeros(changed) - unused
        after = trailing_zeros(changed)
        if length and lead <= before and trail <= after:
            out, waiting, filled = _put(out, waiting, filled, _2, 2)
        else:
            lead, trail, length = before, after, 8 * width - before - after
            head = (((_3 << (length_bits - 1)) | np.uint64(lead)) << length_bits) | np.uint64(length)
            out, waiting, filled = _put(out, waiting, filled, head, 2 * length_bits + 1)
        data = changed >> trail
        if length > 32:
            out, waiting, filled = _put(out, waiting, filled, data >> 32, length - 32)
            out, waiting, filled = _put(out, waiting, filled, data & np.uint64(0xFFFFFFFF), 32)
        else:
            out, waiting, filled = _put(out, waiting, filled, data, length)
    return out - start + (1 if filled else 0)


@kernel("int64(int64, int64, int64, int64, int64)")
def gorilla_decode(source: int, size: int, count: int, width: int, out: int) -> int:
    """Read `count` (1 at least) values from their first value on, `size` bytes, padded; 0, or -1: corrupt."""
    value = load(source, width)
    store(out, width, value)
    bit = 8 * width
    limit = 8 * size
    length_bits = 4 + (width > 1) + (width > 2) + (width > 4)
    trail, length = 0, 0
    for i in range(1, count):
        if bit >= limit:
            return -1
        word = _window(source, bit)
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
            value ^= _take(source, bit, length) << trail
            bit += length
        store(out + i * width, width, value)
    return 0 if bit <= limit else -1
