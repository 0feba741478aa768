"""Kernels that walk over states of aggregate functions by a program, to find where each ends.

A program is rows of (operation, a, b); jumps are relative, so programs can be put one behind the other::

    FIXED      a bytes
    VARUINT    one varuint
    TEXT       i32 length (-1: none), that many bytes
    BYTES      varuint length, that many bytes
    LIST       a count (b: 0 a varuint, 1 a u64, 2 a u16), that many times a bytes
    LOOP       a count (a: as b of LIST), then b rows that many times
    NEXT       the end of a loop whose body has b rows
    SWITCH     a byte; of the a rows that follow (CASE, byte, jump) the one that fits is taken, another byte is an error
    GOTO       a jump of b rows
    RESERVOIR  u64 room, u64 count, varuint length and bytes, then the lesser of both times a bytes
    PAIR       two varuints, as many times a bytes as both together
    UP_TO      u8 count, and if it is not above a, that many times b bytes
    HEADED     u64 count, 8 bytes, so many times a bytes
    TIMING     u64 count; above a limit 2835 u64, else (u16, u64) up to the u16 30000

Every length is compared with what is left before it is used; a count is at most the bytes that are left.
"""

from __future__ import annotations

from typing import Any

from mergelake.core.jit.intrinsics import kernel
from mergelake.format.kernels.kernels_bits import VARINT_BITS, VARINT_MORE

(FIXED, VARUINT, TEXT, BYTES, LIST, LOOP, NEXT, SWITCH, CASE, GOTO, RESERVOIR, PAIR, UP_TO, HEADED, TIMING) = range(15)
COUNT_VARUINT, COUNT_U64, COUNT_U16 = range(3)
DEPTH = 16
"""Loops inside of each other."""
_TIMING_WORDS, _TIMING_END = 2835, 30000
"""Counters of the large form, and the number that ends the list of those that are set.

Source: ClickHouse, `QuantileTiming.h`, `QuantileTimingLarge`.
"""
_SHIFT_MAX = 56
"""Where the last byte of a varuint of 63 bits goes: a larger number is no count that we could walk over."""
_INT32_MAX, _NO_TEXT = 0x7FFFFFFF, 0xFFFFFFFF
"""The largest i32, and -1 as `_word` reads it."""
_INT64_MAX = 0x7FFFFFFFFFFFFFFF


@kernel
def _varuint(source: Any, at: int) -> tuple[int, int]:
    """The varuint at `at` and the position behind it, which is -1 for one that ends too early or is too large."""
    value = 0
    shift = 0
    while at < len(source) and shift <= _SHIFT_MAX:
        byte = source[at]
        at += 1
        value |= (byte & VARINT_BITS) << shift
        shift += 7
        if byte < VARINT_MORE:
            return value, at
        if shift > _SHIFT_MAX and at < len(source):
            # The tenth byte of a 64-bit count: only its place matters.
            return _INT64_MAX, at + 1
    return 0, -1


@kernel
def _word(source: Any, at: int, width: int) -> int:
    """The unsigned number of `width` bytes at `at`, -1 if it is cut or too large."""
    if at < 0 or len(source) - at < width:
        return -1
    value = 0
    for b in range(width):
        value |= source[at + b] << (8 * b)
    return value if value >= 0 else -1


@kernel
def _count(source: Any, at: int, kind: int) -> tuple[int, int]:
    """A count of this kind and the position behind it, -1 if it is broken or larger than the bytes that are left."""
    if kind == COUNT_VARUINT:
        value, at = _varuint(source, at)
    else:
        width = 8 if kind == COUNT_U64 else 2
        value = _word(source, at, width)
        at += width
    if at < 0 or value < 0 or value > len(source) - at:
        return 0, -1
    return value, at


@kernel
def _timing(source: Any, at: int) -> int:
    """The end of the large form of quantileTiming at `at`, or -1."""
    total = _word(source, at, 8)
    if total < 0:
        return -1
    at += 8
    if total > _TIMING_WORDS // 2:
        return at + 8 * _TIMING_WORDS
    while True:
        index = _word(source, at, 2)
        if index < 0:
            return -1
        at += 2
        if index == _TIMING_END:
            return at
        at += 8


@kernel
def walk_states(source: Any, steps: Any, rows: int, edges: Any, left: Any) -> int:
    """Fill `edges` with where each of `rows` states starts, and the end; returns the end, -1 if a state is broken.

    `left` is room for the counts of `DEPTH` loops.
    """
    size = len(source)
    at = 0
    for row in range(rows):
        edges[row] = at
        depth = 0
        i = 0
        while i < len(steps):
            op = steps[i, 0]
            a = steps[i, 1]
            b = steps[i, 2]
            i += 1
            if op == FIXED:
                at += a
            elif op == VARUINT:
                _, at = _varuint(source, at)
            elif op == TEXT:
                length = _word(source, at, 4)
                if length < 0 or (length > _INT32_MAX and length != _NO_TEXT):
                    return -1
                at += 4 + (length if length <= _INT32_MAX else 0)
            elif op == BYTES:
                length, at = _count(source, at, COUNT_VARUINT)
                if at >= 0:
                    at += length
            elif op == LIST:
                count, at = _count(source, at, b)
                if at >= 0:
                    at += count * a
            elif op == LOOP:
                count, at = _count(source, at, a)
                if at < 0 or depth >= len(left):
                    return -1
                if count == 0:
                    i += b + 1
                else:
                    left[depth] = count
                    depth += 1
            elif op == NEXT:
                left[depth - 1] -= 1
                if left[depth - 1] > 0:
                    i -= b + 1
                else:
                    depth -= 1
            elif op == SWITCH:
                if at >= size:
                    return -1
                tag = source[at]
                at += 1
                target = -1
                for case in range(a):
                    if steps[i + case, 1] == tag:
                        target = i + case + steps[i + case, 2]
                if target < 0:
                    return -1
                i = target
            elif op == GOTO:
                i += b
            elif op == RESERVOIR:
                room = _word(source, at, 8)
                total = _word(source, at + 8, 8)
                if room < 0 or total < 0:
                    return -1
                length, at = _count(source, at + 16, COUNT_VARUINT)
                if at < 0 or length > size - at:
                    return -1
                at += length
                count = min(room, total)
                if count > size - at:
                    return -1
                at += count * a
            elif op == PAIR:
                first, at = _count(source, at, COUNT_VARUINT)
                if at >= 0:
                    second, at = _count(source, at, COUNT_VARUINT)
                    if at >= 0:
                        at += (first + second) * a
            elif op == UP_TO:
                if at >= size:
                    return -1
                count = source[at]
                at += 1
                if count <= a:
                    at += count * b
            elif op == HEADED:
                count = _word(source, at, 8)
                if count < 0 or count > size - at:
                    return -1
                at += 16 + count * a
            else:
                at = _timing(source, at)
            if at < 0 or at > size:
                return -1
        if at > _INT32_MAX:
            return -1
    edges[rows] = at
    return at
