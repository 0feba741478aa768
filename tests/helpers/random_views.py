"""Random tables, views, unions and statements about them, for here and for ClickHouse."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

TYPES = {
    "k": ("UInt32", "Int32", "UInt16", "Int16"),
    "s": ("String", "LowCardinality(String)", "Nullable(String)"),
    "v": ("Int64", "UInt8", "Nullable(Int16)"),
    "x": ("Decimal(9, 2)", "Decimal(12, 2)"),
    "d": ("Date", "Date32"),
}
"""The types that a column may have; a union of any of them has a common one."""
VALUES = {
    "k": "toInt16({n} - {less})",
    "s": "['a', 'b', '', 'wxyz'][{n} % 4 + 1]",
    "v": "{n} % 100",
    "x": "{n} / 4",
    "d": "toDate('2020-02-27') + {n} % 9",
}


@dataclass(slots=True)
class RandomViews:
    """The state of a random sequence: what exists, as the generator believes."""

    random: Random
    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    """Name -> its columns with their types."""
    views: dict[str, list[str]] = field(default_factory=dict)
    """Views and unions: name -> columns."""
    count: int = 0

    def one(self, *choices: str) -> str:
        """One of some texts."""
        return self.random.choice(choices)

    def name(self, kind: str) -> str:
        """A new name."""
        self.count += 1
        return f"{kind}_{self.count}"

    def table(self) -> str:
        """CREATE TABLE."""
        columns = {name: self.one(*kinds) for name, kinds in TYPES.items() if name == "k" or self.random.random() < 0.8}
        name = self.name(self.one("hot", "cold"))
        self.tables[name] = columns
        order = self.one("k", "k", "k DESC", "tuple()")
        partition = self.one("", "PARTITION BY k % 2 ")
        listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        settings = "index_granularity = 8, allow_experimental_reverse_key = 1, allow_nullable_key = 1"
        return f"CREATE TABLE {name} ({listed}) ENGINE = MergeTree {partition}ORDER BY {order} SETTINGS {settings}"

    def insert(self) -> str:
        """INSERT of up to some dozens of rows into a table."""
        name = self.one(*self.tables)
        less = 0 if self.tables[name]["k"].startswith("U") else self.random.randrange(0, 30)
        step, first, rows = self.random.randrange(1, 4), self.random.randrange(0, 40), self.random.randrange(0, 40)
        values = [
            f"CAST({VALUES[c].format(n=f'(number * {step} + {first})', less=less)}, '{kind}')"
            for c, kind in self.tables[name].items()
        ]
        return f"INSERT INTO {name} SELECT {', '.join(values)} FROM numbers({rows})"

    def mutation(self) -> str:
        """ALTER TABLE … UPDATE or DELETE."""
        name = self.one(*self.tables)
        condition = f"k % {self.random.randrange(2, 6)} = {self.random.randrange(0, 2)}"
        columns = [c for c in ("s", "v") if c in self.tables[name]]
        if not columns or self.random.random() < 0.4:
            return f"ALTER TABLE {name} DELETE WHERE {condition}"
        column = self.one(*columns)
        value = "'b'" if column == "s" else "v + 1"
        return f"ALTER TABLE {name} UPDATE {column} = {value} WHERE {condition}"

    def change(self) -> str:
        """A change of the columns or the name of a table, or its end."""
        name = self.one(*self.tables)
        kind = self.random.random()
        others = [column for column in self.tables[name] if column != "k"]
        if kind < 0.3 or not others:
            column = self.name("more")
            self.tables[name] = {**self.tables[name], column: "UInt16"}
            VALUES.setdefault(column, "{n} % 7")
            return f"ALTER TABLE {name} ADD COLUMN {column} UInt16"
        if kind < 0.5:
            column = self.one(*others)
            self.tables[name] = {c: t for c, t in self.tables[name].items() if c != column}
            return f"ALTER TABLE {name} DROP COLUMN {column}"
        if kind < 0.7 and len(self.tables) > 2:
            del self.tables[name]
            return f"DROP TABLE {name}"
        if kind < 0.85:
            other = self.name(self.one("hot", "cold"))
            self.tables[other] = self.tables.pop(name)
            return f"RENAME TABLE {name} TO {other}"
        other = self.one(*self.tables)
        if other == name:
            return f"TRUNCATE TABLE {name}"
        self.tables[name], self.tables[other] = self.tables[other], self.tables[name]
        return f"EXCHANGE TABLES {name} AND {other}"

    def view(self) -> str:
        """CREATE VIEW, in one of its forms, or a union."""
        if self.random.random() < 0.25:
            return self.union()
        old = [name for name in self.views if name.startswith("view")]
        replaced = self.one(*old) if old and self.random.random() < 0.2 else ""
        name = replaced or self.name("view")
        query, columns = self.query({replaced})
        self.views[name] = columns
        return f"CREATE {'OR REPLACE ' * bool(replaced)}VIEW {name} AS {query}"

    def union(self) -> str:
        """CREATE TABLE … ENGINE = Merge."""
        name = self.name("all")
        pattern = self.one("^hot", "^cold", "^(hot|cold)_", "_1$", "^view_[2-4]$", "^none")
        if self.random.random() < 0.5:
            self.views[name] = ["k", "s"]
            columns = f"(k {self.one('Int64', 'UInt16', 'Int32')}, s {self.one('String', 'Nullable(String)')})"
            return f"CREATE TABLE {name} {columns} ENGINE = Merge(currentDatabase(), '{pattern}')"
        self.views[name] = ["k"]
        return f"CREATE TABLE {name} ENGINE = Merge(currentDatabase(), '{pattern}')"

    def source(self, but: set[str] = frozenset()) -> tuple[str, list[str]]:  # type: ignore[assignment]
        """Something to read, with its columns."""
        views = [name for name in self.views if name not in but]
        if views and self.random.random() < 0.5:
            name = self.one(*views)
            return name, self.views[name]
        if self.random.random() < 0.15:
            return f"merge(currentDatabase(), '{self.one('^hot', '^cold', '^(hot|cold)')}')", ["k"]
        name = self.one(*self.tables)
        return name, list(self.tables[name])

    def condition(self, columns: list[str], qualifier: str = "") -> str:
        """A condition over some columns."""
        column = self.one(*columns)
        number = self.random.randrange(-5, 60)
        if column == "s":
            return self.one(
                f"{qualifier}s = 'a'",
                f"{qualifier}s != 'b'",
                f"{qualifier}s IN ('a', 'wxyz')",
                f"notEmpty({qualifier}s)",
            )
        if column == "d":
            return f"{qualifier}d >= '2020-03-01'" if qualifier else "toDate(d) >= '2020-03-01'"
        name = f"{qualifier}{column}"
        return self.one(
            f"{name} > {number}", f"{name} = {number}", f"{name} BETWEEN {number - 9} AND {number}",
            f"{name} IN ({number}, {number + 1}, 7)", f"({name} < {number} OR {name} = 33)", f"{name} % 3 = 1",
        )  # fmt: skip

    def query(self, but: set[str] = frozenset()) -> tuple[str, list[str]]:  # type: ignore[assignment]
        """A SELECT without an order, and its columns."""
        source, columns = self.source(but)
        where = f" WHERE {self.condition(columns)}" if self.random.random() < 0.6 else ""
        if where and self.random.random() < 0.3:
            where += f" AND {self.condition(columns)}"
        kind = self.random.random()
        if kind < 0.2 and not source.startswith(("merge", "all")):  # the order of their columns is not defined
            return f"SELECT * FROM {source}{where}", columns
        if kind < 0.45:
            some = [c for c in columns if self.random.random() < 0.7] or columns[:1]
            return f"SELECT {', '.join(some)} FROM {source}{where}", some
        if kind < 0.6:
            rest = [c for c in columns if c not in ("k", "old")]
            return f"SELECT k + 1 AS k, k AS old{''.join(f', {c}' for c in rest)} FROM {source}{where}", [
                "k",
                "old",
                *rest,
            ]
        if kind < 0.75:
            key = self.one(*columns)
            return f"SELECT {key}, count() AS c FROM {source}{where} GROUP BY {key}", [key, "c"]
        if kind < 0.85:
            other, _ = self.source(but)
            return (
                f"SELECT a.k AS k, b.k AS other FROM {source} AS a INNER JOIN {other} AS b ON a.k = b.k"
                f" WHERE {self.condition(['k'], 'a.')}"
            ), ["k", "other"]
        if kind < 0.95:
            other, _ = self.source(but)
            return f"SELECT toInt64(k) AS k FROM {source}{where} UNION ALL SELECT toInt64(k) FROM {other}", ["k"]
        other, _ = self.source(but)
        return f"SELECT k FROM {source} WHERE k IN (SELECT k FROM {other})", ["k"]

    def select(self) -> str:
        """A SELECT whose rows have one order."""
        query, _ = self.query()
        return f"{query} ORDER BY ALL" if " UNION " not in query else f"SELECT * FROM ({query}) ORDER BY ALL"

    def steps(self, count: int) -> list[str]:
        """A sequence of statements."""
        out = [self.table() for _ in range(3)]
        out += [self.insert() for _ in range(5)]
        for _ in range(count):
            kind = self.random.random()
            if kind < 0.62:
                out.append(self.select())
            elif kind < 0.8:
                out.append(self.view())
            elif kind < 0.88:
                out.append(self.insert())
            elif kind < 0.92:
                out.append(self.mutation())
            elif kind < 0.97:
                out.append(self.change())
            else:
                out.append(self.table())
        return out
