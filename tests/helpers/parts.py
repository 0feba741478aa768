"""Parts of sorted blocks, without a table around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from mergelake.core.base.clock import Clock, ManualClock
from mergelake.core.base.ids import IdSource, SeededIds
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.parts.write.part_spec import PartTarget, SortedRows
from mergelake.parts.write.writer import write_part
from mergelake.store.interface.protocol import Store


def part_target(
    store: Store,
    schema: TableSchema,
    *,
    keys: Sequence[str] = ("k",),
    settings: Mapping[str, Any] | None = None,
    ids: IdSource | None = None,
    clock: Clock | None = None,
) -> PartTarget:
    """Of the table in the directory `t`; `settings` alone hold."""
    types = [schema.types[key] for key in keys]
    return PartTarget(
        store, "t", schema, TableSettings(settings or {}), types, ids or SeededIds(), clock or ManualClock()
    )


def write_block(
    target: PartTarget, block: pa.Table, keys: Sequence[str] = ("k",), sources: Sequence[str] = (), **more: Any
) -> PartManifest:
    """A block that is sorted by the columns `keys` as a part; `sources` are the columns of the partition key."""
    types = target.schema.types
    rows = SortedRows(
        block,
        [block.column(key).combine_chunks() for key in keys],
        partition_sources={name: (block.column(name).combine_chunks(), types[name]) for name in sources},
    )
    return write_part(target, rows, **more)
