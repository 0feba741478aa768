"""The temporary folders of embedded ClickHouses, and removal of those that killed processes left.

ClickHouse removes its folder when the process exits, but not when it is killed. So folders are marked, and the next
process that starts an engine removes the marked ones whose process has ended: ClickHouse holds a lock on the file
`status` in the folder as long as it runs.
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
    """Whether the folder is one that ClickHouse has created in the temporary directory."""
    return folder.name.startswith(_PREFIX)


def mark(folder: Path) -> None:
    """Mark an engine's folder for `sweep`, if it is a temporary one."""
    if is_temporary(folder):
        (folder / _MARK).touch(mode=0o600)


def sweep(directory: Path | None = None) -> list[Path]:
    """Remove the marked folders of this user whose processes have ended; returns the removed ones."""
    gone = []
    for folder in (directory or Path(tempfile.gettempdir())).glob(_PREFIX + "*"):
        try:
            # Links are not followed: any user could have created them.
            info = folder.lstat()
            ours = info.st_uid == os.getuid() and not folder.is_symlink() and (folder / _MARK).is_file()
            if ours and _is_unlocked(folder / _STATUS):
                shutil.rmtree(folder, ignore_errors=True)
                gone.append(folder)
        except OSError:
            continue  # it was removed, or is not accessible
    return gone


def _is_unlocked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
