"""What Spark tasks ask of a store counts for the statement, or the context, that started them."""

from __future__ import annotations

from typing import Any

import mergelake as ml
from mergelake.api.python.cost import CHUNK_BYTES, table_cost


def test_inserts_selects_and_merges_in_tasks_count_their_requests(
    spark: Any, s3_url: str, s3_options: dict[str, str]
) -> None:
    db = ml.connect(s3_url, s3_options, spark=spark)
    db.sql("CREATE TABLE t (k Int64, s String) ENGINE = MergeTree ORDER BY k SETTINGS index_granularity = 256")
    table, store = db.table("t"), db.warehouse.store
    with db.warehouse.metered() as spent:
        for first in (0, 20_000):
            frame = spark.range(first, first + 20_000, 1, 2).selectExpr("id AS k", "hex(id) AS s")
            table.append(frame)
    cost = table_cost("t", table.handle.log, db.warehouse.clock.now_ms(), 1, CHUNK_BYTES)
    create_table = 1
    assert spent.counters.tables[table.handle.directory].put == cost.total.puts - create_table
    assert cost.written["insert"].puts >= 2

    query = "SELECT s, count(), sum(k) FROM t WHERE k % 3 = 1 GROUP BY s ORDER BY s LIMIT 5"
    here = store.counters
    spread = db.sql(query, settings={"executor": "spark"})
    here = store.counters - here
    assert spread.stats.executor == "spark"
    assert spread.rows() == db.sql(query, settings={"executor": "local"}).rows()
    assert spread.stats.requests.get > here.get, "the tasks read the data"
    assert spread.stats.requests.bytes_get > 40_000 > here.bytes_get

    merged = db.sql("OPTIMIZE TABLE t FINAL").stats.requests
    assert (merged.put, merged.bytes_get > 40_000) == (2, True)
