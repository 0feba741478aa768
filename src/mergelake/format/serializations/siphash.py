"""SipHash-128 as ClickHouse computes it: SipHash-2-4, key zero, and a finalisation of its own.

It differs from the published 128-bit variant in two places: 0xff instead of 0xee goes into v2 before the
last four rounds, and the output is (v0 ^ v1, v2 ^ v3). Partition ids print its 16 bytes in order, long file
names print them reversed (as a big-endian number).

Source: ClickHouse, `src/Common/SipHash.h`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mergelake.core.jit.sip_hash import siphash_rows
from mergelake.format.serializations.ragged import VarBinaryColumn


def siphash128(data: bytes) -> bytes:
    """The 16 bytes of the hash of `data`, in output order.

    >>> siphash128(b"hello").hex()
    '54f0c4900581e097eda2332258dc211b'
    """
    offsets = np.array([0, len(data)], np.int64)
    return siphash_rows(np.frombuffer(data, np.uint8), offsets).tobytes()


def siphash128_rows(cells: VarBinaryColumn) -> NDArray[np.uint8]:
    """The hash of each row: a (rows, 16) matrix of bytes in output order."""
    return siphash_rows(cells.data, cells.offsets).view(np.uint8).reshape(len(cells), 16)
