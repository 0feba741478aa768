"""SipHash-128 as ClickHouse computes it: SipHash-2-4, key zero, and a finalisation of its own.

It differs from the published 128-bit variant in two places: 0xff instead of 0xee goes into v2 before the
last four rounds, and the output is (v0 ^ v1, v2 ^ v3). Partition ids print its 16 bytes in order, long file
names print them reversed (as a big-endian number).

Source: ClickHouse, `src/Common/SipHash.h`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mergelake.format.jit import inlined, kernel
from mergelake.format.ragged import Cells


def siphash128(data: bytes) -> bytes:
    """The 16 bytes of the hash of `data`, in output order.

    >>> siphash128(b"hello").hex()
    '54f0c4900581e097eda2332258dc211b'
    """
    offsets = np.array([0, len(data)], np.int64)
    return bytes(_hash_rows(np.frombuffer(data, np.uint8), offsets).tobytes())


def siphash128_rows(cells: Cells) -> NDArray[np.uint8]:
    """The hash of each row: a (rows, 16) matrix of bytes in output order."""
    hashes: NDArray[np.uint64] = _hash_rows(cells.data, cells.offsets)
    return hashes.view(np.uint8).reshape(len(cells), 16)


@inlined
def _rotate(value: Any, bits: Any) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
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


@kernel()
def _hash_rows(data: Any, offsets: Any) -> Any:
    rows = len(offsets) - 1
    out = np.empty((rows, 2), np.uint64)
    for row in range(rows):
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
    return out
