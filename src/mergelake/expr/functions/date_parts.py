"""Functions of dates and times: parts (toYear, toHour), starts (toStartOfMonth, toMonday), numbers (toYYYYMM).

All work on local time: days since 1970 local, or seconds since 1970-01-01 00:00 local, from `core.convert.timezones`.
Days are split into year, month, day by Howard Hinnant's integer arithmetic, without a table.

Source: ClickHouse, `src/Functions/DateTimeTransforms.h`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mergelake.core.base.errors import error
from mergelake.core.convert.timezones import zone
from mergelake.core.types import types as t
from mergelake.expr.evaluate import Kernel
from mergelake.expr.functions.casts import midnight_in_range
from mergelake.expr.registry import BindingEnvironment, Operand, Resolved, function, illegal

Days = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]

DATES = (t.Date, t.Date32)
TIMES = (t.DateTime, t.DateTime64)
_DAY = 86400


def civil(days: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """(year, month, day) of days since 1970-01-01, as int32. Valid from year 0 on."""
    z = days.astype(np.int32) + np.int32(719468)
    era = z // np.int32(146097)
    doe = z - era * np.int32(146097)
    yoe = (doe - doe // np.int32(1460) + doe // np.int32(36524) - doe // np.int32(146096)) // np.int32(365)
    doy = doe - (np.int32(365) * yoe + yoe // np.int32(4) - yoe // np.int32(100))
    mp = (np.int32(5) * doy + np.int32(2)) // np.int32(153)
    day = doy - (np.int32(153) * mp + np.int32(2)) // np.int32(5) + np.int32(1)
    month = np.where(mp < 10, mp + np.int32(3), mp - np.int32(9))
    year = yoe + era * np.int32(400) + (month <= 2)
    return year, month, day


def days_of(year: Numbers, month: Numbers, day: Numbers | int) -> Days:
    """Days since 1970-01-01 of a civil date: inverse of `civil`."""
    y = np.asarray(year, np.int64) - (np.asarray(month) <= 2)
    era = y // 400
    yoe = y - era * 400
    mp = (np.asarray(month, np.int64) + 9) % 12
    doe = yoe * 365 + yoe // 4 - yoe // 100 + (153 * mp + 2) // 5 + day - 1
    return np.asarray(era * 146097 + doe - 719468)


def local_seconds(kind: t.DataType, name: str = "") -> Kernel:
    """Data of DateTime or DateTime64 -> local seconds; `name` overrides the type's zone."""
    local = zone(name or getattr(kind, "timezone", ""))
    if isinstance(kind, t.DateTime64) and kind.precision:
        scale = 10**kind.precision
        return lambda data: local.to_local(data // scale)
    return lambda data: local.to_local(data)


def local_days(kind: t.DataType, name: str = "") -> Kernel:
    """Data of any date or time type -> local days since 1970."""
    if isinstance(kind, DATES):
        return lambda data: data
    seconds = local_seconds(kind, name)
    return lambda data: seconds(data) // _DAY


def zone_name(name: str, args: tuple[Operand, ...], at: int) -> str:
    """The time zone that argument `at` names, or the empty string."""
    if len(args) <= at:
        return ""
    value = args[at].value
    if not isinstance(value, bytes) or not isinstance(args[0].type, TIMES):
        raise illegal(name, *(arg.type for arg in args))
    return value.decode()


def any_zone(name: str, args: tuple[Operand, ...], at: int) -> str:
    """The time zone that argument `at` names, or the empty string; allowed with dates too, which it does not affect."""
    if len(args) <= at:
        return ""
    if not isinstance(args[at].type, t.String):
        raise illegal(name, *(arg.type for arg in args))
    value = args[at].value
    if not isinstance(value, bytes):
        raise error("ILLEGAL_COLUMN", f"The time zone of {name} must be constant")
    zone(value.decode(errors="backslashreplace"))
    return value.decode()


def _part(name: str, result: t.DataType, of_days: Callable[[Numbers], Numbers], aliases: tuple[str, ...] = ()) -> None:
    dtype = np.dtype(f"u{result.bits // 8}") if isinstance(result, t.Int) else np.dtype("u2")

    @function(name, 1, 2, aliases=aliases)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        if not isinstance(args[0].type, (*DATES, *TIMES)):
            raise illegal(name, *(arg.type for arg in args))
        days = local_days(args[0].type, any_zone(name, args, 1))
        return Resolved(result, lambda data, *_: of_days(days(data)).astype(dtype), cost=15)


def _clock_part(
    name: str, result: t.DataType, of_seconds: Callable[[Numbers], Numbers], aliases: tuple[str, ...]
) -> None:
    @function(name, 1, 2, aliases=aliases)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        if not isinstance(args[0].type, TIMES):
            raise illegal(name, *(arg.type for arg in args))
        seconds = local_seconds(args[0].type, zone_name(name, args, 1))
        return Resolved(result, lambda data, *_: of_seconds(seconds(data)).astype(np.uint8), cost=6)


def year_of(days: Numbers) -> Numbers:
    """The civil year."""
    return civil(days)[0]


def _yyyymm(days: Numbers) -> Numbers:
    year, month, _ = civil(days)
    return year * 100 + month


def _yyyymmdd(days: Numbers) -> Numbers:
    year, month, day = civil(days)
    return np.asarray(year * 10000 + month * 100 + day)


def start_of_month(days: Numbers) -> Numbers:
    """The first day of the month."""
    return days - civil(days)[2] + 1


def start_of_quarter(days: Numbers) -> Numbers:
    """The first day of the quarter."""
    year, month, _ = civil(days)
    return days_of(year, (month - 1) // 3 * 3 + 1, 1)


def start_of_year(days: Numbers) -> Numbers:
    """The first of January."""
    return days_of(civil(days)[0], np.ones(1, np.int64), 1)


def monday(days: Numbers) -> Numbers:
    """The Monday on or before each day; day 0 was a Thursday."""
    return days - (days.astype(np.int64) + 3) % 7


def sunday(days: Numbers) -> Numbers:
    """The Sunday on or before each day."""
    return days - (days.astype(np.int64) + 4) % 7


def _last_day(days: Numbers) -> Numbers:
    year, month, _ = civil(days)
    return days_of(year + (month == 12), month % 12 + 1, 1) - 1


def iso_year(days: Numbers) -> Numbers:
    """The year to which most days of the week belong, which is that of its Thursday."""
    return np.asarray(year_of(monday(days) + 3))


def _iso_week(days: Numbers) -> Numbers:
    thursday = np.asarray(monday(days) + 3, np.int64)
    return np.asarray((thursday - days_of(year_of(thursday), np.ones(1, np.int64), 1)) // 7 + 1)


def _quarters(days: Numbers) -> Numbers:
    year, month, _ = civil(days)
    return np.asarray(year * 4 + (month - 1) // 3)


def _months(days: Numbers) -> Numbers:
    year, month, _ = civil(days)
    return np.asarray(year * 12 + month)


_U8, _U16, _U32 = t.Int(8, False), t.Int(16, False), t.Int(32, False)
_part("toYear", _U16, year_of, ("YEAR",))
_part("toQuarter", _U8, lambda days: (civil(days)[1] + 2) // 3, ("QUARTER",))
_part("toMonth", _U8, lambda days: civil(days)[1], ("MONTH",))
_part("toDayOfMonth", _U8, lambda days: civil(days)[2], ("DAY", "DAYOFMONTH"))
_part("toISOYear", _U16, iso_year)
_part("toISOWeek", _U8, _iso_week)
_part("toRelativeYearNum", _U16, year_of)
_part("toRelativeQuarterNum", _U32, _quarters)
_part("toRelativeMonthNum", _U32, _months)
_part("toRelativeWeekNum", _U32, lambda days: np.maximum(days.astype(np.int64) + 3, 0) // 7)
_part("toRelativeDayNum", _U32, lambda days: np.clip(days.astype(np.int64), 0, 0xFFFF))
_part("toYearNumSinceEpoch", _U16, lambda days: np.maximum(year_of(days) - 1970, 0))
_part("toMonthNumSinceEpoch", _U32, lambda days: np.maximum(_months(days) - (1970 * 12 + 1), 0))
_part("toYYYYMM", _U32, _yyyymm)
_part("toYYYYMMDD", _U32, _yyyymmdd)
_clock_part("toHour", _U8, lambda seconds: seconds // 3600 % 24, ("HOUR",))
_clock_part("toMinute", _U8, lambda seconds: seconds // 60 % 60, ("MINUTE",))
_clock_part("toSecond", _U8, lambda seconds: seconds % 60, ("SECOND",))


_LAST_DATE32 = 120529


def day_of_year(kind: t.DataType) -> Callable[[Numbers], Numbers]:
    """A function from days to the day of the year, from 1. ClickHouse gives 364 for the last Date32, 2299-12-31."""
    if isinstance(kind, t.Date32):
        return lambda days: days - start_of_year(days) + (days != _LAST_DATE32)
    return lambda days: days - start_of_year(days) + 1


@function("toDayOfYear", 1, 2, aliases=("DAYOFYEAR",))
def _day_of_year(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    kind = args[0].type
    if not isinstance(kind, (*DATES, *TIMES)):
        raise illegal("toDayOfYear", *(arg.type for arg in args))
    days, number = local_days(kind, any_zone("toDayOfYear", args, 1)), day_of_year(kind)
    return Resolved(_U16, lambda data, *_: number(days(data)).astype(np.uint16), cost=15)


@function("toDayOfWeek", 1, 3, aliases=("DAYOFWEEK",))
def _day_of_week(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    if not isinstance(args[0].type, (*DATES, *TIMES)):
        raise illegal("toDayOfWeek", *(arg.type for arg in args))
    mode = args[1].value if len(args) > 1 else 0
    if not isinstance(mode, int) or not 0 <= mode < 256:
        raise illegal("toDayOfWeek", *(arg.type for arg in args))
    mode &= 3
    days = local_days(args[0].type, any_zone("toDayOfWeek", args, 2))
    from_sunday, from_one = mode in (2, 3), mode in (0, 3)
    shift = 4 if from_sunday else 3
    return Resolved(
        _U8, lambda data, *_: ((days(data).astype(np.int64) + shift) % 7 + from_one).astype(np.uint8), cost=6
    )


@function("toYYYYMMDDhhmmss", 1, 2)
def _yyyymmddhhmmss(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    if not isinstance(args[0].type, (*DATES, *TIMES)):
        raise illegal("toYYYYMMDDhhmmss", *(arg.type for arg in args))
    name = zone_name("toYYYYMMDDhhmmss", args, 1)
    if isinstance(args[0].type, DATES):
        return Resolved(
            t.Int(64, False), lambda data, *_: _yyyymmdd(data).astype(np.uint64) * np.uint64(1000000), cost=15
        )
    seconds = local_seconds(args[0].type, name)

    def kernel(data: Numbers, *_: Numbers) -> Numbers:
        local = seconds(data)
        clock = local % _DAY
        number = clock // 3600 * 10000 + clock // 60 % 60 * 100 + clock % 60
        return np.asarray(_yyyymmdd(local // _DAY).astype(np.int64) * 1000000 + number, np.uint64)

    return Resolved(t.Int(64, False), kernel, cost=20)


def to_date(days: Numbers) -> Numbers:
    """Days as the data of Date, clamped to what it holds."""
    return np.clip(days, 0, 0xFFFF).astype(np.uint16)


def _start(name: str, of_days: Callable[[Numbers], Numbers]) -> None:
    @function(name, 1, 2)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        if not isinstance(args[0].type, (*DATES, *TIMES)):
            raise illegal(name, *(arg.type for arg in args))
        days = local_days(args[0].type, zone_name(name, args, 1))
        return Resolved(t.Date(), lambda data, *_: to_date(of_days(days(data).astype(np.int64))), cost=15)


_start("toStartOfMonth", start_of_month)
_start("toStartOfQuarter", start_of_quarter)
_start("toStartOfYear", start_of_year)
_start("toMonday", monday)
_start("toLastDayOfMonth", _last_day)


@function("toStartOfWeek", 1, 3)
def _start_of_week(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    if not isinstance(args[0].type, (*DATES, *TIMES)):
        raise illegal("toStartOfWeek", *(arg.type for arg in args))
    mode = args[1].value if len(args) > 1 else 0
    if not isinstance(mode, int):
        raise illegal("toStartOfWeek", *(arg.type for arg in args))
    days = local_days(args[0].type, zone_name("toStartOfWeek", args, 2))
    start = monday if mode & 1 else sunday
    return Resolved(t.Date(), lambda data, *_: to_date(start(days(data).astype(np.int64))), cost=6)


@function("toStartOfDay", 1, 2)
def _start_of_day(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    kind = args[0].type
    if not isinstance(kind, (*DATES, *TIMES)):
        raise illegal("toStartOfDay", *(arg.type for arg in args))
    name = zone_name("toStartOfDay", args, 1) or getattr(kind, "timezone", "")
    days, local = local_days(kind, name), zone(name)

    def kernel(data: Numbers, *_: Numbers) -> Numbers:
        midnight = local.start_of_day(days(data))
        return to_stamp(midnight if isinstance(kind, t.DateTime64) else midnight_in_range(midnight))

    return Resolved(t.DateTime(name), kernel, cost=6)


def to_stamp(seconds: Numbers) -> Numbers:
    """UTC seconds as the data of DateTime, clamped to what it holds."""
    return np.clip(seconds, 0, 0xFFFFFFFF).astype(np.uint32)


def start_of_seconds(step: int, name: str) -> Kernel:
    """A kernel from UTC seconds to the UTC start of the local interval of `step` seconds (a divisor of a day)."""
    local = zone(name)

    def kernel(seconds: Numbers) -> Numbers:
        wide = seconds.astype(np.int64)
        offset = local.offset(wide)
        if step <= 60 or (np.asarray(offset) % step == 0).all():
            # An offset that is a multiple of `step` does not change where intervals begin.
            return wide - wide % step
        return wide - (wide + offset) % step

    return kernel


def _start_of_clock(name: str, step: int) -> None:
    @function(name, 1, 2)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        kind = args[0].type
        if not isinstance(kind, TIMES):
            raise illegal(name, *(arg.type for arg in args))
        chosen = zone_name(name, args, 1) or getattr(kind, "timezone", "")
        start = start_of_seconds(step, chosen)
        scale = 10**kind.precision if isinstance(kind, t.DateTime64) else 1
        return Resolved(
            t.DateTime(chosen), lambda data, *_: to_stamp(start(data if scale == 1 else data // scale)), cost=6
        )


_start_of_clock("toStartOfHour", 3600)
_start_of_clock("toStartOfFifteenMinutes", 900)
_start_of_clock("toStartOfTenMinutes", 600)
_start_of_clock("toStartOfFiveMinutes", 300)
_start_of_clock("toStartOfFiveMinute", 300)
_start_of_clock("toStartOfMinute", 60)


@function("toUnixTimestamp", 1, 2)
def _to_unix_timestamp(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    kind = args[0].type
    if isinstance(kind, (t.String, t.FixedString)):
        chosen = args[1:2]
        stamp = environment.call("toDateTime", (args[0].node, *(arg.node for arg in chosen)))
        return Resolved(_U32, node=environment.call("toUInt32", (stamp,)))
    if isinstance(kind, DATES):
        return Resolved(_U32, lambda data, *_: (data.astype(np.int64) * _DAY).astype(np.uint32))
    if isinstance(kind, t.DateTime64):
        return Resolved(_U32, lambda data, *_: _stamp_of(data // 10**kind.precision), can_raise=True)
    if not isinstance(kind, t.DateTime):
        raise illegal("toUnixTimestamp", kind)
    return Resolved(_U32, lambda data, *_: data)


def _stamp_of(seconds: Numbers) -> Numbers:
    if bool(((seconds < 0) | (seconds > 0xFFFFFFFF)).any()):
        raise error("DECIMAL_OVERFLOW", "Convert overflow: a time before 1970 or after 2106 has no Unix timestamp here")
    return seconds.astype(np.uint32)


def _unix64(name: str, digits: int) -> None:
    @function(name, 1)
    def rule(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
        kind = args[0].type
        if not isinstance(kind, t.DateTime64):
            raise illegal(name, kind)
        up, down = 10 ** max(digits - kind.precision, 0), 10 ** max(kind.precision - digits, 0)
        return Resolved(t.Int(64, True), lambda data: np.where(data < 0, -(-data // down), data // down) * up)


for _name, _digits in (("toUnixTimestamp64Second", 0), ("toUnixTimestamp64Milli", 3), ("toUnixTimestamp64Micro", 6),
                       ("toUnixTimestamp64Nano", 9)):  # fmt: skip
    _unix64(_name, _digits)


@function("toTimeZone", 2, aliases=("toTimezone",))
def _to_time_zone(args: tuple[Operand, ...], environment: BindingEnvironment) -> Resolved:
    kind, name = args[0].type, zone_name("toTimeZone", args, 1)
    zone(name)
    if isinstance(kind, t.DateTime64):
        return Resolved(t.DateTime64(kind.precision, name), lambda data, _: data)
    return Resolved(t.DateTime(name), lambda data, _: data)
