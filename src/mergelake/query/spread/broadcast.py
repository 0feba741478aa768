"""Small tables that every task has: their rows travel with the work, and are kept in a file of the worker."""

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
"""Of all tables that travel with the work of one statement."""
_MARK = "\ue004"
_STATEMENTS_KEPT = 8
"""Statements whose tables a worker keeps."""


def path_mark(name: str) -> str:
    """Stands in a partial statement for the path of a table's file."""
    return f"{_MARK}{name}{_MARK}"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """What travels."""

    statement: str
    """Unique."""
    tables: Mapping[str, bytes]
    """Name -> Native bytes."""

    @staticmethod
    def of(tables: Mapping[str, bytes]) -> Broadcast:
        """For one statement."""
        return Broadcast(uuid4().hex, tables)

    def placed(self, sql: str) -> str:
        """The partial statement over files of this process, which are written unless an earlier task did."""
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
    """In the folder of the engine, which goes with the process."""
    root = engine.folder()
    return (root if root is not None else Path(tempfile.gettempdir()) / f"mergelake-{os.getpid()}") / "given"


def _forget_others(folder: Path) -> None:
    """All but the newest."""
    held = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime) if folder.exists() else []
    for each in held[: 1 - _STATEMENTS_KEPT]:
        shutil.rmtree(each, ignore_errors=True)
