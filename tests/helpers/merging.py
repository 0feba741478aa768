"""A table in memory for tests of merges: insert blocks, merge, read back in stored order."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.schema import TableSchema
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import DataType
from mergelake.jobs.merge.commit import MergeOutcome, merge_parts
from mergelake.jobs.merge.plan import plan_merge
from mergelake.jobs.merge.select import select_optimize
from mergelake.log.model.parts import ActivePart
from mergelake.parts.read.reader import PartReader
from mergelake.store import Store, open_store
from mergelake.table.handle.handle import TableHandle
from mergelake.table.write.insert import Commit, commit_parts, insert_target, write_blocks


class SmallTable:
    """One table, driven by hand."""

    def __init__(self, schema: TableSchema, store: Store | None = None, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.ids = SeededIds(7)
        self.store = store or open_store(f"memory://{uuid.uuid4().hex}")
        self.handle = TableHandle.create(self.store, "t", schema, clock=self.clock, ids=self.ids)

    def insert(self, *blocks: pa.Table) -> Commit:
        """One insert of storage-form blocks."""
        handle = self.handle
        written = write_blocks(
            insert_target(self.store, "t", handle.schema, self.ids, self.clock),
            blocks,
            base_version=handle.base_version(),
        )
        return commit_parts(self.handle, written)

    def optimize(self, *, final: bool = True, partition_id: str | None = None) -> list[MergeOutcome]:
        """OPTIMIZE, run here."""
        state = self.handle.refresh()
        chosen = select_optimize(
            state.parts(), self.handle.settings, self.clock.now_ms(), final=final, partition_id=partition_id
        )
        tasks = [plan_merge("t", state.schema, parts, "optimize", state.version) for parts in chosen]
        return [merge_parts(self.handle, task) for task in tasks]

    @property
    def parts(self) -> tuple[ActivePart, ...]:
        """The active parts."""
        return self.handle.snapshot().parts

    @property
    def names(self) -> list[str]:
        """The active parts' names."""
        return [part.name for part in self.parts]

    def reader(self, part: ActivePart) -> PartReader:
        """A reader of one part."""
        columns = {column.name: column for column in self.handle.schema.stored}
        return PartReader(self.store, "t", part.manifest, columns)

    def rows(self, parts: Iterable[ActivePart] | None = None) -> pa.Table:
        """All rows of the parts (all of them), in order of part and row."""
        names = [column.name for column in self.handle.schema.stored]
        schema = pa.schema([(c.name, storage_type(c.type)) for c in self.handle.schema.stored])
        batches = [b for part in (self.parts if parts is None else parts) for b in self.reader(part).read(names)]
        tables = [pa.Table.from_batches([batch]).cast(schema) for batch in batches]
        return pa.concat_tables(tables).unify_dictionaries().combine_chunks() if tables else schema.empty_table()


def plain(table: pa.Table) -> list[tuple[object, ...]]:
    """Rows to compare: NaN is itself, dictionaries are their values."""
    columns = [["NaN" if v != v else v for v in column.to_pylist()] for column in table.columns]
    return list(zip(*columns, strict=True))


def random_column(data_type: DataType, rows: int, random: np.random.Generator, distinct: int = 1000) -> pa.Array:
    """Values of a column, about `distinct` different ones, with the edge cases of its type."""
    kind = storage_type(data_type)
    text = str(data_type)
    null = random.random(rows) < 0.1 if "Nullable" in text else np.zeros(rows, np.bool_)
    pick = random.integers(0, distinct, rows)
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_floating(inner):
        pool = np.concatenate([random.normal(0, 100, distinct), [np.nan, 0.0, -0.0, np.inf, -np.inf]])
        values = pool[random.integers(0, len(pool), rows)].tolist()
    elif pa.types.is_binary(inner):
        pool = [random.bytes(int(random.choice([0, 1, 3, 8, 9, 30]))) for _ in range(distinct)]
        pool = [b"prefix__" + p if i % 3 == 0 else p for i, p in enumerate(pool)]
        values = [pool[i] for i in pick]
    elif pa.types.is_fixed_size_binary(inner):
        fixed = [random.bytes(inner.byte_width) for _ in range(distinct)]
        values = [fixed[i] for i in pick]
    else:
        width = 8 * np.dtype(inner.to_pandas_dtype()).itemsize
        low, high = (-(1 << (width - 1)), 1 << (width - 1)) if pa.types.is_signed_integer(inner) else (0, 1 << width)
        if text == "Bool":
            low, high = 0, 2
        if text.startswith("Enum"):
            codes = [value for _, value in data_type.items]  # type: ignore[union-attr]
            values = [codes[i % len(codes)] for i in pick]
        else:
            step = max(1, (high - low) // distinct)
            values = [low + int(i) * step for i in pick % ((high - low) // step)]
    array = pa.array([None if gone else v for v, gone in zip(values, null, strict=True)], inner)
    return array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array
