"""Directories below a root, opened name by name, without following symbolic links.

Each directory is opened relative to the one above it, with `O_NOFOLLOW`. So a link that is created between a check and
its use is not followed either: nothing outside the root is read, listed, written or deleted. The root itself is a path
that was resolved before.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe must not wait for its other end; it has no effect on files.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAYBE_LINK = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}


class LinkError(OSError):
    """A name is a symbolic link."""


class NotAFileError(OSError):
    """A name is a pipe, a socket or a device."""


@contextmanager
def entered(root: str, names: Iterable[str]) -> Iterator[int]:
    """A descriptor of the directory `root/names…`; LinkError if a name is a symbolic link."""
    fd = os.open(root, _DIRECTORY)
    try:
        for name in names:
            above, fd = fd, enter(fd, name)
            os.close(above)
        yield fd
    finally:
        os.close(fd)


def enter(fd: int, name: str) -> int:
    """A descriptor of the directory `name` in an open directory."""
    return _opened(fd, name, _DIRECTORY)


def open_file(fd: int, name: str) -> int:
    """A descriptor to read the file `name` in an open directory.

    Raises LinkError, NotAFileError or IsADirectoryError if it is not a file.
    """
    try:
        file = _opened(fd, name, _FILE)
    except OSError as problem:
        if problem.errno == errno.ENXIO:
            raise NotAFileError(errno.ENXIO, "a socket", name) from problem
        raise
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a directory", name)
    raise NotAFileError(errno.EINVAL, "a pipe or a device", name)


def _opened(fd: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=fd)
    except OSError as problem:
        if problem.errno in _MAYBE_LINK and is_link(fd, name):
            raise LinkError(errno.ELOOP, "a symbolic link", name) from problem
        raise


def is_link(fd: int, name: str) -> bool:
    """Whether a name in an open directory is a symbolic link."""
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
    except OSError:
        return False


def make_folders(root: str, names: Sequence[str], *, sync: bool) -> None:
    """Make the directory `root/names…`, durably if `sync`. Concurrent creation and removal are allowed."""
    missing, folder = [], root
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder)
            if sync:
                with entered(os.path.dirname(folder), ()) as above:
                    os.fsync(above)
    fd = os.open(root, _DIRECTORY)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
                if sync:
                    os.fsync(fd)
            above, fd = fd, enter(fd, name)
            os.close(above)
    finally:
        os.close(fd)


def remove_empty(root: str, names: Sequence[str]) -> None:
    """Remove the directory `root/names…`, then those above it, as long as they are empty."""
    for depth in range(len(names), 0, -1):
        try:
            with entered(root, names[: depth - 1]) as fd:
                os.rmdir(names[depth - 1], dir_fd=fd)
        except OSError:
            return
