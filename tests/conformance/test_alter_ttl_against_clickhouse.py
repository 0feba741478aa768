"""ALTER TABLE … TTL: random sequences, with the rows that ClickHouse has after each; errors; what it costs."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from tests.conformance.test_ttl_against_clickhouse import Pair
from tests.helpers import random_ttl

pytestmark = pytest.mark.chdb

FIRST, END = int(os.environ.get("TTL_FIRST", "0")), int(os.environ.get("TTL_END", "8"))


def altered(pair: Pair, sql: str) -> bool:
    """Execute an ALTER; False if ClickHouse fails as `Pair.optimized` says."""
    pair.db.sql(sql)
    try:
        pair.oracle.query(f"{sql} SETTINGS mutations_sync = 2")
    except Exception as failure:
        if "NOT_FOUND_COLUMN_IN_BLOCK" not in str(failure):
            raise
        return False
    return True


def step(rng: random.Random, table: random_ttl.RandomTtl) -> str:
    # Parts of which all times are over lose rows without a time there, by a merge: there are none.
    kinds = {
        f"INSERT INTO t VALUES {table.rows(rng, epoch=0)}": 4,
        "OPTIMIZE TABLE t FINAL": 2,
        f"ALTER TABLE t MODIFY TTL {random_ttl.elements(rng)}": 2,
        f"ALTER TABLE t MODIFY COLUMN {rng.choice('nxyz')} TTL {random_ttl.time(rng)}": 2,
        "ALTER TABLE t MATERIALIZE TTL": 1,
    }
    return rng.choices(list(kinds), list(kinds.values()))[0]


@pytest.mark.parametrize("seed", range(FIRST, END))
def test_random_sequences(seed: int, oracle: Any, tmp_path: Path) -> None:
    rng = random.Random(seed)
    table = random_ttl.draw(rng, groups=False, plain=True)
    pair, history = Pair(oracle, tmp_path, table.create), [table.create]
    pair.run(f"INSERT INTO t VALUES {table.rows(rng, epoch=0)}")
    has_ttl = False
    for _ in range(7):
        sql = step(rng, table)
        has_ttl |= " TTL " in sql and "MATERIALIZE" not in sql
        if "MATERIALIZE" in sql and not has_ttl:
            continue
        history.append(sql[:200])
        if sql.startswith("INSERT"):
            pair.run(sql)
        elif not (pair.optimized() if sql.startswith("OPTIMIZE") else altered(pair, sql)):
            return
        theirs, ours = pair.rows()
        assert ours == theirs, history
    pair.db.table("t").apply_mutations()
    theirs, ours = pair.rows()
    assert ours == theirs, history
    assert ml.connect(str(tmp_path)).sql("SELECT * FROM t ORDER BY ALL FORMAT CSV").text() == ours


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("REMOVE TTL", 36),
        ("MODIFY COLUMN v REMOVE TTL", 36),
        ("MATERIALIZE TTL", 80),
        ("MODIFY TTL k", 450),
        ("MODIFY TTL now()", 36),
        ("MODIFY TTL nope", 47),
        ("MODIFY COLUMN k TTL d", 44),
        ("MODIFY COLUMN v TTL v", 450),
        ("MODIFY TTL d TO DISK 'x'", 450),
    ],
)
def test_errors_are_those_of_clickhouse_and_nothing_is_logged(sql: str, code: int, oracle: Any, tmp_path: Path) -> None:
    pair = Pair(oracle, tmp_path, "(d DateTime, k UInt8, v UInt8) ENGINE = MergeTree ORDER BY k")
    before = pair.db.table("t").version
    with pytest.raises(Exception, match=f"Code: {code}\\."):
        oracle.query(f"ALTER TABLE t {sql}")
    with pytest.raises(MergelakeError) as failure:
        pair.db.sql(f"ALTER TABLE t {sql}")
    assert failure.value.code == code
    assert pair.db.table("t").version == before


def test_a_column_that_a_ttl_needs_can_be_renamed_and_not_dropped(oracle: Any, tmp_path: Path) -> None:
    create = "(d DateTime, k UInt8, v UInt8 TTL d + 1) ENGINE = MergeTree ORDER BY k TTL d WHERE v = 1"
    pair = Pair(oracle, tmp_path, create)
    pair.run("INSERT INTO t VALUES ('2001-01-01 00:00:00', 1, 1), ('2090-01-01 00:00:00', 2, 1)")
    for column in ("d", "v"):
        for run in (oracle.query, pair.db.sql):
            with pytest.raises(Exception, match=r"Missing columns|needs|UNKNOWN_IDENTIFIER|depend"):
                run(f"ALTER TABLE t DROP COLUMN {column}")
    pair.run("ALTER TABLE t RENAME COLUMN d TO e")
    (part,) = pair.db.table("t").handle.refresh().parts()
    pair.run("OPTIMIZE TABLE t FINAL")
    theirs, ours = pair.rows()
    assert ours == theirs
    # The times of the part were those of the renamed column: they were used, and are used on.
    (merged,) = pair.db.table("t").handle.refresh().parts()
    assert merged.manifest.ttl.keys() == part.manifest.ttl.keys()


def test_a_new_ttl_writes_no_data_and_its_times_only_a_small_file(tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    db.sql("CREATE TABLE t (d DateTime, k UInt64, s String) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t SELECT toDateTime('2090-01-01 00:00:00'), number, hex(sipHash64(number)) FROM numbers(60000)")
    result = db.sql("ALTER TABLE t MODIFY TTL d")
    assert "put data" not in result.stats.requests.details
    table = db.table("t")
    with db.warehouse.metered() as tally:
        table.apply_mutations()
    assert tally.counters.details["put data"] <= 4
    assert tally.counters.bytes_put < 20_000
    (part,) = table.handle.refresh().parts()
    assert [*part.manifest.ttl.values()] == [(3786912000, 3786912000)]
    db.sql("OPTIMIZE TABLE t FINAL")
    assert db.sql("SELECT count(), sum(k) FROM t").rows() == [(60000, 1799970000)]


def test_materialize_in_a_partition(oracle: Any, tmp_path: Path) -> None:
    pair = Pair(oracle, tmp_path, "(d DateTime, k UInt8) ENGINE = MergeTree PARTITION BY k ORDER BY d")
    pair.run("INSERT INTO t VALUES ('2001-01-01 00:00:00', 1), ('2001-01-01 00:00:00', 2), ('2090-01-01 00:00:00', 1)")
    for run in (oracle.query, pair.db.sql):
        run("ALTER TABLE t MODIFY TTL d SETTINGS materialize_ttl_after_modify = 0")
    pair.same("nothing goes")
    assert altered(pair, "ALTER TABLE t MATERIALIZE TTL IN PARTITION 1")
    theirs, ours = pair.rows()
    assert ours == theirs
    assert len(ours.splitlines()) == 2
    table, count = pair.db.table("t"), "SELECT count() FROM t"
    table.materialize_ttl(partition_id="2")
    assert pair.db.sql(count).rows() == [(1,)]
    table.remove_ttl()
    table.modify_ttl("d - INTERVAL 99 YEAR", materialize=False)
    assert pair.db.sql(count).rows() == [(1,)]
    assert table.materialize_ttl()
    assert pair.db.sql(count).rows() == [(0,)]


def test_a_ttl_that_fails_for_some_row_is_refused_before_it_is_logged(tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    db.sql("CREATE TABLE t (k Int32, s String, d Date) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t VALUES (1, '2024-01-01', '2024-01-01'), (2, 'x', '2100-01-01')")
    version = db.table("t").version
    for change in ("MODIFY TTL s + INTERVAL 1 DAY", "MODIFY COLUMN d TTL s + INTERVAL 1 DAY"):
        with pytest.raises(ml.MergelakeError, match="CANNOT_PARSE_DATETIME"):
            db.sql(f"ALTER TABLE t {change}")
    assert db.table("t").version == version
    db.sql("ALTER TABLE t DELETE WHERE k = 2")
    db.sql("INSERT INTO t VALUES (3, '2100-01-01', '2100-01-01')")
    db.sql("ALTER TABLE t MODIFY TTL s + INTERVAL 1 DAY")
    with pytest.raises(ml.MergelakeError, match="CANNOT_PARSE_DATETIME"):
        db.sql("INSERT INTO t VALUES (4, 'y', '2100-01-01')")
    db.sql("OPTIMIZE TABLE t FINAL")
    assert db.sql("SELECT k FROM t").rows() == [(3,)]
