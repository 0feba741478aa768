"""Kernels of GCD: values divided by their greatest common divisor, and multiplied back, modulo 2^(8 width).

The divisor is that of the magnitudes; a negative value has a negative quotient, except for the lowest value of its
type, which has no magnitude and stays positive.

Source: ClickHouse, `CompressionCodecGCD.cpp`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.core.jit.intrinsics import inlined, kernel
from mergelake.format.kernels.kernels_bits import load, store

_0, _1 = np.uint64(0), np.uint64(1)


@inlined
def _gcd(a: Any, b: Any) -> Any:
    while b != _0:
        a, b = b, a % b
    return a


@inlined
def _magnitude(source: int, width: int, signed: int) -> Any:
    """The magnitude of a value, and whether its quotient is negative."""
    value = load(source, width)
    shift = 64 - 8 * width
    number = np.int64(value << shift) >> shift
    if signed and number < 0:
        lowest = np.uint64(number) << shift == _1 << 63
        return np.uint64(-number), not lowest
    return value, False


@kernel
def gcd_encode(source: int, count: int, width: int, signed: int, out: int) -> None:
    """Write the divisor and `count` quotients, for `width` 1, 2, 4 and 8."""
    divisor: Any = _0
    for i in range(count):
        value, _ = _magnitude(source + i * width, width, signed)
        divisor = _gcd(value, divisor)
        if divisor == _1:
            break
    store(out, width, divisor)
    out += width
    for i in range(count):
        value, negative = _magnitude(source + i * width, width, signed)
        if divisor > _1:
            value //= divisor
        store(out + i * width, width, _0 - value if negative else value)


@kernel
def gcd_decode(source: int, count: int, width: int, out: int) -> None:
    """Read the divisor and `count` quotients, for `width` 1, 2, 4 and 8."""
    divisor = load(source, width)
    source += width
    for i in range(count):
        store(out + i * width, width, load(source + i * width, width) * divisor)
