"""CHECK TABLE: every byte of every active part against its checksums, and every index against the rows."""

from __future__ import annotations

import pyarrow as pa

from mergelake.parts.cache import PartCache
from mergelake.parts.verify import check_part
from mergelake.scan.source import open_part
from mergelake.table.handle import Snapshot, TableHandle
from mergelake.table.keys import table_keys

_SCHEMA = pa.schema([("part_path", pa.string()), ("is_passed", pa.uint8()), ("message", pa.string())])


def check_table(handle: TableHandle, snapshot: Snapshot) -> pa.Table:
    """One row a part, with the columns of ClickHouse's CHECK TABLE; `message` holds all that is wrong with it."""
    keys = table_keys(snapshot.schema)
    primary = keys.sorting[: keys.primary_length]
    rows = []
    for part in snapshot.parts:
        problems = check_part(
            open_part(handle.store, handle.directory, part.manifest, snapshot.schema, PartCache()),
            key_types=[key.type for key in primary],
            key_descending=keys.descending[: keys.primary_length],
            partition_types=[key.type for key in keys.partition],
        )
        rows.append({"part_path": part.name, "is_passed": int(not problems), "message": "; ".join(map(str, problems))})
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
