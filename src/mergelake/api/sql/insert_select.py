"""INSERT … SELECT: rows are written to the table as ClickHouse produces them, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import back_quote, quote_string, unused_stem
from mergelake.core.types import types as t
from mergelake.core.types.arrow import STORED_DYNAMIC
from mergelake.format.serializations.values import decode_values
from mergelake.query.select import prepare

if TYPE_CHECKING:
    from mergelake.api.sql.session import Session

_CHECKED = (t.Int, t.Date, t.Date32, t.DateTime, t.DateTime64, t.Decimal, t.Bool)
"""Types whose values an implicit cast may change silently."""


def insert_selected(
    db: Session,
    query: str,
    targets: Mapping[str, t.DataType],
    write: Callable[[pa.Table | pa.RecordBatchReader], object],
    *,
    strict: bool,
) -> int:
    """Pass the rows of a SELECT to `write` as ClickHouse produces them; return their number.

    Columns are matched by position and cast as ClickHouse does; if `strict`, a value out of range is an error.
    """
    try:
        with closing(db.select(_casted(db, query, targets, strict=strict))) as answer:
            if answer.rows is not None:
                data = as_targets(answer.table, targets)
                if data.num_rows:
                    write(data)
                return int(data.num_rows)
            schema = as_targets(pa.Table.from_batches([], answer.schema), targets).schema
            counted = [0]

            def batches() -> Iterator[pa.RecordBatch]:
                for batch in answer.batches():
                    counted[0] += batch.num_rows
                    yield from as_targets(pa.Table.from_batches([batch]), targets).to_batches()

            write(pa.RecordBatchReader.from_batches(schema, batches()))
            return counted[0]
    except MergelakeError as failure:
        if failure.name == "CANNOT_CONVERT_TYPE" and not failure.hint:
            wanted = ", ".join(f"{name} {data_type}" for name, data_type in targets.items())
            failure.hint = f"The insert fills {wanted}: filter or cast in the SELECT"
        raise


def _casted(db: Session, query: str, targets: Mapping[str, t.DataType], *, strict: bool) -> str:
    """The SELECT with its columns cast to their targets' types. Raises NUMBER_OF_COLUMNS_DOESNT_MATCH."""
    prepared = prepare(query, db.resolver(query), db.context())
    names, kinds = prepared.columns(db.context())
    if len(names) != len(targets):
        raise error(
            "NUMBER_OF_COLUMNS_DOESNT_MATCH",
            f"The SELECT gives {len(names)} columns, the insert has {len(targets)}",
            f"It fills {', '.join(targets)}",
        )
    exact = sent_exactly(targets)
    if not exact and list(kinds) == [str(data_type) for data_type in targets.values()]:
        return query
    casts, row = [], unused_stem(targets, "ml_row")
    for place, (name, data_type, kind) in enumerate(zip(targets, targets.values(), kinds, strict=True), 1):
        element = f"tupleElement({row}, {place})"
        checked = strict and isinstance(t.inner_type(data_type), _CHECKED)
        function = "accurateCast" if checked else "CAST"
        casted = element if kind == str(data_type) else f"{function}({element}, {quote_string(str(data_type))})"
        if name in exact:
            casted = exactly(casted)
        casts.append(f"{casted} AS {back_quote(name)}")
    return f"SELECT {', '.join(casts)} FROM (SELECT tuple(*) AS {row} FROM ({query}\n))"


def sent_exactly(targets: Mapping[str, t.DataType]) -> list[str]:
    """Columns that are sent as RowBinary: as text they would lose the types of their values."""
    return [name for name, data_type in targets.items() if isinstance(data_type, t.Dynamic | t.Json)]


def exactly(expression: str) -> str:
    """The expression that sends a column of `sent_exactly`: hexadecimal digits of RowBinary."""
    return f"hex(formatRow('RowBinary', {expression}))"


def as_targets(table: pa.Table, targets: Mapping[str, t.DataType]) -> pa.Table:
    """Rows of a SELECT, with the names of the target columns."""
    table = table.rename_columns(list(targets))
    for name in sent_exactly(targets):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, _decoded(table[name], targets[name]))
    return table


def _decoded(column: pa.ChunkedArray, kind: t.DataType) -> pa.Array:
    """Values of a Dynamic or JSON column, from hex digits of RowBinary, in storage form."""
    data = bytes.fromhex("".join(column.to_pylist()))
    (values,) = decode_values(data, [kind], len(column))
    if isinstance(kind, t.Dynamic):
        return pa.ExtensionArray.from_storage(STORED_DYNAMIC, values)
    return values
