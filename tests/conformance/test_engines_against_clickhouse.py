"""Engines that collapse rows, through the whole of both: SQL here, a published table in ClickHouse, and errors."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.api.sql.database import connect
from mergelake.core.base.errors import MergelakeError

pytestmark = pytest.mark.chdb

COLUMNS = "k Int32, p UInt8, sign Int8, ver UInt16, n Nullable(Int64), d Decimal(12, 3), s String, a Array(UInt8)"
ENGINES = (
    "ReplacingMergeTree(ver)",
    "CollapsingMergeTree(sign)",
    "VersionedCollapsingMergeTree(sign, ver)",
    "CoalescingMergeTree",
    "CoalescingMergeTree((n, a))",
    "SummingMergeTree",
    "SummingMergeTree((n, d))",
)
BAD = (
    "CollapsingMergeTree",
    "CollapsingMergeTree(sign, ver)",
    "CollapsingMergeTree(p)",
    "CollapsingMergeTree(n)",
    "CollapsingMergeTree(nope)",
    "CollapsingMergeTree('sign')",
    "VersionedCollapsingMergeTree(sign)",
    "VersionedCollapsingMergeTree(sign, ver, k)",
    "VersionedCollapsingMergeTree(sign, s)",
    "VersionedCollapsingMergeTree(sign, sign)",
    "VersionedCollapsingMergeTree(p, ver)",
    "CoalescingMergeTree(k)",
    "CoalescingMergeTree(nope)",
    "CoalescingMergeTree(n, d)",
    "CoalescingMergeTree('n')",
    "CoalescingMergeTree((n, n))",
    "SummingMergeTree(k)",
    "SummingMergeTree(nope)",
    "SummingMergeTree(n, d)",
    "SummingMergeTree((d, d))",
)


def _rows(rng: random.Random) -> str:
    rows = []
    for _ in range(rng.choice((1, 3, 40, 200))):
        key, number = rng.randrange(-6, 6), rng.choice(("NULL", "0", "5", "-5", "9223372036854775807"))
        letters, values = rng.choice(("a", "b", "")), rng.choice(("[]", "[1]", "[2, 3]"))
        sign, version, amount = rng.choice((1, -1)), rng.randrange(3), rng.choice(("0", "1.5", "-1.5"))
        rows.append(f"({key}, {rng.randrange(2)}, {sign}, {version}, {number}, {amount}, '{letters}', {values})")
    return ", ".join(rows)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_published_table_answers_final_as_it_does_here(engine: str, oracle: Any, tmp_path: Path) -> None:
    rng, name = random.Random(engine), re.sub(r"\W", "", engine).lower()
    db = connect(str(tmp_path))
    db.sql(f"CREATE TABLE t ({COLUMNS}) ENGINE = {engine} PARTITION BY p ORDER BY (k, s)")
    for step in range(5):
        db.sql(f"INSERT INTO t VALUES {_rows(rng)}")
        if step == 2:
            db.sql("OPTIMIZE TABLE t PARTITION 0 FINAL")
        if step == 3:
            db.sql("ALTER TABLE t DELETE WHERE n = 5 AND k > 2")
    table = db.table("t")
    table.publish()
    oracle.query(f"DROP TABLE IF EXISTS default.{name}")
    oracle.query(table.attach_statement(f"default.{name}"))
    try:
        for final in ("", " FINAL"):
            query = f"SELECT * FROM {{}}{final} ORDER BY ALL"
            ours = db.sql(query.format("t")).text("TSV")
            assert str(oracle.query(query.format(f"default.{name}"), "TSV")) == ours
            assert sum(1 for _ in table.scan(final=bool(final))) == ours.count("\n")
    finally:
        oracle.query(f"DROP TABLE default.{name}")


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_of_parts_that_clickhouse_wrote_collapse_here_as_there(engine: str, oracle: Any) -> None:
    rng, name = random.Random(f"{engine} theirs"), "theirs_" + re.sub(r"\W", "", engine).lower()
    create = f"CREATE TABLE {{}} ({COLUMNS}) ENGINE = {engine} PARTITION BY p ORDER BY (k, s)"
    db = connect(f"memory://{name}")
    db.sql(create.format("t"))
    oracle.query(f"DROP TABLE IF EXISTS default.{name}")
    oracle.query(create.format(f"default.{name}"))
    oracle.query(f"SYSTEM STOP MERGES default.{name}")
    try:
        for _ in range(4):
            oracle.query(f"INSERT INTO default.{name} VALUES {_rows(rng)}")
        paths = f"SELECT path FROM system.parts WHERE table = '{name}' AND active ORDER BY min_block_number"
        for path in str(oracle.query(paths, "TSV")).split():
            db.table("t").append(ml.read_part(path))
        query = "SELECT * FROM {} FINAL ORDER BY ALL"
        assert db.sql(query.format("t")).text("TSV") == str(oracle.query(query.format(f"default.{name}"), "TSV"))
    finally:
        oracle.query(f"DROP TABLE default.{name}")


@pytest.mark.parametrize("engine", BAD)
def test_wrong_arguments_have_the_code_of_clickhouse(engine: str, oracle: Any, tmp_path: Path) -> None:
    create = f"CREATE TABLE {{}} ({COLUMNS}) ENGINE = {engine} ORDER BY k"
    with pytest.raises(RuntimeError) as theirs:
        oracle.query(create.format("default.wrong"))
    with pytest.raises(MergelakeError) as ours:
        connect("memory://wrong").sql(create.format("wrong"))
    assert f"Code: {ours.value.code}." in str(theirs.value)
