"""Pieces of memory with an address: what this room's kernels read and write."""

from __future__ import annotations

import ctypes
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bytes: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer | NDArray[Any]"
"""Anything that holds bytes one after another."""


class Region:
    """`size` readable bytes at `address`, alive as long as `owner`."""

    __slots__ = ("address", "owner", "size")

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.address = address
        self.size = size
        self.owner = owner

    def tail(self, start: int) -> Region:
        """The bytes from `start` on."""
        return Region(self.address + start, self.size - start, self.owner)

    def part(self, start: int, end: int) -> Region:
        """The bytes [start, end)."""
        return Region(self.address + start, end - start, self.owner)

    def byte(self, at: int) -> int:
        """One byte."""
        return int(ctypes.c_uint8.from_address(self.address + at).value)

    def tobytes(self) -> bytes:
        """A copy of the bytes."""
        return ctypes.string_at(self.address, self.size)

    def buffer(self) -> pa.Buffer:
        """The bytes as an Arrow buffer, nothing copied."""
        return pa.foreign_buffer(self.address, self.size, self.owner)


def region(data: Bytes | Region) -> Region:
    """`data` as a region, nothing copied."""
    if isinstance(data, Region):
        return data
    if isinstance(data, np.ndarray):
        if not data.flags.c_contiguous:
            data = np.ascontiguousarray(data)
        return Region(data.ctypes.data, data.nbytes, data)
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    return Region(buffer.address, buffer.size, buffer)


_ALIGNMENT, _SPARE = 64, 64


def allocate(size: int, lead: int = 0) -> Region:
    """Fresh bytes; byte `lead` of them lies at a multiple of 64, where Arrow likes its values.

    64 more bytes may be read and overwritten behind them, so kernels may copy in whole vectors. The memory comes
    from Arrow's pool, which keeps what was freed: large pieces from malloc would be mapped, and so faulted in, anew.
    """
    owner = pa.allocate_buffer(size + _ALIGNMENT + _SPARE)
    start = owner.address
    return Region(start + (-(start + lead)) % _ALIGNMENT, size, owner)


ROOM = 320
"""Bytes before a region of `with_room`: the headers of a compressed block and of a chain of 255 codecs fit."""


def with_room(size: int) -> Region:
    """Fresh bytes with `ROOM` bytes before them that may be overwritten, for headers."""
    return allocate(size + ROOM).tail(ROOM)


def padded(data: Region) -> Region:
    """A copy behind which kernels may read up to 64 bytes."""
    out = allocate(data.size)
    ctypes.memmove(out.address, data.address, data.size)
    return out


def copy_in(target: Region, data: bytes) -> None:
    """Write `data` to the start of `target`, which must be long enough."""
    ctypes.memmove(target.address, data, len(data))


def as_writable(data: Region, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The whole values in a region as an array that may be written; it does not keep the region alive."""
    count = data.size // dtype.itemsize
    return np.frombuffer(memoryview((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(data.address)), dtype)
