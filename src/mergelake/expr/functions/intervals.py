"""toStartOfInterval and dateTrunc: rounding down to any number of units.

Source: ClickHouse, `src/Functions/toStartOfInterval.cpp`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mergelake.core.base.errors import error
from mergelake.core.convert.timezones import Zone, zone
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundLiteral
from mergelake.expr.evaluate import Kernel
from mergelake.expr.functions import casts
from mergelake.expr.functions.casts import midnight_in_range
from mergelake.expr.functions.date_parts import (
    DATES,
    TIMES,
    civil,
    days_of,
    local_days,
    start_of_seconds,
    to_date,
    to_stamp,
    zone_name,
)
from mergelake.expr.parser import interval_unit
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal

_DAY = 86400
_CLOCK = {"Second": 1, "Minute": 60, "Hour": 3600}
_FRACTIONS = {"Millisecond": 3, "Microsecond": 6, "Nanosecond": 9}
_MONTHS = {"Month": 1, "Quarter": 3, "Year": 12}
_FIRST_DAY = -25567
"""1900-01-01, the first day of ClickHouse's calendar."""


@function("toStartOfInterval", 2, 3)
def _to_start_of_interval(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    kind, interval = args[0].type, args[1].type
    if not isinstance(kind, (*DATES, *TIMES)) or not isinstance(interval, t.Interval) or not args[1].is_constant:
        raise illegal("toStartOfInterval", *(arg.type for arg in args))
    count = args[1].value
    if count is None or count <= 0:
        raise error("ARGUMENT_OUT_OF_BOUND", "Value for the interval of toStartOfInterval must be positive")
    name = zone_name("toStartOfInterval", args, 2) or getattr(kind, "timezone", "")
    if interval.unit in _MONTHS or interval.unit == "Week":
        days, step, unit = local_days(kind, name), count, interval.unit
        if isinstance(kind, t.Date32):  # beyond the range of Date this wraps around, other functions clamp
            first = _FIRST_DAY if unit in _MONTHS else -(1 << 31)
            wrapped = casts.kernel(t.Date32(), t.Date())
            return Resolved(
                t.Date(), lambda data, *_: wrapped(np.maximum(_start_day(days(data), unit, step), first)), cost=15
            )
        return Resolved(t.Date(), lambda data, *_: to_date(_start_day(days(data), unit, step)), cost=15)
    if interval.unit == "Day":
        days, local, step = local_days(kind, name), zone(name), count
        result = t.DateTime(name)

        def start_of_days(data: npt.NDArray[Any], *_: object) -> npt.NDArray[Any]:
            start = days(data).astype(np.int64) // step * step
            if isinstance(kind, t.Date32):
                return local.start_of_day(np.maximum(start, _FIRST_DAY)).astype(np.uint32)
            midnight = local.start_of_day(start)
            return to_stamp(midnight if isinstance(kind, t.DateTime64) else midnight_in_range(midnight))

        return Resolved(result, start_of_days, cost=10)
    if isinstance(kind, DATES):
        raise illegal("toStartOfInterval", kind, interval)
    return _start_of_clock(kind, interval.unit, count, name)


def _start_day(days: npt.NDArray[Any], unit: str, count: int) -> npt.NDArray[Any]:
    """The local day on which the interval begins; weeks count from Monday 1970-01-05, months from 1900."""
    wide = days.astype(np.int64)
    if unit == "Week":
        return (wide - 4) // (7 * count) * (7 * count) + 4
    year, month, _ = civil(days)
    step = count * _MONTHS[unit]
    if unit == "Year":
        return days_of(year // count * count, np.ones(1, np.int64), 1)
    total = (year.astype(np.int64) - 1900) * 12 + month - 1
    start = total // step * step
    return days_of(1900 + start // 12, start % 12 + 1, 1)


def _start_of_clock(kind: t.DataType, unit: str, count: int, name: str) -> Resolved:
    if unit not in _CLOCK:
        return _start_of_fraction(kind, unit, count, name)
    step = count * _CLOCK[unit]
    scale = 10**kind.precision if isinstance(kind, t.DateTime64) else 1
    local, hour = zone(name), start_of_seconds(3600, name)

    def kernel(data: npt.NDArray[Any], *_: object) -> npt.NDArray[Any]:
        seconds = data.astype(np.int64) // scale
        if unit != "Hour":
            return to_stamp(seconds // step * step)  # counted in UTC
        if count == 1:
            return to_stamp(hour(seconds))
        return to_stamp(_start_of_hours(seconds, step, local))

    return Resolved(t.DateTime(name), kernel, cost=10)


def _start_of_fraction(kind: t.DataType, unit: str, count: int, name: str) -> Resolved:
    """Units shorter than a second: counted from 1970 in UTC; the result has the unit's precision."""
    if not isinstance(kind, t.DateTime64):
        raise illegal("toStartOfInterval", kind)
    result = t.DateTime64(_FRACTIONS[unit], name)
    down = 10 ** max(kind.precision - result.precision, 0)
    finer = casts.kernel(t.DateTime64(min(kind.precision, result.precision)), result)

    def kernel(data: npt.NDArray[Any], *_: object) -> npt.NDArray[Any]:
        return np.asarray(finer(data // down) // count * count)

    return Resolved(result, kernel, can_raise=kind.precision < result.precision, cost=6)


def _start_of_hours(seconds: npt.NDArray[np.int64], step: int, local: Zone) -> npt.NDArray[np.int64]:
    """The starts of intervals of `step` seconds, counted by the local clock from midnight.

    An interval whose beginning was skipped, or falls before the clock was changed that day, begins at the change.
    Source: ClickHouse, `DateLUTImpl::toStartOfHourInterval`.
    """
    here = local.to_local(seconds)
    day = here // _DAY * _DAY
    midnight = local.to_utc(day)
    clock = here - day
    start = clock // step * step
    if local.is_fixed:
        return midnight + start
    last = np.searchsorted(local.changes, seconds, side="right") - 1
    since = np.where(last >= 0, local.changes[last] - midnight, 0)
    moved = clock - (seconds - midnight)
    late = (since > 0) & (start >= since)
    begin = midnight + np.where(late, np.maximum(start - moved, since), start)
    # Where the clock skips midnight, nothing of the day lies before the change.
    skipped = local.to_local(midnight) < day
    return np.where(skipped & (last >= 0), np.maximum(begin, local.changes[last]), begin)


@function("dateTrunc", 2, 3, aliases=("date_trunc",))
def _date_trunc(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    unit = args[0].value
    if not isinstance(unit, bytes):
        raise illegal("dateTrunc", *(arg.type for arg in args))
    word = interval_unit(unit.decode())
    kind = args[1].type
    if isinstance(kind, (t.Date32, t.DateTime64)) and word in (*_CLOCK, "Day", "Week", *_MONTHS):
        return _truncated(kind, word, zone_name("dateTrunc", args[1:], 1) or getattr(kind, "timezone", ""))
    rest = tuple(arg.node for arg in args[2:])
    if word in ("Minute", "Hour") or (word == "Day" and not isinstance(kind, DATES)):
        return Resolved(kind, node=environment.call(f"toStartOf{word}", (args[1].node, *rest)))
    one = environment.call(f"toInterval{word}", (BoundLiteral(1, t.UINT8),))
    return Resolved(kind, node=environment.call("toStartOfInterval", (args[1].node, one, *rest)))


def _truncated(kind: t.DataType, unit: str, name: str) -> Resolved:
    """The rule of dateTrunc for a type that reaches beyond 1970 to 2106; the result does too, unlike with toStartOf."""
    if unit not in _CLOCK and unit != "Day":
        days = _whole_days(kind, name)
        return Resolved(t.Date32(), lambda _, data, *rest: _start_day(days(data), unit, 1).astype(np.int32), cost=15)
    result = t.DateTime64(0, name)
    if unit == "Day":
        days, local = _whole_days(kind, name), zone(name)
        return Resolved(result, lambda _, data, *rest: local.start_of_day(days(data)), cost=10)
    if not isinstance(kind, t.DateTime64):
        raise illegal("dateTrunc", kind)
    scale, start = 10**kind.precision, start_of_seconds(_CLOCK[unit], name)
    return Resolved(result, lambda _, data, *rest: start(casts.cut(data, scale)), cost=6)


def _whole_days(kind: t.DataType, name: str) -> Kernel:
    """As `local_days`, with the fraction of a second truncated towards 1970."""
    if not isinstance(kind, t.DateTime64):
        return local_days(kind, name)
    days, scale = local_days(t.DateTime64(0, name)), 10**kind.precision
    return lambda data: days(casts.cut(data, scale))
