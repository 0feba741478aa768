"""Spark's pushed-down filters as ClickHouse text (pure).

A translated filter is removed from Spark's plan, so only filters with exactly the same meaning in both are translated:
comparisons of integers, strings, dates and times. Filters on floats (in Spark NaN = NaN), decimals, enums and nested
types are left to Spark.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from pyspark.sql import datasource as ds

from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.types import types as t

_OPERATORS: dict[type[ds.Filter], str] = {
    ds.EqualTo: "=",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
}


def filter_text(wanted: ds.Filter, types: Mapping[str, t.DataType]) -> str | None:
    """The ClickHouse expression of one of Spark's filters; None if it is left to Spark."""
    if isinstance(wanted, ds.Not):
        inner = filter_text(wanted.child, types)
        return None if inner is None or isinstance(wanted.child, ds.In) else f"NOT ({inner})"
    attribute: tuple[str, ...] = getattr(wanted, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in types:
        return None
    name, kind = back_quote(attribute[0]), t.inner_type(types[attribute[0]])
    if isinstance(wanted, ds.IsNull):
        return f"isNull({name})"
    if isinstance(wanted, ds.IsNotNull):
        return f"isNotNull({name})"
    if isinstance(wanted, (ds.StringStartsWith, ds.StringEndsWith, ds.StringContains)):
        if not isinstance(kind, t.String):
            return None
        text = quote_string(wanted.value)
        if isinstance(wanted, ds.StringContains):
            return f"position({name}, {text}) > 0"
        return f"{'startsWith' if isinstance(wanted, ds.StringStartsWith) else 'endsWith'}({name}, {text})"
    if isinstance(wanted, ds.In):
        literals = [_literal(value, kind) for value in wanted.value]
        return None if None in literals or not literals else f"{name} IN ({', '.join(map(str, literals))})"
    operator = _OPERATORS.get(type(wanted))
    literal = _literal(getattr(wanted, "value", None), kind) if operator else None
    return None if literal is None else f"{name} {operator} {literal}"


def _literal(value: Any, kind: t.DataType) -> str | None:
    """`value` as a literal that compares with a column of type `kind` as in Spark; None if it might not."""
    match kind:
        case t.Int(bits) if bits <= 64 and isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        case t.String() if isinstance(value, str):
            return quote_string(value)
        case t.Bool() if isinstance(value, bool):
            return "true" if value else "false"
        case t.Date() if type(value) is datetime.date:
            # Outside Date's range ClickHouse would wrap the literal.
            return f"toDate('{value}')" if 1970 <= value.year <= 2148 else None
        case t.DateTime() if isinstance(value, datetime.datetime) and value.tzinfo and value.microsecond == 0:
            seconds = int(value.timestamp())
            return f"toDateTime({seconds}, 'UTC')" if 0 <= seconds < 1 << 32 else None
        case t.DateTime64(precision) if isinstance(value, datetime.datetime) and value.tzinfo and precision <= 6:
            text = value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            return f"toDateTime64('{text}', 6, 'UTC')" if 1900 <= value.year <= 2299 else None
        case _:
            return None
