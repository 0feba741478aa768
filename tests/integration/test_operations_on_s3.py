"""What a MergeTree on an object store must be able to do, row by row, on a real S3 server: rows, and what it costs.

The rows are those of the matrix that compares ClickHouse's disks `s3` and `s3_plain`: an operation for which a plain
bucket "may require a full rewrite", or none at all, costs one log entry here. `# M-077` names the matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.store.interface.protocol import Counters
from mergelake.store.objects.memory import MemoryStore

ROWS = 3000
CREATE = """CREATE TABLE {} (p Int8, k UInt32, a String, b Float64, day Date) ENGINE = MergeTree
    PARTITION BY p ORDER BY k SETTINGS min_bytes_for_full_part_storage = 0, index_granularity = 512"""
ALL = "SELECT p, k, a, b FROM {} ORDER BY p, k"


class Lake:
    """A table with three parts in two partitions, as one process and, anew, another one sees it."""

    def __init__(self, url: str, options: dict[str, str]) -> None:
        self.url, self.options = url, options
        self.db = self.other()
        self.db.sql(CREATE.format("t"))
        for number in range(3):
            keys = range(number * ROWS, (number + 1) * ROWS)
            self.db.table("t").append(
                pa.table(
                    {
                        "p": pa.array([number % 2 - 1] * ROWS, pa.int8()),
                        "k": pa.array(keys, pa.uint32()),
                        "a": [f"{key * 2_654_435_761 % (1 << 32):08x}" for key in keys],
                        "b": [key / 7 for key in keys],
                        "day": pa.array([20_000] * ROWS, pa.uint16()).cast(pa.int32()).cast(pa.date32()),
                    }
                )
            )

    def other(self) -> ml.Database:
        """Knows nothing but the bucket."""
        return ml.connect(self.url, self.options)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """As both see it."""
        here, there = self.db.sql(query).rows(), self.other().sql(query).rows()
        assert here == there
        return here

    @contextmanager
    def counted(self) -> Iterator[Callable[[], Counters]]:
        """The requests since then."""
        store = self.db.warehouse.store
        before = store.counters
        yield lambda: store.counters - before

    def metadata_only(self, statement: str) -> None:
        """Run a statement that must write nothing but log entries and records, and read no data."""
        with self.counted() as since:
            self.db.sql(statement)
        spent = since()
        assert spent.details.get("put data", 0) == 0, (statement, spent)
        assert spent.details.get("get data", 0) == 0, (statement, spent)


@pytest.fixture
def lake(s3_url: str, s3_options: dict[str, str]) -> Lake:
    return Lake(s3_url, s3_options)


def test_everything_is_in_the_bucket(lake: Lake) -> None:  # M-077: metadata, restored from the bucket only, SELECT
    everything = lake.rows(ALL.format("t"))
    assert len(everything) == 3 * ROWS
    assert lake.rows("SELECT count(), sum(k) FROM t WHERE k < 10") == [(10, 45)]


def test_insert(lake: Lake) -> None:  # M-077: INSERT
    lake.db.sql("INSERT INTO t (p, k, a) VALUES (5, 1, 'x'), (-5, 2, 'y')")
    assert lake.rows("SELECT p, a FROM t WHERE p IN (5, -5) ORDER BY p") == [(-5, "y"), (5, "x")]


def test_merges(lake: Lake) -> None:  # M-077: Merges
    before = lake.rows(ALL.format("t"))
    lake.db.sql("OPTIMIZE TABLE t FINAL")
    assert lake.other().table("t").parts().num_rows == 2
    assert lake.rows(ALL.format("t")) == before


def test_alter_delete(lake: Lake) -> None:  # M-077: ALTER TABLE DELETE
    lake.metadata_only("ALTER TABLE t DELETE WHERE k % 2 = 0")
    assert lake.rows("SELECT count(), min(k) FROM t") == [(3 * ROWS // 2, 1)]
    lake.db.table("t").apply_mutations()
    assert lake.rows("SELECT count(), min(k) FROM t") == [(3 * ROWS // 2, 1)]


def test_alter_update_writes_one_column(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    # M-076, M-077: ALTER TABLE UPDATE
    monkeypatch.setattr("mergelake.parts.write.rewrite.REWRITTEN_WHOLE_BYTES", 0)  # as if the parts were large
    lake.metadata_only("ALTER TABLE t UPDATE b = -1 WHERE 1")
    assert lake.rows("SELECT DISTINCT b FROM t") == [(-1.0,)]
    size = sum(
        lake.db.sql("SELECT data_compressed_bytes FROM system.columns WHERE table = 't' AND name = 'a'").rows()[0]
    )
    with lake.counted() as since:
        lake.db.table("t").apply_mutations()
    assert since().bytes_put < size / 2  # neither `a` nor `k` was copied: the part refers to their objects
    assert lake.rows("SELECT DISTINCT b FROM t") == [(-1.0,)]
    assert lake.rows("SELECT count(), uniqExact(a) FROM t") == [(3 * ROWS, 3 * ROWS)]


def test_lightweight_delete(lake: Lake) -> None:  # M-077: Lightweight delete
    lake.metadata_only("DELETE FROM t WHERE p = -1")
    assert lake.rows("SELECT count() FROM t") == [(ROWS,)]
    lake.db.sql("OPTIMIZE TABLE t FINAL")
    assert lake.rows("SELECT count() FROM t") == [(ROWS,)]


def test_moves(lake: Lake) -> None:  # M-074, M-077: Moves
    before = lake.rows(ALL.format("t"))
    lake.db.sql(CREATE.format("u"))
    lake.metadata_only("ALTER TABLE t MOVE PARTITION -1 TO TABLE u")
    assert lake.rows("SELECT count() FROM t") == [(ROWS,)]
    assert lake.rows("SELECT count() FROM u") == [(2 * ROWS,)]
    both = "SELECT p, k, a, b FROM (SELECT * FROM t UNION ALL SELECT * FROM u) ORDER BY p, k"
    assert lake.rows(both) == before
    lake.metadata_only("ALTER TABLE t ATTACH PARTITION -1 FROM u")
    lake.metadata_only("ALTER TABLE t REPLACE PARTITION -1 FROM u")
    assert lake.rows(ALL.format("t")) == before


def test_columns_come_and_go(lake: Lake) -> None:  # M-076, M-077: Adding/removing column
    lake.metadata_only("ALTER TABLE t ADD COLUMN c Int64 DEFAULT k + 1 AFTER k")
    assert lake.rows("SELECT sum(c - k) FROM t") == [(3 * ROWS,)]
    lake.metadata_only("ALTER TABLE t DROP COLUMN b")
    lake.metadata_only("ALTER TABLE t ADD COLUMN b String")
    assert lake.rows("SELECT DISTINCT b FROM t") == [("",)]


def test_indexes_and_ttl_come_and_go(lake: Lake) -> None:  # M-076, M-077: Adding/removing index and TTL
    lake.metadata_only("ALTER TABLE t ADD INDEX i a TYPE bloom_filter GRANULARITY 1")
    lake.metadata_only("ALTER TABLE t MODIFY TTL day + INTERVAL 100 YEAR SETTINGS materialize_ttl_after_modify = 0")
    before = lake.rows(ALL.format("t"))
    lake.db.sql("OPTIMIZE TABLE t FINAL")
    assert lake.rows(ALL.format("t")) == before
    lake.metadata_only("ALTER TABLE t REMOVE TTL")
    lake.metadata_only("ALTER TABLE t DROP INDEX i")
    assert lake.rows(ALL.format("t")) == before


def test_rename_table(lake: Lake) -> None:  # M-077: Rename table
    before = lake.rows(ALL.format("t"))
    lake.metadata_only("RENAME TABLE t TO u")
    assert lake.rows(ALL.format("u")) == before


def test_rename_column(lake: Lake) -> None:  # M-076, M-077: Rename column
    before = lake.rows("SELECT k, a FROM t ORDER BY k")
    lake.metadata_only("ALTER TABLE t RENAME COLUMN a TO z")
    assert lake.rows("SELECT k, z FROM t ORDER BY k") == before
    lake.metadata_only("ALTER TABLE t ADD COLUMN a String DEFAULT 'new'")
    assert lake.rows("SELECT DISTINCT a FROM t") == [("new",)]
    assert lake.rows("SELECT k, z FROM t ORDER BY k") == before


def test_ttl(lake: Lake) -> None:  # M-077: TTL
    lake.db.sql(
        "CREATE TABLE e (ts DateTime, k UInt32) ENGINE = MergeTree PARTITION BY toYYYYMM(ts) ORDER BY k "
        "TTL ts + INTERVAL 30 DAY SETTINGS merge_selector_base = 2"
    )
    for number in range(4):
        for day in ("2001-01-02", "2001-02-03", "2090-01-01"):
            lake.db.sql(f"INSERT INTO e SELECT toDateTime('{day} 00:00:00') + number, {number} FROM numbers(100)")
    node = lake.db.warehouse.node("n", local=MemoryStore())
    with lake.counted() as since:
        assert node.step()
    spent = since()
    assert (spent.details.get("get data", 0), spent.details.get("put data", 0)) == (0, 0), spent
    assert lake.rows("SELECT k, count() FROM e GROUP BY k ORDER BY k") == [(number, 100) for number in range(4)]
    with lake.counted() as since:
        while node.step() or not node.idle():
            pass
    assert since().details.get("put data", 0) == 0, since()  # what has not expired is merged on the disk of the node
    assert lake.db.table("e").merges().num_rows == 1
    node.drain(10)
    assert lake.rows("SELECT k, count() FROM e GROUP BY k ORDER BY k") == [(number, 100) for number in range(4)]
