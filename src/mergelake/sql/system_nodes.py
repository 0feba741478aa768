"""`system.merges`, `system.nodes` and `system.freshness`: who works on the tables, at what, and who knows of it.

The log knows the volatile parts and the leases of nodes. How far a merge is, and what lies on a disk, only its node
knows: that is told of nodes in this process (`Warehouse.nodes`), and NULL for all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mergelake.core.names import merged_name
from mergelake.format.partition_text import partition_text
from mergelake.lake.inspect import merges_table
from mergelake.log.state import ActivePart, State, VolatilePart
from mergelake.log.volatile import leaves, pending
from mergelake.node.actions import TableView
from mergelake.order.keys import table_keys
from mergelake.sql.system_rows import Rows, Wanted, all_tables, row_of

if TYPE_CHECKING:
    from mergelake.core.types import DataType
    from mergelake.sql.database import Database

MERGES: Mapping[str, str] = {
    "database": "String",
    "table": "String",
    "elapsed": "Nullable(Float64)",
    "progress": "Nullable(Float64)",
    "num_parts": "UInt64",
    "source_part_names": "Array(String)",
    "result_part_name": "String",
    "partition_id": "String",
    "partition": "String",
    "is_mutation": "UInt8",
    "total_size_bytes_compressed": "UInt64",
    "total_size_bytes_uncompressed": "UInt64",
    "total_size_marks": "UInt64",
    "rows_read": "Nullable(UInt64)",
    "merge_type": "String",
    "total_rows": "UInt64",
    "is_volatile": "UInt8",
    "state": "Nullable(String)",
    "node": "String",
    "lease_until": "Nullable(DateTime64(3, 'UTC'))",
}
NODES: Mapping[str, str] = {
    "database": "String",
    "table": "String",
    "node": "String",
    "lease_until": "DateTime64(3, 'UTC')",
    "is_expired": "UInt8",
    "address": "String",
    "has_disk": "UInt8",
    "version": "UInt64",
    "volatile_parts": "UInt64",
    "volatile_source_bytes": "UInt64",
    "is_here": "UInt8",
}
FRESHNESS: Mapping[str, str] = {
    "database": "String",
    "table": "String",
    "version": "Nullable(UInt64)",
    "version_time": "Nullable(DateTime64(3, 'UTC'))",
    "newest_version": "UInt64",
    "newest_version_time": "DateTime64(3, 'UTC')",
    "absolute_delay": "Nullable(UInt64)",
}
LIVE, BUILDING, READY, UPLOADING = "live", "building", "ready", "uploading"
"""States of a merge: intended, being made, made on the node's disk, being copied to the store."""
_ASKED = {"newest_version", "newest_version_time", "absolute_delay"}
"""Columns of `system.freshness` for which the store is asked."""


def merges(db: Database, wanted: Wanted) -> Rows:
    """`system.merges`: the volatile parts of all tables, and the merges and mutations of nodes in this process."""
    now_ms = db.warehouse.clock.now_ms()
    nodes = {node.name: node.views for node in db.warehouse.nodes}
    for database, name, table in all_tables(db, wanted):
        state = table.handle.log.state
        views = {node: of_tables[table.handle.directory] for node, of_tables in nodes.items()
                 if table.handle.directory in of_tables}  # fmt: skip
        key_types = [key.type for key in table_keys(table.schema).partition]
        for row in merge_rows(state, views, now_ms, key_types):
            yield row_of({"database": database, "table": name, **row}, MERGES)


def merge_rows(
    state: State, views: Mapping[str, TableView], now_ms: int, key_types: Sequence[DataType]
) -> Iterator[dict[str, Any]]:
    """Rows of `system.merges` about one table; `views` are those of the nodes in this process, by their names."""
    volatile = {str(part.info): part for live in state.volatile.values() for part in live}
    for row in merges_table(state).to_pylist():
        part = volatile[row["result_part_name"]]
        covered = leaves(state.partitions[part.info.partition_id], part.info)
        view = views.get(part.owner)
        yield {
            **_of_sources(covered, key_types),
            "elapsed": (now_ms - part.added_ms) / 1000,
            "result_part_name": part.name,
            "is_volatile": 1,
            "merge_type": "Regular",
            "state": None if view is None else _state(view, part),
            "node": part.owner,
            "lease_until": row["lease_until"],
        }
    for node, view in views.items():
        lease = state.leases.get(node)
        for ids, partition_id in view.merging.items():
            sources = [part for part in state.partitions.get(partition_id, ()) if part.manifest.id in ids]
            mutated = ids in view.mutating
            for group in [[part] for part in sources] if mutated else [sources] if len(sources) == len(ids) else ():
                yield {
                    **_of_sources(group, key_types),
                    "result_part_name": _result(state, group, mutated),
                    "is_mutation": int(mutated),
                    "merge_type": "" if mutated else "Regular",
                    "state": BUILDING,
                    "node": node,
                    "lease_until": lease.until_ms if lease else None,
                }


def _result(state: State, sources: Sequence[ActivePart], mutated: bool) -> str:
    """The name of the part that a merge or a mutation of these parts makes, as far as the log goes here."""
    if not mutated:
        holes = state.holes.get(sources[0].info.partition_id, ())
        return str(merged_name([part.info for part in sources], holes))
    lacking = pending(state.mutations, sources[0].info)
    return str(replace(sources[0].info, mutation=lacking[-1]) if lacking else sources[0].info)


def _state(view: TableView, part: VolatilePart) -> str:
    """How far the node that owns a volatile part is."""
    if part.id in view.building:
        return BUILDING
    if part.id in view.uploading or part.id in view.uploaded:
        return UPLOADING
    return READY if part.id in view.local else LIVE


def _of_sources(parts: Sequence[ActivePart], key_types: Sequence[DataType]) -> dict[str, Any]:
    """What the sources of a merge are together."""
    manifests = [part.manifest for part in parts]
    return {
        "num_parts": len(parts),
        "source_part_names": [part.name for part in parts],
        "partition_id": parts[0].info.partition_id,
        "partition": partition_text(bytes.fromhex(manifests[0].partition), key_types),
        "total_size_bytes_compressed": sum(manifest.bytes_on_disk for manifest in manifests),
        "total_size_bytes_uncompressed": sum(manifest.bytes_uncompressed for manifest in manifests),
        "total_size_marks": sum(manifest.marks for manifest in manifests),
        "total_rows": sum(manifest.rows for manifest in manifests),
    }


def nodes(db: Database, wanted: Wanted) -> Rows:
    """`system.nodes`: who has a lease in which table."""
    now_ms = db.warehouse.clock.now_ms()
    here = {node.name: node.views for node in db.warehouse.nodes}
    for database, name, table in all_tables(db, wanted):
        state = table.handle.log.state
        for node, lease in sorted(state.leases.items()):
            owned = [part for live in state.volatile.values() for part in live if part.owner == node]
            covered = {
                leaf.manifest.id: leaf.manifest.bytes_on_disk
                for part in owned
                for leaf in leaves(state.partitions[part.info.partition_id], part.info)
            }
            yield (
                database, name, node, lease.until_ms, int(lease.until_ms < now_ms), lease.address, int(lease.disk),
                lease.version, len(owned), sum(covered.values()), int(table.handle.directory in here.get(node, {})),
            )  # fmt: skip


def freshness(db: Database, wanted: Wanted) -> Rows:
    """`system.freshness`: the version of each table that this connection knows, and the newest one, if it is wanted."""
    for full in wanted.tables(db.warehouse.tables()):
        database, name = full.split(".", 1)
        known = db.known_table(database, name)
        state = known.handle.log.state if known else None
        row = {
            "database": database,
            "table": name,
            "version": state.version if state else None,
            "version_time": state.timestamp_ms if state else None,
        }
        if wanted.columns & _ASKED:
            newest = db.table(full).handle.log.state
            row["newest_version"], row["newest_version_time"] = newest.version, newest.timestamp_ms
            row["absolute_delay"] = (newest.timestamp_ms - state.timestamp_ms) // 1000 if state else None
        yield row_of(row, FRESHNESS)
