"""ClickHouse's SipHash-2-4 with key zero, on rows of bytes; offsets must be ascending and inside the data.

Source: ClickHouse, `src/Common/SipHash.h`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mergelake.core.jit.intrinsics import inlined, kernel


def siphash_rows(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """SipHash-128 of each row `data[offsets[i]:offsets[i + 1]]`: a (rows, 2) matrix of words.

    The xor of the two words of a row is its SipHash-64.
    """
    out = np.empty((len(offsets) - 1, 2), np.uint64)
    _rows(data, offsets, out)
    return out


@inlined
def _rotate(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined
def _round(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    v0 += v1
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 += v3
    v3 = _rotate(v3, 16) ^ v2
    v0 += v3
    v3 = _rotate(v3, 21) ^ v0
    v2 += v1
    v1 = _rotate(v1, 17) ^ v2
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


@kernel
def _rows(data: NDArray[np.uint8], offsets: NDArray[np.int64], out: NDArray[np.uint64]) -> None:
    for row in range(len(offsets) - 1):
        v0 = np.uint64(0x736F6D6570736575)
        v1 = np.uint64(0x646F72616E646F6D)
        v2 = np.uint64(0x6C7967656E657261)
        v3 = np.uint64(0x7465646279746573)
        at = offsets[row]
        end = offsets[row + 1]
        length = end - at
        last = False
        while not last:
            last = end - at < 8
            word = np.uint64(0)
            for i in range(min(end - at, 8)):
                word |= np.uint64(data[at + i]) << np.uint64(8 * i)
            if last:
                word |= np.uint64(length & 255) << np.uint64(56)
            at += 8
            v3 ^= word
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0 ^= word
        v2 ^= np.uint64(0xFF)
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        out[row, 0] = v0 ^ v1
        out[row, 1] = v2 ^ v3
