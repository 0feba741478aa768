"""`read_part(path)`: read a part directory that ClickHouse wrote.

::

    part = read_part("/var/lib/clickhouse/store/abc/…/all_1_1_0", columns=["k", "s"])
    part.rows, part.schema
    table = part.arrow()
    for batch in part.batches(): ...
    duckdb.from_arrow(part.reader())
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from mergelake.convert.public import to_public_table
from mergelake.core.arrow import arrow_schema, storage_schema
from mergelake.core.schema import unknown_column
from mergelake.core.types import DataType
from mergelake.parts.adopt import open_directory
from mergelake.parts.reader import BATCH_ROWS, PartReader
from mergelake.store.open import open_store
from mergelake.store.protocol import Store


class PartData:
    """An opened part directory and the columns to read from it."""

    def __init__(self, name: str, part: PartReader, columns: Sequence[str]) -> None:
        self.name = name
        """Name of the directory."""
        self.part = part
        """The underlying reader: mark ranges, primary index, storage form."""
        self._columns = tuple(columns)

    def __repr__(self) -> str:
        manifest = self.part.manifest
        return f"<PartData {self.name}: {manifest.rows} rows, {len(self._columns)} columns, {manifest.part_type}>"

    @property
    def rows(self) -> int:
        """Rows of the part, without those that a mask deletes."""
        return self.part.live_rows

    @property
    def types(self) -> dict[str, DataType]:
        """ClickHouse type of each wanted column."""
        return {name: self.part.columns[name].type for name in self._columns}

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the columns."""
        return arrow_schema(self.types)

    def arrow(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows in their order, about `batch_rows` at a time; files are fetched window by window."""
        types = self.types
        for batch in self.part.read(self._columns, batch_rows=batch_rows):
            yield from to_public_table(batch, types).to_batches()

    def reader(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """The rows as an Arrow stream, which DuckDB, polars and pandas read without a copy."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches(batch_rows))

    def storage(self) -> pa.Table:
        """All rows, in storage form (`core.arrow`)."""
        batches = list(self.part.read(self._columns))
        return pa.Table.from_batches(batches) if batches else storage_schema(self.types).empty_table()


def read_part(
    path_or_url: str,
    columns: Sequence[str] | None = None,
    *,
    options: Mapping[str, str] | None = None,
    granularity: int = 8192,
    threads: int = 1,
) -> PartData:
    """Open the part directory at a path or URL, to read `columns` (default: all).

    `options` go to `open_store`. `granularity` is the table's `index_granularity`, needed only for parts of tables with
    `index_granularity_bytes = 0`. Only small files are read before rows are requested. Raises the errors of
    `adopt.open_directory`, and NO_SUCH_COLUMN_IN_TABLE for a column that the part does not have.
    """
    store, name = part_location(path_or_url, options)
    opened = open_directory(store, name, granularity=granularity)
    wanted = list(opened.columns) if columns is None else list(columns)
    for column in wanted:
        if column not in opened.columns:
            raise unknown_column(column, list(opened.columns), path_or_url)
    reader = PartReader(
        store, opened.directory, opened.manifest, opened.columns, threads=threads, granularity=granularity
    )
    return PartData(name, reader, wanted)


def part_location(path_or_url: str, options: Mapping[str, str] | None = None) -> tuple[Store, str]:
    """The store that holds a part directory, and the directory's name in it."""
    parent, _, name = path_or_url.rstrip("/").rpartition("/")
    return open_store(parent or ("/" if path_or_url.startswith("/") else "."), options), name
