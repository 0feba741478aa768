"""A table's parts and history as Arrow tables, with the column names of ClickHouse's system tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from mergelake.core.manifest import PartManifest
from mergelake.core.names import PartInfo
from mergelake.core.types import DataType
from mergelake.format.partition_text import partition_text
from mergelake.log.operations import AddParts, Entry, LogOp, Publish
from mergelake.log.state import ActivePart, RetiredPart, State
from mergelake.log.volatile import dependents, leaves
from mergelake.log.words import in_words

_PARTS = pa.schema(
    [
        ("partition", pa.string()),
        ("name", pa.string()),
        ("uuid", pa.string()),
        ("part_type", pa.string()),
        ("part_storage_type", pa.string()),
        ("active", pa.uint8()),
        ("marks", pa.uint64()),
        ("rows", pa.uint64()),
        ("bytes_on_disk", pa.uint64()),
        ("data_uncompressed_bytes", pa.uint64()),
        ("modification_time", pa.timestamp("ms", "UTC")),
        ("remove_time", pa.timestamp("ms", "UTC")),
        ("partition_id", pa.string()),
        ("min_block_number", pa.int64()),
        ("max_block_number", pa.int64()),
        ("level", pa.uint32()),
        ("data_version", pa.uint64()),
        ("added_version", pa.int64()),
        ("removed_version", pa.int64()),
    ]
)
_HISTORY = pa.schema(
    [
        ("version", pa.int64()),
        ("time", pa.timestamp("ms", "UTC")),
        ("author", pa.string()),
        ("operations", pa.string()),
        ("rows_added", pa.int64()),
        ("rows_removed", pa.int64()),
        ("parts_added", pa.int64()),
        ("parts_removed", pa.int64()),
        ("tags", pa.string()),
    ]
)


_MERGES = pa.schema(
    [
        ("partition_id", pa.string()),
        ("result_part_name", pa.string()),
        ("num_parts", pa.uint64()),
        ("rows", pa.uint64()),
        ("total_size_bytes_compressed", pa.uint64()),
        ("owner", pa.string()),
        ("since", pa.timestamp("ms", "UTC")),
        ("lease_until", pa.timestamp("ms", "UTC")),
        ("inside", pa.string()),
    ]
)


def merges_table(state: State) -> pa.Table:
    """One row a Live volatile part; what it covers is counted in active parts.

    `lease_until`: of the owner, by its own clock; NULL if it has left. `inside`: the next larger one around it.
    """
    rows = []
    for partition_id, live in sorted(state.volatile.items()):
        for part in live:
            covered = leaves(state.partitions[partition_id], part.info)
            lease = state.leases.get(part.owner)
            around = min(dependents(live, part), key=lambda outer: outer.info.level, default=None)
            rows.append(
                {
                    "partition_id": partition_id,
                    "result_part_name": part.name,
                    "num_parts": len(covered),
                    "rows": sum(leaf.manifest.rows for leaf in covered),
                    "total_size_bytes_compressed": sum(leaf.manifest.bytes_on_disk for leaf in covered),
                    "owner": part.owner,
                    "since": part.added_ms,
                    "lease_until": lease.until_ms if lease else None,
                    "inside": around.name if around else "",
                }
            )
    return pa.Table.from_pylist(rows, schema=_MERGES)


def parts_table(
    parts: Iterable[ActivePart], retired: Iterable[RetiredPart] = (), key_types: Sequence[DataType] = ()
) -> pa.Table:
    """One row a part, as in `system.parts`; `removed_version` is NULL for active ones.

    `key_types` are the types of the partition key. Of a partition without active parts only the id is known.
    """
    held = list(parts)
    first = {part.info.partition_id: part.manifest.partition for part in reversed(held)}
    texts = {name: partition_text(bytes.fromhex(data), key_types) for name, data in first.items()}
    rows = [_active(part) for part in held] + [_retired(part) for part in retired]
    for row in rows:
        row["partition"] = texts.get(row["partition_id"], row["partition_id"] if key_types else "tuple()")
    return pa.Table.from_pylist(rows, schema=_PARTS)


def _active(part: ActivePart) -> dict[str, Any]:
    m = part.manifest
    return {
        **_named(part.info),
        "uuid": m.id,
        "part_type": m.part_type,
        "part_storage_type": "Packed" if m.storage == "packed" else "Full",
        "active": 1,
        "marks": m.marks + 1 if m.marks else 0,  # ClickHouse counts the final mark, which ends a part
        "rows": m.rows,
        "bytes_on_disk": m.bytes_on_disk,
        "data_uncompressed_bytes": m.bytes_uncompressed,
        "modification_time": part.added_ms,
        "added_version": part.added,
    }


def _retired(part: RetiredPart) -> dict[str, Any]:
    return {
        **_named(part.info),
        "uuid": part.id,
        "active": 0,
        "rows": part.rows,
        "bytes_on_disk": part.bytes_on_disk,
        "remove_time": part.retired_ms,
        "added_version": part.added,
        "removed_version": part.retired,
    }


def _named(info: PartInfo) -> dict[str, Any]:
    return {
        "name": str(info),
        "partition_id": info.partition_id,
        "min_block_number": info.min_block,
        "max_block_number": info.max_block,
        "level": info.level,
        "data_version": info.data_version,
    }


def history_table(entries: Iterable[Entry], retired: Iterable[RetiredPart], tags: Mapping[str, int]) -> pa.Table:
    """One row a version. What was removed is told by `retired`, the replaced parts that are remembered."""
    gone: dict[int, list[RetiredPart]] = {}
    for part in retired:
        gone.setdefault(part.retired, []).append(part)
    names: dict[int, list[str]] = {}
    for name, version in sorted(tags.items()):
        names.setdefault(version, []).append(name)
    rows = [_version(entry, gone.get(entry.version, ()), names.get(entry.version, ())) for entry in entries]
    return pa.Table.from_pylist(rows, schema=_HISTORY)


def _version(entry: Entry, gone: Sequence[RetiredPart], tags: Sequence[str]) -> dict[str, Any]:
    new = [part for op in entry.ops for part in _added(op)]
    return {
        "version": entry.version,
        "time": entry.timestamp_ms,
        "author": entry.author,
        "operations": "; ".join(map(in_words, entry.ops)),
        "rows_added": sum(part.rows for part in new),
        "rows_removed": sum(part.rows for part in gone),
        "parts_added": len(new),
        "parts_removed": len(gone),
        "tags": ", ".join(tags),
    }


def _added(op: LogOp) -> tuple[PartManifest, ...]:
    if isinstance(op, AddParts):
        return op.parts
    return (op.part,) if isinstance(op, Publish) else ()
