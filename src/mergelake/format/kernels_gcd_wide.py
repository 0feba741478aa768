"""Loops of GCD for values of 16 and 32 bytes: limbs of 64 bits, lowest first. The rules are those of `kernels_gcd`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.jit.intrinsics import inlined, kernel, leading_zeros, load32, load64, store32, store64

_0, _1 = np.uint64(0), np.uint64(1)


@inlined
def _wide(source: int, limbs: int, signed: int, out: Any) -> bool:
    """The magnitude of a value as limbs, and whether its quotient is negative."""
    for j in range(limbs):
        out[j] = load64(source + 8 * j)
    if signed == 0 or out[limbs - 1] >> 63 == _0:
        return False
    carry = _1
    for j in range(limbs):
        out[j] = ~out[j] + carry
        carry = _1 if carry == _1 and out[j] == _0 else _0
    return bool(out[limbs - 1] >> 63 == _0)


@inlined
def _top(value: Any, limbs: int) -> int:
    """Bits of a number without its leading zeros."""
    for j in range(limbs - 1, -1, -1):
        if value[j] != _0:
            return int(64 * j + 64 - leading_zeros(value[j]))
    return 0


@inlined
def _divide(value: Any, divisor: Any, limbs: int, rest: Any) -> None:
    """Bit by bit: `value` becomes the quotient, `rest` the remainder. `divisor` is not zero."""
    bits = _top(value, limbs)
    for j in range(limbs):
        rest[j] = _0
    if bits <= 64 and _top(divisor, limbs) <= 64:
        rest[0] = value[0] % divisor[0]
        value[0] //= divisor[0]
        return
    for at in range(bits - 1, -1, -1):
        carry = (value[at >> 6] >> (at & 63)) & _1
        for j in range(limbs):
            out = rest[j] >> 63
            rest[j] = (rest[j] << 1) | carry
            carry = out
        # A bit that leaves `rest` makes it greater than any divisor.
        fits = True
        if carry == _0:
            for j in range(limbs - 1, -1, -1):
                if rest[j] != divisor[j]:
                    fits = rest[j] > divisor[j]
                    break
        bit = _1 << (at & 63)
        value[at >> 6] &= ~bit
        if fits:
            value[at >> 6] |= bit
            borrow = _0
            for j in range(limbs):
                before = rest[j]
                rest[j] = before - divisor[j] - borrow
                borrow = _1 if before < divisor[j] or (before == divisor[j] and borrow == _1) else _0


@inlined
def _copy(target: Any, source: Any) -> None:
    for j in range(4):
        target[j] = source[j]


@kernel
def gcd_encode_wide(source: int, count: int, width: int, signed: int, out: int) -> None:
    """`gcd_encode` for `width` 16 and 32."""
    limbs = width >> 3
    divisor, value = np.zeros(4, np.uint64), np.zeros(4, np.uint64)
    other, rest = np.zeros(4, np.uint64), np.zeros(4, np.uint64)
    for i in range(count):
        _wide(source + i * width, limbs, signed, other)
        while _top(other, limbs):
            if _top(divisor, limbs) == 0:
                _copy(divisor, other)
                break
            # (divisor, other) = (other, divisor mod other), beginning with other mod divisor.
            _divide(other, divisor, limbs, rest)
            if _top(rest, limbs) == 0:
                break
            _copy(other, divisor)
            _copy(divisor, rest)
        if _top(divisor, limbs) == 1:
            break
    for j in range(limbs):
        store64(out + 8 * j, divisor[j])
    out += width
    bits = _top(divisor, limbs)
    for i in range(count):
        negative = _wide(source + i * width, limbs, signed, value)
        if bits > 1:
            _divide(value, divisor, limbs, rest)
        carry = _1
        for j in range(limbs):
            if negative:
                value[j] = ~value[j] + carry
                carry = _1 if carry == _1 and value[j] == _0 else _0
            store64(out + i * width + 8 * j, value[j])


@kernel
def gcd_decode_wide(source: int, count: int, width: int, out: int) -> None:
    """`gcd_decode` for `width` 16 and 32: school multiplication by digits of 32 bits."""
    digits = width >> 2
    product = np.zeros(8, np.uint64)
    for i in range(1, count + 1):
        for a in range(8):
            product[a] = _0
        for a in range(digits):
            factor = load32(source + 4 * a)
            carry = _0
            for b in range(digits - a):
                carry += factor * load32(source + i * width + 4 * b) + product[a + b]
                product[a + b] = carry & np.uint64(0xFFFFFFFF)
                carry >>= 32
        for a in range(digits):
            store32(out + (i - 1) * width + 4 * a, product[a])
