"""OPTIMIZE of a table in a bucket that is far away, against ClickHouse's of the same parts, through the same proxy.

`python -m benchmarks.bench_far_merge [MS …]`: ten parts of 20,000 rows, a hundred of 2,000, and ten of 200,000. Both
sides write LZ4 by their defaults for parts of this size; ClickHouse's disk is `plain_rewritable`, without a cache.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from benchmarks.bench_bucket import both_sides, fill
from benchmarks.common import Ratio, show
from benchmarks.delay_proxy import set_delay, take_counts
from mergelake.query.embedded import engine

SHAPES = ((10, 20_000), (100, 2_000), (10, 200_000))
"""(parts, rows of each)."""


def main(delays_ms: list[int]) -> None:
    """Print a table for each delay."""
    with both_sides() as (db, proxy, create):

        def timed(run: Callable[[str], object], statement: str) -> tuple[float, int, int]:
            """Seconds, GETs (and HEADs), PUTs (and POSTs)."""
            take_counts(proxy)
            started = time.perf_counter()
            run(statement)
            seconds = time.perf_counter() - started
            counts = take_counts(proxy)
            return seconds, counts.get("GET", 0) + counts.get("HEAD", 0), counts.get("PUT", 0) + counts.get("POST", 0)

        for delay in delays_ms:
            lines = []
            for parts, rows in SHAPES:
                name = f"logs_{delay}_{parts}_{rows}"
                create(name, "MergeTree")
                fill(db, name, [rows] * parts)
                engine.run(f"SYSTEM START MERGES far.{name}")
                set_delay(proxy, delay)
                mine = timed(db.sql, f"OPTIMIZE TABLE {name} FINAL")
                theirs = timed(engine.run, f"OPTIMIZE TABLE far.{name} FINAL")
                set_delay(proxy, 0)
                for what, at, unit in (("time", 0, "s"), ("reads", 1, "requests"), ("writes", 2, "requests")):
                    lines.append(Ratio(f"{parts} parts of {rows:,}: {what}", mine[at], theirs[at], unit, 1.0))
            show(f"OPTIMIZE, {delay} ms a request", "ClickHouse", lines)


if __name__ == "__main__":
    main([int(delay) for delay in sys.argv[1:]] or [30, 100])
