# ruff: noqa: E501  (tables read best with one idea a line)
"""Functions of dates over all date types, at the edges of what each holds: ClickHouse's result types and values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.text_write import to_text
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.expr import compile_expression
from tests.helpers.blocks import insert
from tests.helpers.partition_keys import DATE_KEYS, TIME_KEYS

pytestmark = pytest.mark.chdb

_DAYS = [-25559, -25558, -18263, -719, -366, -1, 0, 1, 3, 4, 30, 58, 59, 364, 365, 11016, 18321, 24836, 24837, 24855,
         49708, 49709, 49710, 49711, 65534, 65535, 65536, 65600, 100000, 120163, 120528, 120529]  # fmt: skip
_SECONDS = sorted(
    {day * 86400 + clock for day in _DAYS[:-2] for clock in (-1, 0, 3600 * 5 + 1800, 86399)}
    | {1603587600, 1603591200, 1616893199, 1616893200, 1711846800, 1711846799, 2**31, 2**32 - 1}
)
"""Instants from 1900 to 2299, around midnights and changes of clocks."""
REFUSED = ("43", "46", "48")
"""What is refused here by name, such as a time zone for a Date."""
KINDS = [
    "Date", "Date32", "DateTime", "DateTime('Europe/Berlin')", "DateTime('Asia/Kolkata')", "DateTime('America/New_York')", "DateTime64(0, 'UTC')",
    "DateTime64(3, 'UTC')", "DateTime64(3, 'Europe/Berlin')", "DateTime64(6, 'America/New_York')", "DateTime64(9, 'UTC')",
]  # fmt: skip
MORE = [
    *(f"dateTrunc('{unit}', x)" for unit in ("millisecond", "microsecond", "nanosecond", "Month", "DAY")),
    *(f"toStartOfInterval(x, INTERVAL {count} {unit})" for unit in ("nanosecond", "microsecond", "millisecond", "hour", "day", "week", "month", "year") for count in (2, 7, 100)),
    *(f"x {sign} INTERVAL {count} {unit}" for sign in "+-" for unit in ("second", "hour", "day", "month", "quarter", "year") for count in (1, 13)),
    "toString(x) + INTERVAL 1 DAY", "INTERVAL 1 YEAR + toString(x)", "toString(x) - INTERVAL 3 MICROSECOND", "subtractMonths(toString(x), 1)",
    "x + 40", "x - 40", "x + 0.5", "toInt32(x)", "toUInt16(x)", "toFloat64(x)", "toInt64(x)", "CAST(x AS Date)", "CAST(x AS Date32)", "CAST(x AS DateTime('UTC'))", "CAST(x AS DateTime64(3, 'UTC'))", "toDateTime(x, 'Asia/Tokyo')", "toDateTime64(x, 9)", "toDateTime64(x, 0, 'UTC')",
    "toDayOfWeek(x, 1)", "toStartOfWeek(x, 3)", "toStartOfWeek(x, 9)", "toDayOfWeek(x, 2)", "toDayOfWeek(x, 7)", "toDayOfWeek(x, 256)",
    *(f"{name}(x, {mode})" for name in ("toWeek", "toYearWeek", "toLastDayOfWeek") for mode in (*range(10), 15, 200, 256, -1, "n", "'UTC'")),
    *(f"{name}(x, 3, 'America/New_York')" for name in ("week", "YEARWEEK", "toLastDayOfWeek", "toDayOfWeek")),
    "toWeek(toString(x))", "toYearWeek(toString(x), 3)", "toWeek(x, 0, toString(n))", "toWeek(x, 0, 'nowhere')",
    *(f"toRelative{unit}Num(x{zone})" for unit in ("Hour", "Minute", "Second") for zone in ("", *(f", '{name}'" for name in ("Asia/Tokyo", "Asia/Kathmandu", "Africa/Monrovia", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Kiritimati")))),
    "toRelativeHourNum(x, 5)", "monthName(x)", "monthName(x, 'UTC')", "toMonthNumSinceEpoch(x)", "toYearNumSinceEpoch(x, 'Asia/Tokyo')", "toYear(x, 'Asia/Tokyo')", "toISOWeek(x, 'Asia/Tokyo')", "toYear(x, toString(n))", "toStartOfISOYear(x, 'Asia/Tokyo')",
    "toMillisecond(x)", "toMillisecond(x, 'Asia/Tokyo')", "toStartOfMillisecond(x)", "toStartOfMicrosecond(x, 'Asia/Tokyo')", "toStartOfFiveMinute(x)", "timeSlot(x, 'Asia/Kathmandu')",
    *(f"date_diff('{unit}', toDate32('1950-02-03'), x)" for unit in ("day", "week", "quarter", "year")),
    *(f"x {comparison} {other}" for comparison in ("=", "<", ">=") for other in ("toDate('2000-02-29')", "toDate32('1950-02-03')", "toDateTime('2000-01-01 00:00:00', 'UTC')", "toDateTime64('1960-01-01 00:00:00', 3, 'UTC')", "'2000-01-01'")),
]  # fmt: skip


def values_of(kind: str) -> pa.Array:
    """The instants as values of a type, as far as it holds them."""
    data_type = parse_type(kind)
    storage = storage_type(data_type)
    if kind.startswith("DateTime64"):
        scale = 10 ** int(kind[11])
        limit = 2**63 // scale - 1 if scale == 10**9 else 2**62
        ticks = [s * scale + f for s in _SECONDS if abs(s) < limit for f in {0, scale // 3}]
        return pa.array(ticks, storage)
    if kind.startswith("DateTime"):
        return pa.array([s for s in _SECONDS if 86400 <= s < 2**32], storage)
    return pa.array([d for d in _DAYS if kind == "Date32" or 0 <= d < 65536], storage)


def compared(oracle: Any, kind: str, call: str) -> tuple[Any, Any]:
    """(ours, ClickHouse's): the type and the values as text, or the code of the refusal."""
    x = values_of(kind)
    rows = pa.table({"x": x, "n": pa.array(np.ones(len(x), np.uint8)), "i": pa.array(np.ones(len(x), np.int32))})
    try:
        types = {"x": parse_type(kind), "n": parse_type("UInt8"), "i": parse_type("Int32")}
        compiled = compile_expression(call, types)
        mine: Any = (
            str(compiled.type),
            [v.decode() for v in to_text(compiled.evaluate(rows), compiled.type).to_pylist()],
        )
    except MergelakeError as problem:
        mine = str(problem.code)
    try:
        lines = str(oracle.query(f"SELECT toTypeName({call}), toString({call}) FROM date_rows ORDER BY row", "TSVRaw"))
        pairs = [line.split("\t") for line in lines.splitlines()]
        theirs: Any = (pairs[0][0], [value for _, value in pairs])
    except RuntimeError as problem:
        theirs = str(problem)[6:].split(".")[0]
    return mine, theirs


@pytest.mark.parametrize("kind", KINDS)
def test_date_functions_have_clickhouses_types_and_values(oracle: Any, tmp_path: Path, kind: str) -> None:
    fill(oracle, kind, tmp_path)
    wrong = []
    for call in dict.fromkeys([*DATE_KEYS, *TIME_KEYS, *MORE]):
        mine, theirs = compared(oracle, kind, call)
        if mine != theirs and mine not in REFUSED and not (isinstance(mine, str) and isinstance(theirs, str)):
            wrong.append((call, mine, theirs))
    oracle.query("DROP TABLE date_rows")
    assert not wrong


def fill(oracle: Any, kind: str, folder: Path) -> None:
    """The rows as a table of ClickHouse's."""
    x = values_of(kind)
    count = len(x)
    rows = {
        "row": pa.array(np.arange(count, dtype=np.uint32)),
        "x": x,
        "n": pa.array(np.ones(count, np.uint8)),
        "i": pa.array(np.ones(count, np.int32)),
    }
    types = {"row": parse_type("UInt32"), "x": parse_type(kind), "n": parse_type("UInt8"), "i": parse_type("Int32")}
    oracle.query("DROP TABLE IF EXISTS date_rows")
    oracle.query(f"CREATE TABLE date_rows (row UInt32, x {kind}, n UInt8, i Int32) ENGINE = Memory")
    insert(oracle, "date_rows", pa.table(rows), types, folder)
