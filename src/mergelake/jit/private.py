"""Files whose content is run: used only where nobody but this user could have written them.

A kernel of the cache is called as it is, and Java maps its archive of classes unchecked. So the directory must be this
user's own and writable by nobody else, and the file too; in a directory that others cannot even enter its mode is moot.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_OTHERS_WRITE, _OTHERS = 0o022, 0o077


def private_directory(path: Path) -> bool:
    """Whether `path` is a directory (no link to one) of this user that nobody else can write."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and _is_own(status) and not status.st_mode & _OTHERS_WRITE


def private_file(path: Path) -> bool:
    """Whether `path` is a regular file that only this user can have written, in a directory for which that holds."""
    try:
        return private_directory(path.parent) and _is_private(path.lstat(), path.parent)
    except OSError:
        return False


def read_private(path: Path) -> bytes:
    """The content of such a file; OSError for any other."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        # What was opened is judged, not what the name stands for a moment later.
        if not private_directory(path.parent) or not _is_private(os.fstat(handle), path.parent):
            raise PermissionError(f"{path} may have been written by somebody else")
        return file.read()


def _is_private(status: os.stat_result, directory: Path) -> bool:
    own = stat.S_ISREG(status.st_mode) and _is_own(status)
    return own and not (status.st_mode & _OTHERS_WRITE and directory.lstat().st_mode & _OTHERS)


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid()
