"""The bytes of one object on a local disk, as far as they were read: an append-only file of records.

A record is an interval of the object, with a checksum for each `CHUNK_BYTES` of it, little-endian::

    "MLc1" | crc32 of what follows | start | length | crc32 of each chunk ... | the bytes
       4               4               8       8              4 each

The crc32 of the head includes the name of the object, so that a file under another name is not taken for it. Written
bytes are never changed. So a reader needs no lock: it reads the records up to the last complete one. A writer holds the
file's lock, and cuts off a record that a dead writer left unfinished; a file with other bytes is damaged.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from enum import Enum

from mergelake.store.cache.intervals import Intervals
from mergelake.store.interface.protocol import Buffer

CHUNK_BYTES = 64 << 10
RECORD_MAX = 256 << 20
"""Bytes of the object in one record."""
_MAGIC = b"MLc1"
_HEAD = struct.Struct("<4sIQQ")
_LOOK_BYTES = 4096
"""Bytes read for the head of a record; mostly enough for its checksums."""


class Stretch:
    """Bytes `start` to `end` of the object, which lie in the file from `offset` on."""

    __slots__ = ("end", "offset", "sound", "start", "sums")

    def __init__(self, start: int, end: int, offset: int, sums: tuple[int, ...]) -> None:
        self.start, self.end, self.offset = start, end, offset
        self.sums = sums
        """Checksum of each chunk."""
        self.sound = bytearray(len(sums))
        """By chunk: 1 if it was verified since the file was last changed by another process."""


class Tail(Enum):
    """What follows the last complete record."""

    END = "nothing"
    TORN = "a record that is not finished, or cut"
    DAMAGED = "something else"


class CacheFile:
    """What this process knows of a file. Methods take its descriptor; the caller holds the lock of this object."""

    __slots__ = ("_seed", "_state", "end", "held", "inode")

    def __init__(self, name: bytes) -> None:
        self._seed = zlib.crc32(name)
        self._reset((-1, -1))

    def _reset(self, inode: tuple[int, int]) -> None:
        self.inode = inode
        """Device and inode of the file."""
        self._state = (-1, -1)
        self.end = 0
        """End of the last complete record."""
        self.held: Intervals[Stretch] = Intervals()

    def refresh(self, fd: int, status: os.stat_result) -> Tail:
        """Read the records added to the file; all of them if it is another file, or was cut.

        If another process has changed it, every chunk is verified again when it is next read.
        """
        inode, state = (status.st_dev, status.st_ino), (status.st_mtime_ns, status.st_size)
        if inode != self.inode or status.st_size < self.end:
            self._reset(inode)
        if state != self._state:
            for stretch in self.held:
                stretch.sound = bytearray(len(stretch.sums))
        tail = self._learn(fd, status.st_size)
        self._state = state
        return tail

    def is_of(self, status: os.stat_result) -> bool:
        """Whether this describes that file, unchanged or grown since."""
        return self.inode == (status.st_dev, status.st_ino) and status.st_size >= self.end

    def written(self, status: os.stat_result) -> None:
        """Note the state in which this process has left the file."""
        self._state = (status.st_mtime_ns, status.st_size)

    def append(self, fd: int, start: int, body: memoryview) -> int:
        """Write those of these bytes of the object that are not held yet; returns by how many bytes the file has grown.

        The caller holds the file's lock, and nothing follows the last record. OSError leaves the file unchanged.
        """
        grown = 0
        for first, end, held in self.held.cover(start, start + len(body)):
            for at in range(first, end, RECORD_MAX) if held is None else ():
                stop = min(end, at + RECORD_MAX)
                grown += self._append(fd, at, body[at - start : stop - start])
        return grown

    def _append(self, fd: int, start: int, body: memoryview) -> int:
        sums = tuple(zlib.crc32(chunk) for chunk in _chunks(body))
        rest = _HEAD.pack(_MAGIC, 0, start, len(body))[8:] + struct.pack(f"<{len(sums)}I", *sums)
        head = _MAGIC + struct.pack("<I", zlib.crc32(rest, self._seed)) + rest
        size = len(head) + len(body)
        written = -1
        try:
            written = os.pwritev(fd, [head, body], self.end)
        finally:
            if written != size:
                os.ftruncate(fd, self.end)
        if written != size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.held.add(Stretch(start, start + len(body), self.end + len(head), sums))
        self.end += size
        return size

    def _learn(self, fd: int, size: int) -> Tail:
        while self.end < size:
            buffer = os.pread(fd, _LOOK_BYTES, self.end)
            if len(buffer) < _HEAD.size:
                return Tail.TORN if buffer[:4] == _MAGIC[: len(buffer[:4])] else Tail.DAMAGED
            magic, crc, start, length = _HEAD.unpack_from(buffer)
            if magic != _MAGIC or not 0 < length <= RECORD_MAX:
                return Tail.DAMAGED
            ahead = _HEAD.size + 4 * -(-length // CHUNK_BYTES)
            if len(buffer) < ahead:
                buffer += os.pread(fd, ahead - len(buffer), self.end + len(buffer))
            if len(buffer) < ahead:
                return Tail.TORN
            if zlib.crc32(memoryview(buffer)[8:ahead], self._seed) != crc:
                return Tail.DAMAGED
            if self.end + ahead + length > size:
                return Tail.TORN
            sums = struct.unpack(f"<{(ahead - _HEAD.size) // 4}I", buffer[_HEAD.size : ahead])
            self.held.add(Stretch(start, start + length, self.end + ahead, sums))
            self.end += ahead + length
        return Tail.END


def read(fd: int, stretch: Stretch, start: int, end: int) -> Buffer | None:
    """Bytes `start` to `end` of the object, within a stretch of the file; None if they are damaged or gone."""
    sound = stretch.sound
    first, last = (start - stretch.start) // CHUNK_BYTES, -(-(end - stretch.start) // CHUNK_BYTES)
    if sound.find(0, first, last) < 0:
        body = os.pread(fd, end - start, stretch.offset + start - stretch.start)
        return body if len(body) == end - start else None
    low, high = stretch.start + first * CHUNK_BYTES, min(stretch.end, stretch.start + last * CHUNK_BYTES)
    view = memoryview(os.pread(fd, high - low, stretch.offset + low - stretch.start))
    if len(view) != high - low:
        return None
    for number, chunk in enumerate(_chunks(view), first):
        if zlib.crc32(chunk) != stretch.sums[number]:
            return None
        sound[number] = 1
    return view[start - low : end - low]


def _chunks(body: memoryview) -> Iterator[memoryview]:
    return (body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES))
