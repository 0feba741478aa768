"""What the schema of a new table may be made from: a schema, types by name, or data with columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from mergelake.core.errors import error
from mergelake.core.inferred import inferred_types
from mergelake.core.schema import TableSchema
from mergelake.core.types import DataType, Nullable
from mergelake.table.define import define

_KEYS = ("order_by", "partition_by", "primary_key")


def schema_and_rows(
    given: Any, types: Mapping[str, str | DataType] | None = None, **keys: Any
) -> tuple[TableSchema, Any]:
    """The schema of a table for `given`, and the rows in it (None where there are none).

    `given`: a TableSchema, a pyarrow Schema, `{column: type}`, or data that `Table.append` takes: a column of data is
    Nullable where it holds a NULL, and gets the type that ClickHouse infers from Arrow. `types` says otherwise for some
    columns. `keys`: what `define` takes beside columns.
    """
    if isinstance(given, TableSchema):
        if types or any(keys.values()):
            raise error("BAD_ARGUMENTS", "A TableSchema has its types and keys already", "Give them to define(…)")
        return given, None
    columns, rows = _columns_and_rows(given)
    unknown = [name for name in types or {} if name not in columns]
    if unknown:
        raise error("NO_SUCH_COLUMN_IN_TABLE", f"There is no column {unknown[0]} among {', '.join(columns)}")
    given_keys = {name: value for name, value in keys.items() if value}
    in_keys = set(re.findall(r"\w+", " ".join(map(str, (given_keys.get(name, "") for name in _KEYS)))))
    for name, kind in columns.items():
        if name in in_keys and isinstance(kind, Nullable):
            columns[name] = kind.inner  # a NULL in it is refused with its row
    return define({**columns, **(types or {})}, **given_keys), rows


def _columns_and_rows(given: Any) -> tuple[dict[str, str | DataType], Any]:
    if isinstance(given, pa.Schema):
        return {**inferred_types(given)}, None
    if isinstance(given, Mapping) and all(isinstance(kind, str | DataType) for kind in given.values()):
        return dict(given), None
    if type(given).__module__.startswith("pyspark."):
        from mergelake.spark.types import frame_schema

        return {**inferred_types(frame_schema(given))}, given
    rows = _table(given)
    if isinstance(rows, pa.RecordBatchReader):
        return {**inferred_types(rows.schema)}, rows
    return {**inferred_types(rows.schema, rows)}, rows


def _table(given: Any) -> pa.Table | pa.RecordBatchReader:
    if isinstance(given, pa.Table | pa.RecordBatchReader):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if type(given).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(given, preserve_index=False)
    if hasattr(given, "__arrow_c_stream__"):
        return pa.table(given)
    if isinstance(given, Mapping):
        return pa.table(dict(given))
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return pa.Table.from_pylist(list(given))
    raise error("TYPE_MISMATCH", f"A table cannot be made from a {type(given).__name__}", "Give a schema, or data")
