"""Draws the statements of a sequence from the columns that the tables have."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mergelake.core.text import quote_string
from tests.helpers.mutations.kinds import LITERALS

PLAIN = (
    "UInt8", "Int16", "Int32", "UInt64", "Int64", "Float64", "Decimal(9, 2)", "String", "FixedString(3)", "Date",
    "DateTime('UTC')", "Enum8('a' = -1, 'b' = 0, 'c' = 7)", "Nullable(Int32)", "Nullable(String)", "Array(Int32)",
    "LowCardinality(String)", "Tuple(x Int32, y Nullable(String))", "Map(String, UInt8)", "Bool", "UUID",
)  # fmt: skip
CHANGES: Mapping[str, tuple[str, ...]] = {
    "UInt8": ("UInt16", "Int32", "UInt64", "String", "Nullable(UInt8)", "Float64"),
    "Int16": ("Int32", "Int64", "String", "UInt8", "Nullable(Int16)"),
    "Int32": ("Int64", "String", "Nullable(Int32)", "UInt8", "Decimal(18, 4)"),
    "UInt64": ("String", "Int64", "Nullable(UInt64)", "UInt8"),
    "Int64": ("String", "Int32", "Nullable(Int64)"),
    "Float64": ("String", "Int32", "Float32"),
    "Decimal(9, 2)": ("Decimal(18, 4)", "String", "Float64"),
    "String": ("LowCardinality(String)", "Nullable(String)", "UInt32", "Date", "FixedString(5)"),
    "FixedString(3)": ("String", "FixedString(5)", "FixedString(2)"),
    "Date": ("Date32", "DateTime('UTC')", "String", "UInt16"),
    "DateTime('UTC')": ("DateTime64(3, 'UTC')", "String", "UInt32", "Date"),
    "Enum8('a' = -1, 'b' = 0, 'c' = 7)": ("Enum8('a' = -1, 'b' = 0, 'c' = 7, 'd' = 9)", "String", "Int8", "Int16"),
    "Nullable(Int32)": ("Int32", "Nullable(Int64)", "Nullable(String)"),
    "Nullable(String)": ("String", "LowCardinality(Nullable(String))"),
    "LowCardinality(String)": ("String", "LowCardinality(Nullable(String))"),
    "Array(Int32)": ("Array(Int64)", "Array(String)", "String"),
    "Bool": ("UInt8", "String"),
    "UUID": ("String",),
}
"""What the type of a column is changed to; some values cannot be."""
PARTITIONS = ("", "p", "k % 3", "(p, k > 0)", "toString(p)", "-p")
NAMES = ("a", "b", "c", "d", "e", "f")


@dataclass(frozen=True)
class Shown:
    """A column as DESCRIBE shows it."""

    name: str
    type: str
    default_kind: str = ""
    default: str = ""

    @property
    def is_key(self) -> bool:
        """Whether it is one of those that are never altered."""
        return self.name in ("p", "k", "s")

    @property
    def is_readable(self) -> bool:
        """Whether a SELECT may name it."""
        return self.default_kind != "EPHEMERAL"


@dataclass
class Drawing:
    """Draws statement after statement."""

    rng: random.Random
    features: frozenset[str]
    """Kinds of statements that are drawn beside the basic ones: `constraints`, `moves`, …"""
    detached: set[str] = field(default_factory=set)
    """Tables with detached parts: those of ClickHouse's match columns by name, so nothing is altered meanwhile."""
    lacking: set[str] = field(default_factory=set)
    """Names of columns that parts may lack, by ADD or CLEAR. They have the default of the newest type there, and where
    a merge has written them that of the type of then, converted: here any merge does, in ClickHouse some."""
    rows: int = 0
    combined: bool = False
    """Whether a statement had a second command already: one is enough, so that no statement has two mistakes."""

    def creations(self) -> list[str]:
        """Both tables."""
        rng = self.rng
        columns = ["p Int8", "k Int32", "s String"]
        columns += [f"{name} {rng.choice(PLAIN)}" for name in NAMES[: rng.randrange(1, 4)]]
        key = rng.choice(PARTITIONS)
        order = rng.choice(("(k, s)", "k", "(s, k)", "(k % 4, s)", "tuple()", "(p, k)"))
        settings = [f"index_granularity = {rng.choice((4, 8192))}", "min_bytes_for_wide_part = 0"]
        if rng.random() < 0.3:
            settings.pop()
        tail = f"ENGINE = MergeTree{f' PARTITION BY {key}' if key else ''} ORDER BY {order}"
        return [f"CREATE TABLE {t} ({', '.join(columns)}) {tail} SETTINGS {', '.join(settings)}" for t in ("t", "u")]

    def statements(self, tables: Mapping[str, Sequence[Shown]], partitions: Mapping[str, Sequence[str]]) -> list[str]:
        """One statement, or a few that belong together. `partitions`: ids of those with parts, by table."""
        rng = self.rng
        table = rng.choice(("t", "t", "u"))
        columns, ids = tables[table], partitions[table]
        kinds = [self._insert] * 5 + [self._update] * 2 + [self._delete, self._optimize]
        if not self.detached:
            kinds += [self._alter] * 8
        if "partitions" in self.features:
            kinds += [self._partition] * (8 if table in self.detached else 2)
        if "moves" in self.features and not self.detached:
            kinds += [self._move] * 3
        return rng.choice(kinds)(table, columns, ids)

    # -- rows

    def _insert(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        rng = self.rng
        given = [c for c in columns if c.default_kind not in ("MATERIALIZED", "ALIAS")]
        given = [c for c in given if c.is_key or not c.default_kind or rng.random() < 0.5]
        given = [c for c in given if c.is_key or rng.random() < 0.9]
        count = rng.choice((1, 2, 7, 30)) if self.rows < 600 else 1
        self.rows += count
        names = ", ".join(c.name for c in given)
        if count <= 7:
            rows = (f"({', '.join(self._literal(c) for c in given)})" for _ in range(count))
            return [f"INSERT INTO {table} ({names}) VALUES {', '.join(rows)}"]
        return [f"INSERT INTO {table} ({names}) SELECT {', '.join(map(self._varied, given))} FROM numbers({count})"]

    def _literal(self, column: Shown) -> str:
        return self.rng.choice(literals(column))

    def _varied(self, column: Shown) -> str:
        pool = literals(column)
        chosen = self.rng.sample(pool, self.rng.randrange(1, len(pool) + 1))
        at = f"1 + cityHash64(number, {self.rng.randrange(99)}) % {len(chosen)}"
        return f"CAST([{', '.join(chosen)}] AS Array({column.type}))[{at}]"

    def _condition(self) -> str:
        rng = self.rng
        return rng.choice(
            (f"k = {rng.choice((-3, 0, 1, 2, 7))}", f"p > {rng.randrange(-2, 3)}", "s = 'a'", "k % 2 = 1")
        )

    def _update(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        free = [c for c in columns if not c.is_key and c.default_kind in ("", "DEFAULT")]
        if not free:
            return self._delete(table, columns, ids)
        column = self.rng.choice(free)
        value = f"CAST({self._literal(column)} AS {column.type})"
        return [f"ALTER TABLE {table} UPDATE {column.name} = {value} WHERE {self._condition()}"]

    def _delete(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        condition = f"{self._condition()} AND k > {self.rng.randrange(-3, 4)}"
        form = self.rng.choice(("ALTER TABLE {} DELETE WHERE {}", "DELETE FROM {} WHERE {}"))
        return [form.format(table, condition)]

    def _optimize(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        return [f"OPTIMIZE TABLE {table} FINAL"]

    # -- columns

    def _alter(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        rng = self.rng
        draws = [self._add, self._add, self._drop, self._rename, self._rename, self._modify, self._comment, self._clear]
        draws += [self._default, self._wrong]
        for feature, draw in (("constraints", self._constraint), ("indexes", self._index), ("ttl", self._ttl),
                              ("projections", self._projection)):  # fmt: skip
            if feature in self.features:
                draws += [draw] * 2
        commands = rng.choice(draws)(columns)
        if rng.random() < 0.15 and len(commands) == 1 and not self.combined:
            self.combined = True
            self.lacking.add("g")
            commands = [f"{commands[0]}, ADD COLUMN g {rng.choice(PLAIN)}"]
        tables = ("t", "u") if rng.random() < 0.5 else (table,)
        return [f"ALTER TABLE {name} {command}" for name in tables for command in commands]

    def _free(self, columns: Sequence[Shown]) -> list[str]:
        return [c.name for c in columns if not c.is_key] or ["a"]

    def _add(self, columns: Sequence[Shown]) -> list[str]:
        rng = self.rng
        kind = rng.choice(PLAIN)
        name = rng.choice(NAMES)
        shape = rng.random()
        if shape < 0.5:
            what = kind
        elif shape < 0.75:
            what = f"{kind} DEFAULT {cast(rng.choice(LITERALS[kind]), kind)}"
        elif shape < 0.85:
            what = "Int64 DEFAULT k + 1"
        elif shape < 0.93:
            what = "String MATERIALIZED concat(s, 'm')"
        else:
            what = "Int64 ALIAS k * 2"
        self.lacking.add(name)
        exists = rng.choice(("", "", "IF NOT EXISTS "))
        place = rng.choice(("", "", " FIRST", " AFTER k", f" AFTER {rng.choice(self._free(columns))}"))
        return [f"ADD COLUMN {exists}{name} {what}{place}"]

    def _drop(self, columns: Sequence[Shown]) -> list[str]:
        return [f"DROP COLUMN {self.rng.choice(('', 'IF EXISTS '))}{self.rng.choice(self._free(columns))}"]

    def _rename(self, columns: Sequence[Shown]) -> list[str]:
        new = self.rng.choice(NAMES)
        self.lacking.add(new)
        return [f"RENAME COLUMN {self.rng.choice(self._free(columns))} TO {new}"]

    def _modify(self, columns: Sequence[Shown]) -> list[str]:
        able = [c for c in columns if c.type in CHANGES and not c.is_key and c.default_kind == ""]
        able = [c for c in able if c.name not in self.lacking]
        if not able:
            return self._add(columns)
        column = self.rng.choice(able)
        place = self.rng.choice(("", "", "", " FIRST", " AFTER k"))
        return [f"MODIFY COLUMN {column.name} {self.rng.choice(CHANGES[column.type])}{place}"]

    def _comment(self, columns: Sequence[Shown]) -> list[str]:
        return [f"COMMENT COLUMN {self.rng.choice(self._free(columns))} '{self.rng.choice(('', 'x', 'its'))}'"]

    def _clear(self, columns: Sequence[Shown]) -> list[str]:
        name = self.rng.choice(self._free(columns))
        self.lacking.add(name)
        return [f"CLEAR COLUMN {name}"]

    def _default(self, columns: Sequence[Shown]) -> list[str]:
        """A new default, after the old one has been written down."""
        able = [c for c in columns if c.default_kind == "DEFAULT"]
        if not able:
            return self._add(columns)
        column = self.rng.choice(able)
        literal = cast(self._literal(column), column.type)
        new = self.rng.choice(
            (f"MODIFY COLUMN {column.name} DEFAULT {literal}", f"MODIFY COLUMN {column.name} REMOVE DEFAULT")
        )
        return [f"MATERIALIZE COLUMN {column.name}", new]

    def _wrong(self, columns: Sequence[Shown]) -> list[str]:
        """Mostly refused."""
        free = self.rng.choice(self._free(columns))
        key = self.rng.choice(("p", "k", "s"))
        return [
            self.rng.choice(
                (
                    f"DROP COLUMN {key}",
                    f"RENAME COLUMN {key} TO zz",
                    f"RENAME COLUMN {free} TO k",
                    f"ADD COLUMN {key} UInt8",
                    "DROP COLUMN nothing",
                    f"MODIFY COLUMN {key} UUID",
                    f"CLEAR COLUMN {key}",
                    "RENAME COLUMN nothing TO zz",
                    "MODIFY COLUMN nothing UInt8",
                    "ADD COLUMN zz UInt8 AFTER nothing",
                    "ADD COLUMN zz Nothing2",
                    "ADD COLUMN zz UInt8 DEFAULT nothing + 1",
                    "COMMENT COLUMN nothing 'x'",
                    "MATERIALIZE COLUMN k",
                    "DROP INDEX nothing",
                    "DROP CONSTRAINT nothing",
                )
            )
        ]

    def _constraint(self, columns: Sequence[Shown]) -> list[str]:
        name = self.rng.choice(("c1", "c2"))
        if self.rng.random() < 0.4:
            return [f"DROP CONSTRAINT {name}"]
        check = self.rng.choice(("k > -100", "p < 100", "length(s) < 50", "k != 2", "s != 'abc'"))
        return [f"ADD CONSTRAINT {name} CHECK {check}"]

    def _index(self, columns: Sequence[Shown]) -> list[str]:
        name = self.rng.choice(("i1", "i2"))
        kind = self.rng.choice(("minmax", "set(10)", "bloom_filter"))
        column = self.rng.choice((*self._free(columns), "s", "k"))
        return [
            self.rng.choice(
                (
                    f"ADD INDEX {name} {column} TYPE {kind}",
                    f"ADD INDEX {name} {column} TYPE {kind}",
                    f"MATERIALIZE INDEX {name}",
                    f"CLEAR INDEX {name}",
                    f"DROP INDEX {name}",
                )
            )
        ]

    def _ttl(self, columns: Sequence[Shown]) -> list[str]:
        """Nothing expires while a sequence is played."""
        days = [c.name for c in columns if c.type in ("Date", "DateTime('UTC')")]
        if not days:
            self.lacking.add("f")
            return ["ADD COLUMN f Date"]
        ttl = f"{self.rng.choice(days)} + INTERVAL {self.rng.choice((300, 400))} YEAR"
        return [self.rng.choice((f"MODIFY TTL {ttl}", f"MODIFY TTL {ttl}", "REMOVE TTL", "MATERIALIZE TTL"))]

    def _projection(self, columns: Sequence[Shown]) -> list[str]:
        name = self.rng.choice(("q1", "q2"))
        query = self.rng.choice(
            ("SELECT s, k ORDER BY s", "SELECT s, count() GROUP BY s", "SELECT p, sum(k) GROUP BY p")
        )
        return [
            self.rng.choice(
                (
                    f"ADD PROJECTION {name} ({query})",
                    f"ADD PROJECTION {name} ({query})",
                    f"MATERIALIZE PROJECTION {name}",
                    f"CLEAR PROJECTION {name}",
                    f"DROP PROJECTION {name}",
                )
            )
        ]

    # -- partitions

    def _partition(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        rng = self.rng
        if table in self.detached:
            self.detached.discard(table)
            return [f"ALTER TABLE {table} ATTACH PARTITION ALL"]
        if not ids:
            return self._insert(table, columns, ids)
        chosen = f"ID '{rng.choice(ids)}'"
        action = rng.choice(("DETACH", "DETACH", "DETACH", "DROP", "TRUNCATE"))
        if action == "TRUNCATE":
            return [f"TRUNCATE TABLE {table}"]
        if action == "DETACH":
            self.detached.add(table)
        return [f"ALTER TABLE {table} {action} PARTITION {chosen}"]

    def _move(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        other = "u" if table == "t" else "t"
        chosen = f"ID '{self.rng.choice(ids)}'" if ids else "ID 'all'"
        return [
            self.rng.choice(
                (
                    f"ALTER TABLE {table} MOVE PARTITION {chosen} TO TABLE {other}",
                    f"ALTER TABLE {other} REPLACE PARTITION {chosen} FROM {table}",
                    f"ALTER TABLE {other} ATTACH PARTITION {chosen} FROM {table}",
                )
            )
        ]


def cast(literal: str, kind: str) -> str:
    """A cast as ClickHouse writes it down."""
    plain = literal.replace("t''s", "ts")
    return f"CAST({plain}, {quote_string(kind)})"


def literals(column: Shown) -> Sequence[str]:
    """A few values of the column's type, as ClickHouse text."""
    if column.name == "p":
        return ("-2", "-1", "0", "1", "3")
    if column.name == "k":
        return ("-3", "-1", "0", "1", "2", "7", "100")
    found = LITERALS.get(column.type)
    if found is not None:
        return found
    for kind, like in (("Nullable(", "NULL"), ("String", "''"), ("Date", "'2024-01-05'"), ("Enum", "'a'")):
        if kind in column.type:
            return (like,)
    return ("0", "1", "5") if "(" not in column.type or column.type.startswith("Decimal") else ("[]",)
