"""Small tables that are sent to every task, and stored in files of the worker."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4  # noqa: TID251  a name within processes of this statement

from mergelake.query.embedded import engine

BYTES_MAX = 64 << 20
"""Maximum bytes of all broadcast tables of one statement."""
_MARK = "\ue004"
_STATEMENTS_KEPT = 8
"""Number of statements whose tables a worker keeps."""


def path_mark(name: str) -> str:
    """Placeholder in a partial statement for the path of a table's file."""
    return f"{_MARK}{name}{_MARK}"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """The broadcast tables of one statement."""

    statement: str
    """Unique id of the statement."""
    tables: Mapping[str, bytes]
    """Name -> Native bytes."""

    @staticmethod
    def of(tables: Mapping[str, bytes]) -> Broadcast:
        """Broadcast tables for a new statement."""
        return Broadcast(uuid4().hex, tables)

    def placed(self, sql: str) -> str:
        """The partial statement with paths of files in this process, which are written unless an earlier task did."""
        if not self.tables:
            return sql
        folder = _folder() / self.statement
        if not folder.exists():
            _forget_others(folder.parent)
            making = folder.with_name(f"{self.statement}.{uuid4().hex}")
            making.mkdir(parents=True)
            for name, data in self.tables.items():
                (making / name).write_bytes(data)
            try:
                making.rename(folder)
            except OSError:  # another thread was faster
                shutil.rmtree(making, ignore_errors=True)
        for name in self.tables:
            sql = sql.replace(path_mark(name), str(folder / name))
        return sql


def _folder() -> Path:
    """Folder of the files, in that of the engine, which is removed with the process."""
    root = engine.folder()
    return (root if root is not None else Path(tempfile.gettempdir()) / f"mergelake-{os.getpid()}") / "given"


def _forget_others(folder: Path) -> None:
    """Remove the files of all but the newest statements."""
    held = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime) if folder.exists() else []
    for each in held[: 1 - _STATEMENTS_KEPT]:
        shutil.rmtree(each, ignore_errors=True)
