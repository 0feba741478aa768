"""One object's bytes on a local disk, as far as they were read: a file of records, which only grows.

A record is a stretch of the object, with a checksum for each `CHUNK_BYTES` of it, little-endian::

    "MLc1" | crc32 of what follows | start | length | crc32 of each chunk ... | the bytes
       4               4               8       8              4 each

The crc32 of the head begins with the name of the object, so that a file under another's name is not taken for it.
Nobody changes what is written. So a reader needs no lock: it takes the records as far as they are whole. A writer has
the file's lock. Behind a record that a dead writer left unfinished it cuts the file; a file with anything else that is
no record is damaged.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from enum import Enum

from mergelake.store.intervals import Intervals
from mergelake.store.protocol import Buffer

CHUNK_BYTES = 64 << 10
RECORD_MAX = 256 << 20
"""Bytes of the object in one record."""
_MAGIC = b"MLc1"
_HEAD = struct.Struct("<4sIQQ")
_LOOK_BYTES = 4096
"""Read for the head of a record, and as a rule its checksums."""


class Stretch:
    """Bytes `start` to `end` of the object, which lie in the file from `offset` on."""

    __slots__ = ("end", "offset", "sound", "start", "sums")

    def __init__(self, start: int, end: int, offset: int, sums: tuple[int, ...]) -> None:
        self.start, self.end, self.offset = start, end, offset
        self.sums = sums
        """Of each chunk."""
        self.sound = bytearray(len(sums))
        """Which chunks had their checksum when they were read, since the file was last changed by others."""


class Tail(Enum):
    """What follows the last whole record."""

    END = "nothing"
    TORN = "a record that is not finished, or cut"
    DAMAGED = "something else"


class CacheFile:
    """What this process knows of a file. Its methods take the open file; the caller has the lock of this object."""

    __slots__ = ("_seed", "_state", "end", "held", "inode")

    def __init__(self, name: bytes) -> None:
        self._seed = zlib.crc32(name)
        self._reset((-1, -1))

    def _reset(self, inode: tuple[int, int]) -> None:
        self.inode = inode
        """Device and number of the file that all this is about."""
        self._state = (-1, -1)
        self.end = 0
        """Where the last whole record ends."""
        self.held: Intervals[Stretch] = Intervals()

    def refresh(self, fd: int, status: os.stat_result) -> Tail:
        """Learn what was added to the file; all anew if it is another one, or was cut.

        Where anybody else has changed it, every chunk is looked at again when it is next read.
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
        """Whether all this is about that file, as it was last seen or longer."""
        return self.inode == (status.st_dev, status.st_ino) and status.st_size >= self.end

    def written(self, status: os.stat_result) -> None:
        """Take this for the state in which this process has left the file."""
        self._state = (status.st_mtime_ns, status.st_size)

    def append(self, fd: int, start: int, body: memoryview) -> int:
        """Write what is not held yet of these bytes of the object; the bytes by which the file has grown.

        The caller has the file's lock, and nothing follows the last record. OSError leaves the file as it was.
        """
        grown = 0
        for first, end, held in self.held.cover(start, start + len(body)):
            for at in range(first, end, RECORD_MAX) if held is None else ():
                stop = min(end, at + RECORD_MAX)
                grown += self._append(fd, at, body[at - start : stop - start])
        return grown

    def _append(self, fd: int, start: int, body: memoryview) -> int:
        sums = tuple(zlib.crc32(chunk) for chunk in _chunks(body))
        told = _HEAD.pack(_MAGIC, 0, start, len(body))[8:] + struct.pack(f"<{len(sums)}I", *sums)
        head = _MAGIC + struct.pack("<I", zlib.crc32(told, self._seed)) + told
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
            look = os.pread(fd, _LOOK_BYTES, self.end)
            if len(look) < _HEAD.size:
                return Tail.TORN if look[:4] == _MAGIC[: len(look[:4])] else Tail.DAMAGED
            magic, crc, start, length = _HEAD.unpack_from(look)
            if magic != _MAGIC or not 0 < length <= RECORD_MAX:
                return Tail.DAMAGED
            ahead = _HEAD.size + 4 * -(-length // CHUNK_BYTES)
            if len(look) < ahead:
                look += os.pread(fd, ahead - len(look), self.end + len(look))
            if len(look) < ahead:
                return Tail.TORN
            if zlib.crc32(memoryview(look)[8:ahead], self._seed) != crc:
                return Tail.DAMAGED
            if self.end + ahead + length > size:
                return Tail.TORN
            sums = struct.unpack(f"<{(ahead - _HEAD.size) // 4}I", look[_HEAD.size : ahead])
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
