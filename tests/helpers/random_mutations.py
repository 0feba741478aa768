"""Random tables with random inserts, updates and deletes, and SELECTs over them; each has one text for both sides."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

TYPES: dict[str, tuple[str, str, list[str]]] = {
    "i": ("Int32", "toInt32(cityHash64(r, 1) % 200) - 100", ["i + 1", "-i", "i * k", "toInt32(u)", "7", "length(s)"]),
    "u": ("UInt8", "cityHash64(r, 2) % 256", ["u + 1", "250", "k % 7", "toUInt8(abs(i) % 9)", "length(a)"]),
    "w": ("UInt64", "cityHash64(r, 3)", ["w + 1", "cityHash64(k)", "k * k", "0"]),
    "f": ("Float64", "toInt32(cityHash64(r, 4) % 2000) / 8", ["f / 2", "-f", "i", "0.5", "f * f"]),
    "s": ("String", "['', 'a', 'bb', 'ant', 'bee', 'dö'][1 + cityHash64(r, 5) % 6]",
          ["concat(s, '!')", "upper(s)", "toString(i)", "'it''s\\n'", "c", "substring(s, 2)", "''"]),
    "c": ("LowCardinality(String)", "['info', 'warn', 'error', ''][1 + cityHash64(r, 6) % 4]",
          ["'fatal'", "concat(c, '_')", "s", "lower(s)", "''", "toString(k % 3)"]),
    "n": ("Nullable(Int32)", "if(r % 3, toInt32(cityHash64(r, 7) % 100), NULL)",
          ["NULL", "n + 1", "i", "ifNull(n, 5)", "if(k % 2 = 0, n, i)", "nullIf(n, 3)"]),
    "o": ("LowCardinality(Nullable(String))", "if(r % 4, ['x', 'y', ''][1 + r % 3], NULL)",
          ["NULL", "'z'", "s", "concat(o, 'o')", "c"]),
    "q": ("Nullable(String)", "if(r % 5, toString(r % 11), NULL)", ["NULL", "s", "concat(q, 'q')", "toString(n)"]),
    "a": ("Array(Int16)", "range(r % 4)::Array(Int16)",
          ["[]", "[1, 2]", "arrayMap(x -> x + 1, a)", "arrayConcat(a, [7])", "reverse(a)"]),
    "x": ("Array(LowCardinality(String))", "arrayMap(y -> toString(y % 3), range(r % 3))", ["['l']", "x", "[]"]),
    "t": ("Tuple(l Int32, m String)", "(toInt32(r % 9), toString(r % 5))", ["(1, 'one')", "tuple(i, s)", "t"]),
    "m": ("Map(String, UInt8)", "map('a', r % 7, toString(r % 3), 1)", ["map('b', 2)", "m", "map()"]),
    "d": ("Date", "toDate('2026-01-01') + r % 400", ["toDate('2026-05-05')", "addDays(d, 31)", "d + 1"]),
    "h": ("DateTime('UTC')", "toDateTime('2026-01-01 00:00:00', 'UTC') + r * 977", ["h + 60", "toStartOfHour(h)"]),
    "y": ("DateTime64(3, 'UTC')", "toDateTime64('2026-01-01 00:00:00', 3, 'UTC') + r / 8", ["y", "toDateTime64(h, 3)"]),
    "e": ("Decimal(12, 3)", "toDecimal64(r % 100, 3) / 8", ["e + 1", "0", "e"]),
    "g": ("FixedString(4)", "toFixedString(toString(r % 1000), 4)", ["'abcd'", "g", "toFixedString(toString(u), 4)"]),
    "j": ("Enum8('red' = 1, 'green' = 2, 'blue' = -3)", "['red', 'green', 'blue'][1 + r % 3]", ["'blue'", "j", "1"]),
    "b": ("Bool", "r % 2 = 0", ["NOT b", "true", "i > 0"]),
    "z": ("JSON", "concat('{\"a\": ', toString(r % 6), ', \"b\": {\"c\": \"', toString(r % 4), '\"}}')::JSON", ["z"]),
}  # fmt: skip
"""Name of a column -> type, values of the row `r`, values for updates."""
CONDITIONS: dict[str, list[str]] = {
    "k": ["k % 3 = 0", "k < 40", "k > 60", "k = 17", "k IN (1, 5, 9, 30)", "k BETWEEN 20 AND 50"],
    "r": ["r % 5 = 1", "r < 1000100"],
    "p": ["p = 1", "p != 2"],
    "i": ["i > 0", "i BETWEEN -20 AND 20", "i = 7"],
    "u": ["u > 200", "u = 250", "u"],
    "w": ["w % 2 = 0"],
    "f": ["f > 50", "f < 0"],
    "s": ["s = 'ant'", "s LIKE '%!'", "s.size = 3", "s = ''", "length(s) > 2", "s IN ('a', 'dö')"],
    "c": ["c = 'error'", "c IN ('info', 'fatal')", "c != ''", "c LIKE '%a%'"],
    "n": ["n > 10", "n IS NULL", "n", "n = 5", "n != 3", "n.null"],
    "o": ["o = 'x'", "o IS NOT NULL", "o != 'z'"],
    "q": ["q = '3'", "q IS NULL"],
    "a": ["has(a, 1)", "empty(a)", "a.size0 = 3", "length(a) > 1"],
    "x": ["has(x, '1')", "notEmpty(x)"],
    "t": ["t.1 > 3", "t.l = 1", "t.m = '2'"],
    "m": ["m['a'] > 2", "mapContains(m, 'b')"],
    "d": ["d > '2026-03-01'", "toMonth(d) = 5"],
    "h": ["h > '2026-01-01 05:00:00'", "toHour(h) = 3"],
    "y": ["y > toDateTime64('2026-01-01 00:00:20', 3, 'UTC')"],
    "e": ["e > 5", "e = 1"],
    "g": ["g = 'abcd'", "g < '5'"],
    "j": ["j = 'blue'", "j != 'red'"],
    "b": ["b", "NOT b"],
    "z": ["z.a.:Int64 > 2", "z.b.c.:String = '1'"],
    "mt": ["mt > 10", "mt = 3"],
    "al": ["al > 10"],
}
THROWING = {
    "i": ["intDiv(100, k % 4)", "toInt32(s)"],
    "u": ["toUInt8(q)", "toUInt8(s)"],
    "s": ["toString(toDate(s))"],
}
"""Values that fail for some rows."""
SUBCOLUMNS = {
    "n": ["n.null"], "q": ["q.null"], "a": ["a.size0"], "t": ["t.l", "t.m", "t.1"], "s": ["s.size"],
    "m": ["m.keys", "m.values", "m.size0"], "z": ["z.a.:Int64", "z.b.c.:String"],
}  # fmt: skip
INDEXES = {
    "i": "minmax", "u": "set(10)", "s": "bloom_filter", "c": "set(0)", "n": "minmax", "f": "minmax", "d": "minmax",
    "q": "bloom_filter",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Op:
    """A change: `text` for ClickHouse, `ours` for `Table.update` or `Table.delete`; an insert is only a text."""

    text: str
    ours: tuple[dict[str, str], str, str | None] | None = None


class RandomTable:
    """Draws a table, changes of it, and SELECTs."""

    def __init__(self, rng: random.Random, name: str, *, throws: bool = False) -> None:
        self.rng, self.name, self.throws = rng, name, throws
        self.columns = sorted(rng.sample(sorted(TYPES), rng.randrange(3, 9)))
        for needed in ("i", "s"):
            if needed not in self.columns:
                self.columns.append(needed)
        self.engine = rng.choice(["MergeTree", "MergeTree", "ReplacingMergeTree(ver)", "ReplacingMergeTree(ver, del)"])
        self.partitioned = rng.random() < 0.5
        self.materialized = rng.random() < 0.4
        self.alias = rng.random() < 0.3
        self.inserts = 0

    @property
    def replacing(self) -> bool:
        """Whether FINAL is possible."""
        return self.engine.startswith("Replacing")

    def create(self) -> str:
        """CREATE TABLE without settings."""
        rng = self.rng
        lines = ["k UInt32", "r UInt64", "p UInt8", "ver UInt32", "del UInt8"]
        lines += [f"{name} {TYPES[name][0]}" for name in self.columns]
        if self.materialized:
            lines.append(f"mt Int64 MATERIALIZED {rng.choice(['i * 2', 'i + length(s)', 'length(s)', 'k + 1'])}")
        if self.alias:
            lines.append("al Int64 ALIAS i * 3 + length(s)")
        lines += [
            f"INDEX x{name} {name} TYPE {kind} GRANULARITY 1"
            for name, kind in INDEXES.items()
            if name in self.columns and rng.random() < 0.4
        ]
        partition = "PARTITION BY p % 3" if self.partitioned else ""
        key = rng.choice(["k", "(k, p)", "(p, k)", "(k, r)"]) if not self.replacing else "k"
        sample = " SAMPLE BY k" if key.startswith(("k", "(k")) and rng.random() < 0.3 else ""
        self.sampled = bool(sample)
        return (
            f"CREATE TABLE {self.name} ({', '.join(lines)}) ENGINE = {self.engine} {partition} ORDER BY {key}{sample}"
        )

    def insert(self) -> Op:
        """Some rows: `r` is unique in the table."""
        rng = self.rng
        self.inserts += 1
        first = 1_000_000 + self.inserts * 100_000
        rows = rng.choice([1, 7, 60, 150, 400, 900, 20_000])
        names = ["k", "r", "p", "ver", "del", *self.columns]
        values = [
            "toUInt32(cityHash64(r) % 100)",
            "r",
            "r % 4",
            "r % 3",
            "r % 11 = 0",
            *(TYPES[c][1] for c in self.columns),
        ]
        texts = ", ".join(f"{value} AS c{at}" for at, value in enumerate(values))
        return Op(
            f"INSERT INTO {self.name} ({', '.join(names)}) SELECT {texts} "
            f"FROM (SELECT number + {first} AS r FROM numbers({rows}))"
        )

    def condition(self, depth: int = 1, *, query: bool = False) -> str:
        """A condition over columns of the table."""
        rng = self.rng
        pick = rng.random()
        if depth and pick < 0.35:
            word = rng.choice([" AND ", " OR "])
            return word.join(f"({self.condition(depth - 1, query=query)})" for _ in range(2))
        if depth and pick < 0.42:
            return f"NOT ({self.condition(depth - 1, query=query)})"
        names = ["k", "k", "r", *self.columns] + ["p"] * self.partitioned
        names += ["mt"] * self.materialized + ["al"] * self.alias
        return rng.choice(CONDITIONS[rng.choice(names)])

    def change(self) -> Op:
        """An UPDATE or a DELETE."""
        rng = self.rng
        where = self.condition()
        partition = str(rng.randrange(3)) if self.partitioned and rng.random() < 0.25 else None
        inside = f" IN PARTITION ID '{partition}'" if partition is not None else ""
        if rng.random() < 0.3:
            if partition is None and rng.random() < 0.5:
                return Op(f"DELETE FROM {self.name} WHERE {where}", ({}, where, None))
            return Op(f"ALTER TABLE {self.name} DELETE{inside} WHERE {where}", ({}, where, partition))
        sets: dict[str, str] = {}
        for name in rng.sample(self.columns, rng.choice([1, 1, 2, 3])):
            values = TYPES[name][2]
            if self.throws and name in THROWING and rng.random() < 0.5:
                values = THROWING[name]
            value = rng.choice(values)
            if self._known(value):
                sets[name] = value
        if not sets:
            sets = {"i": "i + 1"}
        text = ", ".join(f"{name} = {value}" for name, value in sets.items())
        return Op(f"ALTER TABLE {self.name} UPDATE {text}{inside} WHERE {where}", (sets, where, partition))

    def _known(self, value: str) -> bool:
        names = set(re.findall(r"\b[a-z]\b", re.sub(r"'[^']*'", "", value))) - {"k"}
        if "x ->" in value:
            names.discard("x")
        return names <= set(self.columns)

    # -- SELECTs -------------------------------------------------------------------------------

    def select(self, other: RandomTable | None = None) -> str:
        """A SELECT whose rows and order are determined by the rows of the table."""
        rng = self.rng
        forms = [
            self._star, self._plain, self._plain, self._plain, self._grouped, self._grouped, self._counted, self._ends,
            self._limited, self._lazily, self._limit_by, self._window, self._distinct, self._in_order, self._reversed,
        ]  # fmt: skip
        if other is not None:
            forms += [lambda: self._joined(other), lambda: self._within(other)]
        return rng.choice(forms)()

    def _source(self) -> str:
        final = " FINAL" if self.replacing and self.rng.random() < 0.5 else ""
        sample = (
            f" SAMPLE {self.rng.choice(['1/2', '0.2', '1/3 OFFSET 1/3'])}"
            if self.sampled and self.rng.random() < 0.2
            else ""
        )
        return f"{self.name}{final}{sample}"

    def _from(self) -> str:
        return f"{self._source()} {self._where()}"

    def _where(self) -> str:
        rng = self.rng
        pick = rng.random()
        if pick < 0.3:
            return ""
        word = "PREWHERE" if pick < 0.45 else "WHERE"
        text = f"{word} {self.condition(query=True)}"
        return f"{text} WHERE {self.condition(query=True)}" if word == "PREWHERE" and rng.random() < 0.3 else text

    def value(self) -> str:
        """A column, a subcolumn or an expression."""
        rng = self.rng
        name = rng.choice([*self.columns, *self.columns, "k", *(["mt"] * self.materialized), *(["al"] * self.alias)])
        if name in SUBCOLUMNS and (name == "z" or rng.random() < 0.4):
            return rng.choice(SUBCOLUMNS[name])
        return name

    def _values(self, least: int = 1, most: int = 4) -> list[str]:
        return list(dict.fromkeys(self.value() for _ in range(self.rng.randrange(least, most))))

    def _star(self) -> str:
        return f"SELECT * FROM {self._from()} ORDER BY r"

    def _plain(self) -> str:
        return f"SELECT r, {', '.join(self._values())} FROM {self._from()} ORDER BY r"

    def _grouped(self) -> str:
        value, inner = self.value(), self.value()
        aggregates = self.rng.sample(
            ["count()", "uniqExact(r)", f"min({inner})", f"max({inner})", "sum(r)", "sum(k)"], 2
        )
        return f"SELECT {value} AS g, {', '.join(aggregates)} FROM {self._from()} GROUP BY g ORDER BY ALL"

    def _counted(self) -> str:
        return f"SELECT count() FROM {self._from()}"

    def _ends(self) -> str:
        some = self.rng.sample(["count()", "min(k)", "max(k)", "min(p)", "max(p)", "count(k)", "any(1)"], 3)
        where = self.rng.choice(["", f"WHERE {self.rng.choice(CONDITIONS['k'])}", "WHERE p > 0"])
        return f"SELECT {', '.join(some)} FROM {self._source()} {where}"

    def _limited(self) -> str:
        return f"{self._plain()} LIMIT {self.rng.randrange(1, 20)}"

    def _lazily(self) -> str:
        by = self.rng.choice([c for c in self.columns if c not in ("t", "m", "a", "x", "z")])
        up = self.rng.choice(["", " DESC"])
        return f"SELECT * FROM {self._from()} ORDER BY {by}{up}, r LIMIT {self.rng.randrange(1, 9)}"

    def _limit_by(self) -> str:
        return f"SELECT {self.value()} AS g, r FROM {self._from()} ORDER BY r LIMIT 1 BY g"

    def _window(self) -> str:
        value = self.value()
        return f"SELECT r, sum(k) OVER (PARTITION BY {value} ORDER BY r) FROM {self._from()} ORDER BY r"

    def _distinct(self) -> str:
        return f"SELECT DISTINCT {', '.join(self._values())} FROM {self._from()} ORDER BY ALL"

    def _in_order(self) -> str:
        return f"SELECT k FROM {self._from()} ORDER BY k LIMIT {self.rng.randrange(1, 50)}"

    def _reversed(self) -> str:
        return f"SELECT k, count() FROM {self._from()} GROUP BY k ORDER BY k DESC LIMIT 10"

    def _joined(self, other: RandomTable) -> str:
        mine, theirs = self.rng.choice(["i", "s", "k"]), self.rng.choice(["i", "s", "k"])
        kind = self.rng.choice(["INNER", "LEFT", "LEFT SEMI", "LEFT ANTI", "FULL"])
        if ({mine, theirs} & {"s"}) and mine != theirs:
            mine = theirs = "s"
        return (
            f"SELECT count(), sum(l.r), max(l.s) FROM {self.name} AS l {kind} JOIN {other.name} AS o "
            f"ON l.{mine} = o.{theirs} WHERE l.k < 30"
        )

    def _within(self, other: RandomTable) -> str:
        column = self.rng.choice(["i", "s", "k"])
        inside = f"SELECT {column} FROM {other._source()} {other._where()}"
        return f"SELECT count(), sum(r) FROM {self._source()} WHERE {column} IN ({inside})"
