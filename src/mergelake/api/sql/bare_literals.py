"""Literals without quotes (numbers, true, false) as text that is parsed as the same value of a column's type.

ClickHouse reads an unquoted literal as a number and casts it: an integer column accepts `1.0` and `1e2`, a number in a
date column counts days, in a time column seconds, and `1.50` in a String becomes `1.5`. A literal that such a cast
would change (`1.5` in an integer, `70000` in a Date) is refused.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

import numpy as np

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.convert.text_write import float_text, time_text
from mergelake.core.types import types as t

_WHOLE = re.compile(r"[-+]?\d+")
_DAYS = {t.Date: (0, 0xFFFF), t.Date32: (-719_528, 120_529)}
"""Minimum and maximum days since 1970 that a number may mean; ClickHouse reads a larger number as seconds."""
_SECONDS_MAX = 253_402_300_799
"""The last second of the year 9999."""


def is_usual(texts: str, kind: t.DataType) -> bool:
    """Whether none of the literals in `texts` (concatenated, possibly with NULL) needs `bare_text`."""
    match kind:
        case t.Int(_, signed):
            return re.search(r"[^\d+NULnul-]" if signed else r"[^\d+NULnul]", texts) is None
        case t.Float() | t.BFloat16() | t.Decimal():
            return re.search(r"[^\d+.eENULnul-]", texts) is None
    return False


def bare_text(literal: str, kind: t.DataType) -> str:
    """The literal (a number, `inf`, `nan`, `true`, `false`) as text for `kind`. Raises if the cast would change it."""
    word = literal.lower()
    if isinstance(kind, t.String | t.FixedString):
        return word if word in ("true", "false") else _number_text(literal)
    if word in ("true", "false"):
        return word if isinstance(kind, t.Bool) else bare_text(str(int(word == "true")), kind)
    try:
        number = Decimal(literal)
    except InvalidOperation:
        return literal
    if not number.is_finite():
        if isinstance(kind, t.Decimal | t.Int):
            name = "DECIMAL_OVERFLOW" if isinstance(kind, t.Decimal) else "CANNOT_CONVERT_TYPE"
            raise error(name, f"{literal} is no value of {kind}")
        return literal
    match kind:
        case t.UUID():
            raise error("NOT_IMPLEMENTED", f"The number {literal} cannot be converted to UUID", "Write it in quotes")
        case t.DateTime64(precision):
            return _instant(number, precision, kind)
        case t.Time64(precision):
            # In a Time64 a whole number counts ticks, and a number with a point or an exponent counts seconds.
            ticks = number if _WHOLE.fullmatch(literal) else number.scaleb(precision)
            return time_text(int(ticks), precision)
        case t.Int() | t.Interval() | t.Bool() | t.Enum() | t.Date() | t.Date32() | t.DateTime() | t.IPv4() | t.Time():
            return _of_whole(_whole(number, literal, kind), kind)
    return literal


def _of_whole(number: int, kind: t.DataType) -> str:
    match kind:
        case t.Enum(_, items):
            named = [name for name, value in items if value == number]
            if not named:
                raise error("UNKNOWN_ELEMENT_OF_ENUM", f"Unexpected value {number} in enum")
            return named[0]
        case t.Date() | t.Date32():
            low, high = _DAYS[type(kind)]
            if not low <= number <= high:
                raise _out_of_range(number, kind)
            return str(np.datetime64(number, "D"))
        case t.DateTime():
            if not 0 <= number <= 0xFFFFFFFF:
                raise _out_of_range(number, kind)
            return _instant(Decimal(number), 0, kind)
        case t.IPv4() if 0 <= number <= 0xFFFFFFFF:
            return ".".join(map(str, number.to_bytes(4, "big")))
        case t.Time():
            return time_text(number, 0)
    return str(number)


def _whole(number: Decimal, literal: str, kind: t.DataType) -> int:
    if abs(number.adjusted()) > 100:
        raise _out_of_range(literal, kind)
    if number != number.to_integral_value():
        raise error("TYPE_MISMATCH", f"Value {literal} is no whole number but the column is {kind}", "Round it first")
    return int(number)


def _instant(seconds: Decimal, precision: int, kind: t.DataType) -> str:
    """Seconds since 1970 as a date with time in UTC."""
    if not -62_135_596_800 <= seconds <= _SECONDS_MAX:
        raise _out_of_range(seconds, kind)
    whole, fraction = divmod(int(seconds.scaleb(precision)), 10**precision)
    text = str(np.datetime64(whole, "s"))
    return f"{text}.{fraction:0{precision}d}Z" if precision else f"{text}Z"


def _number_text(literal: str) -> str:
    """The text of the number as ClickHouse reads it: as Int64 or UInt64 if it fits, else as Float64."""
    if _WHOLE.fullmatch(literal):
        number = int(literal)
        if -(1 << 63) <= number < 1 << 64:
            return str(number)
    return float_text(float(literal))


def _out_of_range(value: object, kind: t.DataType) -> MergelakeError:
    return error("VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", f"Value {value} is out of range of {kind}")
