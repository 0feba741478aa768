"""Kernels of GCD, by the rules of `kernels_gcd`, for values of 16 and 32 bytes: limbs of 64 bits, lowest first."""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.core.jit.intrinsics import inlined, kernel, leading_zeros, load32, load64, store32, store64
from mergelake.format.kernels.kernels_bits import LOW_32_BITS

_0, _1 = np.uint64(0), np.uint64(1)
_LIMBS_MAX = 4
"""Limbs of a value of 32 bytes."""
_DIGITS_MAX = 8
"""Digits of 32 bits of such a value."""


@inlined
def _negate(value: Any, limbs: int) -> None:
    """The two's complement in place."""
    carry = _1
    for j in range(limbs):
        value[j] = ~value[j] + carry
        carry = _1 if carry == _1 and value[j] == _0 else _0


@inlined
def _magnitude(source: int, limbs: int, signed: int, out: Any) -> bool:
    """The magnitude of a value as limbs, and whether its quotient is negative."""
    for j in range(limbs):
        out[j] = load64(source + 8 * j)
    if signed == 0 or out[limbs - 1] >> 63 == _0:
        return False
    _negate(out, limbs)
    return bool(out[limbs - 1] >> 63 == _0)


@inlined
def _bit_length(value: Any, limbs: int) -> int:
    """Bits of a number without its leading zeros."""
    for j in range(limbs - 1, -1, -1):
        if value[j] != _0:
            return int(64 * j + 64 - leading_zeros(value[j]))
    return 0


@inlined
def _divide(value: Any, divisor: Any, limbs: int, remainder: Any) -> None:
    """Long division, bit by bit: `value` becomes the quotient, `remainder` what is left. `divisor` is not zero."""
    bits = _bit_length(value, limbs)
    for j in range(limbs):
        remainder[j] = _0
    if bits <= 64 and _bit_length(divisor, limbs) <= 64:
        remainder[0] = value[0] % divisor[0]
        value[0] //= divisor[0]
        return
    for at in range(bits - 1, -1, -1):
        carry = (value[at >> 6] >> (at & 63)) & _1
        for j in range(limbs):
            out = remainder[j] >> 63
            remainder[j] = (remainder[j] << 1) | carry
            carry = out
        # A bit that leaves `remainder` makes it greater than any divisor.
        fits = True
        if carry == _0:
            for j in range(limbs - 1, -1, -1):
                if remainder[j] != divisor[j]:
                    fits = remainder[j] > divisor[j]
                    break
        bit = _1 << (at & 63)
        value[at >> 6] &= ~bit
        if fits:
            value[at >> 6] |= bit
            borrow = _0
            for j in range(limbs):
                before = remainder[j]
                remainder[j] = before - divisor[j] - borrow
                borrow = _1 if before < divisor[j] or (before == divisor[j] and borrow == _1) else _0


@inlined
def _copy(target: Any, source: Any) -> None:
    for j in range(_LIMBS_MAX):
        target[j] = source[j]


@kernel
def gcd_encode_wide(source: int, count: int, width: int, signed: int, out: int) -> None:
    """`gcd_encode` for `width` 16 and 32."""
    limbs = width >> 3
    divisor, value = np.zeros(_LIMBS_MAX, np.uint64), np.zeros(_LIMBS_MAX, np.uint64)
    other, remainder = np.zeros(_LIMBS_MAX, np.uint64), np.zeros(_LIMBS_MAX, np.uint64)
    for i in range(count):
        _magnitude(source + i * width, limbs, signed, other)
        while _bit_length(other, limbs):
            if _bit_length(divisor, limbs) == 0:
                _copy(divisor, other)
                break
            # (divisor, other) = (other, divisor mod other), beginning with other mod divisor.
            _divide(other, divisor, limbs, remainder)
            if _bit_length(remainder, limbs) == 0:
                break
            _copy(other, divisor)
            _copy(divisor, remainder)
        if _bit_length(divisor, limbs) == 1:
            break
    for j in range(limbs):
        store64(out + 8 * j, divisor[j])
    out += width
    bits = _bit_length(divisor, limbs)
    for i in range(count):
        negative = _magnitude(source + i * width, limbs, signed, value)
        if bits > 1:
            _divide(value, divisor, limbs, remainder)
        if negative:
            _negate(value, limbs)
        for j in range(limbs):
            store64(out + i * width + 8 * j, value[j])


@kernel
def gcd_decode_wide(source: int, count: int, width: int, out: int) -> None:
    """`gcd_decode` for `width` 16 and 32: school multiplication by digits of 32 bits."""
    digits = width >> 2
    product = np.zeros(_DIGITS_MAX, np.uint64)
    for i in range(1, count + 1):
        for a in range(_DIGITS_MAX):
            product[a] = _0
        for a in range(digits):
            factor = load32(source + 4 * a)
            carry = _0
            for b in range(digits - a):
                carry += factor * load32(source + i * width + 4 * b) + product[a + b]
                product[a + b] = carry & LOW_32_BITS
                carry >>= 32
        for a in range(digits):
            store32(out + (i - 1) * width + 4 * a, product[a])
