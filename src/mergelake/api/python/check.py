"""CHECK TABLE: every byte of every active part against its checksums, and every index against the rows.

1. The consistency of a part in itself (`parts.tools.verify`): files, checksums, counts, marks, columns, order of the
   primary index, partition, extremes.
2. Its consistency with the table, here: rows are in the order of the sorting key, of one partition; the primary index
   holds the keys of the rows that it points to; each skip index equals one that is built from the rows.

The rows are read once more for the second, a window at a time, with those that a mask (`_row_exists`) deletes: the
indexes of a part are of all of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import TableSchema
from mergelake.engines.order.keys import KeyColumn, TableKeys, table_keys
from mergelake.engines.order.sorting import sort_order
from mergelake.format.files.partition import partition_keys
from mergelake.format.indexes.skip_index import granule_builder
from mergelake.format.serializations.values import encode_values, plain_type
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.index_reader import IndexFile, find_index, read_granules
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.verify import Problem, check_part, problem_of
from mergelake.parts.write.indexing import BoundIndex, index_values, table_indexes
from mergelake.scan.prune.skip import same_index
from mergelake.scan.read.source import PartSource, open_part
from mergelake.store.cache.cached import beneath
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot

_SCHEMA = pa.schema([("part_path", pa.string()), ("is_passed", pa.uint8()), ("message", pa.string())])
_WINDOW_ROWS = 1 << 17


def check_table(handle: TableHandle, snapshot: Snapshot) -> pa.Table:
    """One row per part, with the columns of ClickHouse's CHECK TABLE; `message` holds all problems of the part."""
    rows = []
    for part in snapshot.parts:
        reader = open_part(beneath(handle.store), handle.directory, part.manifest, snapshot.schema, PartCache())
        problems = check_against(reader, snapshot.schema)
        rows.append({"part_path": part.name, "is_passed": int(not problems), "message": "; ".join(map(str, problems))})
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def check_against(reader: PartReader, schema: TableSchema) -> list[Problem]:
    """All problems of a part of a table; data that cannot be decoded is not compared any further."""
    keys = table_keys(schema)
    problems = check_part(
        reader,
        key_types=[key.type for key in keys.primary],
        key_descending=keys.descending[: keys.primary_length],
        partition_types=[key.type for key in keys.partition],
    )
    if problems or not reader.manifest.rows:
        return problems
    rows = _Rows(reader, schema)
    checks = [_order(rows, keys), _primary_index(rows, keys), _one_partition(rows, keys)]
    checks += [_skip_index(rows, index) for index in table_indexes(schema)]
    for check in checks:
        try:
            problems += check
        except MergelakeError as broken:
            problems.append(problem_of(broken))
    return problems


def check_directory(reader: PartReader, schema: TableSchema) -> list[Problem]:
    """`check_against` for a part that was opened by its directory: its columns are the table's of the same names."""
    others = [
        f"Column {name} of type {column.type} is {schema.types[name]} in the table"
        if name in schema.types
        else f"The table has no column {name}"
        for name, column in reader.columns.items()
        if schema.types.get(name) != column.type
    ]
    if others:
        return [*check_part(reader), *map(Problem, others)]
    next_id = len(reader.columns)
    columns = tuple(
        replace(column, id=reader.columns[column.name].id if column.name in reader.columns else next_id + number)
        for number, column in enumerate(schema.columns)
    )
    return check_against(reader, replace(schema, columns=columns, next_column_id=0))


class _Rows:
    """The rows of a part, window by window."""

    def __init__(self, reader: PartReader, schema: TableSchema) -> None:
        self.reader = reader
        self.schema = schema
        self.marks = reader.granule_rows
        self._source = PartSource(reader, PartInfo(reader.manifest.partition_id, 1, 1, 0), schema)

    def windows(self, names: Sequence[str]) -> Iterator[tuple[pa.Table, slice]]:
        """These columns of complete granules, and the range of the granules."""
        names = list(dict.fromkeys(names))
        first = 0
        while first < len(self.marks):
            rows = np.cumsum(self.marks[first:])
            end = first + max(1, int(np.searchsorted(rows, _WINDOW_ROWS, side="right")))
            yield pa.table(self._source.read(names, [(first, end)])), slice(first, end)
            first = end


def _columns(keys: Sequence[KeyColumn]) -> list[str]:
    return [name for key in keys for name in key.columns]


def _order(rows: _Rows, keys: TableKeys) -> Iterator[Problem]:
    """Check the order of the rows."""
    if not keys.sorting:
        return
    types = [plain_type(key.type) for key in keys.sorting]
    above: list[pa.Array] = []
    for block, granules in rows.windows(_columns(keys.sorting)):
        values = [_plain(key.evaluate(block)) for key in keys.sorting]
        if above:
            values = [pa.concat_arrays([before, array]) for before, array in zip(above, values, strict=True)]
        if sort_order(values, types, keys.descending) is not None:
            key = ", ".join(key.text for key in keys.sorting)
            yield Problem(f"Rows of granules {granules.start} to {granules.stop - 1} are not in the order of ({key})")
            return
        above = [array.slice(len(array) - 1) for array in values]


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _primary_index(rows: _Rows, keys: TableKeys) -> Iterator[Problem]:
    """Check that the index holds the key of each granule's first row, and of the part's last one."""
    types = [key.type for key in keys.primary]
    index = rows.reader.primary_index(types)
    if not index:
        return
    last: list[pa.Array] = []
    for block, granules in rows.windows(_columns(keys.primary)):
        values = [_plain(key.evaluate(block)) for key in keys.primary]
        counts = rows.marks[granules]
        starts = pa.array(np.cumsum(counts) - counts)
        last = [array.slice(len(array) - 1) for array in values]
        held = [array.slice(granules.start, granules.stop - granules.start) for array in index]
        if encode_values([array.take(starts) for array in values], types) != encode_values(held, types):
            yield Problem(
                f"The primary index of granules {granules.start} to {granules.stop - 1} does not hold the keys "
                "of their first rows"
            )
            return
    final = [array.slice(len(rows.marks)) for array in index]
    if len(final[0]) and encode_values(final, types) != encode_values(last, types):
        yield Problem("The primary index does not end with the key of the last row")


def _one_partition(rows: _Rows, keys: TableKeys) -> Iterator[Problem]:
    """Check that every row belongs to the part's partition."""
    if not keys.partition:
        return
    types = [key.type for key in keys.partition]
    for block, _ in rows.windows(_columns(keys.partition)):
        _, partitions = partition_keys([key.evaluate(block) for key in keys.partition], types)
        others = [partition.id for partition in partitions if partition.id != rows.reader.manifest.partition_id]
        if others:
            yield Problem(
                "Rows belong to another partition", expected=rows.reader.manifest.partition_id, found=others[0]
            )
            return


def _skip_index(rows: _Rows, index: BoundIndex) -> Iterator[Problem]:
    """Check that an index of the part equals one that is built from its rows."""
    reader = rows.reader
    file = find_index(reader, index.name, index.kind)
    if file is None or not same_index(reader, index, rows.schema.version):
        return
    builder = granule_builder(index.kind, index.types, index.granularity)
    expected_bytes = b""
    for block, granules in rows.windows(index.columns):
        values = index_values(index, block, rows.schema.types)
        expected_bytes += builder.feed(values, np.cumsum(rows.marks[granules]))[0]
    expected_bytes += builder.finish()[0]
    if expected_bytes != _stored(reader, file):
        yield Problem(f"Skip index {index.name} is not what its rows give", file.file)


def _stored(reader: PartReader, file: IndexFile) -> bytes:
    """The plain bytes of all granules."""
    return b"".join(plain.tobytes() for _, _, plain in read_granules(reader, file, [(0, file.granules)]))
