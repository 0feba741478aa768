"""The folder that the embedded ClickHouse keeps in the temporary directory, and those that dead processes left.

ClickHouse removes its folder when the process ends by itself; a process that is killed cannot. So a folder of ours is
marked, and the next process to start an engine removes the marked ones whose owner is gone: ClickHouse holds a lock on
the file `status` in it as long as it lives.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "clickhouse-embedded-"
_MARK, _STATUS = "mergelake", "status"


def is_temporary(folder: Path) -> bool:
    """Whether it is one that ClickHouse made for itself."""
    return folder.name.startswith(_PREFIX)


def mark(folder: Path) -> None:
    """Say that an engine's folder is ours, if it is a temporary one."""
    if is_temporary(folder):
        (folder / _MARK).touch(mode=0o600)


def sweep(directory: Path | None = None) -> list[Path]:
    """Remove the marked folders of this user whose processes have ended; which ones."""
    gone = []
    for folder in (directory or Path(tempfile.gettempdir())).glob(_PREFIX + "*"):
        try:
            # A link is not followed: the name could have been put there by anybody.
            info = folder.lstat()
            ours = info.st_uid == os.getuid() and not folder.is_symlink() and (folder / _MARK).is_file()
            if ours and _is_unlocked(folder / _STATUS):
                shutil.rmtree(folder, ignore_errors=True)
                gone.append(folder)
        except OSError:
            continue  # it went meanwhile, or is not to be looked at
    return gone


def _is_unlocked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
