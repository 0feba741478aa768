"""Merges that copy compressed blocks: the rows of the ordinary merge, in its order, in a part that ClickHouse reads."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.core.model.manifest import PartManifest
from mergelake.format.columns.reader import ColumnReader
from mergelake.format.serializations import lowcardinality
from mergelake.jobs.merge import execute
from mergelake.jobs.merge.commit import commit_merge
from mergelake.jobs.merge.concatenate import plan_concatenation
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.optimize import plan_optimize
from mergelake.jobs.merge.plan import MergeTask
from mergelake.parts.read.default_codec import CODEC_FILE
from mergelake.parts.read.reader import PartReader
from tests.helpers.clickhouse_tables import attach

pytestmark = pytest.mark.chdb

FIRST, END = int(os.environ.get("CONCATENATE_FIRST", "0")), int(os.environ.get("CONCATENATE_END", "0"))
SEEDS = range(FIRST, END) if END else (55, 61, 63)
"""Others by hand: `CONCATENATE_FIRST=100 CONCATENATE_END=200`."""
COLUMNS = {
    "o": "Int32",
    "k": "UInt32",
    "s": "String",
    "f": "Nullable(Float64)",
    "l": "LowCardinality(String)",
    "ln": "LowCardinality(Nullable(String))",
    "lu": "LowCardinality(UInt32)",
    "al": "Array(LowCardinality(String))",
    "ml": "Map(LowCardinality(String), Array(LowCardinality(Nullable(String))))",
    "m": "Map(String, UInt32)",
    "t": "Tuple(a UInt8, b Nullable(String), c Array(Array(UInt8)))",
    "d": "Decimal(18, 4)",
    "n": "Nullable(Int64)",
    "big": "String",
    "u": "UUID",
}
CODECS = ("", "", "CODEC(ZSTD(3))", "CODEC(NONE)", "CODEC(LZ4HC(4))", "CODEC(Delta, LZ4)", "CODEC(T64, ZSTD)")
CODED = {
    "o": CODECS,
    "k": (*CODECS, "CODEC(DoubleDelta, LZ4)"),
    "f": ("", "CODEC(Gorilla, ZSTD)"),
    "l": CODECS[:5],
    "s": CODECS[:5],
}
VALUES = """
    {order}, h % {keys}, concat('s', toString(h1 % 7)), multiIf(h2 % 5 = 0, NULL, h2 % 11 = 0, nan, (h2 % 40) / 4 - 3),
    concat('l', toString(h3 % {words})), if(h4 % 6 = 0, NULL, toString(h4 % {words})), h2 % {words},
    arrayMap(i -> toString((h1 + i) % {words}), range({long} * (h2 % 4))),
    map('x', arrayMap(i -> if(i = 2, NULL, toString(h4 % {words})), range({long} * (h3 % 4)))),
    map('x', h1 % 9, concat('k', toString(h2 % 3)), h3 % 100),
    (h1 % 200, if(h2 % 3 = 0, NULL, toString(h2 % 10)), [[h1 % 3, h2 % 9], []]), toDecimal64(h3 % 9999, 4),
    if(h1 % 3 = 0, NULL, h2 % 1000), repeat('z', h4 % 30),
    toUUID(concat('61f0c404-5cb3-11e7-907b-a6006ad3db', hex(h1 % 9)))
"""
KEYS = (
    ("o", "o"),
    ("(o, k)", "o"),
    ("(o, s)", "(o, s)"),
    ("(o DESC, s)", "(o, s)"),
    ("(intDiv(o, 7), s)", "intDiv(o, 7)"),
    ("(toString(o + 100000), k)", "(toString(o + 100000), k)"),
    ("tuple()", "tuple()"),
)
INDEXES = (
    "",
    ", INDEX i1 n TYPE minmax GRANULARITY 1, INDEX i2 s TYPE set(20) GRANULARITY 1",
    ", INDEX i3 (d, k) TYPE minmax GRANULARITY 2, INDEX i4 big TYPE bloom_filter GRANULARITY 1",
)


def merged(table: ml.Table, task: MergeTask, monkeypatch: pytest.MonkeyPatch) -> tuple[PartManifest, bool]:
    """The part of a merge, compared with that of the ordinary merge, and whether it was copied, without decoding."""
    handle = table.handle
    run = (handle.store, task, handle.ids, handle.clock)
    with monkeypatch.context() as patched:
        patched.setattr(execute, "plan_concatenation", lambda _: None)
        ordinary = execute_merge(*run)
    if plan_concatenation(task) is None:
        return ordinary, False
    with monkeypatch.context() as patched:
        patched.setattr(ColumnReader, "decode", None)
        part = execute_merge(*run)
    assert content(table, part) == content(table, ordinary)
    assert (part.minmax, part.key_range, part.columns, part.level) == (
        ordinary.minmax,
        ordinary.key_range,
        ordinary.columns,
        ordinary.level,
    )
    assert part.file_table().keys() == ordinary.file_table().keys()
    copied, expected = (reader_of(table, each) for each in (part, ordinary))
    for file in part.file_table():
        if file.endswith(".bin") or file == CODEC_FILE:  # the codec of the first block
            assert copied.fetch_file(file)[16:17] == expected.fetch_file(file)[16:17]
    assert part.bytes_uncompressed >= 0.9 * ordinary.bytes_uncompressed
    assert ordinary.marks <= part.marks <= 1.25 * ordinary.marks
    return part, True


def content(table: ml.Table, part: PartManifest) -> list[str]:
    """The rows of a part as texts: a NaN equals itself."""
    batches = reader_of(table, part).read(table.schema.names, batch_rows=1 << 20)
    return [repr(row) for batch in batches for row in batch.to_pylist()]


def reader_of(table: ml.Table, part: PartManifest) -> PartReader:
    columns = {column.name: column for column in table.schema.stored}
    return PartReader(table.handle.store, table.handle.directory, part, columns)


@pytest.mark.parametrize("seed", SEEDS)
def test_copied_parts_are_those_of_the_merge(
    seed: int, oracle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"concatenate {seed}")
    if rng.random() < 0.5:  # dictionaries that fill within a part
        monkeypatch.setattr(lowcardinality, "PROBE_KEYS", 4)
        monkeypatch.setattr(lowcardinality, "KEYS_MAX", rng.choice((5, 30)))
    (order, primary), name = rng.choice(KEYS), f"concatenated_{seed}"
    body = ", ".join(f"{column} {kind} {rng.choice(CODED.get(column, ('',)))}" for column, kind in COLUMNS.items())
    body += rng.choice(INDEXES)
    granule = rng.choice((16, 50))
    ours = {
        "index_granularity": granule,
        "part_profile": rng.choice(("classic", "modern")),
        "min_bytes_for_full_part_storage": rng.choice((0, 60_000, 10 << 20)),
        "min_compress_block_size": rng.choice((100, 65536)),
        "merge_max_chunk_bytes": rng.choice((10_000, 64 << 20)),
        "default_compression_codec": rng.choice(("", "", "ZSTD(1)", "NONE")),
        "min_bytes_for_zstd": rng.choice((100_000, 400_000, 400 << 20)),
    }
    create = f"CREATE TABLE {{}} ({body}) ENGINE = MergeTree {{}} ORDER BY {order} PRIMARY KEY {primary} SETTINGS {{}}"
    partition = rng.choice(("", "", "PARTITION BY k % 2"))
    db = ml.connect(str(tmp_path))
    text = ", ".join(f"{key} = {value!r}" for key, value in ours.items())
    allowed = "allow_nullable_key = 1, allow_experimental_reverse_key = 1"
    db.sql("SET allow_suspicious_low_cardinality_types = 1")
    db.sql(create.format("t", partition, f"{text}, {allowed}"))
    oracle.query("SET allow_suspicious_codecs = 1, allow_suspicious_low_cardinality_types = 1")
    theirs = f"{allowed}, max_bytes_to_merge_at_max_space_in_pool = 1, index_granularity = {granule}"
    for table_name in (name, f"{name}_attached"):
        oracle.query(f"DROP TABLE IF EXISTS {table_name}")
        oracle.query(create.format(table_name, partition, theirs))
    table = db.table("t")
    shape = {"keys": rng.choice((3, 50, 3000)), "words": rng.choice((3, 40, 500))}
    direction = -1 if "DESC" in order else 1
    copied = 0
    for step in range(7):
        hashes = ", ".join(f"cityHash64(number, {seed}, {step}, {i}) AS h{i or ''}" for i in range(5))
        count = granule * rng.randint(6, 12) + rng.choice((0, 0, 1, granule // 2))
        low = direction * 100 * step - (rng.choice((0,) * 15 + (1, 50)) if step else 0)
        values = VALUES.format(order=f"{low} + h4 % 100", long=int(rng.random() < 0.7), **shape)
        rows = f"SELECT {values} FROM (SELECT {hashes} FROM numbers({count}))"
        db.sql(f"INSERT INTO t {rows}")
        oracle.query(f"INSERT INTO {name} {rows}")
        if rng.random() < 0.05:
            change = "UPDATE n = n + 1, big = 'u' WHERE k % 4 = 1 OR n > 900"
            db.sql(f"ALTER TABLE t {change}")
            oracle.query(f"ALTER TABLE {name} {change} SETTINGS mutations_sync = 2")
        if step in (2, 4, 6):
            oracle.query(f"OPTIMIZE TABLE {name} FINAL")
            for task in plan_optimize(table.handle, final=True):
                part, was_copied = merged(table, task, monkeypatch)
                copied += was_copied
                commit_merge(table.handle, task, part)
                if step == 6:
                    attach(
                        oracle, f"{name}_attached", str(task.result), table.handle.store, table.handle.directory, part
                    )
            table.refresh()
    assert copied or END
    assert [row for row in table.check().to_pylist() if not row["is_passed"]] == []
    alone = "SETTINGS max_threads = 1, optimize_read_in_order = 0"
    queries = [f"SELECT * FROM {{}} {alone}"] if not partition else ["SELECT * FROM {} ORDER BY ALL"]
    queries += [
        f"SELECT * FROM {{}} WHERE o >= {low} AND o < {low + 9} ORDER BY ALL" for low in rng.sample(range(-100, 700), 3)
    ]
    queries += [f"SELECT l, ln, lu, al, ml FROM {{}} WHERE s = 's{rng.randrange(7)}' ORDER BY ALL"]
    queries += [f"SELECT al, ml FROM {{}} WHERE o BETWEEN {at} AND {at + 30} ORDER BY ALL" for at in (90, 190, 480)]
    queries += [
        f"SELECT count(), sum(cityHash64(*)) FROM {{}} WHERE {where}"
        for where in ("n = 5", "s = 's1'", "d < 1", "big = 'zz'")
    ]
    for query in queries:
        expected = str(oracle.query(query.format(name), "TSV"))
        assert str(oracle.query(query.format(f"{name}_attached"), "TSV")) == expected, query
        if "threads" not in query:
            assert db.sql(query.format("t")).text("TSV") == expected, query
    assert (
        str(oracle.query(f"CHECK TABLE {name}_attached SETTINGS check_query_single_value_result = 1", "TSV")) == "1\n"
    )
    for change in ("DELETE WHERE k % 5 = 1", "UPDATE l = 'new', al = ['x'] WHERE n % 3 = 1"):
        db.sql(f"ALTER TABLE t {change}")
        oracle.query(f"ALTER TABLE {name} {change} SETTINGS mutations_sync = 2")
    table.apply_mutations()
    query = "SELECT * FROM {} ORDER BY ALL"
    assert db.sql(query.format("t")).text("TSV") == str(oracle.query(query.format(name), "TSV"))
    for table_name in (name, f"{name}_attached"):
        oracle.query(f"DROP TABLE {table_name}")
