"""SELECT on the log table (10M rows, local executor) against chdb on its own MergeTree, in the same process.

python -m benchmarks.bench_select [rows]
"""

from __future__ import annotations

import shutil
import sys
import tempfile

import mergelake as ml
from benchmarks.common import Ratio, best_of, median_of, show
from mergelake.query.embedded import engine
from mergelake.testing.logtable import CREATE, log_block

BLOCK = 500_000
QUERIES = {
    "group by service": "SELECT service, count(), avg(latency), uniq(user_id) FROM {t} GROUP BY service "
    "ORDER BY service",
    "group by host, level": "SELECT host, level, count(), quantile(0.9)(latency) FROM {t} GROUP BY host, level "
    "ORDER BY host, level",
    "top users": "SELECT user_id, count() AS n FROM {t} GROUP BY user_id ORDER BY n DESC, user_id LIMIT 10",
    "per hour": "SELECT toStartOfHour(timestamp) AS h, count(), max(latency) FROM {t} GROUP BY h ORDER BY h",
    "LIKE on message": "SELECT count() FROM {t} WHERE message LIKE '%attempt=77%'",
    "LIKE on url, grouped": "SELECT service, count() FROM {t} WHERE url LIKE '%/cart/1%' GROUP BY service "
    "ORDER BY service",
}
LOOKUP = "SELECT * FROM {t} WHERE service = 'payments' AND timestamp = '2026-01-01 01:00:00.{ms:03d}'"


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    folder = tempfile.mkdtemp(prefix="mergelake-bench-")
    try:
        db = ml.connect(folder, settings={"executor": "local"})
        db.sql(CREATE.format(name="logs", partition="tuple()"))
        table = db.table("logs")
        for block in range(rows // BLOCK):
            table.append(log_block(block, BLOCK))
        table.optimize(final=True)
        table.publish()
        ask = _clickhouse(table)
        ratios = []
        for what, query in QUERIES.items():
            ours = best_of(3, lambda query=query: db.sql(query.format(t="logs")).arrow())
            theirs = best_of(3, lambda query=query: ask(query.format(t="bench.logs")))
            ratios.append(Ratio(what, ours, theirs, "s", 1.5))
        numbers = iter(range(1_000_000))
        ours = median_of(100, lambda: db.sql(LOOKUP.format(t="logs", ms=next(numbers) % 1000)).arrow())
        theirs = median_of(100, lambda: ask(LOOKUP.format(t="bench.logs", ms=next(numbers) % 1000)))
        ratios.append(Ratio("point look-up, p50", ours * 1000, theirs * 1000, "ms", 1.5))
        show(f"SELECT on {rows:,} log rows", "chdb", ratios)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clickhouse(table: ml.Table):
    """The same rows in a MergeTree of chdb's own, as one part."""

    def ask(query: str):
        return engine.run(query, {})

    ask("CREATE DATABASE IF NOT EXISTS bench")
    ask(table.attach_statement("bench.served"))
    ask(CREATE.format(name="bench.logs", partition="tuple()"))
    ask("INSERT INTO bench.logs SELECT * FROM bench.served")
    ask("OPTIMIZE TABLE bench.logs FINAL")
    return ask


if __name__ == "__main__":
    main()
