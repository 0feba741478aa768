"""A table as a Polars LazyFrame: columns, conditions and limits of a query are pushed down to the scan.

Polars passes a condition as an expression. Those parts of it that mean the same in ClickHouse (comparisons of whole
numbers, texts, dates, times and booleans with constants, `is_null`, `is_between`, `starts_with`, joined by AND and OR)
prune parts and marks and filter rows; Polars applies the whole condition again, so omitted parts only cost time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.api.python.scan import Scan
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.types import types as t

if TYPE_CHECKING:
    import polars

Plan = Callable[[Sequence[str], "str | None", "int | None"], Scan]
"""Columns, condition, limit -> a scan of one version."""

_COMPARED = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_TURNED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq", "Eq": "Eq", "NotEq": "NotEq"}
_TICKS = {"Nanoseconds": 9, "Microseconds": 6, "Milliseconds": 3}
_COMPARABLE = (t.Int, t.String, t.Date, t.Date32, t.DateTime, t.DateTime64, t.Bool)


def lazy_frame(types: Mapping[str, t.DataType], plan: Plan) -> polars.LazyFrame:
    """The rows that `plan` reads, of columns of these types."""
    import polars as pl
    from polars.io.plugins import register_io_source

    names = list(types)
    empty = plan(names, None, 0).arrow().schema.empty_table()
    schema = pl.DataFrame(pl.from_arrow(_plain(empty))).schema

    def source(
        wanted: list[str] | None, predicate: polars.Expr | None, rows: int | None, _: int | None
    ) -> Iterator[polars.DataFrame]:
        columns = names if wanted is None else wanted or names[:1]
        where = None
        if predicate is not None and rows is None:  # a limit counts rows before the condition
            where = _pushed(predicate, types)
        for batch in _scan(plan, columns, where, rows).batches():
            frame = pl.DataFrame(pl.from_arrow(_plain(pa.Table.from_batches([batch]))))
            yield frame if predicate is None else frame.filter(predicate)

    return register_io_source(source, schema=schema, is_pure=True)


def _pushed(predicate: polars.Expr, types: Mapping[str, t.DataType]) -> str | None:
    import polars as pl

    try:
        return condition_text(json.loads(predicate.meta.serialize(format="json")), types)
    except (pl.exceptions.PolarsError, TypeError, ValueError):  # an expression that cannot be serialized
        return None


def _scan(plan: Plan, columns: Sequence[str], where: str | None, limit: int | None) -> Scan:
    try:
        return plan(columns, where, limit)
    except MergelakeError:
        if where is None:
            raise
        return plan(columns, None, limit)  # Polars filters anyway


def _plain(table: pa.Table) -> pa.Table:
    """Without dictionaries and extension types, whose values differ from batch to batch."""
    columns = []
    for column in table.columns:
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        columns.append(column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column)
    return pa.table(columns, names=table.column_names)


def condition_text(node: Any, types: Mapping[str, t.DataType]) -> str | None:
    """A condition of ClickHouse that is true wherever Polars' is; None if there is none. `node` is Polars' JSON.

    >>> condition_text({"BinaryExpr": {"left": {"Column": "k"}, "op": "Gt",
    ...     "right": {"Literal": {"Scalar": {"Int64": 5}}}}}, {"k": t.Int(64, signed=True)})
    '`k` > 5'
    """
    match node:
        case {"Column": str(name)} if isinstance(t.inner_type(types[name]), t.Bool):
            return back_quote(name)
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            texts = [text for side in (left, right) if (text := condition_text(side, types)) is not None]
            return " AND ".join(f"({text})" for text in texts) or None
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            sides = [condition_text(side, types) for side in (left, right)]
            return None if None in sides else " OR ".join(f"({text})" for text in sides)
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": str(op), "right": {"Literal": {"Scalar": value}}}}:
            return _compared(name, op, value, types)
        case {"BinaryExpr": {"left": {"Literal": {"Scalar": value}}, "op": str(op), "right": {"Column": str(name)}}}:
            return _compared(name, _TURNED.get(op, ""), value, types)
        case {"Function": {"input": [{"Column": str(name)}, *values], "function": function}}:
            return _called(name, function, [each.get("Literal", {}).get("Scalar") for each in values], types)
    return None


def _compared(name: str, op: str, value: Any, types: Mapping[str, t.DataType]) -> str | None:
    constant = _constant(value, types[name])
    return f"{back_quote(name)} {_COMPARED[op]} {constant}" if constant and op in _COMPARED else None


def _called(name: str, function: Any, values: Sequence[Any], types: Mapping[str, t.DataType]) -> str | None:
    match function, values:
        case {"Boolean": "IsNull"}, []:
            return f"{back_quote(name)} IS NULL"
        case {"Boolean": "IsNotNull"}, []:
            return f"{back_quote(name)} IS NOT NULL"
        case {"Boolean": {"IsBetween": {"closed": "Both"}}}, [low, high]:
            ends = _constant(low, types[name]), _constant(high, types[name])
            return f"{back_quote(name)} BETWEEN {ends[0]} AND {ends[1]}" if all(ends) else None
        case {"StringExpr": "StartsWith"}, [{"String": str(start)}] if isinstance(t.inner_type(types[name]), t.String):
            return f"startsWith({back_quote(name)}, {quote_string(start)})"
    return None


def _constant(value: Any, data_type: t.DataType) -> str | None:
    """A scalar of Polars in ClickHouse's syntax, if both compare it in the same way with a column of the type."""
    kind = t.inner_type(data_type)
    if not isinstance(kind, _COMPARABLE) or not isinstance(value, Mapping):
        return None
    match next(iter(value.items())):
        case (str(name), int(number)) if name.startswith(("Int", "UInt")) and isinstance(kind, t.Int):
            return str(number)
        case ("String", str(text)) if isinstance(kind, t.String):
            return quote_string(text)
        case ("Boolean", bool(flag)) if isinstance(kind, t.Bool):
            return str(flag).lower()
        case ("Date", int(days)) if isinstance(kind, t.Date | t.Date32):
            return f"toDate32('{date(1970, 1, 1) + timedelta(days)}')" if 0 <= days < 84_000 else None
        case ("Datetime", [int(ticks), str(unit), dict() as zone]) if isinstance(kind, t.DateTime | t.DateTime64):
            digits = _TICKS.get(unit, 0)
            seconds, rest = divmod(ticks, 10**digits)
            if not (digits and zone and 0 <= seconds < 4_000_000_000):
                return None
            text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:0{digits}}"
            return f"toDateTime64('{text}', {digits}, 'UTC')"
    return None
