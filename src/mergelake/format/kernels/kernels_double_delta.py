"""Kernels of DoubleDelta: differences of differences as bits.

`0` is no difference; `10`, `110`, `1110`, `11110` and `11111` are followed by a sign bit and the magnitude less one in
6, 8, 11, 31 and 63 bits.

Source: ClickHouse, `CompressionCodecDoubleDelta.cpp`, `getDeltaWriteSpec`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.core.jit.intrinsics import inlined, kernel, leading_zeros, store32
from mergelake.format.kernels.kernels_bits import COUNT_BYTES, LOW_32_BITS, WINDOW_BITS, load, put, store, take, window

VALUE_BYTES_MAX = 9
"""Bytes that a value takes at most: 5 + 1 + 63 bits."""
_0, _1 = np.uint64(0), np.uint64(1)
_BITS_2, _BITS_3, _BITS_4, _BITS_5, _BITS_WIDE = 6, 8, 11, 31, 63
"""Bits of the magnitude behind a prefix of 2, 3, 4 and 5 bits, and behind the prefix of 5 ones."""
_PREFIX_2, _PREFIX_3, _PREFIX_4, _PREFIX_5, _PREFIX_WIDE = (
    np.uint64(p) for p in (0b10, 0b110, 0b1110, 0b11110, 0b11111)
)
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1


@inlined
def _put(out: int, waiting: Any, filled: int, prefix: Any, prefix_bits: int, sign: Any, size: Any, bits: int) -> Any:
    """Append prefix, sign and `size` in `bits`; new (out, waiting, filled)."""
    return put(out, waiting, filled, (((prefix << 1) | sign) << bits) | size, prefix_bits + 1 + bits)


@kernel
def double_delta_encode(source: int, count: int, width: int, out: int) -> int:
    """Write `count` values.

    Returns the bytes written: at most `VALUE_BYTES_MAX` a value, and `STREAM_SPARE`.
    """
    store32(out, np.uint64(count))
    start = out
    out += COUNT_BYTES
    if count == 0:
        return COUNT_BYTES
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
        # Differences wrap at the width of the values: the shifts extend the sign.
        second = np.int64((step - delta) << shift) >> shift
        last = value
        delta = step
        if second == 0:
            out, waiting, filled = put(out, waiting, filled, _0, 1)
            continue
        sign = _1 if second < 0 else _0
        size = np.uint64(-second if second < 0 else second) - _1
        if 1 - (1 << _BITS_2) < second < 1 << _BITS_2:
            out, waiting, filled = _put(out, waiting, filled, _PREFIX_2, 2, sign, size, _BITS_2)
        elif 1 - (1 << _BITS_3) < second < 1 << _BITS_3:
            out, waiting, filled = _put(out, waiting, filled, _PREFIX_3, 3, sign, size, _BITS_3)
        elif 1 - (1 << _BITS_4) < second < 1 << _BITS_4:
            out, waiting, filled = _put(out, waiting, filled, _PREFIX_4, 4, sign, size, _BITS_4)
        elif _INT32_MIN < second < _INT32_MAX:
            out, waiting, filled = _put(out, waiting, filled, _PREFIX_5, 5, sign, size, _BITS_5)
        else:
            # In two pieces: `put` takes 56 bits at most.
            out, waiting, filled = _put(out, waiting, filled, _PREFIX_WIDE, 5, sign, size >> 32, _BITS_WIDE - 32)
            out, waiting, filled = put(out, waiting, filled, size & LOW_32_BITS, 32)
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
            run = min(run, WINDOW_BITS, count - i)
            for _ in range(run):
                value += delta
                store(out + i * width, width, value)
                i += 1
            bit += run
            continue
        ones = leading_zeros(~word)
        if ones == 1:
            prefix_bits, bits = 2, _BITS_2
        elif ones == 2:
            prefix_bits, bits = 3, _BITS_3
        elif ones == 3:
            prefix_bits, bits = 4, _BITS_4
        elif ones == 4:
            prefix_bits, bits = 5, _BITS_5
        else:
            prefix_bits, bits = 5, _BITS_WIDE
        negative = (word >> (63 - prefix_bits)) & _1
        if bits == _BITS_WIDE:  # more than the window holds
            size_less_one = take(source, bit + prefix_bits + 1, _BITS_WIDE)
        else:
            size_less_one = (word << (prefix_bits + 1)) >> (64 - bits)
        second = size_less_one + _1
        delta = delta - second if negative else delta + second
        value += delta
        store(out + i * width, width, value)
        bit += prefix_bits + 1 + bits
        i += 1
    return 0 if bit <= limit else -1
