"""The schema of a new table from a schema, types by name, or data with columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from mergelake.core.base.errors import error
from mergelake.core.model.schema import TableSchema
from mergelake.core.types.inferred import inferred_types
from mergelake.core.types.types import DataType, Nullable
from mergelake.table.definition.define import define

_KEYS = ("order_by", "partition_by", "primary_key")


def schema_and_rows(
    source: Any, types: Mapping[str, str | DataType] | None = None, **keys: Any
) -> tuple[TableSchema, Any]:
    """The schema of a table for `source`, and the rows in it (None where there are none).

    `source`: a TableSchema, a pyarrow Schema, `{column: type}`, or data that `Table.append` takes: a column of data is
    Nullable if it holds a NULL, and gets the type that ClickHouse infers from Arrow. `types` overrides the types of
    some columns. `keys`: the other arguments of `define`.
    """
    if isinstance(source, TableSchema):
        if types or any(keys.values()):
            raise error("BAD_ARGUMENTS", "A TableSchema has its types and keys already", "Give them to define(…)")
        return source, None
    columns, rows = _columns_and_rows(source)
    unknown = [name for name in types or {} if name not in columns]
    if unknown:
        raise error("NO_SUCH_COLUMN_IN_TABLE", f"There is no column {unknown[0]} among {', '.join(columns)}")
    given_keys = {name: value for name, value in keys.items() if value}
    in_keys = set(re.findall(r"\w+", " ".join(map(str, (given_keys.get(name, "") for name in _KEYS)))))
    for name, kind in columns.items():
        if name in in_keys and isinstance(kind, Nullable):
            columns[name] = kind.inner  # a NULL in it is refused with its row
    return define({**columns, **(types or {})}, **given_keys), rows


def _columns_and_rows(source: Any) -> tuple[dict[str, str | DataType], Any]:
    if isinstance(source, pa.Schema):
        return {**inferred_types(source)}, None
    if isinstance(source, Mapping) and all(isinstance(kind, str | DataType) for kind in source.values()):
        return dict(source), None
    if type(source).__module__.startswith("pyspark."):
        from mergelake.api.spark.types import frame_schema

        return {**inferred_types(frame_schema(source))}, source
    rows = _table(source)
    if isinstance(rows, pa.RecordBatchReader):
        return {**inferred_types(rows.schema)}, rows
    return {**inferred_types(rows.schema, rows)}, rows


def _table(source: Any) -> pa.Table | pa.RecordBatchReader:
    if isinstance(source, pa.Table | pa.RecordBatchReader):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if type(source).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(source, preserve_index=False)
    if hasattr(source, "__arrow_c_stream__"):
        return pa.table(source)
    if isinstance(source, Mapping):
        return pa.table(dict(source))
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return pa.Table.from_pylist(list(source))
    raise error("TYPE_MISMATCH", f"A table cannot be made from a {type(source).__name__}", "Give a schema, or data")
