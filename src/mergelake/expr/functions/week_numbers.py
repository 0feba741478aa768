"""Numbers of weeks by MySQL's modes (toWeek, toYearWeek) and counts of hours, minutes, seconds since 1970.

Bits of a mode:

- 1: weeks begin on Monday, not on Sunday;
- 2: the first days of January may belong to the last week of the previous year, otherwise they are week 0;
- 4: the first week is the first whole one, not the first with most of its days in the year (the reverse if weeks
  begin on Sunday);
- 8: the first week is the one with January 1.

Source: ClickHouse, `DateLUTImpl::toYearWeek`, `src/Functions/DateTimeTransforms.h`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mergelake.core.base.errors import error
from mergelake.core.convert.timezones import Zone, zone
from mergelake.core.types import types as t
from mergelake.expr.bound import BoundLiteral
from mergelake.expr.evaluate import Kernel
from mergelake.expr.functions.casts import midnight_in_range
from mergelake.expr.functions.date_parts import (
    DATES,
    TIMES,
    any_zone,
    civil,
    days_of,
    iso_year,
    local_days,
    monday,
    sunday,
    to_date,
    year_of,
    zone_name,
)
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal

Days = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]

_ONE = np.ones(1, np.int64)
_MONDAY_FIRST, _YEAR, _FIRST_WEEKDAY, _NEW_YEAR = 1, 2, 4, 8
_OFF_TABLE = 135


def year_week(days: Numbers, mode: int) -> tuple[Numbers, Numbers]:
    """(year, week) of days since 1970-01-01 in a mode of 8 bits; week 0 is before the first one of its year."""
    wide = days.astype(np.int64)
    if mode & _NEW_YEAR:
        return _year_week_of_new_year(wide, monday if mode & _MONDAY_FIRST else sunday, mode & _MONDAY_FIRST)
    monday_first, whole = bool(mode & _MONDAY_FIRST), bool(mode & _FIRST_WEEKDAY)
    if not monday_first:
        whole = not whole

    def begins_late(weekday: Numbers) -> Numbers:
        """Whether a week that holds January 1 as this weekday belongs to the year before."""
        return np.asarray(weekday != 0 if whole else weekday >= 4)

    year, month, day = civil(wide)
    year = year.astype(np.int64)
    first = days_of(year, _ONE, 1)
    weekday = (first + (3 if monday_first else 4)) % 7
    early = (month == 1) & (day <= 7 - weekday)
    none = early & begins_late(weekday) if not mode & _YEAR else np.zeros(len(wide), np.bool_)
    before = early & ~none
    year = year - before
    length = _days_in(year)
    first = first - np.where(before, length, 0)
    weekday = np.where(before, (weekday + 53 * 7 - length) % 7, weekday)
    since = wide - first + np.where(begins_late(weekday), weekday - 7, weekday)
    week = since // 7 + 1
    after = since >= 52 * 7
    if not mode & _YEAR:
        after &= before
    after &= ~begins_late((weekday + length) % 7)
    year = year + (after & ~none)
    return year, np.where(none, 0, np.where(after, 1, week))


def _year_week_of_new_year(days: Days, begin: Callable[[Numbers], Numbers], monday_first: int) -> tuple[Days, Days]:
    last = begin(days) + 6
    year = year_of(last).astype(np.int64)
    new_year = days_of(year, _ONE, 1)
    week = (begin(days) - begin(new_year)) // 7 + 1
    if monday_first:
        return year, week
    # ClickHouse's table of days is one cycle of the calendar from 1900-01-01, a Monday: the Sunday before it is not in
    # the table, nor are the weeks counted from it.
    at_end = year % 400 == 300
    before = at_end & (days < new_year)
    week = np.where(at_end & (days >= new_year + 6), _OFF_TABLE, np.where(before, 53, week))
    return year - before, week


def _days_in(year: Numbers) -> Days:
    return days_of(year + 1, _ONE, 1) - days_of(year, _ONE, 1)


def _week_days(name: str, args: tuple[Operand, ...]) -> tuple[Kernel, int]:
    """(data -> local days, mode) of the arguments (time, mode, zone)."""
    kind = args[0].type
    if not isinstance(kind, (*DATES, *TIMES)):
        raise illegal(name, *(arg.type for arg in args))
    mode = 0
    if len(args) > 1:
        if args[1].type != t.UINT8:
            raise illegal(name, *(arg.type for arg in args))
        if not args[1].is_constant:
            raise error("ILLEGAL_COLUMN", f"The mode of {name} must be constant")
        mode = int(args[1].value)
    return local_days(kind, any_zone(name, args, 2)), mode


def _week(name: str, result: t.Int, more: int, number: Callable[[Numbers, Numbers], Numbers], alias: str) -> None:
    dtype = np.dtype(f"u{result.bits // 8}")

    @function(name, 1, 3, aliases=(alias,))
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        if isinstance(args[0].type, t.String):
            stamp = environment.call(
                "toDateTime64", (args[0].node, BoundLiteral(0, t.UINT8), *(a.node for a in args[2:]))
            )
            return Resolved(result, node=environment.call(name, (stamp, *(arg.node for arg in args[1:2]))))
        days, mode = _week_days(name, args)
        return Resolved(result, lambda data, *_: number(*year_week(days(data), mode | more)).astype(dtype), cost=40)


_week("toWeek", t.Int(8, False), 0, lambda year, week: week, "week")
_week("toYearWeek", t.Int(32, False), _YEAR, lambda year, week: np.maximum(year, 0) * 100 + week, "yearweek")


@function("toLastDayOfWeek", 1, 3)
def _last_day_of_week(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    zone_name("toLastDayOfWeek", args, 2)  # refuses a time zone with a Date
    days, mode = _week_days("toLastDayOfWeek", args)
    begin = monday if mode & _MONDAY_FIRST else sunday
    return Resolved(t.Date(), lambda data, *_: to_date(begin(days(data).astype(np.int64)) + 6), cost=6)


@function("toStartOfISOYear", 1, 2)
def _start_of_iso_year(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    if not isinstance(args[0].type, (*DATES, *TIMES)):
        raise illegal("toStartOfISOYear", *(arg.type for arg in args))
    days = local_days(args[0].type, zone_name("toStartOfISOYear", args, 1))
    # January 4 is always in the first week. Days beyond the range of Date count as its last day.
    return Resolved(
        t.Date(), lambda data, *_: to_date(monday(days_of(iso_year(np.minimum(days(data), 0xFFFF)), _ONE, 4))), cost=20
    )


def _relative(name: str, step: int) -> None:
    @function(name, 1, 2)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        kind = args[0].type
        if not isinstance(kind, (*DATES, *TIMES)):
            raise illegal(name, *(arg.type for arg in args))
        local = zone(any_zone(name, args, 1) or getattr(kind, "timezone", ""))
        number = _hours(local) if step == 3600 else lambda seconds: seconds // step
        scale = 10**kind.precision if isinstance(kind, t.DateTime64) else 1

        def kernel(data: Numbers, *_: Numbers) -> Numbers:
            wide = data.astype(np.int64)
            seconds = local.start_of_day(wide) if isinstance(kind, DATES) else wide // scale
            if step == 1:
                seconds = np.minimum(midnight_in_range(seconds) if isinstance(kind, t.Date) else seconds, 0xFFFFFFFF)
            counts = number(seconds)
            # In ClickHouse the result for a Date wraps around before 1970 UTC.
            return np.asarray(counts if isinstance(kind, t.Date) else np.maximum(counts, 0)).astype(np.uint32)

        return Resolved(t.Int(32, False), kernel, cost=6)


def _hours(local: Zone) -> Callable[[Numbers], Numbers]:
    """UTC seconds -> hours since 1970, as ClickHouse counts them.

    UTC hours; but before 1970, or if the zone's offset since 1970 was ever not a whole number of hours, hours since the
    beginning of the day before, by the offset of 1970.
    """
    zero = np.zeros(1, np.int64)
    offset = int(local.to_local(zero)[0])
    since = local.offsets[int(np.searchsorted(local.changes, 0, side="right")) :]
    if bool((since % 3600).any()):
        return lambda seconds: (seconds + 86400 - offset) // 3600
    return lambda seconds: np.where(seconds < 0, seconds + 86400 - offset, seconds) // 3600


for _name, _step in (("toRelativeHourNum", 3600), ("toRelativeMinuteNum", 60), ("toRelativeSecondNum", 1)):
    _relative(_name, _step)
