"""MOVE, REPLACE and ATTACH PARTITION between tables, in random order, against ClickHouse; and what is refused."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from typing import Any

import pytest

import mergelake as ml

COLUMNS, ENGINE = "p UInt8, k Int64, s Nullable(String), d Decimal(9, 2)", "MergeTree PARTITION BY p ORDER BY k"
STRUCTURES = {
    "fits": (COLUMNS, ENGINE),
    "order of columns": ("k Int64, p UInt8, d Decimal(9, 2), s Nullable(String)", ENGINE),
    "more columns": (f"{COLUMNS}, t UInt8", ENGINE),
    "fewer columns": ("p UInt8, k Int64, s Nullable(String)", ENGINE),
    "another type": ("p UInt8, k Int64, s String, d Decimal(9, 2)", ENGINE),
    "another key": (COLUMNS, "MergeTree PARTITION BY p ORDER BY (k, d)"),
    "another primary key": (COLUMNS, "MergeTree PARTITION BY p PRIMARY KEY k ORDER BY (k, d)"),
    "another partition key": (COLUMNS, "MergeTree PARTITION BY p % 2 ORDER BY k"),
    "another engine": (COLUMNS, "ReplacingMergeTree PARTITION BY p ORDER BY k"),
    "an index more": (f"{COLUMNS}, INDEX i d TYPE minmax", ENGINE),
    "a projection": (f"{COLUMNS}, PROJECTION pr (SELECT k, s ORDER BY s)", ENGINE),
    "another default": ("p UInt8, k Int64, s Nullable(String) DEFAULT 'x', d Decimal(9, 2)", ENGINE),
    "an alias more": (f"{COLUMNS}, a UInt8 ALIAS p", ENGINE),
}
MOVES = (
    "ALTER TABLE {a} MOVE PARTITION {p} TO TABLE {b}",
    "ALTER TABLE {b} REPLACE PARTITION {p} FROM {a}",
    "ALTER TABLE {b} ATTACH PARTITION {p} FROM {a}",
)


def code_of(problem: object) -> str:
    """The name of an error of either side."""
    return str(getattr(problem, "name", "")) or re.findall(r"\((\w+)\)", str(problem))[-1]


class Both:
    """A warehouse and ClickHouse, which are told the same."""

    def __init__(self, oracle: Any, url: str) -> None:
        self.ours, self.oracle = ml.connect(url), oracle
        oracle.query("CREATE DATABASE IF NOT EXISTS pbt")

    def create(self, name: str, columns: str, engine: str) -> None:
        self.oracle.query(f"DROP TABLE IF EXISTS pbt.{name} SYNC")
        self.ours.sql(f"DROP TABLE IF EXISTS {name}")
        self.oracle.query(f"CREATE TABLE pbt.{name} ({columns}) ENGINE = {engine}")
        self.ours.sql(f"CREATE TABLE {name} ({columns}) ENGINE = {engine}")

    def run(self, statement: str, **names: str) -> str:
        """Run a statement in both; the name of the error, which is the same."""
        codes = []
        for run, prefix in ((self.oracle.query, "pbt."), (self.ours.sql, "")):
            try:
                run(statement.format(**{key: f"{prefix}{name}" for key, name in names.items()}))
                codes.append("")
            except Exception as problem:
                codes.append(code_of(problem))
        assert codes[0] == codes[1], (statement, names, codes)
        return codes[0]

    def compare(self, names: Iterable[str], of: ml.Database | None = None, columns: str = "p, k, s, d") -> None:
        for name in names:
            query = f"SELECT {columns} FROM {{}} ORDER BY ALL FORMAT CSV"
            wanted = str(self.oracle.query(query.format(f"pbt.{name}")))
            assert (of or self.ours).sql(query.format(name)).text() == wanted, name


@pytest.mark.parametrize("other", STRUCTURES)
def test_what_has_to_fit_is_what_has_to_fit_in_clickhouse(other, oracle):
    both = Both(oracle, "memory://")
    for statement in MOVES:
        for names in ({"a": "a", "b": "b"}, {"a": "b", "b": "a"}):
            both.create("a", *STRUCTURES["fits"])
            both.create("b", *STRUCTURES[other])
            for name in "ab":
                both.run("INSERT INTO {t} (p, k) VALUES (1, -1), (1, 5), (2, 7)", t=name)
            versions = [both.ours.table(name).version for name in "ab"]
            code = both.run(statement.replace("{p}", "1"), **names)
            if code:
                assert [both.ours.table(name).version for name in "ab"] == versions, "nothing was logged"
            both.compare("ab", columns="p, k, s")


def test_odd_partitions_are_as_in_clickhouse(oracle):
    both = Both(oracle, "memory://")
    for statement in MOVES:
        for partition in ("7", "(1, 2)", "ID '1'", "ALL"):
            for names in ({"a": "a", "b": "b"}, {"a": "a", "b": "a"}, {"a": "e", "b": "a"}):
                for name in "abe":
                    both.create(name, *STRUCTURES["fits"])
                for name in "ab":
                    both.run("INSERT INTO {t} (p, k) VALUES (1, 1), (2, 7)", t=name)
                both.run(statement.replace("{p}", partition), **names)
                both.compare("abe")


# M-090
@pytest.mark.parametrize("seed", range(2))
def test_random_moves_among_inserts_updates_and_merges(seed, oracle):
    draw, both = random.Random(seed), Both(oracle, f"memory://between-{seed}")
    names = ("a", "b", "c")
    for name in names:
        both.create(name, *STRUCTURES[draw.choice(["fits", "order of columns"])])
    for step in range(25):
        a, b = draw.sample(names, 2)
        partition = draw.choice(["0", "1", "2"])
        moved = draw.choice([partition, "ALL"])  # ALL is for ATTACH alone, in ClickHouse too
        kind = draw.choice(["insert", "insert", "update", "delete", "merge", "move", "move", "move"])
        if kind == "insert":
            rows = ", ".join(
                f"({draw.randrange(3)}, {draw.randint(-20, 20)}, {text}, {draw.randint(-5, 5)})"
                for text in draw.choices(["NULL", "'x'"], k=draw.randint(1, 4))
            )
            both.run(f"INSERT INTO {{t}} (p, k, s, d) VALUES {rows}", t=a)
        elif kind == "update":
            scope = draw.choice(["", f"IN PARTITION {partition}"])
            both.oracle.query(
                f"ALTER TABLE pbt.{a} UPDATE d = d + 1, s = toString(k + {step}) {scope} WHERE k % 3 = {step % 3} "
                "SETTINGS mutations_sync = 2"
            )
            both.ours.sql(
                f"ALTER TABLE {a} UPDATE d = d + 1, s = toString(k + {step}) {scope} WHERE k % 3 = {step % 3}"
            )
        elif kind == "delete":
            where = f"k % 7 = {step % 7}"
            both.oracle.query(f"ALTER TABLE pbt.{a} DELETE WHERE {where} SETTINGS mutations_sync = 2")
            both.ours.sql(draw.choice([f"ALTER TABLE {a} DELETE WHERE {where}", f"DELETE FROM {a} WHERE {where}"]))
        elif kind == "merge":
            both.ours.sql(f"OPTIMIZE TABLE {a}" + draw.choice(["", " FINAL"]))
        else:
            before = both.ours.warehouse.store.counters.copy()
            both.run(draw.choice(MOVES).replace("{p}", moved), a=a, b=b)
            spent = both.ours.warehouse.store.counters - before
            assert not [what for what in spent.details if what.startswith("put data")], spent.details
        both.compare(names)
        if step % 8 == 7:
            both.compare(names, ml.connect(f"memory://between-{seed}"))
    for name in names:
        table = both.ours.table(name)
        assert all(table.check()["is_passed"].to_pylist())
        table.apply_mutations()
        table.optimize(final=True)
    both.compare(names)
