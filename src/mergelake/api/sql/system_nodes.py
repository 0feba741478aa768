"""`system.merges`, `system.nodes` and `system.freshness`: who works on the tables, at what, and who knows of it.

The log knows the volatile parts and the leases of nodes. How far a merge is, and what lies on a disk, only its node
knows: nodes in this process (`Warehouse.nodes`) and those that listen are asked for their report, as `mergelake top`
does. What nobody tells is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mergelake.api.sql.system_rows import Rows, Wanted, all_tables, row_of
from mergelake.core.model.names import PartInfo
from mergelake.engines.order.keys import table_keys
from mergelake.format.files.partition_text import partition_text
from mergelake.jobs.node.report import NodeReport, Work
from mergelake.log.model.parts import ActivePart
from mergelake.log.model.state import State
from mergelake.log.model.volatile import leaves, pending

if TYPE_CHECKING:
    from mergelake.api.sql.session import Session
    from mergelake.core.types.types import DataType

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
BUILDING = "building"
_ASKED = {"newest_version", "newest_version_time", "absolute_delay"}
"""Columns of `system.freshness` for which the store is asked."""


def merges(db: Session, wanted: Wanted) -> Rows:
    """`system.merges`: the volatile parts of tables, and what nodes are at, as far as they are here or answer."""
    tables = {f"{database}.{name}": table for database, name, table in all_tables(db, wanted)}
    states = {full: table.handle.log.state for full, table in tables.items()}
    now_ms = db.warehouse.clock.now_ms()
    reports = _reports(db, states.values(), now_ms)
    for full, table in tables.items():
        database, name = full.split(".", 1)
        key_types = [key.type for key in table_keys(table.schema).partition]
        for row in merge_rows(full, states[full], reports, now_ms, key_types):
            yield row_of({"database": database, "table": name, **row}, MERGES)


def _reports(db: Session, states: Iterable[State], now_ms: int) -> list[NodeReport]:
    """The reports of the nodes in this process, and of those that listen and have a lease."""
    here = {node.name: node.report() for node in db.warehouse.nodes if not node.abandon.is_set()}
    leases = [
        lease
        for state in states
        for node, lease in state.leases.items()
        if node not in here and lease.address and lease.until_ms > now_ms
    ]
    if not leases:
        return list(here.values())
    from mergelake.api.python.overview import reports_of

    answered, _ = reports_of(db.warehouse, leases)
    return list({**answered, **here}.values())


def merge_rows(
    table: str, state: State, reports: Sequence[NodeReport], now_ms: int, key_types: Sequence[DataType]
) -> Iterator[dict[str, Any]]:
    """Rows of `system.merges` about one table."""
    running = {
        (report.node, work.part): (report, work) for report in reports for work in report.running if work.table == table
    }
    known = {part.id: part.state for report in reports for part in report.volatile if part.table == table}
    for live in state.volatile.values():
        for part in live:
            covered = leaves(state.partitions[part.info.partition_id], part.info)
            row = {
                **_of_sources(covered, key_types),
                "elapsed": (now_ms - part.added_ms) / 1000,
                "result_part_name": part.name,
                "is_volatile": 1,
                "merge_type": "Regular",
                "state": known.get(part.id),
                "node": part.owner,
                "lease_until": _lease_end(state, part.owner),
            }
            yield row | (_of_work(*running[part.owner, part.name]) if (part.owner, part.name) in running else {})
    for (node, name), (report, work) in running.items():
        if work.kind in ("direct", "mutate"):
            # A merge has the name of its first source until it is planned; several mutations that of the first part.
            info = PartInfo.try_parse(name)
            sources = leaves(state.partitions.get(work.partition_id, ()), info) if info is not None else ()
            told = info is not None and len(sources) == work.parts
            yield {
                "partition_id": work.partition_id,
                "total_size_bytes_compressed": work.bytes,
                "total_rows": work.rows,
                **(_of_sources(sources, key_types) if told else {}),
                "num_parts": work.parts,
                "result_part_name": _result(state, info, work.kind) if info is not None and told else "",
                "is_mutation": int(work.kind == "mutate"),
                "merge_type": "Regular" if work.kind == "direct" else "",
                "state": BUILDING,
                "node": node,
                "lease_until": _lease_end(state, node),
                **_of_work(report, work),
            }


def _result(state: State, info: PartInfo, kind: str) -> str:
    """The name of the result: of a mutation a report has that of the part that is rewritten."""
    lacking = pending(state.mutations, info) if kind == "mutate" else ()
    return str(replace(info, mutation=lacking[-1]) if lacking else info)


def _lease_end(state: State, node: str) -> int | None:
    lease = state.leases.get(node)
    return lease.until_ms if lease else None


def _of_work(report: NodeReport, work: Work) -> dict[str, Any]:
    """How far a running action is; how many rows is not known before the first ones are done."""
    done = work.bytes_done if work.kind == "upload" else work.rows_done
    return {
        "elapsed": (report.now_ms - work.started_ms) / 1000,
        "progress": work.share if done else None,
        "rows_read": work.rows_done if done else None,
    }


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


def nodes(db: Session, wanted: Wanted) -> Rows:
    """`system.nodes`: who has a lease in which table."""
    now_ms = db.warehouse.clock.now_ms()
    here = {node.name for node in db.warehouse.nodes if not node.abandon.is_set()}
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
                lease.version, len(owned), sum(covered.values()), int(node in here),
            )  # fmt: skip


def freshness(db: Session, wanted: Wanted) -> Rows:
    """`system.freshness`: the version of each table that this connection knows, and the newest one, if it is wanted."""
    for full in wanted.conditions.tables(db.warehouse.tables()):
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
