"""Values as a person reads them on a screen, spelled as ClickHouse spells them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from mergelake.core.base.text import quote_string


def cell_rows(table: pa.Table, limit: int | None = None) -> list[list[str]]:
    """The first `limit` rows of a table in the public form as text."""
    shown = table if limit is None else table.slice(0, limit)
    columns = [_column(shown.column(i)) for i in range(shown.num_columns)]
    return [list(row) for row in zip(*columns, strict=True)] if columns else []


def is_numeric(data_type: pa.DataType) -> bool:
    """Whether a column is drawn right-aligned."""
    kinds = pa.types
    return bool(kinds.is_integer(data_type) or kinds.is_floating(data_type) or kinds.is_decimal(data_type))


def _column(column: pa.ChunkedArray) -> list[str]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind):
        column = column.cast(pa.binary())  # Strings need not be UTF-8: decoding must not fail
    if pa.types.is_timestamp(kind):
        digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
        if digits == 9:
            return [_nanoseconds(v, kind.tz) for v in column.cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()]
        return ["NULL" if v is None else _time(v, digits) for v in column.to_pylist()]
    return [cell(value) for value in column.to_pylist()]


def cell(value: Any, *, nested: bool = False) -> str:
    """One value as text."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case float():
            return _float(value)
        case bytes() | str():
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            return quote_string(text) if nested else text
        case datetime():
            return f"'{_time(value, 0)}'" if nested else _time(value, 0)
        case date():
            return f"'{value}'" if nested else str(value)
        case Decimal():
            text = f"{value:f}"
            return text.rstrip("0").rstrip(".") if "." in text else text
        case list() if value and all(isinstance(v, tuple) and len(v) == 2 for v in value):
            pairs = (f"{cell(k, nested=True)}:{cell(v, nested=True)}" for k, v in value)
            return "{" + ",".join(pairs) + "}"
        case list():
            return f"[{','.join(cell(v, nested=True) for v in value)}]"
        case dict():
            return f"({','.join(cell(v, nested=True) for v in value.values())})"
        case _:
            return str(value)


def _time(value: datetime, digits: int) -> str:
    text = value.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{value.microsecond:06d}"[: len(text) + 1 + digits] if digits else text


def _nanoseconds(value: int | None, zone: str | None) -> str:
    if value is None:
        return "NULL"
    seconds, rest = divmod(value, 10**9)
    whole = pa.scalar(seconds, pa.timestamp("s", zone or "UTC")).as_py()
    return f"{_time(whole, 0)}.{rest:09d}"


def _float(value: float) -> str:
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
