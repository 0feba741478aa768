"""The short way into a part: `read_part(path)` for anybody who has a directory that ClickHouse wrote.

::

    part = read_part("/var/lib/clickhouse/store/abc/…/all_1_1_0", columns=["k", "s"])
    part.types, part.rows
    for batch in part.batches(): ...
    table = part.storage()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from mergelake.core.arrow import storage_schema
from mergelake.core.schema import unknown_column
from mergelake.core.types import DataType
from mergelake.parts.adopt import open_directory
from mergelake.parts.reader import BATCH_ROWS, PartReader
from mergelake.store.open import open_store


class PartData:
    """An opened part directory and the columns that are wanted from it."""

    def __init__(self, reader: PartReader, columns: Sequence[str]) -> None:
        self.reader = reader
        self._columns = tuple(columns)

    @property
    def rows(self) -> int:
        """Rows of the part."""
        return self.reader.manifest.rows

    @property
    def types(self) -> dict[str, DataType]:
        """ClickHouse type of each wanted column."""
        return {name: self.reader.columns[name].type for name in self._columns}

    def batches(self, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows, in storage form (`core.arrow`)."""
        return self.reader.read(self._columns, batch_rows=batch_rows)

    def storage(self) -> pa.Table:
        """All rows, in storage form."""
        batches = list(self.batches())
        return pa.Table.from_batches(batches) if batches else storage_schema(self.types).empty_table()


def read_part(
    path_or_url: str,
    columns: Sequence[str] | None = None,
    *,
    options: Mapping[str, str] | None = None,
    granularity: int = 8192,
    threads: int = 1,
) -> PartData:
    """Open the part directory at a path or URL; `columns` are those that are wanted, all without.

    `options` go to `open_store`. Nothing but small files is read before rows are asked for. Errors as in
    `adopt.open_directory`; NO_SUCH_COLUMN_IN_TABLE for a column that the part does not have.
    """
    parent, _, name = path_or_url.rstrip("/").rpartition("/")
    store = open_store(parent or ("/" if path_or_url.startswith("/") else "."), options)
    opened = open_directory(store, name, granularity=granularity)
    wanted = list(opened.columns) if columns is None else list(columns)
    for column in wanted:
        if column not in opened.columns:
            raise unknown_column(column, list(opened.columns), path_or_url)
    reader = PartReader(
        store, opened.directory, opened.manifest, opened.columns, threads=threads, granularity=granularity
    )
    return PartData(reader, wanted)
