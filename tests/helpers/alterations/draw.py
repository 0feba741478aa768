"""Draws the statements of a sequence from the columns that the tables have."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mergelake.core.base.text import quote_string
from tests.helpers.alterations.kinds import CHANGES, CODECS, PLAIN, Shown, cast, condition, literals, quoted
from tests.helpers.mutations.kinds import LITERALS

PARTITIONS = ("", "p", "k % 3", "(p, k > 0)", "toString(p)", "-p", "(s, -k)", "intDiv(k, 3)", "p * k")
NAMES = ("a", "b", "c", "d", "e", "f", "x y", "é`1")
TABLES = ("t", "u")


@dataclass
class Drawing:
    """Draws statement after statement."""

    rng: random.Random
    features: frozenset[str]
    """Kinds of statements that are drawn beside the basic ones: `constraints`, `moves`, …"""
    detached: set[str] = field(default_factory=set)
    """Tables with detached parts: those of ClickHouse's match columns by name, so nothing is altered meanwhile."""
    lacking: set[tuple[str, str]] = field(default_factory=set)
    """Tables and columns that parts may lack, by ADD or CLEAR. They have the default of the newest type there, and
    where a merge has written them that of the type of then, converted: here any merge does, in ClickHouse some."""
    rows: int = 0
    replacing: bool = False
    """Whether rows are those of the newest insert of their key; rows that are no longer shown may be gone or not."""
    orders: dict[str, str] = field(default_factory=dict)
    """The sorting key of each table."""
    combined: bool = False
    """Whether a statement had a second command already: one is enough, so that no statement has two mistakes."""

    def creations(self) -> list[str]:
        """Both tables."""
        self.replacing = "engines" in self.features and self.rng.random() < 0.12
        tail = self._definition(TABLES)
        return [f"CREATE TABLE {table} {tail}" for table in TABLES]

    def _definition(self, tables: Sequence[str]) -> str:
        """What comes after the names of new tables, which are alike."""
        rng = self.rng
        columns = [
            f"p {rng.choice(('Int8', 'Int8', 'Int64'))}", f"k {rng.choice(('Int32', 'Int32', 'Int16'))}",
            f"s {rng.choice(('String', 'String', 'LowCardinality(String)'))}",
        ]  # fmt: skip
        columns += [f"{quoted(name)} {rng.choice(PLAIN)}" for name in NAMES[: rng.randrange(1, 4)]]
        if "kinds" in self.features and rng.random() < 0.2:
            columns.append("w Int32 EPHEMERAL 7, ww String DEFAULT concat(s, toString(w))")
        key = rng.choice(PARTITIONS)
        order = rng.choice(("(k, s)", "k", "(s, k)", "(k % 4, s)", "tuple()", "(p, k)"))
        settings = [f"index_granularity = {rng.choice((4, 8192))}", "min_bytes_for_wide_part = 0"]
        if rng.random() < 0.3:
            settings.pop()
        engine = "MergeTree"
        if self.replacing:
            engine, order = "ReplacingMergeTree", rng.choice(("(k, s, p)", "(s, p, k)"))
            settings.append("deduplicate_merge_projection_mode = 'rebuild'")
        elif rng.random() < 0.1:
            order = "(intHash32(k), s) SAMPLE BY intHash32(k)"
        self.orders.update((table, order.partition(" SAMPLE")[0]) for table in tables)
        tail = f"ENGINE = {engine}{f' PARTITION BY {key}' if key else ''} ORDER BY {order}"
        return f"({', '.join(columns)}) {tail} SETTINGS {', '.join(settings)}"

    def statements(self, tables: Mapping[str, Sequence[Shown]], partitions: Mapping[str, Sequence[str]]) -> list[str]:
        """One statement, or a few that belong together. `partitions`: ids of those with parts, by table."""
        rng = self.rng
        table = rng.choice(("t", "t", "u"))
        columns, ids = tables[table], partitions[table]
        kinds = [self._insert] * 5 + [self._update] * 2 + [self._delete, self._optimize]
        if not self.detached:
            kinds += [self._alter] * 9
            if "replaced" in self.features:
                kinds += [rng.choice((self._replace, self._view, self._view))]
            if {c.name for c in tables["t"]} == {c.name for c in tables["u"]}:
                kinds += [self._copy]
        if "partitions" in self.features:
            kinds += [self._partition] * (8 if table in self.detached else 2)
        if "moves" in self.features and not self.detached:
            kinds += [self._move] * 3
        return rng.choice(kinds)(table, columns, ids)

    # -- rows

    def _insert(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        rng = self.rng
        given = [c for c in columns if c.is_written]
        given = [c for c in given if c.is_key or not c.default_kind or rng.random() < 0.5]
        given = [c for c in given if c.is_key or rng.random() < 0.9]
        count = rng.choice((1, 2, 7, 30)) if self.rows < 600 else 1
        self.rows += count
        names = ", ".join(c.quoted for c in given)
        if count <= 7:
            rows = (f"({', '.join(self._literal(c) for c in given)})" for _ in range(count))
            return [f"INSERT INTO {table} ({names}) VALUES {', '.join(rows)}"]
        return [f"INSERT INTO {table} ({names}) SELECT {', '.join(map(self._varied, given))} FROM numbers({count})"]

    def _copy(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        """Some rows of one table into the other."""
        other = "u" if table == "t" else "t"
        names = ", ".join(c.quoted for c in columns if c.is_written and c.is_readable)
        return [f"INSERT INTO {other} ({names}) SELECT {names} FROM {table} WHERE k = {self.rng.choice((1, 7))}"]

    def _replace(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        """Another table in the place of one, perhaps with rows."""
        if self.rng.random() < 0.5:
            return self._insert(table, columns, ids)
        self.lacking = {(of, column) for of, column in self.lacking if of != table}
        return [f"CREATE OR REPLACE TABLE {table} {self._definition((table,))}"]

    def _view(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        """A view, which is read from then on, whatever its table becomes."""
        able = [c for c in columns if c.is_readable]
        shown = self.rng.sample(able, self.rng.randrange(1, len(able) + 1))
        final = " FINAL" if self.replacing else ""
        where = self.rng.choice(("", f" WHERE {self._condition(columns)}"))
        return [f"CREATE OR REPLACE VIEW v AS SELECT {', '.join(c.quoted for c in shown)} FROM {table}{final}{where}"]

    def _literal(self, column: Shown) -> str:
        return self.rng.choice(literals(column))

    def _varied(self, column: Shown) -> str:
        pool = literals(column)
        chosen = self.rng.sample(pool, self.rng.randrange(1, len(pool) + 1))
        at = f"1 + cityHash64(number, {self.rng.randrange(99)}) % {len(chosen)}"
        return f"CAST([{', '.join(chosen)}] AS Array({column.type}))[{at}]"

    def _condition(self, columns: Sequence[Shown]) -> str:
        """Of the key alone where rows of one key are not all shown."""
        return condition(self.rng, () if self.replacing else columns)

    def _update(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        free = [c for c in columns if not c.is_key and c.default_kind in ("", "DEFAULT")]
        if not free:
            return self._delete(table, columns, ids)
        column = self.rng.choice(free)
        alike = [c for c in free if c.type == column.type]
        value = f"CAST({self._literal(column)} AS {column.type})"
        if self.rng.random() < 0.2:
            value = self.rng.choice(alike).quoted
        form = self.rng.choice(("ALTER TABLE {} UPDATE {} = {} WHERE {}", "UPDATE {} SET {} = {} WHERE {}"))
        return [form.format(table, column.quoted, value, self._condition(columns))]

    def _delete(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        where = f"{self._condition(columns)} AND k > {self.rng.randrange(-3, 4)}"
        form = self.rng.choice(("ALTER TABLE {} DELETE WHERE {}", "DELETE FROM {} WHERE {}"))
        return [form.format(table, where)]

    def _optimize(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        return [f"OPTIMIZE TABLE {table} FINAL{self.rng.choice(('', '', ' DEDUPLICATE'))}"]

    # -- columns

    def _alter(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        rng = self.rng
        tables = TABLES if rng.random() < 0.5 else (table,)
        draws = [self._add, self._add, self._drop, self._rename, self._rename, self._comment, self._clear]
        draws += [self._default, self._wrong, self._modify, self._modify, self._property]
        for feature, draw in (("constraints", self._constraint), ("indexes", self._index), ("ttl", self._ttl),
                              ("projections", self._projection), ("several", self._several),
                              ("several", self._key)):  # fmt: skip
            if feature in self.features:
                draws += [draw] * 2
        commands = rng.choice(draws)(tables, columns)
        if rng.random() < 0.15 and len(commands) == 1 and not self.combined:
            self.combined = True
            self._lacks(tables, "g")
            commands = [f"{commands[0]}, ADD COLUMN g {rng.choice(PLAIN)}"]
        return [f"ALTER TABLE {name} {command}" for name in tables for command in commands]

    def _lacks(self, tables: Sequence[str], column: str) -> None:
        self.lacking.update((table, column) for table in tables)

    def _free(self, columns: Sequence[Shown]) -> list[str]:
        return [c.quoted for c in columns if not c.is_key] or ["a"]

    def _add(self, tables: Sequence[str], columns: Sequence[Shown], names: Sequence[str] = NAMES) -> list[str]:
        rng = self.rng
        kind = rng.choice(PLAIN)
        name = rng.choice(names)
        shape = rng.random()
        if shape < 0.5:
            what = kind
        elif shape < 0.7:
            what = f"{kind} DEFAULT {cast(rng.choice(LITERALS[kind]), kind)}"
        elif shape < 0.8:
            what = rng.choice(
                ("Int64 DEFAULT k + 1", "Nullable(Int64) DEFAULT if(k > 0, p, NULL)", "String DEFAULT upper(s)")
            )
        elif shape < 0.9:
            what = rng.choice(("String MATERIALIZED concat(s, 'm')", "Array(Int64) MATERIALIZED [k, p]"))
        else:
            read = rng.choice([c for c in columns if c.is_readable])
            what = rng.choice(("Int64 ALIAS k * 2", f"String ALIAS toString({read.quoted})"))
        if shape < 0.7 and rng.random() < 0.2:
            what += " COMMENT 'it is new'"
        self._lacks(tables, name)
        exists = rng.choice(("", "", "IF NOT EXISTS "))
        place = rng.choice(("", "", " FIRST", " AFTER k", f" AFTER {rng.choice(self._free(columns))}"))
        return [f"ADD COLUMN {exists}{quoted(name)} {what}{place}"]

    def _drop(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        return [f"DROP COLUMN {self.rng.choice(('', 'IF EXISTS '))}{self.rng.choice(self._free(columns))}"]

    def _rename(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        new = self.rng.choice(NAMES)
        self._lacks(tables, new)
        return [f"RENAME COLUMN {self.rng.choice(self._free(columns))} TO {quoted(new)}"]

    def _modify(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        able = [c for c in columns if c.type in CHANGES and not c.is_key and c.default_kind == ""]
        if not able:
            return self._add(tables, columns)
        column = self.rng.choice(able)
        place = self.rng.choice(("", "", "", " FIRST", " AFTER k"))
        new = self.rng.choice((*CHANGES[column.type], *CHANGES[column.type], "String"))
        commands = [f"MODIFY COLUMN {column.quoted} {new}{place}"]
        if not self.lacking.isdisjoint((table, column.name) for table in tables):
            self.lacking.difference_update((table, column.name) for table in tables)
            commands.insert(0, f"UPDATE {column.quoted} = {column.quoted} WHERE 1")
        return commands

    def _comment(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        return [f"COMMENT COLUMN {self.rng.choice(self._free(columns))} '{self.rng.choice(('', 'x', 'its'))}'"]

    def _property(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        """What changes no value."""
        name = self.rng.choice((*self._free(columns), "k"))
        return [
            self.rng.choice(
                (
                    f"MODIFY COLUMN {name} CODEC({self.rng.choice(CODECS)})",
                    f"MODIFY COLUMN {name} REMOVE CODEC",
                    f"MODIFY COLUMN {name} COMMENT 'of {len(columns)}'",
                    f"MODIFY COLUMN {name} REMOVE COMMENT",
                    "MODIFY COMMENT 'of the table'",
                    f"MODIFY SETTING merge_max_block_size = {self.rng.choice((100, 8192))}",
                    "RESET SETTING merge_max_block_size",
                )
            )
        ]

    def _clear(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        column = self.rng.choice([c for c in columns if not c.is_key] or [Shown("a", "")])
        self._lacks(tables, column.name)
        return [f"CLEAR COLUMN {column.quoted}"]

    def _default(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        """A new default, after the old one has been written down."""
        able = [c for c in columns if c.default_kind == "DEFAULT" and c.name != "ww"]
        if not able:
            return self._add(tables, columns)
        column = self.rng.choice(able)
        literal = cast(self._literal(column), column.type)
        new = self.rng.choice(
            (f"MODIFY COLUMN {column.quoted} DEFAULT {literal}", f"MODIFY COLUMN {column.quoted} REMOVE DEFAULT")
        )
        return [f"MATERIALIZE COLUMN {column.quoted}", new]

    def _several(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        """Commands of one statement, each of another column; without a mistake but where something needs a column."""
        rng = self.rng
        choices = ("COMMENT COLUMN {0} 'of several'", "DROP COLUMN {0}", "MODIFY COLUMN {0} CODEC(ZSTD(2))",
                   "MODIFY COLUMN {0} {1} COMMENT 'as before'")  # fmt: skip
        commands = [rng.choice(choices).format(column.quoted, column.type) for column in self._some(columns)]
        unused = [name for name in NAMES if name not in {c.name for c in columns}]
        if unused:
            commands += self._add(tables, [c for c in columns if c.is_key], unused)
        rng.shuffle(commands)
        return [", ".join(commands)] if commands else self._comment(tables, columns)

    def _key(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        """A longer sorting key."""
        order = self.orders[tables[0]]
        if self.rng.random() < 0.6 or order == "tuple()" or ", o)" in order:
            return self._property(tables, columns)
        longer = f"({order.strip('()')}, o)" if "%" not in order and "Hash" not in order else f"{order[:-1]}, o)"
        self.orders.update((table, longer) for table in tables)
        kind = self.rng.choice(("Int32", "String", "Date", "UInt8"))
        return [f"ADD COLUMN o {kind}, MODIFY ORDER BY {longer}"]

    def _wrong(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
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
                    "DROP PROJECTION nothing",
                    f"MODIFY COLUMN {free} REMOVE TTL",
                    f"MODIFY COLUMN {free} REMOVE MATERIALIZED",
                    f"UPDATE {key} = 1 WHERE 1",
                    "UPDATE nothing = 1 WHERE 1",
                    "DELETE WHERE nothing = 1",
                    "MODIFY TTL k",
                    "MODIFY TTL nothing + INTERVAL 1 DAY",
                    "MODIFY COLUMN k TTL toDate(p) + INTERVAL 1 DAY",
                    f"MODIFY ORDER BY (k, {free})",
                    "MODIFY SAMPLE BY s",
                    "RESET SETTING nothing",
                    "MODIFY SETTING nothing = 1",
                    "ADD CONSTRAINT c9 CHECK nothing > 0",
                    "ADD INDEX i9 nothing TYPE minmax",
                    "ADD PROJECTION q9 (SELECT nothing ORDER BY nothing)",
                    f"DROP COLUMN {free}, DROP COLUMN {free}",
                    "ADD COLUMN zz UInt8, ADD COLUMN zz UInt8",
                    f"RENAME COLUMN {free} TO zz, DROP COLUMN zz",
                )
            )
        ]

    def _some(self, columns: Sequence[Shown]) -> list[Shown]:
        """At most two columns that hold what is inserted."""
        able = [c for c in columns if not c.is_key and not c.default_kind]
        return self.rng.sample(able, min(len(able), self.rng.randrange(3)))

    def _constraint(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        name = self.rng.choice(("c1", "c2"))
        if self.rng.random() < 0.4:
            return [f"DROP CONSTRAINT {name}"]
        check = self.rng.choice(("k > -100", "p < 100", "length(s) < 50", "k != 2", "s != 'abc'"))
        return [f"ADD CONSTRAINT {name} CHECK {check}"]

    def _index(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
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

    def _ttl(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        """Nothing expires while a sequence is played."""
        days = [c.quoted for c in columns if c.type in ("Date", "DateTime('UTC')", "Date32", "DateTime64(3, 'UTC')")]
        if not days:
            self._lacks(tables, "f")
            return ["ADD COLUMN f Date"]
        ttl = f"{self.rng.choice(days)} + INTERVAL {self.rng.choice((300, 400))} YEAR"
        # The default of `ww` reads an EPHEMERAL column: values that expire have none, which is refused here.
        column = self.rng.choice(self._free([c for c in columns if c.name != "ww"]))
        choices = [f"MODIFY TTL {ttl}", f"MODIFY TTL {ttl}", "REMOVE TTL", "MATERIALIZE TTL"]
        choices += [f"MODIFY TTL {ttl} DELETE WHERE k = 1, {ttl}", f"MODIFY COLUMN {column} TTL {ttl}"]
        return [self.rng.choice((*choices, f"MODIFY COLUMN {column} REMOVE TTL"))]

    def _projection(self, tables: Sequence[str], columns: Sequence[Shown]) -> list[str]:
        name = self.rng.choice(("q1", "q2"))
        free = self.rng.choice(self._free(columns))
        query = self.rng.choice(
            (
                "SELECT s, k ORDER BY s",
                "SELECT s, count() GROUP BY s",
                "SELECT p, sum(k) GROUP BY p",
                f"SELECT {free}, s ORDER BY s",
            )
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
            if rng.random() < 0.15:
                return [f"ALTER TABLE {table} DROP DETACHED PARTITION ALL SETTINGS allow_drop_detached = 1"]
            return [f"ALTER TABLE {table} ATTACH PARTITION ALL"]
        if not ids:
            return self._insert(table, columns, ids)
        chosen = f"ID {quote_string(rng.choice(ids))}"
        action = rng.choice(("DETACH", "DETACH", "DETACH", "DROP", "TRUNCATE"))
        if action == "TRUNCATE":
            return [f"TRUNCATE TABLE {table}"]
        if action == "DETACH":
            self.detached.add(table)
        return [f"ALTER TABLE {table} {action} PARTITION {chosen}"]

    def _move(self, table: str, columns: Sequence[Shown], ids: Sequence[str]) -> list[str]:
        other = "u" if table == "t" else "t"
        chosen = f"ID {quote_string(self.rng.choice(ids))}" if ids else "ID 'all'"
        self.lacking.update((other, column) for of, column in list(self.lacking) if of == table)
        return [
            self.rng.choice(
                (
                    f"ALTER TABLE {table} MOVE PARTITION {chosen} TO TABLE {other}",
                    f"ALTER TABLE {other} REPLACE PARTITION {chosen} FROM {table}",
                    f"ALTER TABLE {other} ATTACH PARTITION {chosen} FROM {table}",
                )
            )
        ]
