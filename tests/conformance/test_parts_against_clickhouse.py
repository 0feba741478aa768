"""Parts both ways: ClickHouse attaches, checks and reads ours; we read every part that ClickHouse writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.api.python.check import check_directory
from mergelake.api.sql.parser import parse_one
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import CorruptDataError, MergelakeError
from mergelake.core.base.ids import RandomIds
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.format.files.checksums import decode_checksums
from mergelake.format.files.partition import partition_keys
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.plan import plan_merge
from mergelake.log.model.parts import ActivePart
from mergelake.parts.read.listing import plain_files
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.parts.tools.public import read_part
from mergelake.parts.tools.verify import check_part
from mergelake.store.objects.directory import DirectoryStore
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import check_schema
from tests.helpers.blocks import insert, select
from tests.helpers.clickhouse_tables import CLASSIC, attach, create, part_paths
from tests.helpers.parts import part_target, write_block
from tests.helpers.random_arrays import TYPES, equal, random_array

NEWEST = "min_bytes_for_full_part_storage=0, allow_nullable_key=1"
PROFILES = {
    "wide": f"min_bytes_for_wide_part=0, {NEWEST}",
    "compact": f"min_bytes_for_wide_part=100000000000, min_rows_for_wide_part=100000000000, {NEWEST}",
    "default": NEWEST,
    "sparse": f"min_bytes_for_wide_part=0, ratio_of_defaults_for_sparse_serialization=0.01, {NEWEST}",
    "classic": CLASSIC,
    "fixed granules": f"index_granularity_bytes=0, min_bytes_for_wide_part=0, {NEWEST}",
}


def _block(rows: int, seed: int, names: list[str]) -> tuple[pa.Table, TableSchema]:
    """Random columns, sorted by k."""
    rng = np.random.default_rng(seed)
    kinds = {"k": parse_type("UInt32"), **{f"c{i}": parse_type(name) for i, name in enumerate(names)}}
    arrays = [random_array(rng, kind, rows) for kind in kinds.values()]
    arrays[0] = pa.array(np.sort(rng.integers(0, 1000, rows)).astype(np.uint32))
    schema = TableSchema(
        tuple(Column(i, name, kind) for i, (name, kind) in enumerate(kinds.items())),
        order_by=("k",),
        primary_key=("k",),
    )
    return pa.table(arrays, names=list(kinds)), schema


def _write(store: Any, schema: TableSchema, block: pa.Table, **more: Any) -> PartManifest:
    settings = more.pop("settings", {})
    keys = more.pop("keys", ["k"])
    target = part_target(store, schema, keys=keys, settings=settings, ids=RandomIds())
    return write_block(target, block, keys, **more)


def _check(oracle: Any, table: str) -> None:
    answer = str(oracle.query(f"CHECK TABLE {table} SETTINGS check_query_single_value_result = 0", "TSV")).strip()
    assert answer
    assert all(line.split("\t")[1] == "1" for line in answer.splitlines()), answer


def _assert_equal(found: pa.Table, expected: pa.Table) -> None:
    assert found.num_rows == expected.num_rows
    for name in expected.column_names:
        assert equal(found.column(name).combine_chunks(), expected.column(name).combine_chunks()), name


@pytest.mark.parametrize("codec", ["LZ4", "NONE", "ZSTD(3)"])
@pytest.mark.parametrize("rows", [1, 3000])
def test_clickhouse_attaches_checks_and_reads_our_part(oracle: Any, codec: str, rows: int) -> None:
    """M-049: all types, CHECK TABLE passes, values are equal."""
    # M-049
    block, schema = _block(rows, rows + len(codec), TYPES)
    create(oracle, "ours", schema.types, order_by="k")
    store = MemoryStore()
    settings = {"default_compression_codec": codec, "index_granularity": 500}
    manifest = _write(store, schema, block, settings=settings, threads=2)
    attach(oracle, "ours", "all_7_7_0", store, "t", manifest)
    _check(oracle, "ours")
    _assert_equal(select(oracle, "SELECT * FROM ours ORDER BY _part, _part_offset", schema.types), block)
    oracle.query("OPTIMIZE TABLE ours FINAL")
    _check(oracle, "ours")


def test_our_files_are_clickhouses_byte_for_byte(oracle: Any, tmp_path: Path) -> None:
    """M-052, M-053, M-055: index, marks, partition, counts, columns, and the data itself with NONE."""
    # M-052 M-053 M-055
    # LowCardinality is left out: ClickHouse orders its dictionary by hash, any order is right.
    names = [name for name in TYPES if "LowCardinality" not in name]
    block, schema = _block(20_000, 5, names)
    wide = block.add_column(1, "day", pa.array(np.full(len(block), 19001, np.uint16)))
    kinds = {"k": schema.types["k"], "day": parse_type("Date"), **{n: schema.types[n] for n in block.column_names[1:]}}
    schema = TableSchema(
        tuple(Column(i, name, kind) for i, (name, kind) in enumerate(kinds.items())),
        partition_by=("day",),
        order_by=("k", "day"),
        primary_key=("k", "day"),
    )
    for granularity in (8192, 700):
        settings = f"{CLASSIC}, index_granularity={granularity}"
        create(oracle, "theirs", kinds, order_by="(k, day)", partition_by=["day"], settings=settings, codec="NONE")
        insert(oracle, "theirs", wide, kinds, tmp_path)
        (name, path), *others = part_paths(oracle, "theirs").items()
        assert (name, others) == ("20220109_1_1_0", [])
        groups, (partition,) = partition_keys([wide.column("day").combine_chunks()], [kinds["day"]])
        assert not groups.any()
        store = MemoryStore()
        manifest = _write(
            store,
            schema,
            wide,
            keys=["k", "day"],
            partition=partition,
            sources=["day"],
            settings={"default_compression_codec": "NONE", "index_granularity": granularity},
        )
        create(oracle, "ours", kinds, order_by="(k, day)", partition_by=["day"], settings=settings, codec="NONE")
        kept = attach(oracle, "ours", name, store, "t", manifest)
        ours, theirs = ({f.name: f.read_bytes() for f in folder.iterdir()} for folder in (kept, path))
        assert set(theirs) - set(ours) <= {"columns_substreams.txt", "metadata_version.txt", "serialization.json"}
        assert set(ours) <= set(theirs)
        differ = [file for file in sorted(ours) if ours[file] != theirs[file]]
        # ClickHouse compresses checksums.txt with its own settings; what it says must be the same.
        assert set(differ) <= {"checksums.txt", "default_compression_codec.txt"}, differ
        sums = decode_checksums(theirs["checksums.txt"])
        ours_sums = decode_checksums(ours["checksums.txt"])
        assert {n: d for n, d in sums.items() if n in ours_sums} == ours_sums
        assert set(sums) - set(ours_sums) <= {"serialization.json"}
        _check(oracle, "ours")


@pytest.mark.parametrize("width", [10, 900, 3000, 200_000])
def test_granules_follow_clickhouses_rule_of_bytes(oracle: Any, tmp_path: Path, width: int) -> None:
    """M-052: adaptive granules."""
    # M-052
    rows = max(200, min(30_000, 60_000_000 // width))
    texts = pa.array([bytes([65 + i % 26]) * width for i in range(rows)], pa.binary())
    block = pa.table([pa.array(np.arange(rows, dtype=np.uint64)), texts], names=["k", "s"])
    schema = TableSchema(
        (Column(0, "k", parse_type("UInt64")), Column(1, "s", parse_type("String"))),
        order_by=("k",),
        primary_key=("k",),
    )
    create(oracle, "granules", schema.types, order_by="k")
    insert(oracle, "granules", block, schema.types, tmp_path)
    (path,) = part_paths(oracle, "granules").values()
    theirs = np.frombuffer((path / "k.mrk2").read_bytes(), np.uint64).reshape(-1, 3)[:-1, 2]
    store = MemoryStore()
    reader = PartReader(store, "t", _write(store, schema, block), {c.name: c for c in schema.columns})
    assert reader.granule_rows.tolist() == theirs.tolist()


@pytest.mark.parametrize("key", ["lower(s)", "(k, cityHash64(s))"])
def test_key_expressions_count_in_the_bytes_of_granules(oracle: Any, tmp_path: Path, key: str) -> None:
    # M-052
    clauses = f"ENGINE = MergeTree ORDER BY {key}"
    columns, settings = "k UInt64, s String", "index_granularity_bytes = 5000"
    oracle.query("DROP TABLE IF EXISTS granules")
    oracle.query(f"CREATE TABLE granules ({columns}) {clauses} SETTINGS {CLASSIC}, {settings}")
    oracle.query("INSERT INTO granules SELECT number, repeat('x', 100) FROM numbers(900)")
    (path,) = part_paths(oracle, "granules").values()
    rows = {"k": list(range(900)), "s": ["x" * 100] * 900}
    (ours,) = ml.write_part(rows, str(tmp_path), f"CREATE TABLE t ({columns}) {clauses} SETTINGS {settings}")
    assert (Path(ours.path) / "k.mrk2").read_bytes() == (path / "k.mrk2").read_bytes()


@pytest.mark.parametrize("profile", PROFILES)
def test_we_read_what_clickhouse_writes(oracle: Any, tmp_path: Path, profile: str) -> None:
    """M-049: Wide, Compact, the defaults of the newest version, sparse columns, fixed granules."""
    # M-049
    block, schema = _block(5000, 11, TYPES)
    create(oracle, "theirs", schema.types, order_by="k", settings=f"{PROFILES[profile]}, index_granularity=300")
    insert(oracle, "theirs", block, schema.types, tmp_path)
    (path,) = part_paths(oracle, "theirs").values()
    store = DirectoryStore(str(path.parent))
    opened = open_directory(store, path.name, granularity=300)
    assert (opened.manifest.rows, list(opened.columns)) == (5000, list(schema.names))
    reader = PartReader(store, opened.directory, opened.manifest, opened.columns, threads=2, granularity=300)
    batches = list(reader.read(schema.names, batch_rows=1000))
    assert len(batches) > 3
    stored = select(oracle, "SELECT * FROM theirs ORDER BY _part, _part_offset", schema.types)
    _assert_equal(pa.Table.from_batches(batches), stored)
    (index,) = reader.primary_index([schema.types["k"]])
    starts = np.concatenate([[0], np.cumsum(reader.granule_rows)[:-1]])
    assert index.to_pylist()[: len(starts)] == stored.column("k").take(pa.array(starts)).to_pylist()
    picked = pa.Table.from_batches(list(reader.read(schema.names, [(1, 2), (5, 7)])))
    rows = np.concatenate([np.arange(starts[a], starts[b]) for a, b in ((1, 2), (5, 7))])
    _assert_equal(picked, stored.take(pa.array(rows)))


def test_we_read_what_clickhouse_merged_with_defaults(oracle: Any, tmp_path: Path) -> None:
    # M-049
    block, schema = _block(4000, 12, TYPES)
    create(oracle, "theirs", schema.types, order_by="k", settings=f"{NEWEST}, min_bytes_for_wide_part=0")
    for start in range(0, 4000, 1000):
        insert(oracle, "theirs", block.slice(start, 1000), schema.types, tmp_path)
    oracle.query("OPTIMIZE TABLE theirs FINAL")
    (path,) = part_paths(oracle, "theirs").values()
    store = DirectoryStore(str(path.parent))
    opened = open_directory(store, path.name)
    assert opened.manifest.level == 1
    reader = PartReader(store, opened.directory, opened.manifest, opened.columns)
    stored = select(oracle, "SELECT * FROM theirs ORDER BY _part, _part_offset", schema.types)
    _assert_equal(pa.Table.from_batches(list(reader.read(schema.names))), stored)


def test_a_broken_clickhouse_part_names_object_offset_expected_and_found(oracle: Any, tmp_path: Path) -> None:
    # M-049
    block, schema = _block(2000, 13, ["String", "Float64"])
    create(oracle, "theirs", schema.types, order_by="k", settings=PROFILES["wide"])
    insert(oracle, "theirs", block, schema.types, tmp_path)
    (path,) = part_paths(oracle, "theirs").values()
    shutil.copytree(path, tmp_path / "part")
    store = DirectoryStore(str(tmp_path))
    file = tmp_path / "part" / "c1.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(CorruptDataError) as cut:
        open_directory(store, "part")
    assert cut.value.object_key == "part/c1.bin"
    assert (cut.value.expected, cut.value.found) == (f"{len(whole)} bytes", f"{len(whole) - 1} bytes")
    flipped = bytearray(whole)
    flipped[100] ^= 32
    file.write_bytes(flipped)
    opened = open_directory(store, "part")
    with pytest.raises(CorruptDataError) as bad:
        list(PartReader(store, opened.directory, opened.manifest, opened.columns).read(schema.names))
    assert (bad.value.object_key, bad.value.offset) == ("part/c1.bin", 0)
    assert bad.value.expected == whole[:16].hex() != bad.value.found
    file.unlink()
    with pytest.raises(CorruptDataError, match="missing"):
        open_directory(store, "part")


def test_our_empty_part_is_attached(oracle: Any) -> None:
    block, schema = _block(0, 14, TYPES)
    create(oracle, "ours", schema.types, order_by="k")
    store = MemoryStore()
    attach(oracle, "ours", "all_1_1_0", store, "t", _write(store, schema, block))
    _check(oracle, "ours")
    assert str(oracle.query("SELECT count() FROM ours", "TSV")).strip() == "0"


def test_columns_that_a_part_lacks_have_clickhouses_defaults(oracle: Any) -> None:
    names = [*TYPES, "Date32", "LowCardinality(Date32)", "Tuple(Date32, Enum8('b' = 3, 'a' = 2))", "Array(Date32)"]
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    kinds = {"k": parse_type("UInt8"), **{f"c{i}": parse_type(name) for i, name in enumerate(names)}}
    create(oracle, "theirs", {"k": kinds["k"]}, order_by="k", settings=NEWEST)
    oracle.query("INSERT INTO theirs VALUES (1), (2)")
    for name in list(kinds)[1:]:
        oracle.query(f"ALTER TABLE theirs ADD COLUMN {name} {kinds[name]}")
    (path,) = part_paths(oracle, "theirs").values()
    opened = open_directory(store := DirectoryStore(str(path.parent)), path.name)
    columns = {name: Column(i, name, kind) for i, (name, kind) in enumerate(kinds.items())}
    (batch,) = PartReader(store, opened.directory, opened.manifest, columns).read(list(kinds))
    _assert_equal(pa.Table.from_batches([batch]), select(oracle, "SELECT * FROM theirs ORDER BY k", kinds))


@pytest.mark.parametrize("profile", ["wide", "compact", "sparse"])
def test_rows_deleted_by_a_mask_are_left_out(oracle: Any, profile: str) -> None:
    kinds = {"k": parse_type("UInt32"), "s": parse_type("String")}
    create(oracle, "theirs", kinds, order_by="k", settings=f"{PROFILES[profile]}, index_granularity=100")
    oracle.query("INSERT INTO theirs SELECT number, toString(number) FROM numbers(1000)")
    oracle.query("DELETE FROM theirs WHERE k % 3 = 1 OR k < 250 SETTINGS lightweight_deletes_sync = 2")
    (path,) = part_paths(oracle, "theirs").values()
    part = read_part(str(path))
    assert list(part.types) == ["k", "s"]
    want = select(oracle, "SELECT * FROM theirs ORDER BY k", kinds)
    assert 400 < want.num_rows < 600
    assert part.rows == want.num_rows
    _assert_equal(part.storage(), want)
    _assert_equal(read_part(str(path), ["s"]).storage(), want.select(["s"]))
    assert check_part(part.part) == []


def test_projections_are_listed_and_travel_with_the_part(oracle: Any) -> None:
    oracle.query("DROP TABLE IF EXISTS theirs")
    projections = "PROJECTION by_v (SELECT * ORDER BY v), PROJECTION sums (SELECT v % 7, sum(k) GROUP BY v % 7)"
    columns = f"k UInt32, v UInt32, {projections}"
    oracle.query(f"CREATE TABLE theirs ({columns}) ENGINE = MergeTree ORDER BY k SETTINGS {NEWEST}")
    oracle.query("INSERT INTO theirs SELECT number, number * 7 % 1000 FROM numbers(1000)")
    (path,) = part_paths(oracle, "theirs").values()
    opened = open_directory(store := DirectoryStore(str(path.parent)), path.name)
    assert opened.projections == ("by_v", "sums")
    reader = PartReader(store, opened.directory, opened.manifest, opened.columns)
    assert check_part(reader) == []
    assert sum(batch.num_rows for batch in reader.read(["k", "v"])) == 1000
    copied = {name: b"".join(map(bytes, chunks)) for name, chunks in plain_files(store, "", opened.manifest)}
    assert copied == {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}
    assert open_directory(store, f"{path.name}/by_v.proj").manifest.rows == 1000


def test_a_merge_drops_projections_and_says_so(oracle: Any, caplog: pytest.LogCaptureFixture) -> None:
    oracle.query("DROP TABLE IF EXISTS theirs")
    oracle.query(
        "CREATE TABLE theirs (k UInt32, v UInt32, PROJECTION by_v (SELECT * ORDER BY v)) "
        "ENGINE = MergeTree ORDER BY k "
        f"SETTINGS {NEWEST}"
    )
    oracle.query("SYSTEM STOP MERGES theirs")
    for first in (0, 1000):
        oracle.query(f"INSERT INTO theirs SELECT number + {first}, number * 7 % 1000 FROM numbers(1000)")
    paths = part_paths(oracle, "theirs")
    folder = next(iter(paths.values())).parent
    store = DirectoryStore(str(folder.parent))
    columns = (Column(0, "k", parse_type("UInt32")), Column(1, "v", parse_type("UInt32")))
    schema = TableSchema(columns, order_by=("k",), primary_key=("k",))
    opened = [open_directory(store, f"{folder.name}/{name}") for name in sorted(paths)]
    parts = [ActivePart(PartInfo.parse(n), o.manifest, 1, 0) for n, o in zip(sorted(paths), opened, strict=True)]
    merged = execute_merge(store, plan_merge(folder.name, schema, parts), RandomIds(), ManualClock())
    assert "drops projections ['by_v']" in caplog.text
    assert merged.rows == 2000
    assert not any(".proj/" in file for file in merged.file_table())
    reader = PartReader(store, folder.name, merged, {column.name: column for column in schema.columns})
    _assert_equal(
        pa.Table.from_batches(list(reader.read(["k", "v"]))),
        select(oracle, "SELECT * FROM theirs ORDER BY k", schema.types),
    )


def test_indexes_that_only_clickhouse_has_are_ignored(oracle: Any) -> None:
    columns = "k UInt32, s String, v Array(Float32)"
    indexes = (
        "INDEX tx s TYPE text(tokenizer = 'splitByNonAlpha'), INDEX mm k TYPE minmax, "
        "INDEX vs v TYPE vector_similarity('hnsw', 'L2Distance', 2)"
    )
    schema: Any = parse_one(f"CREATE TABLE t ({columns}, INDEX mm k TYPE minmax) ENGINE = MergeTree ORDER BY k")
    for settings in (
        "min_bytes_for_wide_part = 0",
        "min_bytes_for_wide_part = 0, packed_skip_index_max_bytes = 0",
        "min_bytes_for_wide_part = 1000000000",
    ):
        oracle.query("DROP TABLE IF EXISTS theirs")
        oracle.query(
            f"CREATE TABLE theirs ({columns}, {indexes}) ENGINE = MergeTree ORDER BY k "
            f"SETTINGS {settings}, {NEWEST}, index_granularity = 100"
        )
        rows = "number, concat('w', toString(number % 7), ' x'), [number, 1]"
        oracle.query(f"INSERT INTO theirs SELECT {rows} FROM numbers(1000)")
        (path,) = part_paths(oracle, "theirs").values()
        assert any(file.name.startswith("skp_idx_tx") for file in path.iterdir())
        part = read_part(str(path))
        _assert_equal(part.storage(), select(oracle, "SELECT * FROM theirs ORDER BY k", part.types))
        assert check_directory(part.part, check_schema(schema.schema)) == []


@pytest.mark.parametrize(
    "kind", ["text(tokenizer = 'default')", "vector_similarity('hnsw', 'L2Distance', 2)", "hypothesis", "annoy()"]
)
def test_indexes_that_only_clickhouse_has_are_refused_by_name(kind: str) -> None:
    db = ml.connect("memory://index_types")
    with pytest.raises(MergelakeError, match=kind.partition("(")[0]):
        db.sql(f"CREATE TABLE t (k UInt8, s String, INDEX i s TYPE {kind}) ENGINE = MergeTree ORDER BY k")
