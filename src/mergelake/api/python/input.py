"""Data of users -> batches of storage-form columns, checked against the table's schema.

Columns are matched by name. Extra ones are refused, missing ones get their defaults later; a value that
does not fit its column (NULL, range, type) is a coded error naming the column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.convert.storage import to_storage
from mergelake.core.model.schema import TableSchema
from mergelake.core.model.settings import TableSettings
from mergelake.core.types import types as t
from mergelake.core.types.arrow import arrow_type, tuple_names
from mergelake.core.types.inferred import inferred_types
from mergelake.engines.order.keys import whole_column
from mergelake.table.rows.blocks import block_limits, check_given, cut_blocks

_FAILURES = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
"""Exceptions of Arrow for Python values that it cannot convert."""


def storage_batches(data: Any, schema: TableSchema) -> Iterator[pa.Table]:
    """`data` cut into blocks and converted; its column names are checked at once, its values block by block.

    Takes a pyarrow Table, RecordBatch or RecordBatchReader, anything with `__arrow_c_stream__` (polars, DuckDB),
    a pandas DataFrame, a dict of lists, or a list of dicts.
    """
    return named_batches(data, schema)[1]


def named_batches(data: Any, schema: TableSchema) -> tuple[list[str], Iterator[pa.Table]]:
    """The names of the columns of `data`, and its blocks as of `storage_batches`."""
    names, batches = _arrow_batches(data, schema)
    check_given(schema, names)
    return names, _converted(batches, schema)


def names_of(data: Any) -> list[str]:
    """The names of the columns of data that `Table.append` takes; none for other data. An Arrow stream is not read."""
    if isinstance(data, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return list(data.schema.names)
    if hasattr(data, "columns"):  # of pandas, polars
        return [str(name) for name in data.columns]
    rows = data[0] if isinstance(data, Sequence) and not isinstance(data, (str, bytes)) and len(data) else data
    return [name for name in rows if isinstance(name, str)] if isinstance(rows, Mapping) else []


def with_types(data: Any, wanted: Sequence[str]) -> tuple[Any, dict[str, t.DataType]]:
    """`data`, which is read again, and the types, as ClickHouse infers them, of the columns in `wanted` that it has."""
    own = isinstance(data, (pa.Table, pa.RecordBatch)) or type(data).__module__.partition(".")[0] == "pandas"
    if not own and hasattr(data, "__arrow_c_stream__"):
        data = pa.RecordBatchReader.from_stream(data)
    if isinstance(data, pa.RecordBatchReader):
        return data, inferred_types(pa.schema([field for field in data.schema if field.name in wanted]))
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        table = pa.table({name: data.column(name) for name in wanted if name in data.schema.names})
    elif hasattr(data, "columns"):
        table = pa.table({name: pa.Array.from_pandas(data[name]) for name in wanted if name in data.columns})
    else:
        rows = _columns_of_rows(data) if isinstance(data, Sequence) and not isinstance(data, (str, bytes)) else data
        held = rows if isinstance(rows, Mapping) else {}
        table = pa.table({name: held[name] for name in wanted if name in held})
    return data, inferred_types(table.schema, table)


def _converted(batches: Iterable[pa.Table | pa.RecordBatch], schema: TableSchema) -> Iterator[pa.Table]:
    types = schema.types
    for block in cut_blocks(batches, *block_limits(TableSettings(schema.settings))):
        names = block.column_names
        yield pa.table({name: to_storage(whole_column(block, name), types[name], name) for name in names})


def _arrow_batches(data: Any, schema: TableSchema) -> tuple[list[str], Iterable[pa.Table | pa.RecordBatch]]:
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return list(data.schema.names), [data]
    if isinstance(data, pa.RecordBatchReader):
        return list(data.schema.names), data
    if type(data).__module__.partition(".")[0] == "pandas":
        table = _pandas_table(data, schema)
        return list(table.schema.names), [table]
    if hasattr(data, "__arrow_c_stream__"):
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except pa.ArrowInvalid:
            raise error(
                "TYPE_MISMATCH", f"A {type(data).__name__} has no columns", "Give a table of named columns"
            ) from None
        return list(reader.schema.names), reader
    if isinstance(data, Mapping):
        return list(data), [_table(data, schema)]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        columns = _columns_of_rows(data)
        return list(columns), [_table(columns, schema)]
    raise error(
        "TYPE_MISMATCH",
        f"Cannot insert a {type(data).__name__}",
        "Give a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, "
        "a dict of lists or a list of dicts",
    )


def _columns_of_rows(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Rows given as dicts, turned into columns. All rows need the same keys."""
    if not rows:
        raise error("EMPTY_LIST_OF_COLUMNS_PASSED", "An empty list of rows has no columns", "Give at least one row")
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise error("TYPE_MISMATCH", f"Row {at} is a {type(row).__name__}, not a dict")
        if row.keys() != rows[0].keys():
            differing = ", ".join(sorted(map(str, row.keys() ^ rows[0].keys())))
            raise error("INCORRECT_DATA", f"Row {at} and the first row differ in the columns {differing}")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _table(columns: Mapping[str, Any], schema: TableSchema) -> pa.Table:
    not_text = [name for name in columns if not isinstance(name, str)]
    if not_text:
        raise error(
            "TYPE_MISMATCH", f"The name of a column is {not_text[0]!r}, not a string", "Name columns as the table does"
        )
    check_given(schema, list(columns))
    arrays = {name: _array(values, name, schema) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise error("INCORRECT_DATA", f"Columns have different numbers of rows: {lengths}")
    return pa.table(arrays)


def _pandas_table(frame: Any, schema: TableSchema) -> pa.Table:
    """A pandas DataFrame as Arrow; its index is no column."""
    if not hasattr(frame, "columns"):
        raise error("TYPE_MISMATCH", f"Cannot insert a pandas {type(frame).__name__}", "Give a DataFrame")
    names = [str(name) for name in frame.columns]
    check_given(schema, names)
    return pa.table([_pandas_column(frame.iloc[:, at], name, schema) for at, name in enumerate(names)], names=names)


def _pandas_column(column: Any, name: str, schema: TableSchema) -> pa.Array:
    kind = schema.column(name).type
    # From Python objects Arrow would make structs of dicts, and microseconds of times.
    if str(column.dtype) != "object" or not (_has_map(kind) or _is_fine(kind)):
        with suppress(*_FAILURES):
            return pa.Array.from_pandas(column)
    return _array(_values(column), name, schema)


def _values(column: Any) -> list[Any]:
    """Values of a pandas column; missing ones (None, NaN, NA) are None."""
    return [value if present else None for value, present in zip(column.tolist(), column.notna().tolist(), strict=True)]


def _array(values: Any, name: str, schema: TableSchema) -> pa.Array:
    """A Python list (or numpy array) as Arrow: with the inferred type, or else the column's."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    kind = schema.column(name).type
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__"):
        raise error("TYPE_MISMATCH", f"Column {name} is given as a {type(values).__name__}", "Give a list of values")
    try:
        return _nested(values, kind)
    except _FAILURES as cause:
        message = f"Cannot convert the values of column {name} to {kind}: {cause}"
        raise error("TYPE_MISMATCH", message) from cause


def _nested(values: Sequence[Any], kind: t.DataType) -> pa.Array:
    """Values of a type that contains a Map, element by element: a dict is a Map or a Tuple, depending on the type."""
    kind = t.inner_type(kind)
    present = [value for value in values if value is not None]
    nested = isinstance(kind, (t.Array, t.Map, t.Tuple)) and _has_map(kind)
    if not nested or not present or not all(isinstance(each, (Mapping, list, tuple, np.ndarray)) for each in present):
        return _leaf(values, kind)
    missing = np.array([value is None for value in values])
    if isinstance(kind, t.Tuple):
        names = tuple_names(kind)
        if isinstance(present[0], Mapping):
            if any(not isinstance(each, Mapping) or set(each) != set(names) for each in present):
                raise pa.ArrowInvalid(f"a dict has other fields than {', '.join(names)}")
            present = [tuple(each[name] for name in names) for each in present]
        if any(isinstance(each, Mapping) or len(each) != len(names) for each in present):
            raise pa.ArrowInvalid(f"a tuple has not {len(names)} values")
        rest = iter(present)
        rows = [(None,) * len(names) if value is None else next(rest) for value in values]
        arrays = [_nested(part, element) for part, element in zip(zip(*rows, strict=True), kind.elements, strict=True)]
        return pa.StructArray.from_arrays(arrays, list(names), mask=pa.array(missing))
    lists = [list(each.items()) if isinstance(each, Mapping) else list(each) for each in present]
    counts = np.zeros(len(values) + 1, np.int32)
    counts[1:][~missing] = [len(each) for each in lists]
    offsets = pa.array(counts.cumsum(dtype=np.int32), mask=np.append(missing, False))
    flat = [item for each in lists for item in each]
    if isinstance(kind, t.Array):
        return pa.ListArray.from_arrays(offsets, _nested(flat, kind.inner))
    assert isinstance(kind, t.Map)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in flat):
        return _leaf(values, kind)
    keys = _leaf([key for key, _ in flat], kind.key)
    return pa.MapArray.from_arrays(offsets, keys, _nested([value for _, value in flat], kind.value))


def _has_map(kind: t.DataType) -> bool:
    return any(isinstance(part, t.Map) for part in t.parts(kind))


def _leaf(values: Any, kind: t.DataType) -> pa.Array:
    try:
        array = pa.array(values)
    except _FAILURES:
        return pa.array(values, arrow_type(kind))
    if "timestamp[us" in str(array.type) and _is_fine(kind):
        # Without a type Arrow truncates pandas' Timestamps to microseconds.
        with suppress(*_FAILURES):
            return pa.array(values, arrow_type(kind))
    return array


def _is_fine(kind: t.DataType) -> bool:
    return any(isinstance(part, t.DateTime64) and part.precision > 6 for part in t.parts(kind))
