"""Merges in slices: the rows of the whole merge, in its order, as ClickHouse merges them, in a part that it reads."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.model.manifest import PartManifest
from mergelake.format.serializations import lowcardinality
from mergelake.jobs.merge.commit import commit_merge
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.optimize import plan_optimize
from mergelake.jobs.merge.slices import execute_split, with_split
from mergelake.parts.read.reader import PartReader
from tests.helpers.clickhouse_tables import attach

pytestmark = pytest.mark.chdb

FIRST, END = int(os.environ.get("SPLIT_FIRST", "0")), int(os.environ.get("SPLIT_END", "0"))
SEEDS = range(FIRST, END) if END else (1, 3, 5, 6, 10)
"""Others by hand: `SPLIT_FIRST=100 SPLIT_END=200`."""
COLUMNS = {
    "k": "UInt32",
    "s": "String",
    "f": "Nullable(Float64)",
    "l": "LowCardinality(String)",
    "ln": "LowCardinality(Nullable(String))",
    "al": "Array(LowCardinality(String))",
    "m": "Map(String, UInt32)",
    "t": "Tuple(a UInt8, b Nullable(String))",
    "d": "Decimal(18, 4)",
    "sign": "Int8",
    "ver": "UInt32",
    "n": "Nullable(Int64)",
    "big": "SimpleAggregateFunction(max, String)",
}
VALUES = """
    h % {keys}, concat('s', toString(h1 % 7)), multiIf(h2 % 5 = 0, NULL, h2 % 11 = 0, nan, (h2 % 40) / 4 - 3),
    concat('l', toString(h3 % {words})), if(h4 % 6 = 0, NULL, toString(h4 % {words})),
    arrayMap(i -> toString((h1 + i) % {words}), range(h2 % 4)),
    map('x', h1 % 9, concat('k', toString(h2 % 3)), h3 % 100),
    (h1 % 200, if(h2 % 3 = 0, NULL, toString(h2 % 10))), toDecimal64(h3 % 9999, 4), if(h4 % 3 = 0, -1, 1), h3 % 5,
    if(h1 % 3 = 0, NULL, h2 % 1000), repeat('z', h4 % 30)
"""
KEYS = (
    ("k", "k"),
    ("(k, s)", "k"),
    ("(k, s)", "(k, s)"),
    ("(s, k)", "(s, k)"),
    ("(f, k)", "(f, k)"),
    ("(l, k, s)", "(l, k)"),
    ("(k DESC, s)", "(k, s)"),
    ("(s, f DESC)", "(s, f)"),
    ("(k % 7, s)", "(k % 7, s)"),
    ("(ln, d)", "(ln, d)"),
)
ENGINES = (
    "MergeTree",
    "ReplacingMergeTree",
    "ReplacingMergeTree(ver)",
    "CollapsingMergeTree(sign)",
    "VersionedCollapsingMergeTree(sign, ver)",
    "SummingMergeTree",
    "SummingMergeTree(n)",
    "AggregatingMergeTree",
    "CoalescingMergeTree",
)
INDEXES = (
    "",
    ", INDEX i1 n TYPE minmax GRANULARITY 1, INDEX i2 s TYPE set(20) GRANULARITY 3",
    ", INDEX i3 (d, k) TYPE minmax GRANULARITY 4, INDEX i4 big TYPE bloom_filter GRANULARITY 2",
)


@pytest.mark.parametrize("seed", SEEDS)
def test_slices_are_the_merge(seed: int, oracle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"split {seed}")
    if rng.random() < 0.5:  # dictionaries that fill within a slice
        monkeypatch.setattr(lowcardinality, "PROBE_KEYS", 4)
        monkeypatch.setattr(lowcardinality, "KEYS_MAX", rng.choice((5, 30)))
    order, primary = rng.choice(KEYS)
    engine, name = rng.choice(ENGINES), f"split_{seed}"
    body = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items()) + rng.choice(INDEXES)
    ours = {
        "index_granularity": rng.choice((16, 64, 200)),
        "min_bytes_to_split_merge": 1,
        "merge_slice_bytes": rng.choice((2000, 10_000, 40_000)),
        "part_profile": rng.choice(("classic", "modern")),
        "min_bytes_for_full_part_storage": rng.choice((0, 20_000, 10 << 20)),
        "min_compress_block_size": rng.choice((100, 65536)),
        "merge_max_chunk_bytes": rng.choice((10_000, 64 << 20)),
    }
    if "Coalescing" in engine:  # no SimpleAggregateFunction there
        body = body.replace("SimpleAggregateFunction(max, String)", "String")
    values = VALUES
    if engine == "AggregatingMergeTree":
        body += ", u AggregateFunction(sum, UInt64)"
        ours["allow_dimensions_outside_sorting_key"] = 1
        values += ", initializeAggregation('sumState', toUInt64(h2 % 100))"
    create = f"CREATE TABLE {{}} ({body}) ENGINE = {engine} {{}} ORDER BY {order} PRIMARY KEY {primary} SETTINGS {{}}"
    partition = rng.choice(("", "PARTITION BY sign"))
    db = ml.connect(str(tmp_path))
    text = ", ".join(f"{key} = {value!r}" for key, value in ours.items())
    db.sql(create.format("t", partition, f"{text}, allow_nullable_key = 1, allow_experimental_reverse_key = 1"))
    their_settings = (
        "allow_nullable_key = 1, allow_experimental_reverse_key = 1, max_bytes_to_merge_at_max_space_in_pool = 1, "
        f"index_granularity = {ours['index_granularity']}"
        f"{', allow_dimensions_outside_sorting_key = 1' * (engine == 'AggregatingMergeTree')}"
    )
    for table_name in (name, f"{name}_attached"):
        oracle.query(f"DROP TABLE IF EXISTS {table_name}")
        oracle.query(create.format(table_name, partition, their_settings))
    shape = {"keys": rng.choice((3, 50, 3000)), "words": rng.choice((3, 40, 500))}
    for step in range(rng.randint(2, 4)):
        hashes = ", ".join(f"cityHash64(number, {seed}, {step}, {i}) AS h{i or ''}" for i in range(5))
        count = rng.choice((1, 300, 2500)) if step else 2500
        rows = f"SELECT {values.format(**shape)} FROM (SELECT {hashes} FROM numbers({count}))"
        db.sql(f"INSERT INTO t {rows}")
        oracle.query(f"INSERT INTO {name} {rows}")
        if rng.random() < 0.3:
            change = rng.choice(("DELETE WHERE n % 3 = 1", "UPDATE n = n + 1, big = 'u' WHERE k % 4 = 1 OR n > 900"))
            db.sql(f"ALTER TABLE t {change}")
            oracle.query(f"ALTER TABLE {name} {change} SETTINGS mutations_sync = 2")
        if rng.random() < 0.3:
            db.sql("DELETE FROM t WHERE d < 100")
            oracle.query(f"DELETE FROM {name} WHERE d < 100")
            if rng.random() < 0.5:
                db.table("t").apply_mutations()
    oracle.query(f"OPTIMIZE TABLE {name} FINAL")
    table = db.table("t")
    handle = table.handle
    for task in plan_optimize(handle, final=True):
        split = with_split(handle.store, task, handle.log.state.fence)
        whole = execute_merge(handle.store, task, handle.ids, handle.clock, states=table.env.states)
        part = whole
        if split.split is not None:
            part = execute_split(handle.store, split, handle.ids, handle.clock, states=table.env.states)
        assert content(table, part) == content(table, whole)
        assert (part.minmax, part.key_range, part.columns) == (whole.minmax, whole.key_range, whole.columns)
        attach(oracle, f"{name}_attached", str(task.result), handle.store, handle.directory, part)
        commit_merge(handle, split, part)
        assert (
            split.split
            or task.rows < 3 * ours["index_granularity"]
            or task.bytes_on_disk < 2 * ours["merge_slice_bytes"]
        )
    assert [row for row in table.check().to_pylist() if not row["is_passed"]] == []
    star = "* EXCEPT (u), finalizeAggregation(u)" if engine == "AggregatingMergeTree" else "*"
    alone = "SETTINGS max_threads = 1, optimize_read_in_order = 0"
    queries = [f"SELECT {star} FROM {{}} {alone}"] if not partition else [f"SELECT {star} FROM {{}} ORDER BY ALL"]
    queries += [
        f"SELECT {star} FROM {{}} WHERE k >= {low} AND k < {low + 9} ORDER BY ALL" for low in rng.sample(range(50), 3)
    ]
    queries += [f"SELECT l, ln, al FROM {{}} WHERE s = 's{rng.randrange(7)}' ORDER BY ALL"]
    queries += [
        f"SELECT count(), sum(cityHash64({star})) FROM {{}} WHERE {where}" for where in ("n = 5", "s = 's1'", "d < 1")
    ]
    for query in queries:
        theirs = str(oracle.query(query.format(name), "TSV"))
        assert str(oracle.query(query.format(f"{name}_attached"), "TSV")) == theirs, query
        if "threads" not in query:
            assert db.sql(query.format("t")).text("TSV") == theirs, query
    assert (
        str(oracle.query(f"CHECK TABLE {name}_attached SETTINGS check_query_single_value_result = 1", "TSV")) == "1\n"
    )
    for table_name in (name, f"{name}_attached"):
        oracle.query(f"DROP TABLE {table_name}")


def content(table: ml.Table, part: PartManifest) -> list[str]:
    """The rows of a part as texts: a NaN equals itself."""
    columns = {column.name: column for column in table.schema.stored}
    reader = PartReader(table.handle.store, table.handle.directory, part, columns)
    return [repr(row) for batch in reader.read(list(columns), batch_rows=1 << 20) for row in batch.to_pylist()]
