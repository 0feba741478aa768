"""What statements say that they asked of a bucket is what was asked, on each way of reading and writing."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.api.cli.output import summary
from mergelake.api.python.cost import chunk_bytes, table_cost
from mergelake.query import in_place, table_source
from mergelake.query.attach import attached
from mergelake.query.attach.attached import AttachedSets
from mergelake.store.interface.protocol import Counters

ROWS = 30_000


@pytest.fixture
def db(s3_url: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> ml.Database:
    monkeypatch.setattr(attached, "ROWS_MIN", 1000)
    monkeypatch.setattr(table_source, "FINAL_ROWS_MIN", 0)
    monkeypatch.setattr(attached, "SETS", AttachedSets())
    db = ml.connect(s3_url, s3_options)
    db.sql(
        "CREATE TABLE t (k UInt64, s String, m String) ENGINE = MergeTree ORDER BY k "
        "SETTINGS min_bytes_for_full_part_storage = 300000"
    )
    return db


def spent(db: ml.Database, statement: str) -> tuple[ml.Result, Counters]:
    """The result of a statement, and what the store was asked meanwhile."""
    before = db.warehouse.store.counters
    result = db.sql(statement)
    return result, db.warehouse.store.counters - before


def test_an_insert_of_one_row_is_two_writes_and_costs_a_hundred_thousandth(db: ml.Database) -> None:
    db.sql("INSERT INTO t VALUES (0, '', '')")
    result = db.sql("INSERT INTO t VALUES (1, 'a', 'b')")
    requests = result.stats.requests
    assert (requests.put, requests.get, requests.list, requests.head, requests.delete) == (2, 2, 0, 0, 0)
    assert result.stats.cost == pytest.approx((2 * 0.005 + 2 * 0.0004) / 1000)
    assert summary(result, 0).endswith(" 4 requests for 0.0000108.")
    with db.warehouse.metered() as tally:
        db.table("t").append({"k": [2], "s": ["a"], "m": ["b"]})
    assert (tally.counters.put, tally.counters.tables[db.table("t").handle.directory].put) == (2, 2)
    cheap = ml.connect(db.warehouse.url, dict(db.warehouse.store.spec.options), prices={"put": 0, "get": 1})
    stats = cheap.sql("SELECT 1 FROM t LIMIT 1").stats
    assert stats.cost == pytest.approx((stats.requests.get * 1 + stats.requests.list * 0.005) / 1000)


def test_the_log_tells_the_puts_of_uploads_in_pieces_too(s3_url: str, s3_options: dict[str, str]) -> None:
    db = ml.connect(s3_url, {**s3_options, "chunk_size": str(5 << 20)})
    db.sql("CREATE TABLE t (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
    for _ in range(2):
        db.sql("INSERT INTO t SELECT number, hex(rand64()) FROM numbers(400000)")
    db.sql("OPTIMIZE TABLE t FINAL")
    table = db.table("t")
    told = table_cost("t", table.handle.log, db.warehouse.clock.now_ms(), 1, chunk_bytes(db.warehouse.store))
    counted = db.warehouse.store.counters.tables[table.handle.directory]
    assert told.total.puts == counted.put > 3 + table.version, "some objects are larger than a piece"
    log_bytes = sum(item.size for item in db.warehouse.store.list(f"{table.handle.directory}/_log"))
    assert told.total.bytes == counted.bytes_put - log_bytes


def test_scans_statements_that_clickhouse_reads_for_and_large_inserts_count_all_of_their_requests(
    db: ml.Database,
) -> None:
    for number in range(3):
        statement = (
            f"INSERT INTO t SELECT number * 3 + {number}, toString(number % 7), hex(sipHash64(number)) "
            f"FROM numbers({ROWS})"
        )
        result, asked = spent(db, statement)
        assert result.stats.requests == asked
        assert asked.put > 2, "a file is an object"
    reasons = set()
    for query in ("SELECT s, count(), max(m) FROM t GROUP BY s", "SELECT k, m FROM t WHERE m LIKE '%77%'") * 3:
        result, asked = spent(db, query)
        reasons.add(result.stats.reason)
        assert (result.stats.requests.get, result.stats.requests.bytes_get) == (asked.get, asked.bytes_get)
        assert asked.get > 0
    assert in_place.READS_ITSELF in reasons
    assert len(reasons) > 1
    result, asked = spent(db, "OPTIMIZE TABLE t FINAL")
    assert result.stats.requests == asked
    logged = db.sql(
        "SELECT ProfileEvents['S3GetObject'], ProfileEvents['ReadBufferFromS3Bytes'] FROM system.query_log "
        "WHERE type = 'QueryFinish' AND query_kind = 'Optimize'"
    ).rows()
    assert logged == [(asked.get, asked.bytes_get)]
