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
from typing import Any

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.convert.public import to_public_table
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import unknown_column
from mergelake.core.types.arrow import arrow_schema, storage_schema
from mergelake.core.types.types import DataType
from mergelake.parts.read.reader import BATCH_ROWS, PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.parts.tools.patched import PatchedPart
from mergelake.parts.tools.patches import PatchPart, find_patches, unknown_columns, widened
from mergelake.store.interface.protocol import Store
from mergelake.store.open import open_store


class PartData:
    """An opened part directory and the columns to read from it; an Arrow stream."""

    def __init__(self, name: str, part: PartReader, columns: Sequence[str], patched: PatchedPart | None = None) -> None:
        self.name = name
        """Name of the directory."""
        self.part = part
        """The underlying reader: mark ranges, primary index, storage form. It knows nothing of patch parts."""
        self._columns = tuple(columns)
        self._patched = patched

    def __repr__(self) -> str:
        manifest = self.part.manifest
        return f"<PartData {self.name}: {manifest.rows} rows, {len(self._columns)} columns, {manifest.part_type}>"

    @property
    def rows(self) -> int:
        """Rows of the part, without those that a mask or a patch part deletes."""
        return self._patched.live_rows if self._patched else self.part.live_rows

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
        for batch in self._read(batch_rows):
            yield from to_public_table(batch, types).to_batches()

    def _read(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        return (self._patched or self.part).read(self._columns, batch_rows=batch_rows)

    def reader(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """The rows as an Arrow stream, which DuckDB, polars and pandas read without a copy."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches(batch_rows))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The rows for whoever takes Arrow streams, such as `Table.append`."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def storage(self) -> pa.Table:
        """All rows, in storage form (`core.types.arrow`)."""
        batches = list(self._read(BATCH_ROWS))
        return pa.Table.from_batches(batches) if batches else storage_schema(self.types).empty_table()


def read_part(
    path_or_url: str,
    columns: Sequence[str] | None = None,
    *,
    options: Mapping[str, str] | None = None,
    granularity: int = 8192,
    threads: int = 1,
    patches: bool = True,
) -> PartData:
    """Open the part directory at a path or URL, to read `columns` (default: all).

    `options` go to `open_store`. `granularity` is the table's `index_granularity`, needed only for parts of tables with
    `index_granularity_bytes = 0`. The rows are those that ClickHouse shows: with the changes of the patch parts
    (lightweight UPDATE and DELETE) that lie beside the part, unless `patches=False`. Only small files are read before
    rows are requested. Raises the errors of `adopt.open_directory`, for patch parts too, NO_SUCH_COLUMN_IN_TABLE for a
    column that the part does not have, and NOT_IMPLEMENTED for one that only a patch part has.
    """
    store, name = part_location(path_or_url, options)
    opened = open_directory(store, name, granularity=granularity)
    info = PartInfo.try_parse(name)
    found: list[PatchPart] = []
    if patches and info is not None and opened.sources is None:
        found = find_patches(store, opened.directory, info, granularity=granularity, threads=threads)
    unknown = unknown_columns(found, opened.columns)
    wanted = list(opened.columns) if columns is None else list(columns)
    for column in unknown if columns is None else wanted:
        if column in unknown:
            raise _only_in_patch(column, unknown[column], path_or_url)
        if column not in opened.columns:
            raise unknown_column(column, list(opened.columns), path_or_url)
    types = widened(opened.columns, found)
    reader = PartReader(store, opened.directory, opened.manifest, types, threads=threads, granularity=granularity)
    return PartData(name, reader, wanted, PatchedPart(reader, info, opened.row_ids, found) if info and found else None)


def _only_in_patch(column: str, patch: str, path_or_url: str) -> MergelakeError:
    return error(
        "NOT_IMPLEMENTED",
        f"Only the patch part {patch} has column {column} of {path_or_url}, for some of its rows",
        "Other rows have a DEFAULT that only the table knows: name other columns, or run APPLY PATCHES in ClickHouse",
    )


def part_location(path_or_url: str, options: Mapping[str, str] | None = None) -> tuple[Store, str]:
    """The store that holds a part directory, and the directory's name in it."""
    parent, _, name = path_or_url.rstrip("/").rpartition("/")
    return open_store(parent or ("/" if path_or_url.startswith("/") else "."), options), name
