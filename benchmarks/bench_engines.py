"""Merges and FINAL of engines that combine rows, against chdb on copies of the same parts.

    python -m benchmarks.bench_engines [rows of a part] [parts]     # default: 300,000 and 8

Each key comes about three times, in different parts. A merge is one of all parts by one thread, against OPTIMIZE TABLE
… FINAL; FINAL is an aggregate over the whole table before any merge. Each side runs in processes of its own, turn by
turn, files in the page cache; the faster of two runs counts. Both write LZ4.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa

import mergelake as ml
from benchmarks.common import Ratio, in_process, show

COLUMNS = "k UInt64, ver UInt32, n UInt64, v Float64, s LowCardinality(String), t String"
AGGREGATED = (
    "k UInt64, ver SimpleAggregateFunction(max, UInt32), n SimpleAggregateFunction(sum, UInt64), "
    "v SimpleAggregateFunction(max, Float64), s SimpleAggregateFunction(any, LowCardinality(String)), "
    "t SimpleAggregateFunction(anyLast, String)"
)
ENGINES = {
    "MergeTree": COLUMNS,
    "ReplacingMergeTree(ver)": COLUMNS,
    "SummingMergeTree((n, v))": COLUMNS,
    "AggregatingMergeTree": AGGREGATED,
    "CoalescingMergeTree": COLUMNS,
}
QUERY = "SELECT count(), sum(n), max(v), uniq(s) FROM {t}{final}"
MERGE_TARGETS = {"MergeTree": 1.0, "ReplacingMergeTree(ver)": 1.0}
FINAL_TARGET, OTHER_TARGET = 1.3, 1.25


def write_parts(root: str, table_engine: str, rows: int, parts: int) -> None:
    """A table of `parts` parts."""
    db = ml.connect(root)
    db.sql(
        f"CREATE TABLE t ({ENGINES[table_engine]}) ENGINE = {table_engine} ORDER BY k SETTINGS "
        "default_compression_codec = 'LZ4', min_bytes_for_full_part_storage = 0, merge_upload_policy = 'direct'"
    )
    random = np.random.default_rng(7)
    words = pa.array([f"word {number}" for number in range(1000)])
    for number in range(parts):
        block = pa.table(
            {
                "k": random.permutation(rows * parts // 3)[:rows].astype(np.uint64),
                "ver": np.full(rows, number, np.uint32),
                "n": random.integers(1, 1000, rows).astype(np.uint64),
                "v": random.random(rows),
                "s": words.take(pa.array(random.integers(0, 1000, rows))),
                "t": pa.array([f"text {key:x}" for key in random.integers(0, 1 << 40, rows).tolist()]),
            }
        )
        db.table("t").append(block)


def here(root: str, table_engine: str) -> dict[str, float]:
    """FINAL, then the merge by one thread, nothing committed."""
    from mergelake.jobs.merge.execute import execute_merge
    from mergelake.jobs.merge.plan import plan_merge
    from mergelake.table.write.insert import discard_parts

    db = ml.connect(root)
    query = QUERY.format(t="t", final=" FINAL" if table_engine != "MergeTree" else "")
    db.sql(query)
    started = time.perf_counter()
    found = db.sql(query).rows()
    final_s = time.perf_counter() - started
    handle = db.table("t").handle
    store, clock, ids, snapshot = handle.store, handle.clock, handle.ids, handle.snapshot()
    small = plan_merge(handle.directory, snapshot.schema, snapshot.parts[:1])
    discard_parts(store, handle.directory, [execute_merge(store, small, ids, clock)])
    task = plan_merge(handle.directory, snapshot.schema, snapshot.parts)
    started = time.perf_counter()
    manifest = execute_merge(store, task, ids, clock, threads=1)
    merge_s = time.perf_counter() - started
    discard_parts(store, handle.directory, [manifest])
    return {"final": final_s, "merge": merge_s, "rows": task.rows, "answer": found[0][0]}


def clickhouse(root: str, table_engine: str, work: str) -> dict[str, float]:
    """The same by ClickHouse."""
    import chdb.session

    handle = ml.connect(root).table("t").handle
    session = chdb.session.Session(work)
    session.query(
        f"CREATE TABLE default.t ({ENGINES[table_engine]}) ENGINE = {table_engine} ORDER BY k "
        "SETTINGS default_compression_codec = 'LZ4'"
    )
    session.query("SYSTEM STOP MERGES default.t")
    data = str(session.query("SELECT data_paths[1] FROM system.tables WHERE name = 't'", "TSVRaw")).strip()
    for part in handle.snapshot().parts:
        shutil.copytree(f"{root}/{handle.directory}/{part.manifest.id}", f"{data}/detached/{part.name}")
        session.query(f"ALTER TABLE default.t ATTACH PART '{part.name}'")
    query = QUERY.format(t="default.t", final=" FINAL" if table_engine != "MergeTree" else "")
    session.query(query)
    started = time.perf_counter()
    answer = int(str(session.query(query, "TSV")).split("\t")[0])
    final_s = time.perf_counter() - started
    rows = int(str(session.query("SELECT count() FROM default.t", "TSV")))
    session.query("SYSTEM START MERGES default.t")
    started = time.perf_counter()
    session.query("OPTIMIZE TABLE default.t FINAL")
    merge_s = time.perf_counter() - started
    session.close()
    return {"final": final_s, "merge": merge_s, "rows": rows, "answer": answer}


def main(rows: int, parts: int) -> None:
    """Run everything and print the table."""
    lines = []
    for table_engine in ENGINES:
        with tempfile.TemporaryDirectory(prefix="mergelake-bench-") as folder:
            write_parts(f"{folder}/lake", table_engine, rows, parts)
            runs: dict[str, list[dict[str, float]]] = {"here": [], "clickhouse": []}
            for number in range(2):
                runs["clickhouse"].append(
                    in_process(
                        "benchmarks.bench_engines",
                        "clickhouse",
                        f"{folder}/lake",
                        table_engine,
                        f"{folder}/clickhouse{number}",
                    )
                )
                runs["here"].append(in_process("benchmarks.bench_engines", "here", f"{folder}/lake", table_engine))
        assert len({run["answer"] for found in runs.values() for run in found}) == 1, runs
        merge, final = (
            [min(run[what] for run in runs[side]) for side in ("here", "clickhouse")] for what in ("merge", "final")
        )
        rates = [runs["here"][0]["rows"] / seconds for seconds in merge]
        name = table_engine.partition("(")[0].removesuffix("MergeTree") or "plain"
        target = MERGE_TARGETS.get(table_engine, OTHER_TARGET)
        lines.append(Ratio(f"{name}: merge, one thread", *rates, "rows/s", target, higher_is_better=True))
        what = "the same query" if name == "plain" else "FINAL"
        lines.append(Ratio(f"{name}: {what}", *(1000 * seconds for seconds in final), "ms", FINAL_TARGET))
    show(f"{parts} parts of {rows:,} rows", "ClickHouse", lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["here"]:
        print(json.dumps(here(*sys.argv[2:4])))
    elif sys.argv[1:2] == ["clickhouse"]:
        print(json.dumps(clickhouse(*sys.argv[2:5])))
    else:
        given = [int(each) for each in sys.argv[1:]]
        main(given[0] if given else 300_000, given[1] if len(given) > 1 else 8)
