"""The hashes of parts: CityHash128 of a compressed block, and the file hash that `checksums.txt` holds.

A file hash is a chain: state (0, 0), and for each 2048 bytes (the last piece may be shorter) state = CityHash128 of
the piece seeded with the state. An empty file hashes to zeros. Hashes are written as 32 hex digits in stored order.

Source: ClickHouse, `src/IO/HashingWriteBuffer.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mergelake.core.jit.city_hash128 import CHUNK, city128_at, file_hash_each, file_hash_finish, file_hash_update
from mergelake.format.kernels.memory import Bytes, Region, region


def city128(data: Bytes) -> bytes:
    """CityHash128 (release 1.0.2) of `data`: 16 bytes as a compressed block stores them.

    >>> city128(bytes([3])).hex()
    '555db5cc909437391f57cd6430b1f22a'
    """
    source = region(data)
    out = np.empty(2, np.uint64)
    city128_at(source.address, source.size, out.ctypes.data)
    return out.tobytes()


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Size and hashes of a file, as `checksums.txt` has them."""

    size: int
    """Bytes on disk."""
    hash: str
    """32 hex digits: the file hash of the bytes on disk."""
    uncompressed_size: int = -1
    """For a file of compressed blocks: bytes after decompression; -1 for others."""
    uncompressed_hash: str = ""
    """For a file of compressed blocks: the file hash of the decompressed stream."""


class FileHash:
    """The file hash, fed piece by piece."""

    def __init__(self) -> None:
        self._state = np.zeros(2, np.uint64)
        self._tail = np.empty(CHUNK, np.uint8)
        self._state_at, self._tail_at = self._state.ctypes.data, self._tail.ctypes.data
        self._tail_size = 0
        self.size = 0
        """Bytes fed so far."""

    def update(self, data: Bytes | Region) -> None:
        """Feed the next bytes of the stream."""
        source = region(data)
        self._tail_size = file_hash_update(self._state_at, self._tail_at, self._tail_size, source.address, source.size)
        self.size += source.size

    def hexdigest(self) -> str:
        """32 hex digits of everything fed so far; more may be fed afterwards."""
        state = self._state.copy()
        file_hash_finish(state.ctypes.data, self._tail_at, self._tail_size)
        return state.tobytes().hex()


def file_hash(data: Bytes) -> str:
    """The file hash of `data`, 32 hex digits.

    >>> file_hash(b"13888")
    'b202555322d043617f7a60fe65600216'
    """
    chain = FileHash()
    chain.update(data)
    return chain.hexdigest()


def file_hashes(source: Region, ends: NDArray[np.int64]) -> list[str]:
    """The file hashes of files that lie one behind the other in `source`, each up to one of `ends`."""
    out = np.zeros(2 * len(ends), np.uint64)
    file_hash_each(source.address, ends.ctypes.data, len(ends), out.ctypes.data)
    digits = out.tobytes().hex()
    return [digits[at : at + 32] for at in range(0, len(digits), 32)]


def digest(data: Bytes) -> FileDigest:
    """Size and hash of a file that does not consist of compressed blocks."""
    if isinstance(data, bytes) and len(data) <= _REPEATED_MAX:
        return _digest_small(data)
    return _digest(data)


_REPEATED_MAX = 4096
"""Digests of files up to so many bytes are cached: columns, codec and row count are the same in many parts."""


def _digest(data: Bytes) -> FileDigest:
    chain = FileHash()
    chain.update(data)
    return FileDigest(chain.size, chain.hexdigest())


_digest_small = lru_cache(1024)(_digest)
