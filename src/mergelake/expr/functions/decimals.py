"""Decimal arithmetic: scaled integers, checked for overflow of the stored integer.

Widths and scales follow ClickHouse, `src/DataTypes/DataTypesDecimal.h`: the result is as wide as the wider
Decimal (integers do not count); scales are aligned for sums, added for products, and a quotient keeps the left scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mergelake.core.base.errors import error
from mergelake.core.types import types as t
from mergelake.expr.registry import Operand, Resolved, illegal

_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}


def binary(name: str, args: tuple[Operand, ...]) -> Resolved:
    """The rule for plus, minus, multiply, divide where a side is Decimal."""
    left, right = args[0].type, args[1].type
    if isinstance(left, t.Float) or isinstance(right, t.Float):
        return _as_floats(name, left, right)
    for kind in (left, right):
        if not isinstance(kind, (t.Decimal, t.Int, t.Bool)):
            raise illegal(name, left, right)
    bits = max(kind.bits for kind in (left, right) if isinstance(kind, t.Decimal))
    a, b = scale_of(left), scale_of(right)
    scale = {"multiply": a + b, "divide": a}.get(name, max(a, b))
    precision = _DIGITS[bits]
    if name == "divide" and not isinstance(left, t.Decimal):
        scale = b
    if scale > precision:
        raise error("ARGUMENT_OUT_OF_BOUND", f"The scale {scale} of {name} is beyond the precision {precision}")
    result = t.Decimal(precision, scale)

    def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        x, y = x.astype(object), y.astype(object)
        if name == "multiply":
            values = x * y
        elif name == "divide":
            if len(x) and bool((y == 0).any()):
                raise error("ILLEGAL_DIVISION", "Division by zero")
            x = x * 10 ** (scale - a + b)
            values = abs(x) // abs(y) * np.where((x < 0) != (y < 0), -1, 1)
        else:
            x, y = x * 10 ** (scale - a), y * 10 ** (scale - b)
            values = x + y if name == "plus" else x - y
        return checked(values, result)

    return Resolved(result, kernel, can_raise=True, cost=50)


def checked(data: npt.NDArray[Any], result: t.Decimal) -> npt.NDArray[Any]:
    """Python ints as the data of `result`. Raises DECIMAL_OVERFLOW where the stored integer cannot hold them."""
    limit = 1 << (result.bits - 1)
    if len(data) and bool(((data >= limit) | (data < -limit)).any()):
        raise error("DECIMAL_OVERFLOW", "Decimal math overflow")
    return data if result.bits > 64 else data.astype(f"i{result.bits // 8}")


def scale_of(kind: t.DataType) -> int:
    """Digits after the decimal point; 0 for other types."""
    return kind.scale if isinstance(kind, t.Decimal) else 0


def _as_floats(name: str, left: t.DataType, right: t.DataType) -> Resolved:
    ufunc = {"plus": np.add, "minus": np.subtract, "multiply": np.multiply, "divide": np.divide}[name]

    def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with np.errstate(all="ignore"):
            return np.asarray(ufunc(to_float(x, left), to_float(y, right)))

    return Resolved(t.Float(64), kernel, cost=3)


def to_float(data: npt.NDArray[Any], kind: t.DataType) -> npt.NDArray[np.float64]:
    """Numbers as Float64; a Decimal is divided by 10^scale."""
    floats = data.astype(np.float64)
    return floats / 10.0 ** scale_of(kind) if isinstance(kind, t.Decimal) else floats
