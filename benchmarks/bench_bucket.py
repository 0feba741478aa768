"""SELECT on a bucket that is far away, against ClickHouse's own table in the same bucket, through the same proxy.

`python -m benchmarks.bench_bucket [--cache] [MS …]`, 2M log rows in three parts. ClickHouse's table lies on a disk
`plain_rewritable` without its cache; both write LZ4, and both have read the data before, so what is kept in memory
(indexes, marks) is. With `--cache` there is a cache of either side on the local disk, which has all data, and ours does
not look for news (`max_staleness_ms`), as ClickHouse's table has none.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import mergelake as ml
from benchmarks.common import Ratio, median_of, show
from benchmarks.delay_proxy import delay_proxy, set_delay
from mergelake.query.attach import attached
from mergelake.query.embedded import engine
from mergelake.testing.logtable import CREATE, log_block
from tests.helpers.services import service

ROWS, PARTS = 2_000_000, 3
STATEMENTS = {
    "look-up by key": "SELECT * FROM {t} WHERE service = '{key[0]}' AND timestamp = '{key[1]:%F %T.%f}'",
    "one hour": "SELECT level, count() FROM {t} WHERE timestamp >= '2026-01-01 00:00:00' "
    "AND timestamp < '2026-01-01 01:00:00' GROUP BY level ORDER BY level",
    "group by": "SELECT service, count(), avg(latency), uniq(user_id) FROM {t} GROUP BY service ORDER BY service",
    "LIKE": "SELECT count() FROM {t} WHERE message LIKE '%attempt=7{n}%'",
    "ten rows by key": "SELECT * FROM {t} ORDER BY service, timestamp LIMIT 10",
    "FINAL": "SELECT count(), sum(latency) FROM {f} FINAL",
}
TARGET = 1.1


def main(delays_ms: list[int], *, cache: bool = False) -> None:
    """Print a table for each delay."""
    with both_sides(cache=cache) as (db, proxy, create):
        for name, table_engine in (("logs", "MergeTree"), ("latest", "ReplacingMergeTree")):
            create(name, table_engine)
            fill(db, name, [ROWS // PARTS] * PARTS)
        rows = db.sql("SELECT service, timestamp FROM logs ORDER BY cityHash64(trace_id) LIMIT 1000").rows()
        for table in ("logs", "latest") if cache else ():
            for run, name in ((db.sql, table), (engine.run, f"far.{table}")):
                for _ in range(2):  # the first one is scanned
                    run(f"SELECT sum(cityHash64(*)) FROM {name}")
        asked: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
        for what, query in STATEMENTS.items():
            asked[what] = (
                partial(_ask, db.sql, query, {"t": "logs", "f": "latest"}, count(), rows),
                partial(_ask, engine.run, query, {"t": "far.logs", "f": "far.latest"}, count(), rows),
            )
            for _ in range(3):
                for call in asked[what]:
                    call()
                attached.SETS.settle()
        for delay in delays_ms:
            set_delay(proxy, delay)
            ratios = [
                Ratio(what, 1000 * median_of(7, mine), 1000 * median_of(7, theirs), "ms", TARGET)
                for what, (mine, theirs) in asked.items()
            ]
            show(f"{ROWS:,} rows in {PARTS} parts, {delay} ms a request", "ClickHouse", ratios)
            set_delay(proxy, 0)


@contextmanager
def both_sides(*, cache: bool = False) -> Iterator[tuple[ml.Database, str, Callable[[str, str], None]]]:
    """A database of ours and `far` of ClickHouse in one bucket behind one proxy.

    Yields ours, the proxy, and a function that creates a table of logs (name, engine) on both sides.
    """
    with (
        service("s3") as s3,
        delay_proxy(s3["S3_ENDPOINT"]) as proxy,
        tempfile.TemporaryDirectory(prefix="mergelake-cache-") as folder,
    ):
        keys = {"access_key_id": s3["AWS_ACCESS_KEY_ID"], "secret_access_key": s3["AWS_SECRET_ACCESS_KEY"]}
        kept = {"cache_dir": folder} if cache else {}
        db = ml.connect(f"s3://{s3['S3_BUCKET']}/ours", {"endpoint": proxy, **keys, **kept})
        disk = (
            f"disk(type = s3_plain_rewritable, endpoint = '{proxy}/{s3['S3_BUCKET']}/theirs/', "
            f"access_key_id = '{keys['access_key_id']}', secret_access_key = '{keys['secret_access_key']}')"
        )
        if cache:
            disk = f"disk(type = cache, path = 'far/', max_size = '10Gi', disk = {disk})"
            db.sql("SET max_staleness_ms = 3600000")
        engine.run("CREATE DATABASE IF NOT EXISTS far")

        def create(name: str, table_engine: str) -> None:
            text = CREATE.replace("ENGINE = MergeTree", f"ENGINE = {table_engine}")
            db.sql(text.format(name=name, partition="tuple()"))
            theirs = text.format(name=f"far.{name}", partition="tuple()").rstrip()
            joined = " SETTINGS " if "SETTINGS" not in theirs else ", "
            engine.run(f"{theirs}{joined}disk = {disk}, default_compression_codec = 'LZ4'")
            engine.run(f"SYSTEM STOP MERGES far.{name}")

        yield db, proxy, create


def _ask(
    run: Callable[[str], object], query: str, names: dict[str, str], numbers: Iterator[int], keys: Sequence[Any]
) -> object:
    """Each time with another number: ClickHouse remembers which granules have no row for a condition."""
    number = next(numbers)
    return run(query.format(n=number, key=keys[number], **names))


def fill(db: ml.Database, name: str, rows: Sequence[int]) -> None:
    """The same parts on both sides, of so many rows each."""
    with tempfile.NamedTemporaryFile(suffix=".native") as file:
        for number, count_of in enumerate(rows):
            db.table(name).append(log_block(number, count_of))
            newest = f"SELECT * FROM {name} WHERE _part = (SELECT max(name) FROM system.parts WHERE table = '{name}')"
            Path(file.name).write_bytes(b"".join(db.sql(newest, format="Native").chunks()))
            engine.run(f"INSERT INTO far.{name} SELECT * FROM file('{file.name}', 'Native')")


if __name__ == "__main__":
    given = sys.argv[1:]
    main([int(delay) for delay in given if delay != "--cache"] or [30, 100], cache="--cache" in given)
