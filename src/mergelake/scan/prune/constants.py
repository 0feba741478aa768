"""Conversion of a predicate's constants to the type of the key that they are compared with.

Only exact conversions are done: a constant that the key's type cannot represent makes the comparison `Unknown`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundLiteral, unbind
from mergelake.expr.nodes import Call, Literal as LiteralNode
from mergelake.expr.values import arrow_value
from mergelake.scan.prune.ordered import Value, is_native_integer, ordered


def comparable(constant: BoundLiteral, data_type: t.DataType) -> Value | None:
    """The constant as a comparable value (`scan.prune.ordered`) of a type; None if it cannot be converted exactly."""
    inner, own = t.inner_type(data_type), t.inner_type(constant.type)
    value: Any = constant.value
    if is_native_integer(inner) and isinstance(value, int):
        same = own == inner or (isinstance(inner, t.DateTime) and isinstance(own, t.DateTime))
        if same or (isinstance(own, (t.Int, t.Bool)) and isinstance(inner, (t.Int, t.Bool, t.DateTime))):
            return value
    value = in_type(constant, data_type)
    if value is None:
        return None
    array = pa.array([arrow_value(value, inner)], storage_type(inner))
    return ordered(array, inner).item(0)


def in_type(constant: BoundLiteral, data_type: t.DataType) -> Any:
    """The storage value of `data_type` that equals the constant exactly; None if there is none."""
    inner, own, value = t.inner_type(data_type), t.inner_type(constant.type), constant.value
    if own == inner or value is None:
        return value
    if isinstance(inner, t.Float) and isinstance(value, (int, float)) and isinstance(own, (t.Int, t.Float, t.Bool)):
        exact = float(value)
        if inner.bits == 32:
            exact = pa.scalar(exact, pa.float64()).cast(pa.float32(), safe=False).as_py()
        return exact if exact == value else None
    if isinstance(inner, (t.Int, t.Bool)) and isinstance(own, (t.Int, t.Bool)):
        return value if _fits(value, inner) else None
    if isinstance(inner, t.Decimal) and isinstance(own, (t.Int, t.Decimal)):
        return _rescaled(value, own.scale if isinstance(own, t.Decimal) else 0, inner.scale, inner.bits)
    if isinstance(inner, t.DateTime64) and isinstance(own, (t.DateTime, t.DateTime64)):
        return _rescaled(value, own.precision if isinstance(own, t.DateTime64) else 0, inner.precision, 64)
    if isinstance(inner, t.DateTime) and isinstance(own, t.DateTime):
        return value
    if isinstance(inner, (t.DateTime, t.DateTime64)) and isinstance(own, t.Date):
        return _start_of_day(value, inner)
    if isinstance(inner, t.FixedString) and isinstance(own, (t.String, t.FixedString)) and len(value) <= inner.length:
        return value.ljust(inner.length, b"\0")
    return None


def _fits(value: int, inner: t.Int | t.Bool) -> bool:
    if isinstance(inner, t.Bool):
        return value in (0, 1)
    low = -(1 << (inner.bits - 1)) if inner.signed else 0
    return low <= value < low + (1 << inner.bits)


def _rescaled(value: int, scale: int, wanted: int, bits: int) -> int | None:
    """The decimal `value` rescaled from `scale` to `wanted` digits; None if that loses digits or exceeds `bits`."""
    rescaled = value * int(10 ** (wanted - scale)) if wanted >= scale else None
    return rescaled if rescaled is not None and -(1 << (bits - 1)) <= rescaled < 1 << (bits - 1) else None


def _start_of_day(days: int, inner: t.DateTime | t.DateTime64) -> int | None:
    zone = LiteralNode((inner.timezone or "UTC").encode(), t.STRING)
    text = unbind(BoundLiteral(days, t.Date()))
    bound = bind(Call("toDateTime", (Call("toDate", (text,)), zone)), {})
    if not isinstance(bound, BoundLiteral) or not 0 <= days < 49710:
        return None
    scale = inner.precision if isinstance(inner, t.DateTime64) else 0
    return int(bound.value) * int(10**scale)
