"""`CacheDir`: a local directory with the parts of immutable objects that were read. Processes share it.

::

    <cache_dir>/mergelake-1/<2 hex>/<30 hex>     an object (`cache_file`), by the hash of its store and key
                            usage, lock          how many bytes there are (`cache_space`)

A failure of the cache is never an error for a reader: unreadable or damaged data counts as missing; data that cannot be
stored (a full disk, no permission) is not stored, with one warning. No file stays open, so removing a file frees its
space, and the whole directory may be removed at any time.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeAlias

from cachetools import LRUCache

from mergelake.core.base.clock import Clock, SystemClock
from mergelake.core.base.errors import error
from mergelake.store.cache.cache_file import CacheFile, Tail, read
from mergelake.store.cache.cache_space import CacheSpace
from mergelake.store.interface.protocol import Buffer

Piece: TypeAlias = tuple[int, int, Buffer | None]
"""Start and end in an object, and the bytes, None if they are not cached."""

FORMAT = "mergelake-1"
_KNOWN_MAX = 4096
"""Files whose content this process remembers: some 200 bytes for each range that was read."""
_TOUCHED_MS = 10_000
"""Milliseconds after which the access time of a file is updated again."""
_PAUSE_S = 60.0
"""Seconds without further attempts after nothing could be stored."""
_WAIT_S, _WAITS = 0.005, 40
"""Pause and number of attempts for the lock of a file. After that nothing is stored: its owner may be suspended."""
_TRIES = 3
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_logger = logging.getLogger("mergelake.store")


class CacheDir:
    """A cache directory. Thread-safe; objects are identified by arbitrary bytes."""

    def __init__(self, path: str, max_bytes: int, *, clock: Clock | None = None) -> None:
        """`path` is absolute, and created with the first write; BAD_ARGUMENTS if it is not a directory.

        `max_bytes` limits the sum of all files.
        """
        if os.path.exists(path) and not os.path.isdir(path):
            raise error("BAD_ARGUMENTS", f"The cache directory '{path}' is no directory", "Give another cache_dir")
        self.path, self.max_bytes = path, max_bytes
        self._folder = f"{path.rstrip('/')}/{FORMAT}"
        self._clock = clock or SystemClock()
        self._space = CacheSpace(self._folder, max_bytes)
        self._lock = threading.Lock()
        self._known: LRUCache[bytes, _Known] = LRUCache(_KNOWN_MAX)
        self._off_until_s = 0.0
        self._warned = self._ours = False

    def find(self, name: bytes, wanted: Sequence[tuple[int, int]]) -> list[list[Piece]]:
        """Each interval (start, end) of an object, cut into cached pieces, with their bytes, and missing ones."""
        misses: list[list[Piece]] = [[(start, end, None)] for start, end in wanted]
        path = self._path(name)
        try:
            self._check_owner()
            fd = os.open(path, os.O_RDONLY | _FLAGS)
        except OSError:
            return misses
        try:
            status = os.fstat(fd)
            known = self._of(name)
            with known.lock:
                if known.file.refresh(fd, status) is Tail.DAMAGED:
                    os.unlink(path)
                    return misses
                covers = [known.file.held.cover(start, end) for start, end in wanted]
            results: list[list[Piece]] = []
            for cover in covers:
                pieces: list[Piece] = []
                for start, end, held in cover:
                    body = None if held is None else read(fd, held, start, end)
                    if held is not None and body is None:  # damaged: it is fetched again as a whole
                        os.unlink(path)
                        return misses
                    pieces.append((start, end, body))
                results.append(pieces)
            self._touch(fd, status)
        except OSError:
            return misses
        else:
            return results
        finally:
            os.close(fd)

    def has(self, name: bytes, start: int, end: int) -> bool:
        """Whether these bytes of an object seem to be cached; they are not verified."""
        try:
            self._check_owner()
            status = os.stat(self._path(name), follow_symlinks=False)
        except OSError:
            return False
        known = self._of(name)
        with known.lock:
            return known.file.is_of(status) and all(held for _, _, held in known.file.held.cover(start, end))

    def keep(self, name: bytes, bodies: Sequence[tuple[int, Buffer]]) -> None:
        """Store bytes of an object, given as (start, bytes), as far as they are not cached already."""
        if self._clock.monotonic_s() < self._off_until_s or sum(len(body) for _, body in bodies) > self.max_bytes // 2:
            return
        try:
            self._make()
            grown = 0 if self._space.full else self._keep(name, bodies)
            if grown or self._space.full:
                self._space.add(grown)
        except OSError as problem:
            self._off_until_s = self._clock.monotonic_s() + _PAUSE_S
            if not self._warned:
                self._warned = True
                _logger.warning("nothing is stored in the cache directory %s for now: %s", self.path, problem)

    def forget(self, name: bytes) -> None:
        """Remove all bytes of an object."""
        try:
            os.unlink(self._path(name))
        except OSError:
            return

    def _keep(self, name: bytes, bodies: Sequence[tuple[int, Buffer]]) -> int:
        path, known = self._path(name), self._of(name)
        for _ in range(_TRIES):
            fd = self._open(path)
            try:
                if not self._locked(fd):
                    return 0
                status = os.fstat(fd)
                if not status.st_nlink:
                    continue  # removed meanwhile
                with known.lock:
                    tail = known.file.refresh(fd, status)
                    if tail is Tail.DAMAGED:
                        os.unlink(path)
                        continue
                    if tail is Tail.TORN:
                        os.ftruncate(fd, known.file.end)
                    views = ((start, memoryview(body).cast("B")) for start, body in bodies)
                    try:
                        return sum(known.file.append(fd, start, view) for start, view in views)
                    finally:
                        known.file.written(os.fstat(fd))
            finally:
                os.close(fd)
        return 0

    def _open(self, path: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | _FLAGS
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            return os.open(path, flags, 0o600)

    def _locked(self, fd: int) -> bool:
        for _ in range(_WAITS):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._clock.sleep_s(_WAIT_S)
            else:
                return True
        return False

    def _make(self) -> None:
        if not self._ours or not os.path.isdir(self._folder):
            for folder in (self.path, self._folder):
                os.makedirs(folder, 0o700, exist_ok=True)
            self._check_owner()

    def _check_owner(self) -> None:
        """Refuse a directory of another user, or writable by others, who could forge its content."""
        if self._ours:
            return
        status = os.lstat(self._folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise PermissionError(f"{self._folder} is not a directory that this user alone writes")
        self._ours = True

    def _touch(self, fd: int, status: os.stat_result) -> None:
        now_ns = self._clock.now_ms() * 1_000_000
        if now_ns - max(status.st_atime_ns, status.st_mtime_ns) > _TOUCHED_MS * 1_000_000:
            os.utime(fd, ns=(now_ns, status.st_mtime_ns))

    def _of(self, name: bytes) -> _Known:
        with self._lock:
            known = self._known.get(name)
            if known is None:
                known = self._known[name] = _Known(name)
            return known

    def _path(self, name: bytes) -> str:
        drawn = blake2b(name, digest_size=16).hexdigest()
        return f"{self._folder}/{drawn[:2]}/{drawn[2:]}"


class _Known:
    """The known content of a file, and its lock."""

    __slots__ = ("file", "lock")

    def __init__(self, name: bytes) -> None:
        self.file = CacheFile(name)
        self.lock = threading.Lock()
