"""A reserve of space in a directory store: on a full disk, what gives space back can still be written.

DROP, TRUNCATE, ALTER … MODIFY SETTING and a round of collection write little (log entries and notes), and are the way
out of a full disk; without any room they would fail like everything else. So a directory store keeps a file that holds
nothing, `.reserve`. Whoever is `freeing` space gets a slice of it whenever a write finds the disk full; others do not.
It is filled again once there is room.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from mergelake.store.folders import entered

RESERVE = ".reserve"
"""Name of the file, in the root of the store. No object can have it."""
RESERVE_BYTES = 1 << 20
_SHARE, _LEAST_BYTES = 16, 64 << 10
"""It takes no larger part of what is free than one in so many, and is not made if that is less."""
_SLICE_BYTES = 32 << 10
"""For the directories, inodes and blocks around the bytes of one object."""
_freeing: ContextVar[bool] = ContextVar("mergelake_freeing", default=False)


@contextmanager
def freeing(on: bool = True) -> Iterator[None]:
    """What is written within, by this thread, leads to space being given back: it may use the reserve."""
    token = _freeing.set(on or _freeing.get())
    try:
        yield
    finally:
        _freeing.reset(token)


class Reserve:
    """The reserve of one directory store. Threads and processes may share it."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._looked = False

    def keep(self) -> None:
        """See to it that there is one, as far as there is room. Looked at once, and after it was used."""
        if self._looked:
            return
        self._looked = True
        with suppress(OSError), entered(self._root, ()) as fd:
            status = os.fstatvfs(fd)
            size = min(RESERVE_BYTES, status.f_bavail * status.f_frsize // _SHARE)
            if size < _LEAST_BYTES:
                return
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(RESERVE, flags, 0o666, dir_fd=fd)
            try:
                held = os.fstat(file).st_size
                if held < size:
                    _fill(file, held, size)
            finally:
                os.close(file)

    def release(self, size: int) -> bool:
        """Give up enough for an object of this size; False if that is not allowed now, or nothing is left."""
        if not _freeing.get():
            return False
        self._looked = False
        try:
            with entered(self._root, ()) as fd:
                file = os.open(RESERVE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                try:
                    left = os.fstat(file).st_size - size - _SLICE_BYTES
                    if left > 0:
                        os.ftruncate(file, left)
                finally:
                    os.close(file)
                if left <= 0:
                    os.unlink(RESERVE, dir_fd=fd)  # gives its inode back too
        except OSError:
            return False
        return True


def _fill(file: int, held: int, size: int) -> None:
    """Take the space for the file from `held` bytes on up to `size`; it must not become a hole."""
    try:
        os.posix_fallocate(file, held, size - held)
    except OSError as problem:
        if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            os.ftruncate(file, held)
            raise
        os.pwrite(file, b"\0" * (size - held), held)
