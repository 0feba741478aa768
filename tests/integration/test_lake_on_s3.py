"""A table's whole life on a real S3 server: once undisturbed, once with every tenth request failing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import mergelake as ml

LOG = """CREATE TABLE {} (ts DateTime('UTC'), service LowCardinality(String), user UInt64, latency Nullable(Float64))
    ENGINE = MergeTree PARTITION BY toYYYYMM(ts) ORDER BY (service, ts)
    SETTINGS index_granularity = 256, min_bytes_for_full_part_storage = 20000"""
LATEST = "CREATE TABLE latest (k UInt32, v UInt32, s String) ENGINE = ReplacingMergeTree(v) ORDER BY k"
MONTH = 2_678_400
ROWS = 2000


def batch(number: int) -> pa.Table:
    """Rows of three months; every batch is another one."""
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "ts": pa.array([1_767_225_600 + i % 3 * MONTH + i for i in ids], pa.timestamp("s", "UTC")),
            "service": [f"service-{i % 7}" for i in ids],
            "user": pa.array(ids, pa.uint64()),
            "latency": [None if i % 5 == 0 else i / 8 for i in ids],
        }
    )


class Expected:
    """The rows that should be there, kept in memory."""

    def __init__(self) -> None:
        self.rows = batch(0).slice(0, 0)

    def add(self, number: int) -> None:
        self.rows = pa.concat_tables([self.rows, batch(number)])

    def drop_month(self, month: int) -> None:
        kept = [(ts.year * 100 + ts.month) != month for ts in self.rows["ts"].to_pylist()]
        self.rows = self.rows.filter(pa.array(kept))

    def is_in(self, db: ml.Database, source: str = "logs") -> None:
        """`source` holds exactly these rows, by SQL and by scan."""
        found = db.sql(f"SELECT ts, service, user, latency FROM {source} ORDER BY user").arrow()
        assert found.select(self.rows.column_names).to_pylist() == self.rows.sort_by("user").to_pylist()


def life(db: ml.Database, other: ml.Database) -> None:
    """Everything that can be done to a table; `other` is another process, which must see it all."""
    expected = Expected()
    db.sql(LOG.format("logs"))
    table = db.table("logs")
    for number in range(4):
        assert table.append(batch(number), dedup_token=f"batch {number}").rows == ROWS
        expected.add(number)
    assert table.append(batch(3), dedup_token="batch 3").duplicate
    expected.is_in(db)
    expected.is_in(other)
    four = table.version

    # look-ups and aggregates
    where = "service = 'service-3' AND ts >= '2026-01-15'"
    mask = [s == "service-3" and t.isoformat() >= "2026-01-15" for s, t in rows(expected, "service", "ts")]
    assert db.sql(f"SELECT count() FROM logs WHERE {where}").scalar() == sum(mask)
    assert other.table("logs").scan(["user"], where).arrow().num_rows == sum(mask)

    # merges
    assert table.optimize(final=True) == 3
    assert table.parts().num_rows == 3
    assert all(row["is_passed"] for row in table.check().to_pylist())
    expected.is_in(other)
    db.sql("INSERT INTO logs SELECT ts, service, user + 1000000, latency FROM logs WHERE user < 10")
    db.sql("ALTER TABLE logs DROP PARTITION 202602")
    before = expected.rows
    expected.drop_month(202602)
    small = [row for row in before.slice(0, 10).to_pylist() if row["ts"].month != 2]
    copies = pa.Table.from_pylist([{**row, "user": row["user"] + 1_000_000} for row in small], before.schema)
    expected.rows = pa.concat_tables([expected.rows, copies])
    expected.is_in(other)

    # as of
    assert (
        table.scan(version=four).arrow().num_rows == 4 * ROWS == other.table("logs").scan(version=four).arrow().num_rows
    )
    assert other.sql(f"SELECT count(latency) FROM logs AS OF VERSION {four}").scalar() == 4 * ROWS * 4 // 5
    assert table.scan(version=1).arrow().num_rows == 0

    # names
    db.sql(LOG.format("fresh"))
    db.sql("INSERT INTO fresh (user) VALUES (7)")
    db.sql("EXCHANGE TABLES logs AND fresh")
    assert other.sql("SELECT user FROM logs").rows() == [(7,)]
    expected.is_in(other, "fresh")
    db.sql("RENAME TABLE fresh TO archive; TRUNCATE TABLE logs")
    assert other.sql("SELECT count() FROM logs").scalar() == 0
    expected.is_in(db, "archive")
    with pytest.raises(ml.NotFoundError):
        other.table("fresh")
    db.sql("CREATE DATABASE IF NOT EXISTS web; RENAME TABLE archive TO web.archive; DROP TABLE logs")
    expected.is_in(other, "web.archive")
    assert other.warehouse.tables() == ["web.archive"]


def rows(expected: Expected, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(expected.rows[name].to_pylist() for name in names), strict=True))


def replacing(db: ml.Database, other: ml.Database) -> None:
    """FINAL shows the newest row of each key before merges do, and the same after."""
    db.sql(LATEST)
    for version in (1, 3, 2):
        keys = range(0, 900, version)
        db.table("latest").append({"k": list(keys), "v": [version] * len(keys), "s": [f"{k}.{version}" for k in keys]})
    newest = [(k, v := 3 if k % 3 == 0 else 2 if k % 2 == 0 else 1, f"{k}.{v}") for k in range(900)]
    query = "SELECT k, v, s FROM latest FINAL ORDER BY k"
    assert other.sql("SELECT count() FROM latest").scalar() == 900 + 300 + 450
    assert other.sql(query).rows() == newest
    assert other.table("latest").scan(final=True).arrow().num_rows == 900
    db.sql("OPTIMIZE TABLE latest FINAL")
    assert other.sql("SELECT count() FROM latest").scalar() == 900
    assert other.sql(query).rows() == newest
    assert other.sql(query.replace(" FINAL", "")).rows() == newest


def published(db: ml.Database, oracle: Any, s3_options: dict[str, str]) -> None:
    """A stock ClickHouse sees the same rows, whatever happened on the way."""
    table = db.table("web.archive")
    table.publish()
    statement = table.attach_statement(
        "default.lake_on_s3",
        access_key_id=s3_options["access_key_id"],
        secret_access_key=s3_options["secret_access_key"],
    )
    ours = dict(db.warehouse.store.spec.options)["endpoint"]  # ClickHouse asks the server itself, not the proxy
    statement = statement.replace(ours, s3_options["endpoint"])
    oracle.query("DROP TABLE IF EXISTS default.lake_on_s3")
    oracle.query(statement)
    query = "SELECT count(), sum(user), sum(latency), uniqExact(service) FROM {}"
    theirs = str(oracle.query(query.format("default.lake_on_s3"), "TSV"))
    oracle.query("DROP TABLE default.lake_on_s3")
    assert theirs == db.sql(query.format("web.archive")).text("TSV")


def test_a_table_lives_on_s3(s3_url: str, s3_options: dict[str, str], oracle: Any) -> None:
    # M-063 M-087
    db, other = ml.connect(s3_url, s3_options), ml.connect(s3_url, s3_options)
    life(db, other)
    replacing(db, other)
    published(db, oracle, s3_options)


@pytest.mark.parametrize(
    "faults",
    [
        [{"do": "status", "status": 503, "prob": 0.1}],
        [{"do": "lose_response", "prob": 0.1}],
        [{"do": "status", "status": 503, "prob": 0.05}, {"do": "lose_response", "prob": 0.05}],
    ],
    ids=["503", "lost responses", "both"],
)
def test_a_table_lives_on_an_s3_that_fails_every_tenth_request(
    s3_url: str, s3_options: dict[str, str], fault_proxy: Any, oracle: Any, faults: list[dict[str, Any]]
) -> None:
    # M-003 M-093
    options = {**s3_options, "endpoint": fault_proxy.url, "timeout_s": "5"}
    db, other = ml.connect(s3_url, options), ml.connect(s3_url, options)
    before = fault_proxy.stats["fired"]
    fault_proxy.rules = faults
    life(db, other)
    replacing(db, other)
    published(db, oracle, s3_options)
    fired = fault_proxy.stats["fired"] - before
    fault_proxy.rules = []
    assert fired > 20
    # each commit happened once, and nothing of it was told twice
    undisturbed = ml.connect(s3_url, s3_options)
    assert undisturbed.sql("SELECT uniqExact(user) = count() FROM web.archive").scalar() == 1
    history = undisturbed.table("web.archive").history().to_pylist()
    assert [entry["version"] for entry in history] == list(range(len(history), 0, -1))
    assert sum(entry["rows_added"] for entry in history if entry["operations"].startswith("insert")) == 4 * ROWS + 10
