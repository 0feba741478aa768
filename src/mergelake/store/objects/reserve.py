"""A reserve of space in a directory store, so that operations that free space work on a full disk.

DROP, TRUNCATE, ALTER … MODIFY SETTING and a round of collection write little (log entries and notes), and are the way
out of a full disk; without any free space they would fail, too. So a directory store keeps a file without content,
`.reserve`. A write within `freeing` that finds the disk full gets a slice of it; other writes do not. It is filled
again once there is space.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from mergelake.store.objects.folders import entered

RESERVE = ".reserve"
"""Name of the file, in the root of the store. No object can have it."""
RESERVE_BYTES = 1 << 20
_SHARE, _LEAST_BYTES = 16, 64 << 10
"""The reserve takes at most one part in so many of the free space, and is not created below the least size."""
_SLICE_BYTES = 32 << 10
"""Bytes released beyond the size of an object, for directories, inodes and blocks."""
_freeing: ContextVar[bool] = ContextVar("mergelake_freeing", default=False)


@contextmanager
def freeing(on: bool = True) -> Iterator[None]:
    """Writes of this thread within free space in the end: they may use the reserve."""
    token = _freeing.set(on or _freeing.get())
    try:
        yield
    finally:
        _freeing.reset(token)


class Reserve:
    """The reserve of one directory store. Threads and processes may share it."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._checked = False

    def keep(self) -> None:
        """Create or fill the reserve, as far as there is space. Checked once, and after each use."""
        if self._checked:
            return
        self._checked = True
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
        """Release space for an object of this size; False outside of `freeing`, or if nothing is left."""
        if not _freeing.get():
            return False
        self._checked = False
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
    """Allocate the space of the file from `held` bytes up to `size`, without a hole."""
    try:
        os.posix_fallocate(file, held, size - held)
    except OSError as problem:
        if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            os.ftruncate(file, held)
            raise
        os.pwrite(file, b"\0" * (size - held), held)
