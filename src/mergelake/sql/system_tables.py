"""`system.tables`, `system.columns`, `system.parts`, …: what there is, as tables with ClickHouse's column names.

They are made anew for each statement that names them. A name that is not here (`system.functions`) is
ClickHouse's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.core import types as t
from mergelake.core.arrow import arrow_type
from mergelake.core.convert import to_storage
from mergelake.core.settings import TABLE_SETTINGS
from mergelake.query.source import ArrowSource
from mergelake.sql.show import create_table_text, engine_text, key_text, sorting_text

if TYPE_CHECKING:
    from mergelake.lake.table import Table
    from mergelake.sql.database import Database

Rows = Iterator[tuple[Any, ...]]


def system_table(db: Database, name: str) -> ArrowSource | None:
    """The table `system.name`, or None if it is not one of ours."""
    found = _TABLES.get(name)
    if found is None:
        return None
    columns, rows = found
    types = {column: t.parse_type(kind) for column, kind in columns.items()}
    cells = list(zip(*rows(db), strict=True)) or [() for _ in columns]
    arrays = {
        column: to_storage(pa.array(values, arrow_type(kind)), kind, column)
        for (column, kind), values in zip(types.items(), cells, strict=True)
    }
    return ArrowSource(pa.table(arrays), types)


def system_table_names() -> list[str]:
    """Names of our system tables."""
    return sorted(_TABLES)


def _all_tables(db: Database) -> Iterator[tuple[str, str, Table]]:
    for full in db.warehouse.tables():
        database, name = full.split(".", 1)
        yield database, name, db.table(full)


def _databases(db: Database) -> Rows:
    for name in db.warehouse.databases():
        yield name, "Atomic", db.warehouse.url, ""


def _tables(db: Database) -> Rows:
    for database, name, table in _all_tables(db):
        schema, snapshot = table.schema, table.snapshot()
        manifests = [part.manifest for part in snapshot.parts]
        yield (
            database,
            name,
            _uuid(table.handle.directory),
            schema.engine,
            0,
            [table.location],
            create_table_text(f"{database}.{name}", schema),
            engine_text(schema),
            key_text(schema.partition_by) if schema.partition_by else "",
            sorting_text(schema) if schema.order_by else "",
            key_text(schema.primary_key) if schema.primary_key else "",
            schema.sample_by,
            snapshot.rows,
            sum(m.bytes_on_disk for m in manifests),
            sum(m.bytes_uncompressed for m in manifests),
            len(manifests),
            len(manifests),
            schema.comment,
        )


def _uuid(directory: str) -> str:
    digits = directory.rsplit("/", 1)[-1]
    if len(digits) != 32:
        return "00000000-0000-0000-0000-000000000000"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _columns(db: Database) -> Rows:
    for database, name, table in _all_tables(db):
        schema = table.schema
        for position, column in enumerate(schema.columns, 1):
            quoted = (column.name, f"`{column.name}`")
            yield (
                database,
                name,
                column.name,
                str(column.type),
                position,
                column.default_kind,
                column.default,
                column.comment,
                int(any(q in schema.partition_by for q in quoted)),
                int(any(q in schema.order_by for q in quoted)),
                int(any(q in schema.primary_key for q in quoted)),
                int(schema.sample_by in quoted),
                column.codec and f"CODEC({column.codec})",
            )


def _parts(db: Database) -> Rows:
    for database, name, table in _all_tables(db):
        found = table.parts(active_only=False)
        for row in found.to_pylist():
            here = {"database": database, "table": name, "engine": table.schema.engine, **row}
            yield tuple(_filled(here.get(column), kind) for column, kind in _PART_COLUMNS.items())


def _filled(value: Any, kind: str) -> Any:
    """What the log no longer knows of a retired part, as its column's default."""
    return {"String": ""}.get(kind, 0) if value is None and not kind.startswith("Nullable") else value


def _settings(db: Database) -> Rows:
    for name, value in sorted(db.settings.items()):
        yield name, value.strip("'"), 1, "Set in this session", "String"
    for setting in TABLE_SETTINGS.values():
        yield setting.name, str(setting.default), 0, setting.description, type(setting.default).__name__


def _nothing(_: Database) -> Rows:
    return iter(())


_PART_COLUMNS = {
    "database": "String",
    "table": "String",
    "engine": "String",
    "partition": "String",
    "name": "String",
    "uuid": "String",
    "part_type": "String",
    "part_storage_type": "String",
    "active": "UInt8",
    "marks": "UInt64",
    "rows": "UInt64",
    "bytes_on_disk": "UInt64",
    "data_uncompressed_bytes": "UInt64",
    "modification_time": "DateTime64(3, 'UTC')",
    "remove_time": "Nullable(DateTime64(3, 'UTC'))",
    "partition_id": "String",
    "min_block_number": "Int64",
    "max_block_number": "Int64",
    "level": "UInt32",
    "data_version": "UInt64",
}
_SETTING_COLUMNS = {"name": "String", "value": "String", "changed": "UInt8", "description": "String", "type": "String"}

_TABLES: dict[str, tuple[dict[str, str], Callable[[Database], Rows]]] = {
    "databases": ({"name": "String", "engine": "String", "data_path": "String", "comment": "String"}, _databases),
    "tables": (
        {
            "database": "String",
            "name": "String",
            "uuid": "UUID",
            "engine": "String",
            "is_temporary": "UInt8",
            "data_paths": "Array(String)",
            "create_table_query": "String",
            "engine_full": "String",
            "partition_key": "String",
            "sorting_key": "String",
            "primary_key": "String",
            "sampling_key": "String",
            "total_rows": "Nullable(UInt64)",
            "total_bytes": "Nullable(UInt64)",
            "total_bytes_uncompressed": "Nullable(UInt64)",
            "parts": "Nullable(UInt64)",
            "active_parts": "Nullable(UInt64)",
            "comment": "String",
        },
        _tables,
    ),
    "columns": (
        {
            "database": "String",
            "table": "String",
            "name": "String",
            "type": "String",
            "position": "UInt64",
            "default_kind": "String",
            "default_expression": "String",
            "comment": "String",
            "is_in_partition_key": "UInt8",
            "is_in_sorting_key": "UInt8",
            "is_in_primary_key": "UInt8",
            "is_in_sampling_key": "UInt8",
            "compression_codec": "String",
        },
        _columns,
    ),
    "parts": (_PART_COLUMNS, _parts),
    "settings": (_SETTING_COLUMNS, _settings),
    "merge_tree_settings": (_SETTING_COLUMNS, _settings),
    "mutations": (
        {
            "database": "String",
            "table": "String",
            "mutation_id": "String",
            "command": "String",
            "create_time": "DateTime('UTC')",
            "parts_to_do": "Int64",
            "is_done": "UInt8",
            "latest_fail_reason": "String",
        },
        _nothing,
    ),
}
