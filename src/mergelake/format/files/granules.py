"""Granules: how many rows have one mark.

ClickHouse aims at granules of at most `index_granularity` rows and about `index_granularity_bytes` bytes, and
chooses one size for each inserted block; the last granule takes what is left.

Source: ClickHouse, `MergeTreeDataPartWriterOnDisk.cpp` (`computeIndexGranularityImpl`),
`MergeTreeDataPartWriterCompact.cpp` (`fillIndexGranularity`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.types import types as t


def granule_size(rows: int, block_bytes: int, index_granularity: int, index_granularity_bytes: int) -> int:
    """Rows of a granule for a block of that many rows and bytes; `index_granularity_bytes` 0 is no limit.

    >>> granule_size(1_000_000, 8_000_000, 8192, 10 << 20)
    8192
    >>> granule_size(10_000, 40_000_000, 8192, 10 << 20)
    3333
    """
    if index_granularity_bytes == 0 or rows == 0:
        return index_granularity
    if block_bytes >= index_granularity_bytes:
        size = rows // (block_bytes // index_granularity_bytes)
    else:
        size = index_granularity_bytes // max(1, block_bytes // rows)
    return min(max(size, 1), index_granularity)


def cut_granules(rows: int, size: int, *, compact: bool = False) -> NDArray[np.int64]:
    """Rows of each granule: `size`, and what is left in the last.

    In a Compact part less than half a granule is added to the granule before it.

    >>> cut_granules(9000, 8192).tolist(), cut_granules(9000, 8192, compact=True).tolist()
    ([8192, 808], [9000])
    """
    whole, rest = divmod(rows, size)
    if compact and whole and 2 * rest < size:
        return np.array([size] * (whole - 1) + [size + rest], np.int64)
    return np.array([size] * whole + [rest] * (rest > 0), np.int64)


def aligned_granules(rows: int, size: int, multiple: int) -> NDArray[np.int64]:
    """Rows of each granule, at most `size`; their number is a multiple of `multiple`, if there are enough rows.

    >>> aligned_granules(20000, 8192, 1).tolist(), aligned_granules(20000, 8192, 4).tolist()
    ([8192, 8192, 3616], [5000, 5000, 5000, 5000])
    """
    granules = cut_granules(rows, size)
    count = -(-len(granules) // multiple) * multiple
    if count == len(granules) or count > rows:
        return granules
    return np.diff(np.arange(count + 1, dtype=np.int64) * rows // count)


def block_bytes(columns: Iterable[pa.Array], types: Iterable[t.DataType] = ()) -> int:
    """Bytes that ClickHouse counts for these columns (storage form) in memory.

    Without their `types` a column without a NULL does not count as Nullable.
    """
    return sum(_column_bytes(column, data_type) for column, data_type in zip_longest(columns, types))


def _column_bytes(column: pa.Array, data_type: t.DataType | None = None) -> int:
    kind, rows = column.type, len(column)
    null_map = rows if column.null_count or isinstance(data_type, t.Nullable) else 0
    if pa.types.is_dictionary(kind):
        width = next(w for w in (1, 2, 4, 8) if len(column.dictionary) < 1 << (8 * w))
        return rows * width + _column_bytes(column.dictionary)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        offsets = column.buffers()[1]
        if offsets is None or rows == 0:
            return 0
        bounds = np.frombuffer(offsets, np.int32 if pa.types.is_binary(kind) else np.int64)
        return int(bounds[column.offset + rows] - bounds[column.offset]) + 8 * rows + null_map
    if pa.types.is_list(kind):
        return 8 * rows + _column_bytes(column.flatten(), *_inner(data_type))
    if pa.types.is_struct(kind):
        return block_bytes(column.flatten(), _inner(data_type))
    width = 0 if pa.types.is_null(kind) else kind.bit_width // 8
    return rows * width + null_map if rows else 0


def _inner(data_type: t.DataType | None) -> tuple[t.DataType, ...]:
    """Types of what a list or a struct of Arrow holds."""
    match data_type:
        case t.Array(inner):
            return (inner,)
        case t.Tuple(elements):
            return elements
        case t.Map(key, value):
            return (t.Tuple((key, value)),)
    return ()
