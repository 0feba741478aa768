"""`system.tables`, `system.columns`, `system.parts`, …: tables about the warehouse, with ClickHouse's column names.

They are built for each statement that names them, with the columns that it reads. `foreign` handles all other names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from mergelake.api.python.inspect import parts_table
from mergelake.api.sql import system_counters, system_nodes, system_part_log, system_settings
from mergelake.api.sql.show import create_table_text, default_text, engine_text, key_text, sorting_text
from mergelake.api.sql.system_conditions import conditions_of, is_understood
from mergelake.api.sql.system_parts import (
    expiry_moments,
    index_rows,
    moments,
    part_columns,
    part_facts,
    projection_rows,
)
from mergelake.api.sql.system_rows import NO_UUID, Rows, Wanted, all_tables, all_virtual, row_of, uuid_of, uuid_text
from mergelake.api.sql.virtual import as_select, create_text
from mergelake.core.base.errors import InternalError, error
from mergelake.core.convert.storage import to_storage
from mergelake.core.types import types as t
from mergelake.core.types.arrow import arrow_type
from mergelake.engines.order.keys import bind_key, table_keys
from mergelake.engines.ttl.ttl import table_ttl
from mergelake.query.expand.parameters import parameters
from mergelake.query.source import IN_MEMORY, ArrowScan, ArrowSource, AsOf, Layers, ReadRequest, Source
from mergelake.table.partitions.shared import SharedSpace, shared_space

if TYPE_CHECKING:
    from mergelake.api.python.table import Table
    from mergelake.api.sql.session import Session


@dataclass(frozen=True, slots=True)
class SystemSource:
    """A system table: its rows are built when they are read, and only with the columns that are needed."""

    name: str
    columns: Mapping[str, t.DataType]
    rows: Callable[[Wanted], Rows]
    """The rows, with all columns in order."""
    now_ms: int
    """The time of the statement."""

    @property
    def computed(self) -> Mapping[str, tuple[t.DataType, str]]:
        """No column is computed."""
        return {}

    @property
    def hidden(self) -> frozenset[str]:
        """No column is hidden."""
        return frozenset()

    @property
    def version(self) -> Hashable:
        """The name: the columns never change."""
        return self.name

    def exact_rows(self) -> int | None:
        """None: the number of rows is not known before they are built."""
        return None

    @property
    def takes_final(self) -> bool:
        """False: a system table has no engine of ours."""
        return False

    def can_filter(self, predicate: str) -> bool:
        """Whether it spares requests (`conditions_of`). ClickHouse filters again."""
        return is_understood(predicate, self.columns)

    def scans_sooner(self, wanted: ReadRequest) -> bool:
        """Always: there are no parts to attach."""
        return True

    def at(self, moment: AsOf) -> Source:
        """Raise NOT_IMPLEMENTED: a system table has no history."""
        raise error("NOT_IMPLEMENTED", "A system table has no older versions", "Leave out AS OF")

    def plan(self, wanted: ReadRequest) -> ArrowScan:
        """The rows, as they are now. Raises NOT_IMPLEMENTED for an `exact` request with conditions."""
        texts = [text for text in (wanted.where, wanted.prewhere) if text]
        if wanted.exact and texts:
            raise error("NOT_IMPLEMENTED", "Rows of a system table are filtered by ClickHouse")
        needed = Wanted(frozenset(wanted.columns), conditions_of(texts, self.columns, self.now_ms))
        cells = list(zip(*self.rows(needed), strict=True)) or [() for _ in self.columns]
        arrays = {
            column: to_storage(pa.array(values, arrow_type(kind)), kind, column)
            for (column, kind), values in zip(self.columns.items(), cells, strict=True)
            if column in wanted.columns
        }
        return ArrowSource(pa.table(arrays), self.columns).plan(wanted)

    def why_scanned(self, wanted: ReadRequest, *, count: bool = False, must: bool = False) -> str:
        """Always `IN_MEMORY`."""
        return IN_MEMORY

    def shared(self, wanted: ReadRequest) -> None:
        """None: there are no parts."""

    def attached(self, wanted: ReadRequest, *, must: bool = False) -> AbstractContextManager[Layers]:
        """Never called."""
        raise InternalError("A system table is not attached")


def system_table(db: Session, name: str) -> Source | None:
    """The table `system.name`, or None if it is not one of ours."""
    definition = _TABLES.get(name)
    if definition is None:
        return None
    columns, rows = definition
    types = {column: t.parse_type(kind) for column, kind in columns.items()}
    return SystemSource(name, types, lambda wanted: rows(db, wanted), db.warehouse.clock.now_ms())


def system_table_names() -> list[str]:
    """Names of our system tables."""
    return sorted(_TABLES)


def _databases(db: Session, wanted: Wanted) -> Rows:
    for name in db.warehouse.databases():
        yield name, "Atomic", db.warehouse.url, "", NO_UUID, "Atomic", "", 0


def _tables(db: Session, wanted: Wanted) -> Rows:
    for database, name, table in all_tables(db, wanted):
        schema, snapshot = table.schema, table.snapshot()
        # Totals that the state does not hold are computed only if they are needed.
        manifests = [part.manifest for part in snapshot.parts] if wanted.columns & _OF_ALL_PARTS else []
        state, totals = table.handle.log.state, snapshot.partitions.totals
        shared = shared_space(state) if wanted.columns & _OF_SHARED else SharedSpace(0, 0, 0)
        yield (
            database,
            name,
            uuid_of(table.handle.directory),
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
            totals.bytes_on_disk,
            sum(m.bytes_uncompressed for m in manifests),
            totals.parts,
            totals.parts,
            sum(m.marks + 1 for m in manifests if m.marks),
            schema.comment,
            "",
            [index.type.partition("(")[0] for index in schema.indices],
            1,
            "default",
            shared.bytes,
            shared.dead_bytes,
            state.retired.bytes_on_disk,
            [],
        )
    for database, name, virtual in all_virtual(db, wanted):
        here = {
            "database": database,
            "name": name,
            "uuid": uuid_text(virtual.id),
            "engine": virtual.schema.engine,
            "create_table_query": create_text(f"{database}.{name}", virtual),
            "engine_full": "" if virtual.is_view else engine_text(virtual.schema),
            "comment": virtual.schema.comment,
            "as_select": as_select(virtual) if "as_select" in wanted.columns else "",
            "parameterized_view_parameters": list(parameters(virtual.query).items()),
        }
        yield row_of(here, _TABLES["tables"][0])


def _columns(db: Session, wanted: Wanted) -> Rows:
    for database, name, table in all_tables(db, wanted):
        schema = table.schema
        keys = table_keys(schema)
        sampling = bind_key(schema.sample_by, schema).columns if schema.sample_by else ()
        read = [{name for key in part for name in key.columns} for part in (keys.partition, keys.sorting, keys.primary)]
        sizes = _column_sizes(table) if wanted.columns & set(_OF_COLUMN_FILES) else {}
        for position, column in enumerate(schema.columns, 1):
            yield (
                database,
                name,
                column.name,
                str(column.type),
                position,
                column.default_kind,
                default_text(column),
                column.comment,
                int(column.name in read[0]),
                int(column.name in read[1]),
                int(column.name in read[2]),
                int(column.name in sampling),
                column.codec and f"CODEC({column.codec})",
                *_measures(column.type),
                *sizes.get(column.name, (0, 0, 0)),
            )
    for database, name, virtual in all_virtual(db, wanted):
        for position, column in enumerate(virtual.schema.columns, 1):
            here = {
                "database": database,
                "table": name,
                "name": column.name,
                "type": str(column.type),
                "position": position,
                "comment": column.comment,
                **dict(zip(_MEASURES, _measures(column.type), strict=True)),
            }
            yield row_of(here, _TABLES["columns"][0])


_MEASURES = (
    "character_octet_length", "numeric_precision", "numeric_precision_radix", "numeric_scale", "datetime_precision",
)  # fmt: skip


def _measures(kind: t.DataType) -> tuple[int | None, ...]:
    """Octet length, numeric precision, its radix, numeric scale, datetime precision; None where ClickHouse has NULL."""
    match kind.inner if isinstance(kind, t.Nullable) else kind:
        case t.FixedString(size):
            return size, None, None, None, None
        case t.Bool():
            return None, 8, 2, 0, None
        case t.Int(bits):
            return None, bits, 2, 0, None
        case t.Decimal(precision, scale):
            return None, precision, 10, scale, None
        case t.DateTime() | t.Date() | t.Date32():
            return None, None, None, None, 0
        case t.DateTime64(precision):
            return None, None, None, None, precision
        case _:
            return None, None, None, None, None


def _column_sizes(table: Table) -> dict[str, tuple[int, int, int]]:
    """Compressed and plain bytes and marks of each column, over all active parts."""
    out: dict[str, tuple[int, int, int]] = {}
    for row in part_columns(table):
        sizes = [row[f"column_{name}"] for name in ("data_compressed_bytes", "data_uncompressed_bytes", "marks_bytes")]
        old = out.get(row["column"], (0, 0, 0))
        out[row["column"]] = (old[0] + sizes[0], old[1] + sizes[1], old[2] + sizes[2])
    return out


def _parts(db: Session, wanted: Wanted) -> Rows:
    for database, name, table in all_tables(db, wanted):
        state = table.handle.log.state
        facts = {part.name: part.manifest for part in state.parts()} if wanted.columns & _OF_MANIFESTS else {}
        types = [key.type for key in table_keys(table.schema).partition]
        needed = {*wanted.columns, "name", "uuid", "active", *({"bytes_on_disk"} if "bytes" in wanted.columns else ())}
        for row in parts_table(state.parts(), state.retired, types, needed).to_pylist():
            here = {"database": database, "table": name, "engine": table.schema.engine, "disk_name": "default", **row}
            here["path"] = f"{table.location}/{row['uuid']}/"
            here["bytes"] = row["bytes_on_disk"]
            if row["active"] and row["name"] in facts:
                manifest = facts[row["name"]]
                here |= moments(manifest, table.schema.types) | expiry_moments(manifest, table_ttl(table.schema))
                here |= part_facts(manifest) if wanted.columns & set(_OF_FILES) else {}
            yield row_of(here, _PART_COLUMNS)


def _parts_columns(db: Session, wanted: Wanted) -> Rows:
    for database, name, table in all_tables(db, wanted):
        of_table = {"database": database, "table": name, "engine": table.schema.engine, "disk_name": "default"}
        parts = {row["name"]: row for row in table.parts().to_pylist()}
        for row in part_columns(table):
            here = of_table | parts[row["name"]] | row
            yield row_of(here, _PARTS_COLUMNS_COLUMNS)


def _detached_parts(db: Session, wanted: Wanted) -> Rows:
    for database, name, table in all_tables(db, wanted):
        for part in table.handle.log.state.detached:
            info, manifest = part.info, part.manifest
            yield (
                database, name, info.partition_id, str(info), manifest.bytes_on_disk, part.detached_ms, "default",
                f"{table.location}/{manifest.id}/", "", info.min_block, info.max_block, info.level,
            )  # fmt: skip


def _indexes(db: Session, wanted: Wanted) -> Rows:
    for database, name, table in all_tables(db, wanted):
        for row in index_rows(table):
            yield database, name, *row.values()


def _projections(db: Session, wanted: Wanted) -> Rows:
    for database, name, table in all_tables(db, wanted):
        for row in projection_rows(table):
            yield database, name, *row.values()


def _mutations(db: Session, wanted: Wanted) -> Rows:
    for database, name, table in all_tables(db, wanted):
        for row in table.mutations().to_pylist():
            here = {"database": database, "table": name, **row}
            yield row_of(here, _MUTATION_COLUMNS)


_OF_COLUMN_FILES = dict.fromkeys(("data_compressed_bytes", "data_uncompressed_bytes", "marks_bytes"), "UInt64")
"""Columns of `system.columns` that are computed from the files of parts."""
_OF_FILES = {
    "files": "UInt64",
    "data_compressed_bytes": "UInt64",
    "marks_bytes": "UInt64",
    "primary_key_size": "UInt64",
    "secondary_indices_compressed_bytes": "UInt64",
    "secondary_indices_uncompressed_bytes": "UInt64",
    "secondary_indices_marks_bytes": "UInt64",
    "hash_of_all_files": "String",
    "hash_of_uncompressed_files": "String",
    "uncompressed_hash_of_compressed_files": "String",
}
"""Columns of `system.parts` that need the file table of each part."""
_MOMENTS = {"min_date": "Date", "max_date": "Date", "min_time": "DateTime", "max_time": "DateTime"}
_EXPIRY = {"delete_ttl_info_min": "DateTime", "delete_ttl_info_max": "DateTime"}
_OF_MANIFESTS = {*_OF_FILES, *_MOMENTS, *_EXPIRY}
_OF_ALL_PARTS = {"total_bytes_uncompressed", "total_marks"}
_OF_SHARED = {"shared_object_bytes", "shared_object_dead_bytes"}
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
    "has_lightweight_delete": "UInt8",
    "disk_name": "String",
    "path": "String",
    "bytes": "UInt64",
    **_MOMENTS,
    **_EXPIRY,
    **_OF_FILES,
}
_PARTS_COLUMNS_COLUMNS = {
    **{
        name: kind
        for name, kind in _PART_COLUMNS.items()
        if name not in {*_OF_FILES, *_EXPIRY, "path", "bytes", "part_storage_type", "has_lightweight_delete"}
    },
    "column": "String",
    "type": "String",
    "column_position": "UInt64",
    "default_kind": "String",
    "default_expression": "String",
    "column_bytes_on_disk": "UInt64",
    "column_data_compressed_bytes": "UInt64",
    "column_data_uncompressed_bytes": "UInt64",
    "column_marks_bytes": "UInt64",
}
_MUTATION_COLUMNS = {
    "database": "String",
    "table": "String",
    "mutation_id": "String",
    "command": "String",
    "create_time": "DateTime",
    "finish_time": "DateTime",
    "block_numbers.partition_id": "Array(String)",
    "block_numbers.number": "Array(Int64)",
    "parts_in_progress_names": "Array(String)",
    "parts_to_do_names": "Array(String)",
    "parts_to_do": "Int64",
    "parts_postpone_reasons": "Map(String, String)",
    "is_done": "UInt8",
    "is_killed": "UInt8",
    "latest_failed_part": "String",
    "latest_fail_time": "DateTime",
    "latest_fail_reason": "String",
    "latest_fail_error_code_name": "String",
}

_TABLES: Mapping[str, tuple[Mapping[str, str], Callable[[Session, Wanted], Rows]]] = {
    "databases": (
        {
            "name": "String",
            "engine": "String",
            "data_path": "String",
            "comment": "String",
            "uuid": "UUID",
            "engine_full": "String",
            "metadata_path": "String",
            "is_external": "UInt8",
        },
        _databases,
    ),
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
            "total_marks": "Nullable(UInt64)",
            "comment": "String",
            "as_select": "String",
            "skipping_indices_types": "Array(String)",
            "has_own_data": "UInt8",
            "storage_policy": "String",
            "shared_object_bytes": "UInt64",
            "shared_object_dead_bytes": "UInt64",
            "retained_bytes": "UInt64",
            "parameterized_view_parameters": "Array(Tuple(name String, type String))",
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
            "character_octet_length": "Nullable(UInt64)",
            "numeric_precision": "Nullable(UInt64)",
            "numeric_precision_radix": "Nullable(UInt64)",
            "numeric_scale": "Nullable(UInt64)",
            "datetime_precision": "Nullable(UInt64)",
            **_OF_COLUMN_FILES,
        },
        _columns,
    ),
    "parts": (_PART_COLUMNS, _parts),
    "parts_columns": (_PARTS_COLUMNS_COLUMNS, _parts_columns),
    "data_skipping_indices": (
        {
            "database": "String",
            "table": "String",
            "name": "String",
            "type": "String",
            "type_full": "String",
            "expr": "String",
            "creation": "Enum8('Explicit' = 0, 'Implicit' = 1)",
            "granularity": "UInt64",
            "data_compressed_bytes": "UInt64",
            "data_uncompressed_bytes": "UInt64",
            "marks_bytes": "UInt64",
        },
        _indexes,
    ),
    "projections": (
        {
            "database": "String",
            "table": "String",
            "name": "String",
            "type": "Enum8('Normal' = 0, 'Aggregate' = 1)",
            "sorting_key": "Array(String)",
            "query": "String",
            "settings": "Map(String, String)",
        },
        _projections,
    ),
    "detached_parts": (
        {
            "database": "String",
            "table": "String",
            "partition_id": "Nullable(String)",
            "name": "String",
            "bytes_on_disk": "UInt64",
            "modification_time": "DateTime64(3, 'UTC')",
            "disk": "String",
            "path": "String",
            "reason": "Nullable(String)",
            "min_block_number": "Nullable(Int64)",
            "max_block_number": "Nullable(Int64)",
            "level": "Nullable(UInt32)",
        },
        _detached_parts,
    ),
    "settings": (system_settings.COLUMNS, lambda db, _: system_settings.settings(db)),
    "merge_tree_settings": (system_settings.TABLE_COLUMNS, lambda db, _: system_settings.merge_tree_settings(db)),
    "mutations": (_MUTATION_COLUMNS, _mutations),
    "events": (system_counters.EVENTS, system_counters.events),
    "disks": (system_counters.DISKS, system_counters.disks),
    "query_log": (system_counters.QUERY_LOG, system_counters.query_log),
    "processes": (system_counters.PROCESSES, system_counters.processes),
    "part_log": (system_part_log.PART_LOG, system_part_log.part_log),
    "merges": (system_nodes.MERGES, system_nodes.merges),
    "nodes": (system_nodes.NODES, system_nodes.nodes),
    "freshness": (system_nodes.FRESHNESS, system_nodes.freshness),
}
