"""SELECT over Spark tasks against Spark SQL on Parquet of the same rows, in one session.

Runs take turns, so both meet the same machine; the first two of each are not counted. The Parquet has as many files as
the table has parts, sorted alike, LZ4 in both.

python -m benchmarks.bench_spread [rows] [--cluster]

Of two cores in this process's Spark; with `--cluster` a master and two workers of one core.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import mergelake as ml
from benchmarks.common import Ratio, show
from mergelake.api.spark.session import session
from mergelake.testing.logtable import CREATE, spark_log_frame
from tests.helpers.services import service

PARTS = 10
WARM, COUNTED = 2, 5
_WINDOW = (
    "SELECT host, max(gap) FROM (SELECT host, latency - {}(latency, 1, latency) OVER (PARTITION BY host, service "
    "ORDER BY timestamp, trace_id) AS gap FROM logs) GROUP BY host"
)
QUERIES = {
    "group-by, 20 keys": (
        "SELECT service, count(), avg(latency) FROM logs GROUP BY service",
        "SELECT service, count(*), avg(latency) FROM logs GROUP BY service",
    ),
    "group-by, filter": (
        "SELECT level, host, count() AS c FROM logs WHERE status >= 500 GROUP BY level, host ORDER BY c DESC LIMIT 20",
        "SELECT level, host, count(*) AS c FROM logs WHERE status >= 500 GROUP BY level, host ORDER BY c DESC LIMIT 20",
    ),
    "group-by, many keys, top 10": (
        "SELECT user_id, count() AS c, max(latency) FROM logs GROUP BY user_id ORDER BY c DESC, user_id LIMIT 10",
        "SELECT user_id, count(*) AS c, max(latency) FROM logs GROUP BY user_id ORDER BY c DESC, user_id LIMIT 10",
    ),
    "uniq": (
        "SELECT service, uniq(user_id) FROM logs GROUP BY service",
        "SELECT service, approx_count_distinct(user_id, 0.01) FROM logs GROUP BY service",
    ),
    "exact distinct": (
        "SELECT uniqExact(user_id) FROM logs",
        "SELECT count(DISTINCT user_id) FROM logs",
    ),
    "LIKE": (
        "SELECT count() FROM logs WHERE message LIKE '%timeout%'",
        "SELECT count(*) FROM logs WHERE message LIKE '%timeout%'",
    ),
    "join with a small side": (
        "SELECT team, count(), sum(latency) FROM logs JOIN teams USING (service) GROUP BY team",
        "SELECT /*+ BROADCAST(teams) */ team, count(*), sum(latency) FROM logs JOIN teams USING (service) GROUP BY 1",
    ),
    "DISTINCT": (
        "SELECT DISTINCT host, level, status FROM logs",
        "SELECT DISTINCT host, level, status FROM logs",
    ),
    "subquery in WHERE": (
        "SELECT count() FROM logs WHERE latency > (SELECT 20 * avg(latency) FROM logs)",
        "SELECT count(*) FROM logs WHERE latency > (SELECT 20 * avg(latency) FROM logs)",
    ),
    "window by host": (
        _WINDOW.format("lagInFrame"),
        _WINDOW.format("lag"),
    ),
}  # fmt: skip
"""What is asked -> ClickHouse's words, Spark's words."""


def in_turns(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Median seconds of both."""
    times: tuple[list[float], list[float]] = ([], [])
    for run in range(WARM + COUNTED):
        for call, kept in zip((ours, theirs), times, strict=True):
            started = time.perf_counter()
            call()
            if run >= WARM:
                kept.append(time.perf_counter() - started)
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    given = [word for word in sys.argv[1:] if word != "--cluster"]
    rows = int(given[0]) if given else 5_000_000
    if "--cluster" not in sys.argv:
        measure(session("local[2]"), rows)
        return
    with service("spark-cluster") as cluster:
        config = {"spark.executor.memory": "1g", "spark.executor.cores": "1"}
        measure(session(cluster["SPARK_MASTER_URL"], config=config), rows)


def measure(spark: SparkSession, rows: int) -> None:
    """Print the table of ratios."""
    folder = Path(tempfile.mkdtemp(prefix="mergelake-bench-"))
    try:
        db = ml.connect(str(folder / "warehouse"), {"sync": "false"}, spark=spark)
        db.sql(CREATE.format(name="logs", partition="tuple()"))
        table, blocks = db.table("logs"), rows // PARTS // 100_000
        for part in range(PARTS):
            frame = spark_log_frame(spark, part * blocks, blocks, 100_000).coalesce(1)
            table.append(frame)
            sorted_alike = frame.sortWithinPartitions("service", "timestamp")
            sorted_alike.write.mode("append").option("compression", "lz4").parquet(str(folder / "parquet"))
        db.sql("CREATE TABLE teams (service String, team String) ENGINE = MergeTree ORDER BY service")
        db.sql("INSERT INTO teams SELECT DISTINCT service, substring(service, 1, 1) FROM logs")
        spark.read.parquet(str(folder / "parquet")).createOrReplaceTempView("logs")
        teams = db.sql("SELECT * FROM teams").arrow()
        spark.createDataFrame(teams.to_pandas()).createOrReplaceTempView("teams")
        settings = {"executor": "spark"}
        ratios, told = [], {}
        for what, (clickhouse, sql) in QUERIES.items():
            told[what] = db.sql(clickhouse, settings=settings).stats
            ours, theirs = in_turns(
                lambda text=clickhouse: db.sql(text, settings=settings).arrow(),  # type: ignore[misc]
                lambda text=sql: spark.sql(text).toArrow(),  # type: ignore[misc]
            )
            ratios.append(Ratio(what, ours * 1000, theirs * 1000, "ms", 1.0))
        show(f"SELECT over tasks, {rows:,} log rows in {table.parts().num_rows} parts", "Spark on Parquet", ratios)
        for what, stats in told.items():
            print(f"{what}: {stats.executor} ({stats.reason})")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
