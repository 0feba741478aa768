"""Columns that parts lack, because they were added later: merges and mutations write those that ClickHouse writes.

What a part lacks has the default of the newest type, so a merge that writes too much changes what rows say after the
next MODIFY COLUMN. MERGELAKE_ABSENT_SEQUENCES=500 plays so many, MERGELAKE_SEED others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import mergelake as ml
from mergelake.parts.write import rewrite
from tests.helpers.rounds import rounds

pytestmark = pytest.mark.chdb

SEED = os.environ.get("MERGELAKE_SEED", "1")
SEQUENCES = int(os.environ.get("MERGELAKE_ABSENT_SEQUENCES", rounds(4, 300)))
ENGINES = (
    "MergeTree", "MergeTree", "ReplacingMergeTree", "SummingMergeTree", "AggregatingMergeTree", "CoalescingMergeTree",
)  # fmt: skip
ADDED = (
    "UInt8", "Nullable(Int32)", "Int16 DEFAULT 7", "String", "Int32 MATERIALIZED 5", "Array(UInt8)",
    "LowCardinality(String)", "Tuple(a UInt8, b String)", "Int64 DEFAULT k * 2", "Map(String, UInt8)",
)  # fmt: skip
CHANGES = {"UInt8": "String", "Nullable(Int32)": "Nullable(String)", "Int16": "String", "Array(UInt8)": "Array(String)"}
VALUES = {"UInt8": "3", "Nullable(Int32)": "-4", "String": "'z'", "Int16": "8", "LowCardinality(String)": "'l'"}
NO_MERGES = "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1"
"""Of ClickHouse's own."""
DESCRIBED = "SELECT name, type, default_kind FROM system.columns WHERE database = 'absent' AND table = 't'"


@pytest.fixture(scope="module")
def session(oracle: Any) -> Iterator[Any]:
    oracle.query("CREATE DATABASE absent")
    oracle.query("SET mutations_sync = 2, alter_sync = 2")
    yield oracle
    oracle.query("DROP DATABASE absent")


class Both:
    """One table here and in ClickHouse; what a part has is compared, and what its rows say."""

    def __init__(self, session: Any, rng: random.Random) -> None:
        self._session, self._rng = session, rng
        self._db = ml.connect(f"memory://absent{rng.random()}")
        self._db.sql("CREATE DATABASE absent")
        self.script: list[str] = []
        session.query("DROP TABLE IF EXISTS absent.t SYNC")

    def run(self, text: str) -> None:
        self.script.append(text)
        self._session.query(text)
        self._db.sql(text)
        if text.startswith(("ALTER", "DELETE")) and self._rng.random() < 0.7:
            self._db.table("absent.t").apply_mutations()  # otherwise a merge has to apply it

    def columns(self) -> list[tuple[str, str, str]]:
        rows = self._session.query(DESCRIBED, "TSV").bytes().decode().splitlines()
        return [tuple(line.replace("\\'", "'").split("\t")) for line in rows]  # type: ignore[misc]

    def compare(self) -> None:
        names = ", ".join(name for name, _, _ in self.columns())
        query = f"SELECT {names} FROM absent.t ORDER BY ALL FORMAT TSV"
        expected = self._session.query(query).bytes()
        assert self._db.sql(query).text().encode() == expected, ";\n".join(self.script)

    def optimize(self) -> None:
        self.run("OPTIMIZE TABLE absent.t FINAL")
        where = "database = 'absent' AND table = 't' AND active"
        query = f"SELECT column FROM system.parts_columns WHERE {where} ORDER BY column"
        expected = self._session.query(query, "TSV").bytes().decode().split()
        assert [name for (name,) in self._db.sql(query).rows()] == expected, ";\n".join(self.script)


def statement(both: Both, rng: random.Random, number: int) -> str:
    columns = both.columns()
    added = [column for column in columns if column[0].startswith("x")]
    name, kind, default = rng.choice(added) if added else ("", "", "")
    shape = rng.random()
    if shape < 0.25:
        given = [n for n, k, d in added if k in VALUES and d != "MATERIALIZED" and rng.random() < 0.5]
        values = "".join(f", {VALUES[k]}" for n, k, _ in added if n in given)
        names = ", ".join(["k", "v", *given])
        return f"INSERT INTO absent.t ({names}) SELECT number % 7, number + {number}{values} FROM numbers({number + 3})"
    if shape < 0.5 or not added:
        first = rng.choice(("", "", " FIRST", " AFTER k"))
        return f"ALTER TABLE absent.t ADD COLUMN x{number} {rng.choice(ADDED)}{first}"
    if shape < 0.6:
        return f"ALTER TABLE absent.t RENAME COLUMN {name} TO x{number}"
    if shape < 0.65:
        return f"ALTER TABLE absent.t {rng.choice(('DROP', 'CLEAR'))} COLUMN {name}"
    if shape < 0.8 and kind in CHANGES:
        return f"ALTER TABLE absent.t MODIFY COLUMN {name} {'String DEFAULT 7' if default else CHANGES[kind]}"
    where = rng.choice(("k = 1", "k = 100", "v % 3 = 0"))
    if shape < 0.9:
        target, value = (name, VALUES[kind]) if kind in VALUES and default != "MATERIALIZED" else ("v", "v + 1")
        return f"ALTER TABLE absent.t UPDATE {target} = {value} WHERE {where}"
    return rng.choice((f"ALTER TABLE absent.t DELETE WHERE {where}", f"DELETE FROM absent.t WHERE {where}"))


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_parts_have_the_columns_of_clickhouse(session: Any, number: int) -> None:
    rng = random.Random(f"{SEED}/{number}")
    both = Both(session, rng)
    engine, wide = rng.choice(ENGINES), rng.choice((0, 1 << 30))
    settings = f"min_bytes_for_wide_part = {wide}, allow_dimensions_outside_sorting_key = 1, {NO_MERGES}"
    both.run(f"CREATE TABLE absent.t (k Int32, v Int64) ENGINE = {engine} ORDER BY k SETTINGS {settings}")
    with mock.patch.object(rewrite, "REWRITTEN_WHOLE_BYTES", rng.choice((0, 1 << 30))):
        for at in range(14):
            both.run(statement(both, rng, at))
            both.compare()
            if rng.random() < 0.3:
                both.optimize()
                both.compare()
        both.optimize()
        both.compare()
