"""`CacheDir`: a local directory with bytes of objects that never change, as far as they were read. Processes share it.

::

    <cache_dir>/mergelake-1/<2 hex>/<30 hex>     an object (`cache_file`), by the hash of its store and key
                            usage, lock          how much there is (`cache_space`)

Nothing here is ever an error to who reads: what cannot be read, or is not what was written, is not held; what cannot be
stored (a full disk, no permission) is not stored, and a warning says so once. No file stays open, so what is removed,
by whomever, gives its space back, and the directory may go as a whole at any time.
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

from mergelake.core.clock import Clock, SystemClock
from mergelake.core.errors import error
from mergelake.store.cache_file import CacheFile, Tail, read
from mergelake.store.cache_space import CacheSpace
from mergelake.store.protocol import Buffer

Piece: TypeAlias = tuple[int, int, Buffer | None]
"""Start and end in an object, and the bytes, if they are held."""

FORMAT = "mergelake-1"
_KNOWN_MAX = 4096
"""Files of which this process remembers what they hold: some 200 bytes for each range that was asked for."""
_TOUCHED_MS = 10_000
"""A file that was read so long ago, at least, is marked as read again."""
_PAUSE_S = 60.0
"""After nothing could be stored, it is tried again."""
_WAIT_S, _WAITS = 0.005, 40
"""For the lock of a file. After that nothing is stored: its owner was stopped, perhaps."""
_TRIES = 3
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC
_logger = logging.getLogger("mergelake.store")


class CacheDir:
    """A cache directory. Safe for threads; objects are known by any bytes that name them."""

    def __init__(self, path: str, max_bytes: int, *, clock: Clock | None = None) -> None:
        """`path` is absolute, and made when something is first stored; BAD_ARGUMENTS if it is something else.

        `max_bytes` are those of all files together.
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
        """Each interval (start, end) of an object, cut into what is held, with its bytes, and what is not."""
        nothing: list[list[Piece]] = [[(start, end, None)] for start, end in wanted]
        path = self._path(name)
        try:
            self._look_whose()
            fd = os.open(path, os.O_RDONLY | _FLAGS)
        except OSError:
            return nothing
        try:
            status = os.fstat(fd)
            known = self._of(name)
            with known.lock:
                if known.file.refresh(fd, status) is Tail.DAMAGED:
                    os.unlink(path)
                    return nothing
                covers = [known.file.held.cover(start, end) for start, end in wanted]
            found: list[list[Piece]] = []
            for cover in covers:
                pieces: list[Piece] = []
                for start, end, held in cover:
                    body = None if held is None else read(fd, held, start, end)
                    if held is not None and body is None:  # damaged: it is fetched again as a whole
                        os.unlink(path)
                        return nothing
                    pieces.append((start, end, body))
                found.append(pieces)
            self._touch(fd, status)
        except OSError:
            return nothing
        else:
            return found
        finally:
            os.close(fd)

    def has(self, name: bytes, start: int, end: int) -> bool:
        """Whether these bytes of an object seem to be held: they are not looked at."""
        try:
            self._look_whose()
            status = os.stat(self._path(name), follow_symlinks=False)
        except OSError:
            return False
        known = self._of(name)
        with known.lock:
            return known.file.is_of(status) and all(held for _, _, held in known.file.held.cover(start, end))

    def keep(self, name: bytes, bodies: Sequence[tuple[int, Buffer]]) -> None:
        """Store bytes of an object, each from its start on, as far as they are not held already."""
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
        """Hold nothing of an object."""
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
            self._look_whose()

    def _look_whose(self) -> None:
        """Somebody else's directory is not used: who can write there could tell us anything."""
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
    """What is known of a file, and the lock of that."""

    __slots__ = ("file", "lock")

    def __init__(self, name: bytes) -> None:
        self.file = CacheFile(name)
        self.lock = threading.Lock()
