"""A table of many columns (2,000 of UInt32, 12,000 rows in four inserts) against chdb on its own MergeTree.

python -m benchmarks.bench_wide [columns]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

import mergelake as ml
from benchmarks.common import Ratio, best_of, show
from mergelake.query.embedded import engine

ROWS = 3000
INSERTS = 4
SELECT = "SELECT sum(k), max(c1), min(c5) FROM {t}"
SELECT_MAX_S = 0.1


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    folder = tempfile.mkdtemp(prefix="mergelake-bench-")
    try:
        columns = ", ".join(f"c{i} UInt32" for i in range(count))
        create = f"CREATE TABLE {{t}} (k UInt64, {columns}) ENGINE = MergeTree ORDER BY k "
        create += "SETTINGS min_bytes_for_wide_part = 0"
        db = ml.connect(folder, settings={"executor": "local"})
        db.sql(create.format(t="wide"))
        table = db.table("wide")
        engine.run("CREATE DATABASE IF NOT EXISTS bench", {})
        engine.run(create.format(t="bench.wide"), {})
        engine.run("SYSTEM STOP MERGES bench.wide", {})
        fill = f"INSERT INTO bench.wide SELECT number, {', '.join(['number % 1000'] * count)} FROM numbers({ROWS})"
        ratios = [
            Ratio("an insert", _each(lambda: table.append(_block(count))), _each(lambda: engine.run(fill, {})), "s", 2),
        ]
        for what in ("SELECT of three columns, four parts", "SELECT of three columns, one part"):
            ours = best_of(5, lambda: db.sql(SELECT.format(t="wide")).arrow())
            theirs = best_of(5, lambda: engine.run(SELECT.format(t="bench.wide"), {}))
            # So little work has a bound of its own, whatever ClickHouse takes.
            ratios.append(Ratio(what, ours, theirs, "s", SELECT_MAX_S / theirs))
            if "four" in what:
                engine.run("SYSTEM START MERGES bench.wide", {})
                merge = best_of(1, lambda: table.optimize(final=True))
                theirs = best_of(1, lambda: engine.run("OPTIMIZE TABLE bench.wide FINAL", {}))
                ratios.append(Ratio("OPTIMIZE FINAL of four parts", merge, theirs, "s", 2))
        show(f"{count:,} columns, {ROWS * INSERTS:,} rows", "chdb", ratios)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _block(columns: int) -> pa.Table:
    values = pa.array(np.arange(ROWS, dtype=np.uint32) % 1000)
    return pa.table({"k": pa.array(np.arange(ROWS, dtype=np.uint64))} | {f"c{i}": values for i in range(columns)})


def _each(insert: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(INSERTS):
        insert()
    return (time.perf_counter() - started) / INSERTS


if __name__ == "__main__":
    main()
