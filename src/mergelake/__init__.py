"""MergeTree without the server: ClickHouse's tables living wholly in a bucket or directory.

    >>> import mergelake as ml
    >>> db = ml.connect("memory://docs")
    >>> _ = db.sql("CREATE TABLE events (service String, ts DateTime) ENGINE = MergeTree ORDER BY (service, ts)")
    >>> _ = db.sql("INSERT INTO events VALUES ('web', '2026-01-01 00:00:00'), ('api', '2026-01-02 00:00:00')")
    >>> db.table("events").scan(["service"], "ts < '2026-01-02'").arrow().to_pylist()
    [{'service': 'web'}]

A *warehouse* is a URL: databases and tables, data and metadata both. A *table* is a log of commits; each commit
adds or replaces immutable *parts*, in ClickHouse's own format. Any number of processes may read, write and merge at
once. `connect` gives a `Database`: SQL, and tables as objects.

Names are loaded when they are first used: Spark starts many short processes that need only a few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mergelake.core.errors import (
        ConflictError,
        CorruptDataError,
        FencedError,
        InternalError,
        InvalidInputError,
        MergelakeError,
        NotFoundError,
        UnavailableError,
        UnsupportedError,
    )
    from mergelake.core.schema import Column, TableSchema
    from mergelake.lake.scan import Scan
    from mergelake.lake.table import Table
    from mergelake.lake.warehouse import Warehouse
    from mergelake.parts.public import PartData, read_part
    from mergelake.sql.database import Database, connect
    from mergelake.sql.part_files import WrittenPart, write_part
    from mergelake.sql.result import Result
    from mergelake.table.define import define
    from mergelake.table.insert import Commit

__all__ = [
    "Column",
    "Commit",
    "ConflictError",
    "CorruptDataError",
    "Database",
    "FencedError",
    "InternalError",
    "InvalidInputError",
    "MergelakeError",
    "NotFoundError",
    "PartData",
    "Result",
    "Scan",
    "Table",
    "TableSchema",
    "UnavailableError",
    "UnsupportedError",
    "Warehouse",
    "WrittenPart",
    "connect",
    "define",
    "read_part",
    "write_part",
]

_HOMES = {
    "Column": "core.schema",
    "Commit": "table.insert",
    "Database": "sql.database",
    "PartData": "parts.public",
    "Result": "sql.result",
    "Scan": "lake.scan",
    "Table": "lake.table",
    "TableSchema": "core.schema",
    "Warehouse": "lake.warehouse",
    "WrittenPart": "sql.part_files",
    "connect": "sql.database",
    "define": "table.define",
    "read_part": "parts.public",
    "write_part": "sql.part_files",
}
"""Where each name lives; errors are in `core.errors`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'mergelake' has no attribute '{name}'")
    found: object = getattr(importlib.import_module(f"mergelake.{_HOMES.get(name, 'core.errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
