"""How much a cache directory holds, for all processes that share it, and what goes when that is too much.

`usage` is a file of numbers of 8 bytes, little-endian, each of which is added by one append: bytes that some process
has stored. The first one is what was found when the directory was last looked through. So the sum is known without
listing anything. Whoever finds it larger than it may be looks through the directory, one process at a time (`lock`),
removes the files that were read longest ago, and writes `usage` anew. A file that is just being read stays readable.
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
"""Bytes of `usage`, from which on it is written anew."""
_OVER = 8
"""While nobody makes room, nothing is stored that is more than an eighth too much."""
_LEFT_PERCENT = 90
"""What is left when room was made, of all that may be held."""


class CacheSpace:
    """The room of one directory. Safe for threads; methods raise OSError."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        self._file = (-1, -1)
        self._told = 0
        self._read = 0

    @property
    def full(self) -> bool:
        """Whether there is too much for anything more, as far as this process knows."""
        return self._told > self._max_bytes + self._max_bytes // _OVER

    def add(self, size: int) -> None:
        """So many bytes more are held. Makes room if that is too much."""
        with self._lock:
            self._learn(size)
            if self._told <= self._max_bytes and self._read <= USAGE_FILE_MAX:
                return
            fd = os.open(f"{self._folder}/lock", os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._learn(0)  # somebody else may have made room meanwhile
                if self._told > self._max_bytes or self._read > USAGE_FILE_MAX:
                    self._make_room()
            except BlockingIOError:
                return  # somebody does it
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
                self._file, self._told, self._read = file, 0, 0
            news = os.pread(fd, status.st_size - self._read, self._read)
            news = news[: len(news) // _NUMBER.size * _NUMBER.size]
            self._told += sum(number for (number,) in _NUMBER.iter_unpack(news))
            self._read += len(news)
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
        made = f"{self._folder}/usage.new"  # nobody else writes it: the lock is ours
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS, 0o600)
        try:
            os.write(fd, _NUMBER.pack(held))
        finally:
            os.close(fd)
        os.rename(made, f"{self._folder}/usage")
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
