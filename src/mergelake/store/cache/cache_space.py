"""The size of a cache directory, for all processes that share it, and eviction when it is too large.

`usage` is a file of 8-byte numbers, little-endian: the first one is the size when the directory was last listed, each
further one the bytes that some process has stored since, written by one append. So the sum is known without a listing.
A process that finds it too large lists the directory, one process at a time (`lock`), removes the least recently read
files, and writes `usage` anew. A file that is being read stays readable.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_NUMBER = struct.Struct("<Q")
USAGE_FILE_MAX = 1 << 20
"""Size of `usage` in bytes above which it is written anew."""
_OVER = 8
"""The directory may exceed its limit by one part in so many before nothing is stored any more."""
_LEFT_PERCENT = 90
"""Percentage of the limit that is left after an eviction."""


class CacheSpace:
    """The space of one directory. Thread-safe; methods raise OSError."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        self._file = (-1, -1)
        self._used = 0
        self._read = 0

    @property
    def full(self) -> bool:
        """Whether nothing more may be stored, as far as this process knows."""
        return self._used > self._max_bytes + self._max_bytes // _OVER

    def add(self, size: int) -> None:
        """Note `size` bytes more; evicts files if that is too much."""
        with self._lock:
            self._learn(size)
            if self._used <= self._max_bytes and self._read <= USAGE_FILE_MAX:
                return
            fd = os.open(f"{self._folder}/lock", os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._learn(0)  # another process may have made room meanwhile
                if self._used > self._max_bytes or self._read > USAGE_FILE_MAX:
                    self._make_room()
            except BlockingIOError:
                return  # another process makes room
            finally:
                os.close(fd)

    def _learn(self, size: int) -> None:
        fd = os.open(f"{self._folder}/usage", os.O_RDWR | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600)
        try:
            if size:
                os.write(fd, _NUMBER.pack(size))
            status = os.fstat(fd)
            file = (status.st_dev, status.st_ino)
            if file != self._file or status.st_size < self._read:
                self._file, self._used, self._read = file, 0, 0
            numbers = os.pread(fd, status.st_size - self._read, self._read)
            numbers = numbers[: len(numbers) // _NUMBER.size * _NUMBER.size]
            self._used += sum(number for (number,) in _NUMBER.iter_unpack(numbers))
            self._read += len(numbers)
        finally:
            os.close(fd)

    def _make_room(self) -> None:
        files = sorted(_files(self._folder))
        held = sum(size for _, size, _ in files)
        if held > self._max_bytes:
            for _, size, path in files:
                if held <= self._max_bytes * _LEFT_PERCENT // 100:
                    break
                _unlink(path)
                held -= size
        new_path = f"{self._folder}/usage.new"  # only the holder of the lock writes it
        fd = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600)
        try:
            os.write(fd, _NUMBER.pack(held))
        finally:
            os.close(fd)
        os.rename(new_path, f"{self._folder}/usage")
        self._learn(0)


def _files(folder: str) -> Iterator[tuple[int, int, str]]:
    """(when it was last read or written, bytes, path) of each file in the folders of a directory."""
    with os.scandir(folder) as entries:
        folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    for each in folders:
        with os.scandir(each) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield max(status.st_atime_ns, status.st_mtime_ns), status.st_size, entry.path


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
