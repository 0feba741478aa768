"""Blocks of storage arrays to and from ClickHouse, through RowBinary: the one format that has our bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.format.serializations.values import decode_values, encode_values


def as_storage(array: pa.Array, data_type: t.DataType) -> pa.Array:
    """`array` with LowCardinality encoded as a dictionary, at any depth."""
    kind = storage_type(data_type)
    if array.type == kind:
        return array
    if isinstance(data_type, t.LowCardinality):
        return array.dictionary_encode().cast(kind)
    if isinstance(data_type, t.Array):
        values = as_storage(array.flatten(), data_type.inner)
        offsets = pa.array(array.offsets.to_numpy() - array.offsets[0].as_py(), pa.int32())
        return pa.ListArray.from_arrays(offsets, values, type=kind)
    if isinstance(data_type, t.Map):
        return as_storage(array, t.Array(t.Tuple((data_type.key, data_type.value), ("keys", "values"))))
    if isinstance(data_type, t.Tuple):
        parts = [as_storage(a, e) for a, e in zip(array.flatten(), data_type.elements, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind))
    return array.cast(kind)


def select(oracle: Any, sql: str, types: Mapping[str, t.DataType]) -> pa.Table:
    """The rows of a query as storage arrays; `types` are those of its columns."""
    rows = int(str(oracle.query(f"SELECT count() FROM ({sql})", "TSV")).strip())
    data = oracle.query(sql, "RowBinary").bytes()
    columns = decode_values(data, list(types.values()), rows)
    return pa.table([as_storage(c, k) for c, k in zip(columns, types.values(), strict=True)], names=list(types))


def insert(oracle: Any, table: str, block: pa.Table, types: Mapping[str, t.DataType], folder: Path) -> None:
    """Insert a block of storage arrays as one block."""
    columns = [block.column(name).combine_chunks() for name in types]
    path = folder / "rows.bin"
    path.write_bytes(encode_values(columns, list(types.values())))
    structure = ", ".join(f"`{name}` {kind}" for name, kind in types.items()).replace("\\", "\\\\").replace("'", "\\'")
    names = ", ".join(f"`{name}`" for name in types)
    oracle.query(
        f"INSERT INTO {table} ({names}) SELECT {names} FROM file('{path}', RowBinary, '{structure}') "
        "SETTINGS max_block_size = 100000000, max_insert_block_size = 100000000, "
        "min_insert_block_size_rows = 100000000, "
        "min_insert_block_size_bytes = 0, max_threads = 1, max_insert_threads = 1, "
        "input_format_parallel_parsing = 0, allow_suspicious_low_cardinality_types = 1"
    )
