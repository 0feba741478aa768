"""`system.part_log`: what happened to parts, as far back as the logs of the tables are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mergelake.api.python.cost import chunk_bytes, recent_entries
from mergelake.api.python.part_events import part_events
from mergelake.api.sql.system_rows import Rows, Wanted, all_tables, row_of, uuid_of
from mergelake.engines.order.keys import table_keys
from mergelake.store.interface.protocol import Counters

if TYPE_CHECKING:
    from mergelake.api.sql.session import Session

_MS_PER_DAY = 86_400_000
PART_LOG: Mapping[str, str] = {
    "event_type": "Enum8('NewPart' = 1, 'MergeParts' = 2, 'DownloadPart' = 3, 'RemovePart' = 4, 'MutatePart' = 5, "
    "'MovePart' = 6, 'MergePartsStart' = 7, 'MutatePartStart' = 8)",
    "merge_reason": "Enum8('NotAMerge' = 1, 'RegularMerge' = 2, 'TTLDeleteMerge' = 3, 'TTLRecompressMerge' = 4, "
    "'TTLDropMerge' = 5)",
    "event_date": "Date",
    "event_time": "DateTime",
    "event_time_microseconds": "DateTime64(6)",
    "duration_ms": "Nullable(UInt64)",
    "database": "String",
    "table": "String",
    "table_uuid": "UUID",
    "part_name": "String",
    "partition_id": "String",
    "partition": "String",
    "part_type": "String",
    "part_storage_type": "String",
    "disk_name": "String",
    "path_on_disk": "String",
    "rows": "UInt64",
    "size_in_bytes": "UInt64",
    "merged_from": "Array(String)",
    "bytes_uncompressed": "UInt64",
    "read_rows": "UInt64",
    "error": "UInt16",
    "exception": "String",
    "mutation_ids": "Array(String)",
    "kind": "String",
    "version": "UInt64",
    "author": "String",
    "put_requests": "UInt64",
    "cost": "Float64",
}


def part_log(db: Session, wanted: Wanted) -> Rows:
    """One row for each part that was added, merged, rewritten or removed by an entry that is kept."""
    chunk = chunk_bytes(db.warehouse.store)
    for database, name, table in all_tables(db, wanted):
        log = table.handle.log
        state = log.state
        of_table = {"database": database, "table": name, "table_uuid": uuid_of(table.handle.directory)}
        types = [key.type for key in table_keys(table.schema).partition]
        # What the entry of the oldest version that is kept replaced is forgotten.
        entries = recent_entries(log, wanted.conditions.since_ms, wanted.conditions.since_version)
        for event in part_events(state, entries, types, chunk):
            now_ms, part_id = event.pop("event_time_ms"), event.pop("part_id", "")
            here = {
                **of_table,
                **event,
                "event_date": now_ms // _MS_PER_DAY,
                "event_time": now_ms // 1000,
                "event_time_microseconds": now_ms * 1000,
                "cost": db.warehouse.prices.cost(Counters(put=event.get("put_requests", 0))),
            }
            if part_id:
                here |= {"disk_name": "default", "path_on_disk": f"{table.location}/{part_id}/"}
            yield row_of(here, PART_LOG)
