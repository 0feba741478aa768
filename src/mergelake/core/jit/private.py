"""Files with executable content, which are used only if no other user could have written them.

Machine code from the cache is called unchecked, and Java maps its class archive unchecked. So both the directory and
the file must belong to this user and be writable by nobody else; in a directory that others cannot enter, the mode of
the file does not matter.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_OTHERS_WRITE, _OTHERS = 0o022, 0o077


def private_directory(path: Path) -> bool:
    """Whether `path` is a directory (not a link) of this user that nobody else can write."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and _is_own(status) and not status.st_mode & _OTHERS_WRITE


def private_file(path: Path) -> bool:
    """Whether `path` is a regular file that only this user can have written, in a private directory."""
    try:
        return private_directory(path.parent) and _is_private(path.lstat(), path.parent)
    except OSError:
        return False


def read_private(path: Path) -> bytes:
    """The content of a private file. Raises OSError for any other."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        # The open file is checked, because the name may be replaced at any time.
        if not private_directory(path.parent) or not _is_private(os.fstat(handle), path.parent):
            raise PermissionError(f"{path} may have been written by somebody else")
        return file.read()


def _is_private(status: os.stat_result, directory: Path) -> bool:
    own = stat.S_ISREG(status.st_mode) and _is_own(status)
    return own and not (status.st_mode & _OTHERS_WRITE and directory.lstat().st_mode & _OTHERS)


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid()
