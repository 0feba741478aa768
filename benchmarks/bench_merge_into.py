"""Upserts of 20,000 (and 200,000) keys into a table of a million rows, against chdb: DELETE of the keys, then INSERT.

python -m benchmarks.bench_merge_into [rows]

What ClickHouse does is not one commit, and reads the keys from a table in memory.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa

import mergelake as ml
from benchmarks.common import Ratio, best_of, show
from mergelake.query.embedded import engine

CREATE = "CREATE TABLE {t} (k UInt64, s LowCardinality(String), v Float64, w String) ENGINE = MergeTree ORDER BY k"
VALUES = "{k}, concat('service-', toString({k} % 50)), {k} / 7, concat('message of ', toString({k}))"
READ = "SELECT count(), sum(v) FROM {t}"


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rng = np.random.default_rng(5)
    folder = tempfile.mkdtemp(prefix="mergelake-bench-")
    try:
        db = ml.connect(folder, settings={"executor": "local"})
        engine.run("CREATE DATABASE IF NOT EXISTS bench", {})
        ratios: list[Ratio] = []
        for count in (20_000, 200_000):
            table, theirs = f"t{count}", f"bench.t{count}"
            db.sql(CREATE.format(t=table))
            engine.run(CREATE.format(t=theirs), {})
            db.table(table).append(_rows(np.arange(rows)))
            engine.run(f"INSERT INTO {theirs} SELECT {VALUES.format(k='number')} FROM numbers({rows})", {})
            source = _rows(rng.choice(2 * rows, count, replace=False))
            ratios += _measured(db, table, theirs, source)
        show(f"Merging into {rows:,} rows", "chdb", ratios)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(db: Any, name: str, theirs: str, source: pa.Table) -> list[Ratio]:
    keys, table = f"{source.num_rows:,} keys", db.table(name)
    read, select = READ.format(t=name), READ.format(t=theirs)

    def upsert() -> None:
        table.merge(source, on="k")

    def delete_and_insert() -> None:
        create = f"CREATE TABLE bench.source ENGINE = Memory AS SELECT {VALUES.format(k='k')} FROM Python(source)"
        engine.run(create, {"source": source.select(["k"])})
        engine.run(f"DELETE FROM {theirs} WHERE k IN (SELECT k FROM bench.source)", {})
        engine.run(f"INSERT INTO {theirs} SELECT * FROM bench.source", {})
        engine.run("DROP TABLE bench.source SYNC", {})

    def add() -> None:
        table.merge(source, on="k", when_matched={"v": "target.v + source.v"})

    out = [Ratio(f"upsert {keys}", best_of(1, upsert), best_of(1, delete_and_insert), "s", 5)]
    scan = best_of(1, lambda: db.sql(read).arrow())
    plain = best_of(3, lambda: engine.run(select, {}))
    out.append(Ratio("first read after it", scan, plain, "s", 5.0 / plain))
    out.append(Ratio("further reads", best_of(3, lambda: db.sql(read).arrow()), plain, "s", 0.5 / plain))
    print(f"{keys}: written down in {best_of(1, table.apply_mutations):.2f} s", end=", ")
    print(f"update from what is there in {best_of(1, add):.2f} s")
    return out


def _rows(keys: Any) -> pa.Table:
    values = np.asarray(keys, np.uint64)
    texts = pa.array([f"service-{n}" for n in range(50)])
    return pa.table(
        {
            "k": pa.array(values),
            "s": pa.DictionaryArray.from_arrays(pa.array((values % 50).astype(np.int32)), texts),
            "v": pa.array(values / 7),
            "w": pa.array([f"message of {key}" for key in values.tolist()]),
        }
    )


if __name__ == "__main__":
    main()
