"""What a function does to an interval of its argument: the ground of pruning by `toYYYYMM(ts)` keys.

`range_of(node, low, high)` is the image of a closed interval under an expression of one column, or None where
the expression is not known to be monotonic there. Ends are storage values of the column. Nothing is assumed of the
values between: where a function could wrap, clamp or jump inside the interval, the answer is None. For floats
the interval says nothing about NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mergelake.core import types as t
from mergelake.core.errors import MergelakeError
from mergelake.core.timezones import zone
from mergelake.expr.bound import BoundCall, BoundColumn, BoundLiteral, BoundNode
from mergelake.expr.date_parts import local_days, local_seconds
from mergelake.expr.evaluate import Context
from mergelake.expr.values import Vec, constant_vec, storage_value

Check = Callable[[BoundCall, int, t.DataType, Any, Any], bool]
"""(call, position of the argument, its plain type, low, high) -> monotonic on this interval."""

_DAY = 86400
_LAST_DATE = 0xFFFF


def monotonic(function: str) -> bool:
    """Whether `range_of` knows anything about the function called so."""
    return function in _CHECKS


def range_of(node: BoundNode, low: Any, high: Any) -> tuple[Any, Any] | None:
    """The least and greatest value of `node` while its one column goes from `low` to `high`, both included.

    None where that is not known. Neither end may be NULL.
    """
    if isinstance(node, BoundColumn):
        return low, high
    if not isinstance(node, BoundCall) or low is None or high is None:
        return None
    moving = [i for i, arg in enumerate(node.args) if not isinstance(arg, BoundLiteral)]
    if len(moving) != 1 or node.function not in _CHECKS:
        return None
    at = moving[0]
    inner = range_of(node.args[at], low, high)
    if inner is None:
        return None
    plain = t.inner_type(node.args[at].type)
    try:
        if not _CHECKS[node.function](node, at, plain, *inner):
            return None
        first, second = (_apply(node, at, value) for value in inner)
    except MergelakeError:
        return None
    if first is None or second is None:
        return None
    return (first, second) if first <= second else (second, first)


def _apply(node: BoundCall, at: int, value: Any) -> Any:
    """The value of the call where its moving argument has this value."""
    moving = node.args[at]
    constant = constant_vec(value, moving.type)

    class _One(Context):
        def eval(self, asked: BoundNode) -> Vec:
            return constant if asked is moving else super().eval(asked)

    def no_column(name: str) -> Vec:
        raise AssertionError(name)

    return storage_value(node.run(_One(1, no_column)), node.type)


def _always(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
    return at == 0


def _days(kind: t.DataType, name: str, value: Any) -> int:
    return int(local_days(kind, name)(constant_vec(value, kind).data)[0])


def _zone_of(call: BoundCall, kind: t.DataType, at: int) -> str:
    given = call.args[at] if len(call.args) > at else None
    if isinstance(given, BoundLiteral) and isinstance(given.value, bytes):
        return given.value.decode()
    return getattr(kind, "timezone", "")


def _utc_seconds(kind: t.DataType, value: Any) -> int:
    return int(value) // 10**kind.precision if isinstance(kind, t.DateTime64) else int(value)


def _days_keep_order(kind: t.DataType, name: str, low: Any, high: Any) -> bool:
    """Whether local days never go back between the ends: a clock set back across midnight makes them."""
    if not isinstance(kind, (t.DateTime, t.DateTime64)):
        return isinstance(kind, (t.Date, t.Date32))
    there = zone(name)
    changes = there.changes
    inside = np.flatnonzero((changes > _utc_seconds(kind, low)) & (changes <= _utc_seconds(kind, high)))
    before = (changes[inside] - 1 + there.offsets[inside]) // _DAY
    after = (changes[inside] + there.offsets[inside + 1]) // _DAY
    return not bool((after < before).any())


def _of_days(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
    return at == 0 and _days_keep_order(kind, _zone_of(call, kind, 1), low, high)


def _of_days_to_date(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
    """As `_of_days`, where the result is a Date: beyond what Date holds, values wrap."""
    name = _zone_of(call, kind, 2 if call.function in ("toStartOfInterval", "toStartOfWeek") else 1)
    if at != 0 or not _days_keep_order(kind, name, low, high):
        return False
    return _days(kind, name, low) >= 0 and _days(kind, name, high) <= _LAST_DATE


def _within(period: Callable[[np.ndarray[Any, Any]], Any]) -> Check:
    """Monotonic while the local days of both ends lie in one period: months of one year, days of one month."""

    def check(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
        name = _zone_of(call, kind, 1)
        if at != 0 or not _days_keep_order(kind, name, low, high):
            return False
        first, last = (period(np.array([_days(kind, name, value)])) for value in (low, high))
        return bool(first == last)

    return check


def _within_clock(step: int) -> Check:
    """Monotonic while both ends lie in one local interval of `step` seconds and no clock is set in between."""

    def check(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
        if at != 0 or not isinstance(kind, (t.DateTime, t.DateTime64)):
            return False
        name = _zone_of(call, kind, 1)
        if not _no_change(kind, name, low, high):
            return False
        seconds = local_seconds(kind, name)
        first, last = (int(seconds(constant_vec(value, kind).data)[0]) // step for value in (low, high))
        return first == last

    return check


def _no_change(kind: t.DataType, name: str, low: Any, high: Any) -> bool:
    changes = zone(name).changes
    return not bool(((changes > _utc_seconds(kind, low)) & (changes <= _utc_seconds(kind, high))).any())


def _to_stamp(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
    """Functions that give a DateTime: within what it holds; local intervals only while the clock is not set."""
    name = _zone_of(call, kind, 2 if call.function == "toStartOfInterval" else 1)
    if at != 0 or not isinstance(kind, (t.Date, t.Date32, t.DateTime, t.DateTime64)):
        return False
    if isinstance(kind, (t.Date, t.Date32)):
        # The first midnight of a zone east of Greenwich lies before 1970, and is moved.
        return bool(low >= 1 and high < 0xFFFFFFFF // _DAY)
    inside = _utc_seconds(kind, low) >= 0 and _utc_seconds(kind, high) <= 0xFFFFFFFF
    if call.function in ("toStartOfHour", "toStartOfDay", "toStartOfInterval", "toStartOfTenMinutes"):
        return inside and _no_change(kind, name, low, high)
    return inside


def _start_of_interval(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
    to_date = isinstance(t.inner_type(call.type), t.Date)
    return (_of_days_to_date if to_date else _to_stamp)(call, at, kind, low, high)


def _exact(compute: Callable[[Any, Any, int], Any]) -> Check:
    """Straight lines: monotonic if neither end wrapped. `compute(x, constant, at)` is the unbounded result."""

    def check(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
        other = call.args[1 - at] if len(call.args) == 2 else None
        constant = other.value if isinstance(other, BoundLiteral) else None
        kinds = [kind] if other is None else [kind, t.inner_type(other.type)]
        result = t.inner_type(call.type)
        whole = (t.Int, t.Bool)
        if isinstance(result, t.Float):
            return all(isinstance(k, (*whole, t.Float)) for k in kinds) and all(
                np.isfinite(value) for value in (low, high, 0 if constant is None else constant)
            )
        dated = (t.Date, t.Date32, t.DateTime)
        if not all(isinstance(k, (*whole, *dated)) for k in kinds):
            return False
        return all(_apply(call, at, value) == compute(value, constant, at) for value in (low, high))

    return check


def _int_div(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
    by = call.args[1]
    if at != 0 or not isinstance(by, BoundLiteral) or not isinstance(kind, t.Int) or not isinstance(by.value, int):
        return False
    divisor = t.inner_type(by.type)
    mixed = isinstance(divisor, t.Int) and divisor.signed and not kind.signed
    return by.value > 0 and not mixed and (kind.signed is False or by.value < 1 << (kind.bits - 1))


def _modulo(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
    by = call.args[1]
    if at != 0 or not isinstance(by, BoundLiteral) or not isinstance(kind, t.Int) or not isinstance(by.value, int):
        return False
    return (
        by.value > 0
        and 0 <= low <= high
        and low // by.value == high // by.value
        and not (isinstance(by.type, t.Int) and by.type.signed)
    )


def _divide(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
    by = call.args[1]
    constant = by.value if isinstance(by, BoundLiteral) else 0
    return at == 0 and isinstance(kind, (t.Int, t.Float)) and isinstance(constant, (int, float)) and constant > 0


def _cast(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
    """Conversions that keep order: to a type that holds both ends, or from times to dates and back."""
    if at != 0:
        return False
    target = t.inner_type(call.type)
    if kind == target:
        return True
    whole = (t.Int, t.Bool, t.Enum, t.Date, t.Date32, t.DateTime, t.IPv4)
    if isinstance(target, (t.Int, t.Bool)) and isinstance(kind, whole) and not isinstance(target, t.Bool):
        return all(_apply(call, at, value) == value for value in (low, high))
    if isinstance(target, t.Float) and isinstance(kind, (t.Int, t.Float)):
        return True
    if isinstance(target, t.Int) and isinstance(kind, t.Float):
        limit = 1 << (target.bits - target.signed)
        return bool((-limit if target.signed else -1) < low <= high < limit)
    if isinstance(target, (t.Date, t.Date32)) and isinstance(kind, (t.Date, t.Date32, t.DateTime, t.DateTime64)):
        fits = isinstance(target, t.Date32) or _of_days_to_date(call, at, kind, low, high)
        return fits and _days_keep_order(kind, _zone_of(call, kind, 1), low, high)
    if isinstance(target, t.DateTime):
        return _to_stamp(call, at, kind, low, high)
    return isinstance(target, t.DateTime64) and isinstance(kind, (t.Date, t.DateTime)) and target.precision <= 6


def _plus_interval(call: BoundCall, at: int, kind: t.DataType, low: Any, high: Any) -> bool:
    other = call.args[1 - at]
    if not isinstance(other, BoundLiteral):
        return False
    if not isinstance(t.inner_type(other.type), t.Interval):
        return _PLUS(call, at, kind, low, high) if call.function == "plus" else _MINUS(call, at, kind, low, high)
    if at != 0 or type(t.inner_type(call.type)) is not type(kind) or isinstance(kind, t.DateTime64):
        return False
    name = getattr(kind, "timezone", "")
    if not isinstance(kind, (t.Date, t.Date32)) and not zone(name).is_fixed:
        return False
    forward = (other.value >= 0) == (call.function == "plus")
    moved = [_apply(call, at, value) for value in (low, high)]
    # Moved the right way at both ends, nothing has wrapped between them.
    return (
        all(new >= old if forward else new <= old for new, old in zip(moved, (low, high), strict=True))
        and moved[0] <= moved[1]
    )


_PLUS = _exact(lambda x, c, at: x + c)
_MINUS = _exact(lambda x, c, at: x - c if at == 0 else c - x)


def _year(days: np.ndarray[Any, Any]) -> Any:
    return days.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64)[0]


def _month(days: np.ndarray[Any, Any]) -> Any:
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)[0]


_CHECKS: dict[str, Check] = {
    "plus": _plus_interval,
    "minus": _plus_interval,
    "multiply": _exact(lambda x, c, at: x * c),
    "negate": _exact(lambda x, c, at: -x),
    "divide": _divide,
    "intDiv": _int_div,
    "modulo": _modulo,
    "toYear": _of_days,
    "toYYYYMM": _of_days,
    "toYYYYMMDD": _of_days,
    "toYYYYMMDDhhmmss": lambda call, at, kind, low, high: (
        at == 0 and (isinstance(kind, (t.Date, t.Date32)) or _no_change(kind, _zone_of(call, kind, 1), low, high))
    ),
    "toStartOfYear": _of_days_to_date,
    "toStartOfQuarter": _of_days_to_date,
    "toStartOfMonth": _of_days_to_date,
    "toStartOfWeek": _of_days_to_date,
    "toMonday": _of_days_to_date,
    "toQuarter": _within(_year),
    "toMonth": _within(_year),
    "toDayOfYear": _within(_year),
    "toDayOfMonth": _within(_month),
    "toDayOfWeek": _within(lambda days: (days[0] + 3) // 7),
    "toHour": _within_clock(_DAY),
    "toMinute": _within_clock(3600),
    "toSecond": _within_clock(60),
    "toStartOfDay": _to_stamp,
    "toStartOfHour": _to_stamp,
    "toStartOfFifteenMinutes": _to_stamp,
    "toStartOfTenMinutes": _to_stamp,
    "toStartOfFiveMinutes": _to_stamp,
    "toStartOfMinute": _to_stamp,
    "toStartOfInterval": _start_of_interval,
    "toUnixTimestamp": _to_stamp,
    "toTimeZone": _always,
    "toDate": _cast,
    "toDate32": _cast,
    "toDateTime": _cast,
    "toDateTime64": _cast,
    "CAST": _cast,
    **{f"to{sign}Int{bits}": _cast for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)},
    "toFloat32": _cast,
    "toFloat64": _cast,
    "assumeNotNull": _always,
    "toNullable": _always,
}
