"""A table's parts and history as Arrow tables, with the column names of ClickHouse's system tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.types.types import DataType
from mergelake.format.files.partition_text import partition_texts
from mergelake.log.model.describe import describe_op
from mergelake.log.model.operations import AddParts, Entry, LogOp, Publish
from mergelake.log.model.parts import ActivePart, RetiredPart
from mergelake.log.model.state import State, is_shortened
from mergelake.log.model.volatile import dependents, leaves, pending
from mergelake.table.partitions.mutations import open_mutations
from mergelake.table.pending.commands import are_of_ttl, parse_commands

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
        ("has_lightweight_delete", pa.uint8()),
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
        ("source_part_names", pa.list_(pa.string())),
        ("rows", pa.uint64()),
        ("total_size_bytes_compressed", pa.uint64()),
        ("owner", pa.string()),
        ("since", pa.timestamp("ms", "UTC")),
        ("lease_until", pa.timestamp("ms", "UTC")),
        ("inside", pa.string()),
    ]
)


_DETACHED = pa.schema(
    [
        ("name", pa.string()),
        ("partition_id", pa.string()),
        ("rows", pa.uint64()),
        ("bytes_on_disk", pa.uint64()),
        ("version", pa.uint64()),
        ("time", pa.timestamp("ms", "UTC")),
        ("mutations", pa.uint64()),
    ]
)


_MUTATIONS = pa.schema(
    [
        ("mutation_id", pa.string()),
        ("command", pa.string()),
        ("create_time", pa.timestamp("ms", "UTC")),
        ("finish_time", pa.timestamp("ms", "UTC")),
        ("block_numbers.partition_id", pa.list_(pa.string())),
        ("block_numbers.number", pa.list_(pa.int64())),
        ("parts_in_progress_names", pa.list_(pa.string())),
        ("parts_to_do_names", pa.list_(pa.string())),
        ("parts_to_do", pa.int64()),
        ("parts_postpone_reasons", pa.map_(pa.string(), pa.string())),
        ("is_done", pa.uint8()),
        ("is_killed", pa.uint8()),
        ("latest_failed_part", pa.string()),
        ("latest_fail_time", pa.timestamp("ms", "UTC")),
        ("latest_fail_reason", pa.string()),
        ("latest_fail_error_code_name", pa.string()),
    ]
)


def mutations_table(state: State) -> pa.Table:
    """One row for each command of each mutation that the log remembers, as in `system.mutations`.

    `parts_in_progress_names` and `parts_postpone_reasons` are empty: only nodes know which parts they rewrite.
    """
    left: dict[int, list[str]] = {}
    for part in state.parts() if open_mutations(state) else ():
        for version in pending(state.mutations, part.info):
            left.setdefault(version, []).append(str(part.info))
    rows = []
    for mutation in state.mutations:
        to_do, failure = left.get(mutation.version, []), mutation.failure
        row = {
            "mutation_id": mutation.name,
            "create_time": mutation.added_ms,
            "finish_time": mutation.finished_ms or None,
            "block_numbers.partition_id": [""],
            "block_numbers.number": [mutation.version],
            "parts_in_progress_names": [],
            "parts_to_do_names": to_do,
            "parts_to_do": len(to_do),
            "parts_postpone_reasons": [],
            "is_done": int(not to_do),
            "is_killed": int(mutation.killed),
            "latest_failed_part": failure.part if failure else "",
            "latest_fail_time": failure.failed_ms if failure else None,
            "latest_fail_reason": failure.reason if failure else "",
            "latest_fail_error_code_name": failure.code if failure else "",
        }
        rows += [{**row, "command": f"({command})"} for command in _commands(mutation.commands)]
    return pa.Table.from_pylist(rows, schema=_MUTATIONS)


def _commands(text: str) -> Sequence[object]:
    """The commands of a mutation, each for a row; of one that is over perhaps the beginning of all of them."""
    if are_of_ttl(text):
        return ["MATERIALIZE TTL"]
    return [text] if is_shortened(text) else parse_commands(text)


def detached_table(state: State) -> pa.Table:
    """One row for each detached part, in the order of their detachment."""
    rows = [
        {
            "name": str(part.info),
            "partition_id": part.info.partition_id,
            "rows": part.manifest.rows,
            "bytes_on_disk": part.manifest.bytes_on_disk,
            "version": part.detached,
            "time": part.detached_ms,
            "mutations": len(part.lacks),
        }
        for part in state.detached
    ]
    return pa.Table.from_pylist(rows, schema=_DETACHED)


def merges_table(state: State) -> pa.Table:
    """One row per Live volatile part; `source_part_names` are the active parts that it covers.

    `lease_until`: end of the owner's lease, by its clock; NULL if it has left. `inside`: the next larger volatile part
    around it.
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
                    "source_part_names": [leaf.name for leaf in covered],
                    "rows": sum(leaf.manifest.rows for leaf in covered),
                    "total_size_bytes_compressed": sum(leaf.manifest.bytes_on_disk for leaf in covered),
                    "owner": part.owner,
                    "since": part.added_ms,
                    "lease_until": lease.until_ms if lease else None,
                    "inside": around.name if around else "",
                }
            )
    return pa.Table.from_pylist(rows, schema=_MERGES)


_OF_INFO: dict[str, Callable[[PartInfo], Any]] = {
    "name": str,
    "partition_id": lambda info: info.partition_id,
    "min_block_number": lambda info: info.min_block,
    "max_block_number": lambda info: info.max_block,
    "level": lambda info: info.level,
    "data_version": lambda info: info.data_version,
}
_OF_ACTIVE: dict[str, Callable[[ActivePart], Any]] = {
    "uuid": lambda part: part.manifest.id,
    "part_type": lambda part: part.manifest.part_type,
    "part_storage_type": lambda part: "Packed" if part.manifest.storage == "packed" else "Full",
    "active": lambda part: 1,
    # ClickHouse counts the final mark, which ends a part.
    "marks": lambda part: part.manifest.marks + 1 if part.manifest.marks else 0,
    "rows": lambda part: part.manifest.rows,
    "bytes_on_disk": lambda part: part.manifest.bytes_on_disk,
    "data_uncompressed_bytes": lambda part: part.manifest.bytes_uncompressed,
    "has_lightweight_delete": lambda part: int(part.manifest.masked),
    "modification_time": lambda part: part.added_ms,
    "added_version": lambda part: part.added,
}
_OF_RETIRED: dict[str, Callable[[RetiredPart], Any]] = {
    "uuid": lambda part: part.id,
    "active": lambda part: 0,
    "rows": lambda part: part.rows,
    "bytes_on_disk": lambda part: part.bytes_on_disk,
    "remove_time": lambda part: part.retired_ms,
    "added_version": lambda part: part.added,
    "removed_version": lambda part: part.retired,
}


def parts_table(
    parts: Iterable[ActivePart],
    retired: Iterable[RetiredPart] = (),
    key_types: Sequence[DataType] = (),
    wanted: Collection[str] | None = None,
) -> pa.Table:
    """One row per part, as in `system.parts`; `removed_version` is NULL for active ones.

    `key_types` are the types of the partition key. For a partition without active parts only the id is known. Columns
    that are not `wanted` are NULL.
    """
    active_parts, retired_parts = list(parts), list(retired)
    infos = [part.info for part in active_parts] + [part.info for part in retired_parts]

    def cells(name: str) -> list[Any]:
        if name == "partition":
            return _partitions(active_parts, retired_parts, key_types)
        if name in _OF_INFO:
            return [_OF_INFO[name](info) for info in infos]
        of_active, of_retired = _OF_ACTIVE.get(name), _OF_RETIRED.get(name)
        active = [of_active(part) if of_active else None for part in active_parts]
        return active + [of_retired(part) if of_retired else None for part in retired_parts]

    arrays = [
        pa.array(cells(column.name), column.type)
        if wanted is None or column.name in wanted
        else pa.nulls(len(active_parts) + len(retired_parts), column.type)
        for column in _PARTS
    ]
    return pa.Table.from_arrays(arrays, schema=_PARTS)


def _partitions(
    active: Sequence[ActivePart], retired: Sequence[RetiredPart], key_types: Sequence[DataType]
) -> list[str]:
    """The partition of each part, as ClickHouse writes it."""
    first = {part.info.partition_id: part.manifest.partition for part in reversed(active)}
    texts = dict(zip(first, partition_texts([bytes.fromhex(data) for data in first.values()], key_types), strict=True))
    ids = [part.info.partition_id for part in active] + [part.info.partition_id for part in retired]
    return [texts.get(name, name if key_types else "tuple()") for name in ids]


def history_table(entries: Iterable[Entry], retired: Iterable[RetiredPart], tags: Mapping[str, int]) -> pa.Table:
    """One row per version. The removed rows and parts are those of the `retired` parts."""
    by_version: dict[int, list[RetiredPart]] = {}
    for part in retired:
        by_version.setdefault(part.retired, []).append(part)
    names: dict[int, list[str]] = {}
    for name, version in sorted(tags.items()):
        names.setdefault(version, []).append(name)
    rows = [_version(entry, by_version.get(entry.version, ()), names.get(entry.version, ())) for entry in entries]
    return pa.Table.from_pylist(rows, schema=_HISTORY)


def _version(entry: Entry, retired: Sequence[RetiredPart], tags: Sequence[str]) -> dict[str, Any]:
    new = [part for op in entry.effective for part in _added(op)]
    return {
        "version": entry.version,
        "time": entry.timestamp_ms,
        "author": entry.authors,
        "operations": "; ".join(map(describe_op, entry.ops)),
        "rows_added": sum(part.rows for part in new),
        "rows_removed": sum(part.rows for part in retired),
        "parts_added": len(new),
        "parts_removed": len(retired),
        "tags": ", ".join(tags),
    }


def _added(op: LogOp) -> tuple[PartManifest, ...]:
    if isinstance(op, AddParts):
        return op.parts
    return (op.part,) if isinstance(op, Publish) else ()
