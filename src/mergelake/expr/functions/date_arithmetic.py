"""Dates and times plus and minus numbers and intervals; differences; now() and today()."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mergelake.core.base.errors import error
from mergelake.core.convert.timezones import zone
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundLiteral
from mergelake.expr.evaluate import Kernel
from mergelake.expr.functions import casts
from mergelake.expr.functions.date_parts import DATES, TIMES, civil, days_of, local_days
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal

_DAY = 86400
_SECONDS = {"Second": 1, "Minute": 60, "Hour": 3600}
_FRACTIONS = {"Millisecond": 3, "Microsecond": 6, "Nanosecond": 9}
_DAYS = {"Day": 1, "Week": 7}
_MONTHS = {"Month": 1, "Quarter": 3, "Year": 12}


def is_date(kind: t.DataType) -> bool:
    """Whether the type is a date, a time or an interval."""
    return isinstance(kind, (*DATES, *TIMES, t.Interval))


def additive(name: str, args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    """The rule of plus and minus if either side is a date, a time or an interval."""
    left, right = args[0].type, args[1].type
    movable = (*DATES, *TIMES, t.String)
    if name == "plus" and not isinstance(left, movable) and isinstance(right, movable):
        flipped = additive(name, (args[1], args[0]), environment)
        swapped = flipped.kernel
        if swapped is None:
            raise illegal(name, left, right)
        return Resolved(flipped.type, lambda x, y: swapped(y, x), cost=flipped.cost)
    sign = -1 if name == "minus" else 1
    if isinstance(left, t.String) and isinstance(right, t.Interval):
        return _add_to_text(right.unit, sign)
    if isinstance(left, (*DATES, *TIMES)) and isinstance(right, t.Interval):
        result, kernel = add_interval(left, right.unit)
        return Resolved(result, lambda x, y: kernel(x, y * sign), cost=10)
    if isinstance(left, (*DATES, *TIMES)) and isinstance(right, (t.Int, t.Float, t.Bool)):
        return _add_number(name, left)
    if name == "minus" and isinstance(left, (t.Date, t.DateTime)) and type(left) is type(right):
        return Resolved(t.Int(32, True), lambda x, y: (x.astype(np.int64) - y.astype(np.int64)).astype(np.int32))
    if isinstance(left, t.Interval) and left == right:
        ufunc = np.add if name == "plus" else np.subtract
        return Resolved(left, lambda x, y: ufunc(x, y))
    raise illegal(name, left, right)


def _add_to_text(unit: str, sign: int) -> Resolved:
    """A text is read as a DateTime64(3)."""
    kind = t.DateTime64(3)
    read = casts.kernel(t.STRING, kind)
    result, kernel = add_interval(kind, unit)
    return Resolved(result, lambda x, y: kernel(read(x), y * sign), can_raise=True, cost=30)


def _add_number(name: str, kind: t.DataType) -> Resolved:
    """A number counts days for dates, seconds for DateTime and DateTime64."""
    dtype = casts.number_dtype(kind)
    sign = -1 if name == "minus" else 1
    scale = 10**kind.precision if isinstance(kind, t.DateTime64) else 1

    def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        with np.errstate(all="ignore"):
            moved: npt.NDArray[Any] = (x.astype(np.int64) + y.astype(np.int64) * (scale * sign)).astype(dtype)
            return moved

    return Resolved(kind, kernel)


def scaled_interval(args: tuple[Operand, ...]) -> Resolved:
    """The rule of multiply if either side is an interval."""
    interval = next(arg.type for arg in args if isinstance(arg.type, t.Interval))
    return Resolved(interval, lambda x, y: x.astype(np.int64) * y.astype(np.int64))


def add_interval(kind: t.DataType, unit: str) -> tuple[t.DataType, Kernel]:
    """The type of `kind` plus an interval of `unit`, and the kernel over (data, counts)."""
    if unit in _FRACTIONS or unit in _SECONDS:
        return _add_clock(kind, unit)
    shift = _shift_days(unit)
    if isinstance(kind, DATES):
        dtype = casts.number_dtype(kind)
        floor = 0 if isinstance(kind, t.Date) and unit in _MONTHS else None
        return kind, lambda x, y: _floored(shift(x.astype(np.int64), y), floor).astype(dtype)
    local = zone(getattr(kind, "timezone", ""))
    scale = 10**kind.precision if isinstance(kind, t.DateTime64) else 1
    dtype = casts.number_dtype(kind)

    def kernel(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        wide = x.astype(np.int64)
        seconds = casts.cut(wide, scale)
        rest = wide - seconds * scale
        here = local.to_local(seconds)
        moved = shift(here // _DAY, y) * _DAY + here % _DAY
        floor = 0 if isinstance(kind, t.DateTime) and unit in _MONTHS else None
        return np.asarray(_floored(local.to_utc(moved), floor) * scale + rest).astype(dtype)

    return kind, kernel


def _floored(numbers: npt.NDArray[Any], floor: int | None) -> npt.NDArray[Any]:
    """`numbers`, at least `floor`: months, quarters and years are not subtracted beyond 1970, other units wrap."""
    return numbers if floor is None else np.maximum(numbers, floor)


def _shift_days(unit: str) -> Kernel:
    if unit in _DAYS:
        factor = _DAYS[unit]
        return lambda days, count: days + count * factor
    months = _MONTHS[unit]

    def shift(days: npt.NDArray[Any], count: npt.NDArray[Any]) -> npt.NDArray[Any]:
        year, month, day = civil(days)
        total = year.astype(np.int64) * 12 + month - 1 + count * months
        new_year, new_month = total // 12, total % 12 + 1
        first = days_of(new_year, new_month, 1)
        following = days_of(new_year + (new_month == 12), new_month % 12 + 1, 1)
        return np.asarray(first + np.minimum(day, following - first) - 1)

    return shift


def _add_clock(kind: t.DataType, unit: str) -> tuple[t.DataType, Kernel]:
    digits = _FRACTIONS.get(unit, 0)
    precision = kind.precision if isinstance(kind, t.DateTime64) else 0
    name = getattr(kind, "timezone", "")
    wide = digits > 0 or isinstance(kind, (t.DateTime64, t.Date32))
    if isinstance(kind, t.Date32) and not digits:
        precision = 3
    if isinstance(kind, DATES) and digits:
        result: t.DataType = t.DateTime64(digits, name)
    else:
        result = t.DateTime64(max(precision, digits), name) if wide else t.DateTime(name)
    start = casts.kernel(kind, result)
    scale = 10**result.precision if isinstance(result, t.DateTime64) else 1
    factor = scale // 10**digits if digits else scale * _SECONDS[unit]
    dtype = casts.number_dtype(result)
    return result, lambda x, y: (start(x).astype(np.int64) + y * factor).astype(dtype)


def _shift_function(verb: str, unit: str) -> None:
    name = f"{verb}{unit}s"

    @function(name, 2)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        count = environment.call(f"toInterval{unit}", (args[1].node,))
        moved = environment.call("plus" if verb == "add" else "minus", (args[0].node, count))
        return Resolved(moved.type, node=moved)


for _unit in (*_SECONDS, *_DAYS, *_MONTHS):
    _shift_function("add", _unit)
    _shift_function("subtract", _unit)


@function("dateDiff", 3, 4, aliases=("date_diff", "timestampDiff"))
def _date_diff(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    unit = args[0].value
    kinds = args[1].type, args[2].type
    if not isinstance(unit, bytes) or not all(isinstance(kind, (*DATES, *TIMES)) for kind in kinds):
        raise illegal("dateDiff", *(arg.type for arg in args))
    from mergelake.expr.parser import interval_unit

    word = interval_unit(unit.decode())
    zones = {getattr(kind, "timezone", "") or "UTC" for kind in kinds}
    if word in _SECONDS and len(zones) > 1 and len(args) < 4:
        raise error("NOT_IMPLEMENTED", "dateDiff in hours, minutes or seconds needs both times in one time zone")
    chosen = args[3].value.decode() if len(args) > 3 else ""
    first, second = (_counter(kind, word, chosen) for kind in kinds)
    return Resolved(t.Int(64, True), lambda _, x, y, *rest: second(y) - first(x), cost=30)


def _weeks(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Weeks since 1970, from Monday; ClickHouse truncates towards zero, so two weeks have the number 0."""
    following = days + 7 - (days + 3) % 7
    return np.where(following < 0, -(-following // 7), following // 7)


def _counter(kind: Any, unit: str, name: str) -> Kernel:
    """A kernel that counts the units begun since 1970 in local time."""
    if unit in _SECONDS:
        if isinstance(kind, DATES):
            raise error(
                "NOT_IMPLEMENTED", f"dateDiff of dates in units of {unit} is not supported", "Convert with toDateTime"
            )
        stamp, step = casts.kernel(kind, t.DateTime64(0, kind.timezone)), _SECONDS[unit]
        # Hours are counted in UTC, shifted if the zone's offset in 1970 was not a whole number of hours.
        shift = int(zone(name or kind.timezone).to_local(np.zeros(1, np.int64))[0]) % step if step == 3600 else 0
        return lambda data: (stamp(data) + shift) // step
    if unit not in _DAYS and unit not in _MONTHS:
        raise error("NOT_IMPLEMENTED", f"dateDiff in units of {unit} is not supported")
    days = local_days(kind, name)
    if unit == "Day":
        return lambda data: days(data).astype(np.int64)
    if unit == "Week":
        return lambda data: _weeks(days(data).astype(np.int64))
    step = _MONTHS[unit]

    def months(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
        year, month, _ = civil(days(data))
        return (year.astype(np.int64) * 12 + month - 1) // step

    return months


@function("now", 0, 1, any_case=True)
def _now(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    if args and not isinstance(args[0].value, bytes):
        raise illegal("now", args[0].type)
    name = args[0].value.decode() if args else ""
    zone(name)
    literal = BoundLiteral(_clock(environment, "now") // 1000 & 0xFFFFFFFF, t.DateTime(name))
    return Resolved(literal.type, node=literal)


@function("now64", 0, 2, any_case=True)
def _now64(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    if args and (not isinstance(args[0].type, t.Int) or not args[0].is_constant):
        raise illegal("now64", args[0].type)
    precision = int(args[0].value) if args else 3
    if not 0 <= precision <= 9:
        raise error("ARGUMENT_OUT_OF_BOUND", f"Scale {precision} is out of bounds for DateTime64 (max scale: 9)")
    if len(args) > 1 and not isinstance(args[1].value, bytes):
        raise error("ILLEGAL_COLUMN", "The time zone of now64 must be a constant string")
    name = args[1].value.decode() if len(args) > 1 else ""
    zone(name)
    ticks = _clock(environment, "now64") * 10**precision // 1000
    literal = BoundLiteral(ticks, t.DateTime64(precision, name))
    return Resolved(literal.type, node=literal)


@function("today", 0, any_case=True, aliases=("current_date", "curdate"))
def _today(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    return Resolved(t.Date(), node=BoundLiteral(_clock(environment, "today") // 86_400_000, t.Date()))


@function("yesterday", 0)
def _yesterday(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    return Resolved(t.Date(), node=BoundLiteral(_clock(environment, "yesterday") // 86_400_000 - 1, t.Date()))


def _clock(environment: BindingEnvironment, name: str) -> int:
    if environment.now_ms is None:
        raise error(
            "BAD_ARGUMENTS",
            f"{name}() has no place in an expression that must always give the same value",
            "Write the date or time as a literal",
        )
    return environment.now_ms
