"""Bulk load through Spark against the same DataFrame written as sorted Parquet by Spark.

The directory is not synced to disk, as Spark's Parquet is not. Runs take turns, so both meet the same machine.

python benchmarks/bench_bulk_load.py [rows]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import mergelake as ml
from benchmarks.common import Ratio, best_of, show
from mergelake.api.spark.session import session
from mergelake.testing.logtable import CREATE, spark_log_frame


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    folder = Path(tempfile.mkdtemp(prefix="mergelake-bench-"))
    spark = session()
    try:
        source = str(folder / "source")
        spark_log_frame(spark, 0, rows // 100_000, 100_000).write.parquet(source)
        frame = spark.read.parquet(source)  # both write the same rows, read the same way
        db = ml.connect(str(folder / "warehouse"), {"sync": "false"}, spark=spark)
        db.sql(CREATE.format(name="logs", partition="tuple()"))
        table = db.table("logs")
        table.append(frame.limit(1000))  # starts the workers, compiles the kernels
        in_order = frame.sortWithinPartitions("service", "timestamp")
        parquet = in_order.write.mode("overwrite").option("compression", "lz4")
        pairs = [
            (best_of(1, lambda: table.append(frame)), best_of(1, lambda: parquet.parquet(str(folder / "sorted"))))
            for _ in range(4)
        ]
        ours, theirs = (min(times) for times in zip(*pairs, strict=True))
        show(
            f"Bulk load of {rows:,} log rows",
            "Spark, sorted Parquet",
            [Ratio("rows/s", rows / ours, rows / theirs, "rows/s", 1.0, higher_is_better=True)],
        )
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
