"""A table's parts and history as Arrow tables, with the column names of ClickHouse's system tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from mergelake.core.names import PartInfo
from mergelake.core.types import DataType
from mergelake.format.partition_text import partition_text
from mergelake.log.operations import AddParts, Entry, LogOp, Publish
from mergelake.log.state import ActivePart, RetiredPart

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
        ("rows", pa.int64()),
        ("parts_added", pa.int64()),
        ("parts_replaced", pa.int64()),
    ]
)


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


def history_table(entries: Sequence[Entry]) -> pa.Table:
    """One row a version. `rows` counts what AddParts brought."""
    rows = [
        {
            "version": entry.version,
            "time": entry.timestamp_ms,
            "author": entry.author,
            "operations": ", ".join(_described(op) for op in entry.ops),
            "rows": sum(part.rows for op in entry.ops if isinstance(op, AddParts) for part in op.parts),
            "parts_added": sum(_added(op) for op in entry.ops),
            "parts_replaced": sum(len(op.replaced) for op in entry.ops if isinstance(op, Publish)),
        }
        for entry in entries
    ]
    return pa.Table.from_pylist(rows, schema=_HISTORY)


def _described(op: LogOp) -> str:
    kind = getattr(op, "kind", "")
    return f"{type(op).__name__}({kind})" if kind else type(op).__name__


def _added(op: LogOp) -> int:
    if isinstance(op, AddParts):
        return len(op.parts)
    return 1 if isinstance(op, Publish) else 0
