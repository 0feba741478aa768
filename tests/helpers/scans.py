"""The same small tables here and in ClickHouse, for tests of scans.

Rows are lists of storage values (a Date is a number of days); each insert becomes one part per partition on both
sides, with the same granules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.core.base.text import quote_string
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import DataType, parse_type
from mergelake.parts.read.cache import PartCache
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.plan import ScanPlan, plan_scan
from mergelake.scan.read.read import read_items
from mergelake.scan.read.stats import ScanStats
from mergelake.store.interface.protocol import Store
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.handle.handle import TableHandle
from mergelake.table.write.insert import commit_parts, insert_target, write_blocks

Rows = Sequence[Mapping[str, Any]]


def make_schema(columns: Mapping[str, str], **kwargs: Any) -> TableSchema:
    """A schema from type texts; `settings` go in with everything else of `TableSchema`."""
    made = tuple(Column(i, name, parse_type(text)) for i, (name, text) in enumerate(columns.items()))
    order = kwargs.get("order_by", ())
    return TableSchema(made, **{"primary_key": order, **kwargs})


new_store: Callable[[], Store] = MemoryStore
"""Makes the store of a table; tests that read near and far set it."""


@dataclass
class ScanTable:
    """A table in a memory store."""

    schema: TableSchema
    store: Store = field(default_factory=lambda: new_store())
    caches: PartCache = field(default_factory=PartCache)

    def __post_init__(self) -> None:
        self._clock, self._ids = ManualClock(), SeededIds(1)
        self.handle = TableHandle.create(self.store, "t", self.schema, clock=self._clock, ids=self._ids)

    def insert(self, rows: Rows) -> None:
        """One insert."""
        self.insert_block(block_of(rows, self.schema.types))

    def insert_block(self, block: pa.Table) -> None:
        """One insert of columns in storage form."""
        manifests = write_blocks(insert_target(self.store, "t", self.schema, self._ids, self._clock), [block])
        commit_parts(self.handle, manifests)

    def plan(self, request: ScanRequest) -> ScanPlan:
        """Plan a scan of what is there now; without EXPLAIN's numbers it reads the same."""
        plan = plan_scan(self.store, "t", self.handle.snapshot(), request, self.caches)
        bare = plan_scan(self.store, "t", self.handle.snapshot(), request, self.caches, count_steps=False)
        assert (bare.items, bare.column_bytes, bare.steps) == (plan.items, plan.column_bytes, ())
        return plan

    def scan(self, request: ScanRequest, **kwargs: Any) -> list[dict[str, Any]]:
        """The rows, in storage values."""
        return [row for batch in self.batches(request, **kwargs) for row in batch.to_pylist()]

    def batches(self, request: ScanRequest, stats: ScanStats | None = None, **kwargs: Any) -> Iterator[pa.RecordBatch]:
        """The batches of a scan."""
        plan = self.plan(request)
        return read_items(self.store, "t", plan, caches=self.caches, stats=stats, **kwargs)


def block_of(rows: Rows, types: Mapping[str, DataType]) -> pa.Table:
    """Rows as a block in storage form."""
    names = [name for name in types if name in rows[0]]
    return pa.table({n: pa.array([row[n] for row in rows], storage_type(types[n])) for n in names})


def create_statement(name: str, schema: TableSchema) -> str:
    """CREATE TABLE for ClickHouse."""
    columns = ", ".join(
        f"`{c.name}` {c.type}" + (f" {c.default_kind} {c.default}" if c.default else "") for c in schema.columns
    )
    for index in schema.indices:
        columns += f", INDEX {index.name} {index.expression} TYPE {index.type} GRANULARITY {index.granularity}"
    args = f"({', '.join(schema.engine_args)})" if schema.engine_args else ""
    partition = f" PARTITION BY ({', '.join(schema.partition_by)})" if schema.partition_by else ""
    order = ", ".join(
        text + (" DESC" if schema.order_desc and schema.order_desc[i] else "") for i, text in enumerate(schema.order_by)
    )
    settings = {
        **schema.settings,
        "min_bytes_for_wide_part": 0,
        "min_rows_for_wide_part": 0,
        "allow_nullable_key": 1,
        "add_minmax_index_for_numeric_columns": 0,
        # Else it may forget the last columns of an index to save memory, and reads more.
        "primary_key_ratio_of_unique_prefix_values_to_skip_suffix_columns": 1,
    }
    settings.pop("optimize_on_insert", None)
    if schema.indices:  # indexes are asked in the order of their sizes
        settings["packed_skip_index_max_bytes"] = 0
    if any(schema.order_desc):
        settings["allow_experimental_reverse_key"] = 1
    text = ", ".join(f"{key} = {value}" for key, value in settings.items())
    sample = f" SAMPLE BY {schema.sample_by}" if schema.sample_by else ""
    primary = f" PRIMARY KEY ({', '.join(schema.primary_key)})" if schema.primary_key else ""
    return (
        f"CREATE TABLE {name} ({columns}) ENGINE = {schema.engine}{args}{partition}{primary}"
        f" ORDER BY ({order}){sample} SETTINGS {text}"
    )


def insert_statement(name: str, rows: Rows) -> str:
    """INSERT … VALUES for ClickHouse."""
    names = list(rows[0])
    values = ", ".join("(" + ", ".join(_literal(row[n]) for n in names) + ")" for row in rows)
    return f"INSERT INTO {name} ({', '.join(names)}) VALUES {values}"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return quote_string(value.decode())
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value)
