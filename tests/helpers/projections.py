"""Random projections and rows for them, and a table of them here and in the oracle."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

COLUMNS = {
    "k": "UInt32", "v": "Int32", "s": "String", "n": "Nullable(Int16)", "lc": "LowCardinality(String)",
    "d": "Date", "f": "Float64", "m": "Decimal(9, 2)", "u": "UInt64", "ns": "Nullable(String)", "t": "DateTime",
    "arr": "Array(UInt8)", "mp": "Map(LowCardinality(String), UInt16)",
}  # fmt: skip
_ORDERS = {
    "v": "= 5", "s": "= 'S7'", "n": "= 3", "lc": "= 'lc1'", "d": "= '2026-02-01'", "f": "= 1.25", "m": "> 40",
    "u": "< 100000000000000000", "v % 7": "= 3", "toYYYYMM(d)": "= 202602", "lower(s)": "= 's7'", "-v": "= 5",
    "ns": "= '3'", "t": "< '2026-01-01 02:00:00'", "cityHash64(s)": "= cityHash64('S7')",
}  # fmt: skip
"""What a normal projection may be ordered by -> a condition that few rows satisfy."""
_KEYS = (
    "v % 7",
    "d",
    "lc",
    "toYYYYMM(d)",
    "n",
    "s",
    "toStartOfHour(t)",
    "ns",
    "v > 3",
    "length(s)",
    "intDiv(v, 10)",
    "m",
)
_AGGREGATES = (
    "count()", "count(*)", "count(n)", "sum(v)", "sum(n)", "sum(u)", "sum(f)", "avg(v)", "avg(n)", "avg(m)", "min(s)",
    "max(s)", "max(ns)", "min(d)", "max(t)", "min(n)", "max(f)", "any(s)", "anyLast(v)", "sum(m)", "groupBitXor(u)",
    "groupBitOr(k)", "sum(v + 1)", "sum(v * 2)", "max(length(s))", "min(v % 5)", "SUM(k)", "sumWithOverflow(v)",
    "max(lc)", "any(lc)", "sumIf(v, k > 100)", "countIf(v > 3)", "avgIf(n, v < 0)", "maxIf(s, v % 3 = 1)",
    "minIf(ns, k % 2 = 0)", "sumIf(n, v > 50)", "countIf(n IS NULL)", "anyIf(s, v = 3)",
)  # fmt: skip
FOREIGN = (
    "uniq(k)", "uniq(lc)", "uniqExact(ns)", "uniqExact(k, s)", "uniqExact(m)", "uniqCombined(u)", "uniqHLL12(d)",
    "uniqIf(k, v > 3)", "uniqExactIf(s, n > 3)", "uniqArray(arr)", "uniqUpTo(3)(lc)", "count(DISTINCT t)",
    "sum(DISTINCT v)", "countDistinct(n)", "quantileExact(v)", "quantileExact(0.3)(m)", "quantilesExact(0.1, 0.9)(t)",
    "medianExact(n)", "quantileExactIf(0.25)(d, v > 0 AND k > 100)", "argMax(s, u)", "argMin(ns, u)", "max_by(lc, u)",
    "argMax((s, m), u)", "argMaxIf(d, u, v % 2 = 0)", "sumOrNull(n)", "sumOrDefaultIf(m, v > 90)",
    "avgOrNull(ns = 'x')",
    "sumMap(mp)", "maxMap(mp)", "sumArray(arr)", "sumForEach(arr)", "groupBitmap(k)", "stddevPop(v)", "VAR_SAMP(n)",
    "groupArraySorted(3)(v)", "sumCount(v)", "max(arr)", "min((v, k))", "sumIf(v, n > 3)", "uniqExact(length(s))",
    "sum(v) FILTER (WHERE n IS NOT NULL)", "minArgMax(v, u)", "groupBitOrArray(arr)",
)  # fmt: skip
"""Aggregate functions whose states ClickHouse makes, with results that do not depend on the order of rows."""
UNCERTAIN = (
    "groupArray(v)", "groupArray(3)(ns)", "groupUniqArray(lc)", "topK(2)(lc)", "topKIf(3)(s, v > 0)", "quantile(f)",
    "quantiles(0.5, 0.99)(n)", "quantileTDigest(f)", "quantileTiming(k)", "anyHeavy(lc)", "median(v)", "any(mp)",
    "anyLast_respect_nulls(n)", "groupConcat(s)", "histogram(3)(f)", "skewSamp(f)", "corr(f, v)", "groupArray(mp)",
    "deltaSumTimestamp(v, k)",
)  # fmt: skip
"""Others."""


def draw_projection(seed: random.Random) -> str:
    """The SELECT of a projection."""
    if seed.random() < 0.5:
        order = seed.sample(list(_ORDERS), seed.randint(1, 2))
        items = ["*"] if seed.random() < 0.3 else seed.sample(list(COLUMNS), seed.randint(1, 5))
        return f"SELECT {', '.join(items)} ORDER BY {', '.join(order)}"
    keys = seed.sample(_KEYS, seed.randint(0, 2))
    known = seed.random() < 0.4
    aggregates = seed.sample(_AGGREGATES, seed.randint(1, 4))
    aggregates += [] if known else seed.sample((*FOREIGN, *UNCERTAIN), seed.randint(1, 5))
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *aggregates])}{grouped}"


def question(projection: str, table: str) -> str:
    """A SELECT that the projection answers, with an order of its own."""
    if "GROUP BY" in projection:
        keys = projection.partition("GROUP BY ")[2]
        items = _certain(projection.partition(" GROUP BY")[0].removeprefix("SELECT "))
        return f"SELECT {items} FROM {table} GROUP BY {keys} ORDER BY ({keys},)"
    if "ORDER BY" in projection:
        items, _, keys = projection.removeprefix("SELECT ").partition(" ORDER BY ")
        first = next(key for key in sorted(_ORDERS, key=len, reverse=True) if keys.startswith(key))
        return f"SELECT {items} FROM {table} WHERE {first} {_ORDERS[first]} ORDER BY ALL"
    return f"SELECT {_certain(projection.removeprefix('SELECT ')) or 'count()'} FROM {table}"


def _certain(items: str) -> str:
    """What is selected, without functions like any(): what they give depends on the order of rows."""
    chosen = re.split(r", (?![^()]*(?:\([^()]*\)[^()]*)*\))", items)
    return ", ".join(item for item in chosen if not item.startswith("any") and item not in UNCERTAIN)


def draw_rows(seed: random.Random, rows: int, low: int = 0) -> str:
    """A SELECT of so many random rows."""
    salt = seed.randint(0, 1 << 30)

    def h(what: int) -> str:
        return f"cityHash64(number, {salt}, {what})"

    values = [
        f"toUInt32({low} + number)", f"toInt32({h(1)} % 200) - 100", f"concat('S', toString({h(2)} % 50))",
        f"if({h(3)} % 4 = 0, NULL, toInt16({h(3)} % 30) - 15)", f"concat('lc', toString({h(4)} % 5))",
        f"toDate('2026-01-01') + {h(5)} % 90", f"toFloat64(toInt32({h(6)} % 1000) - 500) / 4",
        f"toDecimal32(toInt32({h(7)} % 1000) - 500, 2) / 10", f"{h(8)}",
        f"if({h(9)} % 3 = 0, NULL, toString({h(9)} % 9))", f"toDateTime('2026-01-01 00:00:00') + {h(10)} % 100000",
        f"arrayMap(i -> toUInt8(i * {h(11)}), range({h(11)} % 4))",
        f"map('a', toUInt16({h(12)} % 9), concat('b', toString({h(12)} % 3)), toUInt16(number))",
    ]  # fmt: skip
    named = ", ".join(f"{value} AS {name}" for value, name in zip(values, COLUMNS, strict=True))
    return f"SELECT {named} FROM numbers({rows})"


def body(projections: Sequence[str]) -> str:
    """Columns and projections `p0`, `p1`, … of CREATE TABLE."""
    columns = [f"{name} {kind}" for name, kind in COLUMNS.items()]
    return ", ".join([*columns, *(f"PROJECTION p{at} ({text})" for at, text in enumerate(projections))])


def lines(oracle: Any, sql: str) -> list[str]:
    """The rows of a result as text."""
    return str(oracle.query(sql, "TSV")).splitlines()
