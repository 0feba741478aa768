"""Random SELECTs over three tables: plain columns, semi-structured ones, and a ReplacingMergeTree."""

from __future__ import annotations

import random

E = """CREATE TABLE e (k UInt64, p Int8, s LowCardinality(String), t DateTime('UTC'), n Nullable(Int32), a Array(Int16),
m Map(String, UInt8), d Decimal(12, 3), u UInt16 MATERIALIZED k % 11, INDEX si s TYPE set(10) GRANULARITY 1)
ENGINE = MergeTree PARTITION BY p % 3 ORDER BY (k, s) SAMPLE BY k SETTINGS index_granularity = 64"""
J = """CREATE TABLE j (k UInt64, j JSON, y Dynamic, v Variant(Array(UInt8), String, UInt64),
q JSON(a Int64, z.b String))
ENGINE = MergeTree ORDER BY k SETTINGS index_granularity = 32"""
R = """CREATE TABLE r (k UInt64, ver UInt32, w String, x Int64) ENGINE = ReplacingMergeTree(ver) PARTITION BY k % 2
ORDER BY k SETTINGS index_granularity = 64"""
TABLES = (E, J, R)


def inserts(rng: random.Random, each: int = 4) -> list[str]:
    """Statements that fill the tables, so many for each, the same rows wherever they run."""
    out = []
    for _ in range(each):
        low, rows = rng.randrange(500), rng.randrange(20, 300)
        out.append(
            f"INSERT INTO e (k, p, s, t, n, a, m, d) SELECT (number * 7919 + {low}) % 5000, "
            f"toInt8(number % 9 - 4), ['ant', 'bee', 'cat', '', 'dö'][1 + (number + {low}) % 5], "
            f"toDateTime('2026-01-01 00:00:00', 'UTC') + number * 977, if(number % 4, toInt32(number) - 50, NULL), "
            "range(number % 4)::Array(Int16), map('a', number % 7, toString(number % 3), 1), "
            f"toDecimal64(number, 3) / 8 FROM numbers({rows})"
        )
        out.append(
            f'INSERT INTO j SELECT number + {low}, concat(\'{{"a": \', toString(number % 6), \', "b": {{"c": "\', '
            "if(number % 2, 'x', 'y'), '\"}', if(number % 3, ', \"d\": [1, 2.5, \"z\"]', ''), '}')::JSON, "
            "multiIf(number % 4 = 0, CAST(number, 'Dynamic'), "
            "number % 4 = 1, CAST(toString(number), 'Dynamic'), "
            "number % 4 = 2, CAST([number, 1], 'Dynamic'), CAST(NULL, 'Dynamic')), "
            "multiIf(number % 3 = 0, CAST(number, 'Variant(Array(UInt8), String, UInt64)'), number % 3 = 1, "
            "CAST(toString(number), 'Variant(Array(UInt8), String, UInt64)'), "
            "CAST(NULL, 'Variant(Array(UInt8), String, UInt64)')), "
            'concat(\'{"a": \', toString(number), \', "z": {"b": "\', toString(number % 5), \'"}, "e": true}\')'
            f"::JSON(a Int64, z.b String) FROM numbers({rng.randrange(10, 120)})"
        )
        out.append(
            f"INSERT INTO r SELECT (number * 31 + {low}) % 200, {rng.randrange(5)}, hex(number % 9), number - 20 "
            f"FROM numbers({rng.randrange(20, 200)})"
        )
    return out


_VALUES = {
    "e": [
        "k", "p", "s", "toHour({}t)", "n", "length({}a)", "{}m['a']", "d", "u", "k % 10", "toYYYYMM({}t)", "upper({}s)",
        "n + 1", "arraySum({}a)", "intDiv({}k, 100)", "coalesce({}n, -1)", "cityHash64({}k, {}s) % 17",
    ],
    "j": [
        "j.a.:Int64", "j.b.c.:String", "toString({}j)", "dynamicType({}y)", "y.Int64", "variantType({}v)", "v.UInt64",
        "v.String", "k % 10", "length(JSONAllPaths({}j))", "toString({}y)", "q.a", "q.z.b", "q.a % 3", "j.^b",
        "isNull({}v)", "toString({}j.d)", "variantElement({}v, 'String')",
    ],
    "r": ["k", "ver", "w", "x", "k % 7", "length({}w)", "x * 2", "k % 2"],
}  # fmt: skip
_CONDITIONS = {
    "e": [
        "k < 1000", "k BETWEEN 700 AND 1900", "p % 3 = 1", "p < 0", "s = 'bee'", "s IN ('ant', '')", "n IS NULL",
        "n > 10", "has({}a, 2)", "{}m['a'] = 3", "d > 10.5", "t >= '2026-01-01 05:00:00'", "s LIKE '%a%'", "u = 3",
        "NOT (k > 100 OR p = 0)", "k = 7919 % 5000",
    ],
    "j": [
        "j.a.:Int64 > 2", "j.b.c.:String = 'x'", "isNotNull({}y.Int64)", "v.UInt64 > 10", "q.a < 30", "k < 400",
        "dynamicType({}y) = 'String'", "has(JSONAllPaths({}j), 'd')",
    ],
    "r": ["k < 100", "k % 2 = 1", "ver > 1", "w != '0'", "x BETWEEN 0 AND 50"],
}  # fmt: skip
_AGGREGATES = (
    "count()", "min({})", "max({})", "uniqExact({})", "any(1)", "countIf({} IS NOT NULL)", "groupUniqArray(3)(1)",
    "arraySort(groupUniqArray({}))",
)  # fmt: skip


class Selects:
    """Draws statements; each orders all of its rows."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def statement(self) -> str:
        """One SELECT."""
        pick = self.rng.random()
        if pick < 0.12:
            return self.union()
        if pick < 0.27:
            return self.joined()
        if pick < 0.37:
            inner = self.plain(alias=True)
            return f"WITH c AS ({inner}) SELECT count(), uniqExact(x0), max(x1) FROM c"
        if pick < 0.47:
            table = self.table()
            window = f"sum(1) OVER (PARTITION BY {self.value(table)} ORDER BY k, {self._tie(table)})"
            return f"SELECT k, {window} AS w FROM {table} {self.where(table)} ORDER BY ALL"
        if pick < 0.55:
            return f"{self.grouped(extra='WITH TOTALS' if pick < 0.5 else '')} ORDER BY ALL"
        if pick < 0.75:
            return f"{self.grouped()} ORDER BY ALL"
        return f"{self.plain()} ORDER BY ALL{self.limit()}"

    def _tie(self, table: str) -> str:
        return {"e": "s, t, n, d", "j": "toString(j), toString(y)", "r": "ver, w, x"}[table]

    def table(self) -> str:
        return self.rng.choice(["e", "e", "j", "r"])

    def value(self, table: str, alias: str = "") -> str:
        return _named(self.rng.choice(_VALUES[table]), alias)

    def where(self, table: str, alias: str = "") -> str:
        chosen = [_named(self.rng.choice(_CONDITIONS[table]), alias) for _ in range(self.rng.randrange(3))]
        if not chosen:
            return ""
        word = "PREWHERE" if not alias and self.rng.random() < 0.2 else "WHERE"
        return f"{word} {self.rng.choice([' AND ', ' OR ']).join(f'({each})' for each in chosen)}"

    def source(self, table: str) -> str:
        if table == "r" and self.rng.random() < 0.6:
            return "r FINAL"
        if table == "e" and self.rng.random() < 0.15:
            return f"e SAMPLE {self.rng.choice(['1/2', '0.1', '1/3 OFFSET 1/3'])}"
        return table

    def plain(self, *, alias: bool = False) -> str:
        table = self.table()
        columns = [f"{self.value(table)} AS x{number}" for number in range(2)]
        if not alias and self.rng.random() < 0.15:
            columns = ["*"] if table != "j" else ["k", "q"]
        distinct = "DISTINCT " if self.rng.random() < 0.2 else ""
        source = self.source(table)
        where = self.where(table)
        return f"SELECT {distinct}{', '.join(columns)} FROM {source} {where}"

    def grouped(self, extra: str = "") -> str:
        table = self.table()
        source, where = self.source(table), self.where(table)
        key = self.value(table)
        found = [self.rng.choice(_AGGREGATES).format(self.value(table)) for _ in range(2)]
        having = " HAVING count() > 1" if self.rng.random() < 0.2 else ""
        return f"SELECT {key} AS g, {', '.join(found)} FROM {source} {where} GROUP BY g {extra}{having}"

    def body(self) -> str:
        table = self.table()
        return f"SELECT toString({self.value(table)}) AS a, count() AS b FROM {table} {self.where(table)} GROUP BY a"

    def union(self) -> str:
        return f"SELECT a, sum(b) FROM ({self.body()} UNION ALL {self.body()}) GROUP BY a ORDER BY ALL"

    def joined(self) -> str:
        kind = self.rng.choice(["INNER JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
        left, right = self.table(), self.table()
        if self.rng.random() < 0.4:
            inside = f"SELECT k FROM {right} {self.where(right)}"
            return f"SELECT {self.value(left)} AS g, count() FROM {left} WHERE k IN ({inside}) GROUP BY g ORDER BY ALL"
        mine = "l.k, " + self.value(left, "l")
        return (
            f"SELECT {mine} AS y, count() FROM {left} AS l {kind} {right} AS x ON l.k = x.k {self.where(left, 'l')} "
            f"GROUP BY ALL ORDER BY ALL{self.limit()}"
        )

    def limit(self) -> str:
        return f" LIMIT {self.rng.randrange(1, 40)}" if self.rng.random() < 0.3 else ""


def _named(text: str, alias: str) -> str:
    """An expression whose columns belong to `alias`."""
    if "{}" in text:
        return text.replace("{}", f"{alias}." if alias else "")
    return f"{alias}.{text}" if alias and text[0].isalpha() and not text.startswith(("NOT", "toS")) else text
