"""Values of any width, and streams of bits, the most significant first, for the kernels of codecs.

A reader may look up to 16 bytes past the stream, so its caller pads it and checks for each value how far it has come.
A writer may write up to 8 bytes past what it has filled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mergelake.core.jit.intrinsics import (
    inlined,
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
)

START_BYTES = 2
"""What payloads of all codecs of values but T64 and FPC start with: u8 width of a value, u8 number of odd bytes.

The odd bytes follow, plain size mod width of them. Source: ClickHouse, `CompressionCodecDelta.cpp` and the like.
"""
COUNT_BYTES = 4
"""DoubleDelta and Gorilla write the number of values as u32 before the first."""
STREAM_SPARE = 24
"""Room beyond the values that the encoders of DoubleDelta and Gorilla need: the count and whole words at the end."""
WINDOW_BITS = 57
"""Bits of a stream that `window` is sure to hold: a word less the up to 7 bits before them in their byte."""
LOW_32_BITS = np.uint64(0xFFFFFFFF)
VARINT_MORE, VARINT_BITS = 0x80, 0x7F
"""In a byte of a varint: another one follows; the bits of the number, 7 in each byte, the lowest first."""


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
def put(out: int, waiting: Any, filled: int, value: Any, bits: int) -> Any:
    """Append the low `bits` (1 to 56) of `value` to the `filled` (below 8) bits of `waiting`.

    `waiting` holds the bits of the last, incomplete byte. Returns the new (out, waiting, filled).
    """
    waiting = (waiting << bits) | value
    filled += bits
    store64(out, swap64(waiting << (64 - filled)))
    return out + (filled >> 3), waiting, filled & 7


@inlined
def window(source: int, bit: int) -> Any:
    """The stream from `bit` on, in the upper bits; at least `WINDOW_BITS` of them."""
    return swap64(load64(source + (bit >> 3))) << (bit & 7)


@inlined
def take(source: int, bit: int, bits: int) -> Any:
    """The next `bits` (1 to 64)."""
    word = window(source, bit)
    used = bit & 7
    if used:
        word |= np.uint64(peek8(source + (bit >> 3) + 8) >> (8 - used))
    return word >> (64 - bits)
