"""Odd names through every statement: databases, tables, columns, aliases, indexes; the answers are ClickHouse's."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from mergelake.api.sql.database import Database, connect
from mergelake.core.base.errors import MergelakeError

PIECES = [
    "a", "B", "é", "名", "1", "9z", "_", "$", " ", ".", "-", "+", "/", "`", '"', "'", "\\", "\n", "\t", "%", "{", "}",
    "(", ")", "--", "/*", "#", ";", ",", "@", "😀", "::", "=", "*", "[", "?", "\x01",
]  # fmt: skip
WORDS = [
    "select", "FROM", "where", "final", "format", "settings", "sample", "array", "join", "null", "NaN", "inf", "true",
    "date", "interval", "default", "distinct", "all", "table", "order", "limit", "as", "in", "end", "case", "union",
    "with", "prewhere", "values", "key", "index", "1a", "2b", "0x1g", "1_", "1e", "_part", "n.a", "a.b.c", "ml_0", "x",
    "to", "of",
]  # fmt: skip


def quoted(name: str, pick: random.Random) -> str:
    """The name as SQL, in one of the ways that name it."""
    if (
        re.fullmatch(r"[A-Za-z_]\w*|\d\w*[A-Za-z_]\w*", name, re.ASCII)
        and name.upper() not in KEYWORDS
        and pick.random() < 0.3
    ):
        return name
    mark = pick.choice('`"')
    inside = name.replace("\\", "\\\\")
    if pick.random() < 0.5:
        return mark + inside.replace(mark, mark * 2) + mark
    return mark + inside.replace(mark, "\\" + mark) + mark


KEYWORDS = {word.upper() for word in WORDS} - {"1A", "2B", "0X1G", "1_", "ML_0", "X", "_PART"} | {"A", "B"}


def names(pick: random.Random, count: int) -> list[str]:
    out: dict[str, None] = {}
    while len(out) < count:
        odd = "".join(pick.choice(PIECES) for _ in range(pick.randint(1, 5)))
        name = pick.choice(WORDS) if pick.random() < 0.4 else odd
        if not any(
            name.lower() == other.lower() or name.startswith(f"{other}.") or other.startswith(f"{name}.")
            for other in out
        ):
            out[name] = None
    return list(out)


class Both:
    """One statement, here and in ClickHouse."""

    def __init__(self, oracle: Any, db: Database) -> None:
        self.oracle, self.db = oracle, db

    def run(self, statement: str) -> None:
        self.db.sql(statement)
        self.oracle.query(statement)

    def same(self, query: str) -> None:
        theirs = str(self.oracle.query(query, "TabSeparatedWithNames"))
        ours = self.db.sql(f"{query} FORMAT TabSeparatedWithNames").text()
        assert ours == theirs, query
        assert list(self.db.sql(query).columns) == list(self.db.sql(f"{query} LIMIT 1").columns)


def check(oracle: Any, seed: int) -> None:
    pick = random.Random(seed)
    database, table, other, k, v, s, lc, alias, index, renamed = names(pick, 10)
    database = database.replace(".", "_").replace("/", "_")
    if database in ("default", "system"):
        database += "1"

    def q(name: str) -> str:
        return quoted(name, pick)

    db = connect(f"memory://odd-{seed}")
    both = Both(oracle, db)
    oracle.query(f"DROP DATABASE IF EXISTS {q(database)}")
    try:
        both.run(f"CREATE DATABASE {q(database)}")
        both.run(f"USE {q(database)}")
        qk, qv, qs, ql, qt = q(k), q(v), q(s), q(lc), q(table)
        both.run(
            f"CREATE TABLE {qt} ({qk} UInt32, {qv} Nullable(Int16) DEFAULT {q(k)} + 1, {qs} String, "
            f"{ql} LowCardinality(String), {q(v + '_t')} DateTime64(3, 'UTC'), "
            f"INDEX {q(index)} {q(s)} TYPE bloom_filter GRANULARITY 1) "
            f"ENGINE = MergeTree PARTITION BY {q(k)} % 2 ORDER BY ({q(k)}, {q(s)}) SETTINGS index_granularity = 4"
        )
        both.run(
            f"INSERT INTO {qt} ({q(k)}, {q(s)}, {q(lc)}) SELECT number, toString(number % 3), 'x' FROM numbers(20)"
        )
        both.run(f"INSERT INTO {q(table)} ({q(k)}, {q(s)}) VALUES (100, 'v')")
        full = f"{q(database)}.{q(table)}"
        for query in (
            f"SELECT * FROM {qt} ORDER BY {q(k)}",
            f"SELECT {q(v)}, {q(lc)} FROM {full} WHERE {q(k)} = 7",
            f"SELECT {q(k)} FROM {full} WHERE {q(s)} = '1' AND {q(k)} > 3 ORDER BY 1",
            f"SELECT {q(alias)}.{q(k)} FROM {full} AS {q(alias)} WHERE {q(alias)}.{q(v)} < 5 ORDER BY 1",
            f"SELECT {q(table)}.{q(s)} AS {q(alias)}, count() FROM {full} GROUP BY {q(alias)} ORDER BY {q(alias)}",
            f"SELECT sum({q(k)}) AS {q(alias)} FROM {qt} WHERE {q(lc)} = 'x'",
            f"SELECT l.{q(k)}, r.{q(s)} FROM {qt} l JOIN {full} r ON l.{q(k)} = r.{q(k)} WHERE r.{q(k)} < 4 ORDER BY 1",
            f"SELECT {q(k)} FROM {qt} WHERE {q(k)} IN (SELECT {q(k)} FROM {full} WHERE {q(v)} > 15) ORDER BY 1",
            f"WITH {q(alias)} AS (SELECT {q(k)} FROM {qt}) SELECT count() FROM {q(alias)}",
            f"SELECT count() FROM {full}",
            f"SELECT max({q(v + '_t')}) FROM {full}",
        ):
            both.same(query)
        both.run(f"CREATE TABLE {q(other)} AS {full}")
        both.run(f"INSERT INTO {q(other)} SELECT * FROM {qt}")
        both.run(f"OPTIMIZE TABLE {q(other)} FINAL")
        both.same(f"SELECT * FROM {q(other)} ORDER BY {q(k)}")
        both.run(f"RENAME TABLE {q(other)} TO {q(renamed)}")
        both.run(f"EXCHANGE TABLES {q(renamed)} AND {qt}")
        both.run(f"ALTER TABLE {q(renamed)} DROP PARTITION 0")
        both.same(f"SELECT sum({q(k)}), min({q(v)}) FROM {q(renamed)}")
        both.same(
            "SELECT name, type, is_in_sorting_key, is_in_partition_key FROM system.columns "
            f"WHERE database = {_text(database)} AND table = {_text(table)} ORDER BY position"
        )
        assert {row[0] for row in db.sql("SHOW TABLES").rows()} == {table, renamed}
        text = db.sql(f"SHOW CREATE TABLE {q(table)}").scalar()
        db.sql(f"DROP TABLE {q(table)}")
        db.sql(text)
        assert db.sql(f"SHOW CREATE TABLE {q(table)}").scalar() == text
        oracle.query(f"DROP TABLE {q(table)} SYNC")
        oracle.query(text)
        assert db.sql(f"EXISTS TABLE {q(renamed)}").scalar() == 1
        assert [row[0] for row in db.sql(f"DESCRIBE {q(renamed)}").rows()] == [k, v, s, lc, v + "_t"]
        both.run(f"TRUNCATE TABLE {q(renamed)}")
        both.run(f"DROP TABLE {q(renamed)}")
    finally:
        oracle.query(f"USE default; DROP DATABASE IF EXISTS {q(database)} SYNC")


def _text(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


@pytest.mark.parametrize("seed", range(6))
def test_odd_names_pass_through_every_statement(oracle: Any, seed: int) -> None:
    check(oracle, seed)


@pytest.mark.parametrize("name", ["a.b", "a/b", "system", "information_schema", ""])
def test_a_database_that_could_not_be_named_is_refused(name: str) -> None:
    db = connect("memory://odd-databases")
    with pytest.raises(MergelakeError):
        db.sql(f"CREATE DATABASE `{name}`")
    with pytest.raises(MergelakeError):
        db.sql(f"CREATE TABLE `{name}`.t (k UInt8) ENGINE = MergeTree ORDER BY k")
    db.sql(
        "CREATE DATABASE IF NOT EXISTS a; CREATE TABLE IF NOT EXISTS a.`b.c` (k UInt8) ENGINE = MergeTree ORDER BY k"
    )
    with pytest.raises(MergelakeError, match=r"a\.b"):
        db.sql("DROP TABLE `a.b`.c")
    assert db.sql("EXISTS TABLE a.`b.c`").scalar() == 1
