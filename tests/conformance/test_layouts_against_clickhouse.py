"""Compact parts and the modern profile: ClickHouse writes the same files from the same rows, and attaches ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.format.files.checksums import decode_checksums
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.blocks import insert
from tests.helpers.clickhouse_tables import CLASSIC, attach, create, part_paths
from tests.helpers.parts import part_target, write_block
from tests.helpers.random_arrays import random_array

HUGE = "min_bytes_for_wide_part='1G', min_rows_for_wide_part=1000000000"
MODERN = (
    "min_bytes_for_full_part_storage=0, ratio_of_defaults_for_sparse_serialization=1, packed_skip_index_max_bytes=0, "
    "auto_statistics_types='', write_marks_for_substreams_in_compact_parts=0"
)
LAYOUTS = {
    "compact": ({"min_bytes_for_wide_part": 1 << 30}, CLASSIC.replace("min_bytes_for_wide_part=0", HUGE), "data.mrk3"),
    "modern": ({"part_profile": "modern"}, f"{MODERN}, min_bytes_for_wide_part=0", "k.cmrk2"),
    "modern, compact": (
        {"part_profile": "modern", "min_rows_for_wide_part": 1 << 20},
        f"{MODERN}, {HUGE}",
        "data.cmrk3",
    ),
}
# LowCardinality is left out: ClickHouse orders its dictionaries by hash, any order is right.
KINDS = [
    "String",
    "Nullable(String)",
    "Array(String)",
    "Tuple(a String, b Array(Nullable(UInt8)))",
    "Map(String, Float64)",
    "Decimal(38, 2)",
    "Nullable(DateTime64(3))",
    "Enum8('a' = 1)",
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("codec", ["NONE", "Delta(4), LZ4"])
def test_the_files_are_clickhouses_byte_for_byte(oracle: Any, tmp_path: Path, layout: str, codec: str) -> None:
    settings, theirs_settings, mark_file = LAYOUTS[layout]
    rng = np.random.default_rng(8)
    types = {"k": parse_type("UInt32"), **{f"c{i}": parse_type(kind) for i, kind in enumerate(KINDS)}}
    arrays = {name: random_array(rng, kind, 1000) for name, kind in types.items()}
    arrays["k"] = pa.array(np.arange(1000, dtype=np.uint32))
    block = pa.table(arrays)
    own = {"k": codec} if codec != "NONE" else {}
    columns = tuple(Column(i, n, kind, codec=own.get(n, "NONE")) for i, (n, kind) in enumerate(types.items()))
    schema = TableSchema(columns, order_by=("k",), primary_key=("k",))
    store = MemoryStore()
    manifest = write_block(part_target(store, schema, settings={"index_granularity": 250, **settings}), block)
    assert manifest.part_type == ("Compact" if "compact" in layout else "Wide")
    assert mark_file in manifest.file_table()
    oracle.query("DROP TABLE IF EXISTS theirs")
    texts = ", ".join(f"{c.name} {c.type} CODEC({c.codec})" for c in columns)
    oracle.query(
        f"CREATE TABLE theirs ({texts}) ENGINE = MergeTree ORDER BY k"
        f" SETTINGS {theirs_settings}, index_granularity = 250"
    )
    insert(oracle, "theirs", block, types, tmp_path)
    (path,) = part_paths(oracle, "theirs").values()
    create(oracle, "ours", types, order_by="k", settings=theirs_settings)
    kept = attach(oracle, "ours", "all_1_1_0", store, "t", manifest)
    checked = str(oracle.query("CHECK TABLE ours SETTINGS check_query_single_value_result = 0", "TSV"))
    assert checked.split("\t")[1] == "1", checked
    asked = "SELECT part_type FROM system.parts WHERE database = currentDatabase() AND table = 'ours' AND active"
    assert str(oracle.query(asked, "TSV")).strip() == manifest.part_type
    ours, theirs = ({f.name: f.read_bytes() for f in folder.iterdir()} for folder in (kept, path))
    if codec != "NONE":
        return
    assert set(theirs) - set(ours) <= {"columns_substreams.txt", "metadata_version.txt"}
    assert set(ours) <= set(theirs)
    # Marks and index of the modern profile are compressed, by another build of ZSTD.
    packed = {name for name in ours if ".c" in name and name.rsplit(".", 1)[1] in ("cmrk2", "cmrk3", "cidx")}
    differ = {name for name in ours if ours[name] != theirs[name]} - packed
    assert differ <= {"checksums.txt", "default_compression_codec.txt"}
    mine, told = decode_checksums(ours["checksums.txt"]), decode_checksums(theirs["checksums.txt"])
    for name, entry in mine.items():
        assert told[name].uncompressed_hash == entry.uncompressed_hash, name
        assert name in packed or told[name] == entry, name


@pytest.mark.parametrize("rows", [99, 100, 149, 150, 249, 250])
def test_a_short_rest_joins_the_last_granule_of_a_compact_part(oracle: Any, tmp_path: Path, rows: int) -> None:
    # M-052
    ddl = "CREATE TABLE {} (k UInt32) ENGINE = MergeTree ORDER BY k SETTINGS index_granularity = 100, {}"
    oracle.query("DROP TABLE IF EXISTS theirs")
    oracle.query(ddl.format("theirs", f"{LAYOUTS['compact'][1]}, max_compress_block_size = 64"))
    oracle.query(f"INSERT INTO theirs SELECT number FROM numbers({rows})")
    (path,) = part_paths(oracle, "theirs").values()
    settings = "min_rows_for_wide_part = 1000, max_compress_block_size = 64"
    (ours,) = mergelake.write_part({"k": list(range(rows))}, str(tmp_path), ddl.format("t", settings))
    for file in ("data.mrk3", "data.bin", "primary.idx"):
        assert (Path(ours.path) / file).read_bytes() == (path / file).read_bytes(), file


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tables_of_each_layout_live_through_inserts_merges_indexes_and_check(layout: str) -> None:
    settings = ", ".join(f"{name} = '{value}'" for name, value in LAYOUTS[layout][0].items())
    db = mergelake.connect(f"memory://layout_{len(layout)}")
    db.sql("DROP TABLE IF EXISTS t")
    db.sql(
        "CREATE TABLE t (k UInt32, s String, l LowCardinality(Nullable(String)), n Nested(a UInt8, b String),"
        " INDEX i s TYPE minmax GRANULARITY 2) ENGINE = MergeTree ORDER BY k"
        f" SETTINGS index_granularity = 100, {settings}"
    )
    for first in (0, 1000, 2000):
        db.sql(
            f"INSERT INTO t SELECT number, toString(number), if(number % 3 = 0, NULL, toString(number % 7)),"
            f" range(number % 3), arrayMap(x -> toString(x), range(number % 3)) FROM numbers({first}, 1000)"
        )
    with pytest.raises(MergelakeError, match="different array sizes"):
        db.sql("INSERT INTO t VALUES (1, 'a', 'b', [1], [])")
    table = db.table("t")
    asked = "SELECT count(), sum(k), uniq(s), countIf(l IS NULL), sum(length(n.b)), max(n.b[2]) FROM t WHERE s > '1'"
    before = db.sql(asked).rows()
    table.optimize(final=True)
    (part,) = table.snapshot().parts
    assert part.manifest.part_type == ("Compact" if "compact" in layout else "Wide")
    assert LAYOUTS[layout][2] in part.manifest.file_table()
    assert db.sql(asked).rows() == before
    assert table.check().column("is_passed").to_pylist() == [True]


def test_a_part_is_compact_below_either_limit_and_wide_by_default() -> None:
    db = mergelake.connect("memory://limits")
    for number, (settings, rows, kind) in enumerate(
        [
            ("", 10, "Wide"),
            ("SETTINGS min_rows_for_wide_part = 100", 99, "Compact"),
            ("SETTINGS min_rows_for_wide_part = 100", 100, "Wide"),
            ("SETTINGS min_bytes_for_wide_part = 801", 100, "Compact"),
            ("SETTINGS min_bytes_for_wide_part = 800", 100, "Wide"),
            ("SETTINGS min_bytes_for_wide_part = 800, min_rows_for_wide_part = 200", 100, "Compact"),
        ]
    ):
        db.sql(f"CREATE TABLE t{number} (k UInt64) ENGINE = MergeTree ORDER BY k {settings}")
        db.sql(f"INSERT INTO t{number} SELECT number FROM numbers({rows})")
        assert [part.manifest.part_type for part in db.table(f"t{number}").snapshot().parts] == [kind]
    with pytest.raises(MergelakeError, match="part_profile"):
        db.sql("CREATE TABLE x (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS part_profile = 'old'")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_stock_clickhouse_serves_a_published_table_of_each_layout(oracle: Any, tmp_path: Path, layout: str) -> None:
    settings = ", ".join(f"{name} = '{value}'" for name, value in LAYOUTS[layout][0].items())
    db = mergelake.connect(str(tmp_path))
    db.sql(
        "CREATE TABLE t (k UInt32, s String, l LowCardinality(String), n Nested(a UInt8, b String),"
        f" u AggregateFunction(uniq, String)) ENGINE = MergeTree ORDER BY k SETTINGS {settings}"
    )
    for first in (0, 500):
        db.sql(
            "INSERT INTO t SELECT number, toString(number), toString(number % 9), range(number % 3),"
            f" arrayMap(x -> toString(x), range(number % 3)), uniqState(toString(number)) FROM numbers({first}, 500)"
            " GROUP BY number"
        )
    table = db.table("t")
    table.optimize(final=True)
    table.publish()
    oracle.query("DROP TABLE IF EXISTS default.served")
    oracle.query(table.attach_statement("default.served"))
    asked = "SELECT count(), sum(k), uniqExact(s), sum(toUInt8(l)), sum(length(n.b)), uniqMerge(u) FROM"
    seen = str(oracle.query(f"{asked} default.served", "TSV"))
    assert seen == "\t".join(map(str, db.sql(f"{asked} t").rows()[0])) + "\n"
    assert seen.startswith("1000\t499500\t1000\t")
    oracle.query("DROP TABLE default.served")
