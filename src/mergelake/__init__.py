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
    from mergelake.api.python.scan import Scan
    from mergelake.api.python.table import Table
    from mergelake.api.python.warehouse import Warehouse
    from mergelake.api.sql.database import Database, connect
    from mergelake.api.sql.part_files import WrittenPart, write_part
    from mergelake.api.sql.result import Result
    from mergelake.core.base.errors import (
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
    from mergelake.core.model.schema import Column, TableSchema
    from mergelake.parts.tools.public import PartData, read_part
    from mergelake.table.definition.define import define
    from mergelake.table.write.insert import Commit

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
    "Column": "core.model.schema",
    "Commit": "table.write.insert",
    "Database": "api.sql.database",
    "PartData": "parts.tools.public",
    "Result": "api.sql.result",
    "Scan": "api.python.scan",
    "Table": "api.python.table",
    "TableSchema": "core.model.schema",
    "Warehouse": "api.python.warehouse",
    "WrittenPart": "api.sql.part_files",
    "connect": "api.sql.database",
    "define": "table.definition.define",
    "read_part": "parts.tools.public",
    "write_part": "api.sql.part_files",
}
"""Where each name lives; errors are in `core.base.errors`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'mergelake' has no attribute '{name}'")
    found: object = getattr(importlib.import_module(f"mergelake.{_HOMES.get(name, 'core.base.errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
