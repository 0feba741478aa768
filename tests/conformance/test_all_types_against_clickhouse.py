"""Every type both ways: random schemas, nested three deep, ours attached by ClickHouse and ClickHouse's read by us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake
from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.storage import to_public, to_public_table, to_storage
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.format.serializations.values import encode_values
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.store.objects.directory import DirectoryStore
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.blocks import insert
from tests.helpers.clickhouse_tables import CLASSIC, attach, create, part_paths
from tests.helpers.parts import part_target, write_block
from tests.helpers.random_arrays import random_array
from tests.helpers.random_types import DICTIONARIES, GEO, LEAVES, random_type
from tests.helpers.rounds import rounds

ROUNDS = rounds(4, 100)
ROWS = 700
NEWEST = "min_bytes_for_full_part_storage=0, allow_nullable_key=1"
HUGE = "min_bytes_for_wide_part=100000000000, min_rows_for_wide_part=100000000000"
PROFILES = [
    CLASSIC,
    f"{NEWEST}, min_bytes_for_wide_part=0",
    f"{NEWEST}, {HUGE}",
    f"{NEWEST}, {HUGE}, write_marks_for_substreams_in_compact_parts=0",
    f"{NEWEST}, min_bytes_for_wide_part=0, ratio_of_defaults_for_sparse_serialization=0.1",
]
KNOWN = [
    *LEAVES,
    *GEO,
    *(f"LowCardinality({kind})" for kind in DICTIONARIES),
    "Nullable(Int256)",
    "Nullable(BFloat16)",
    "Nullable(Time64(3))",
    "LowCardinality(Nullable(UUID))",
    "Array(Time64(6))",
    "Map(UInt8, Map(String, Array(IPv6)))",
    "Map(LowCardinality(String), Nullable(Decimal(50, 3)))",
    "Tuple(a UInt8, b Tuple(c String, d Array(Nullable(Int128))))",
    "SimpleAggregateFunction(sum, UInt64)",
    "SimpleAggregateFunction(groupArrayArray, Array(String))",
]


@pytest.fixture(scope="module")
def clickhouse(oracle: Any) -> Any:
    for name in ("enable_time_time64_type", "allow_suspicious_low_cardinality_types"):
        oracle.query(f"SET {name} = 1")
    return oracle


def _schema(kinds: list[str]) -> TableSchema:
    columns = [Column(0, "k", parse_type("UInt32"))]
    columns += [Column(i, f"c{i}", parse_type(text)) for i, text in enumerate(kinds, 1)]
    return TableSchema(tuple(columns), order_by=("k",), primary_key=("k",))


def _block(rng: np.random.Generator, schema: TableSchema) -> pa.Table:
    arrays = {name: random_array(rng, kind, ROWS) for name, kind in schema.types.items()}
    arrays["k"] = pa.array(np.arange(ROWS, dtype=np.uint32))
    return pa.table(arrays)


def _bytes(table: pa.Table, schema: TableSchema) -> dict[str, bytes]:
    return {n: encode_values([table.column(n).combine_chunks()], [schema.types[n]]) for n in schema.names}


def _selected(clickhouse: Any, table: str, schema: TableSchema) -> dict[str, bytes]:
    return {n: clickhouse.query(f"SELECT `{n}` FROM {table} ORDER BY k", "RowBinary").bytes() for n in schema.names}


def _read(reader: PartReader, schema: TableSchema) -> dict[str, bytes]:
    return _bytes(pa.Table.from_batches(list(reader.read(schema.names, batch_rows=200))), schema)


def _both_ways(clickhouse: Any, rng: np.random.Generator, kinds: list[str], folder: Path, **settings: Any) -> None:
    schema = _schema(kinds)
    block = _block(rng, schema)
    want = _bytes(block, schema)
    given = {"index_granularity": int(rng.integers(50, 400)), **settings}
    store = MemoryStore()
    manifest = write_block(part_target(store, schema, settings=given), block)
    columns = {column.name: column for column in schema.columns}
    assert _read(PartReader(store, "t", manifest, columns), schema) == want
    create(clickhouse, "ours", schema.types, order_by="k")
    attach(clickhouse, "ours", "all_1_1_0", store, "t", manifest)
    assert _selected(clickhouse, "ours", schema) == want
    told = str(clickhouse.query("CHECK TABLE ours SETTINGS check_query_single_value_result = 0", "TSV"))
    assert told.split("\t")[1] == "1", told
    profile = PROFILES[int(rng.integers(len(PROFILES)))]
    create(clickhouse, "theirs", schema.types, order_by="k", settings=f"{profile}, index_granularity=150")
    insert(clickhouse, "theirs", block, schema.types, folder)
    (path,) = part_paths(clickhouse, "theirs").values()
    opened = open_directory(beside := DirectoryStore(str(path.parent)), path.name)
    assert _read(PartReader(beside, opened.directory, opened.manifest, opened.columns), schema) == want


FORMS = {
    "wide": {},
    "compact": {"min_rows_for_wide_part": 1000, "default_compression_codec": "ZSTD(1)"},
    "modern": {"part_profile": "modern"},
    "modern, compact": {"part_profile": "modern", "min_bytes_for_wide_part": 1 << 30},
    "packed": {"min_bytes_for_full_part_storage": 0},
}
"""Settings of ours under which a part lies in each way that we write."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_schemas_travel_both_ways(clickhouse: Any, tmp_path: Path, seed: int, form: str) -> None:
    """M-049: ClickHouse attaches, checks and reads ours; we read what it writes; values equal to the bit."""
    # M-049
    rng = np.random.default_rng([seed, len(form)])
    kinds = [random_type(rng, int(rng.integers(1, 4))) for _ in range(10)]
    _both_ways(clickhouse, rng, kinds, tmp_path, **FORMS[form])


def test_every_type_goes_through_create_insert_merge_and_select(clickhouse: Any) -> None:
    # M-049
    rng = np.random.default_rng(99)
    schema = _schema(KNOWN)
    block = _block(rng, schema)
    want = _bytes(block, schema)
    public = {name: to_public(block.column(name).combine_chunks(), kind) for name, kind in schema.types.items()}
    db = mergelake.connect("memory://every_type")
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(schema.names, ["UInt32", *KNOWN], strict=True))
    db.sql(f"CREATE TABLE t ({columns}) ENGINE = MergeTree ORDER BY k")
    table = db.table("t")
    for start in (0, 1):
        at = pa.array(np.arange(start, ROWS, 2))
        table.append({name: array.take(at) for name, array in public.items()})
    table.optimize(final=True)
    (part,) = table.snapshot().parts
    columns_now = {column.name: column for column in table.schema.columns}
    assert _read(PartReader(table.handle.store, table.handle.directory, part.manifest, columns_now), schema) == want
    answer = db.sql("SELECT * FROM t ORDER BY k").arrow()
    for name, array in public.items():
        found = answer.column(name).combine_chunks()
        assert found.type == array.type, (name, schema.types[name])
        assert encode_values([to_storage(found, schema.types[name])], [schema.types[name]]) == want[name], name


@pytest.mark.parametrize("kind", [*LEAVES, "Tuple(UInt8, String)", "Tuple(a Int256, b Tuple(Float32, IPv6))", "Point"])
def test_a_sorting_key_of_each_type_has_clickhouses_order(clickhouse: Any, kind: str) -> None:
    data_type = parse_type(kind)
    values = random_array(np.random.default_rng(5), data_type, 300)
    if kind == "BFloat16":
        values = pa.array([0x8000, 0, 0xFF80, 0x7F80, 0x7FC0, 0x3F80, 0xBF80] * 40, pa.uint16())
    db = mergelake.connect("memory://sorting_keys")
    db.sql("DROP TABLE IF EXISTS t")
    db.sql(f"CREATE TABLE t (v {kind}, k UInt32) ENGINE = MergeTree ORDER BY (v, k)")
    rows = pa.array(np.arange(len(values), dtype=np.uint32))
    db.table("t").append({"v": to_public(values, data_type), "k": rows})
    (part,) = db.table("t").snapshot().parts
    create(clickhouse, "ours", {"v": data_type, "k": parse_type("UInt32")}, order_by="(v, k)")
    handle = db.table("t").handle
    attach(clickhouse, "ours", "all_1_1_0", handle.store, handle.directory, part.manifest)
    lie = str(clickhouse.query("SELECT k FROM ours ORDER BY _part_offset", "TSV"))
    assert lie == str(clickhouse.query("SELECT k FROM (SELECT v, k FROM ours ORDER BY identity(v), k)", "TSV"))


def test_nested_columns_share_one_stream_of_sizes(clickhouse: Any, tmp_path: Path) -> None:
    # M-049
    db = mergelake.connect("memory://nested")
    nested = "Nested(a UInt8, b String, c Array(LowCardinality(String)))"
    db.sql(f"CREATE TABLE t (k UInt32, n {nested}) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t VALUES (1, [1, 2], ['a', 'b'], [['x'], []]), (2, [], [], [])")
    db.sql("INSERT INTO t VALUES (0, [3], ['c'], [['y', 'z']])")
    table = db.table("t")
    assert table.schema.names == ("k", "n.a", "n.b", "n.c")
    with pytest.raises(MergelakeError, match="different array sizes"):
        db.sql("INSERT INTO t VALUES (3, [1], [], [])")
    table.optimize(final=True)
    (part,) = table.snapshot().parts
    files = part.manifest.file_table()
    assert "n.size0.bin" in files
    assert "n%2Ea.size0.bin" not in files
    create(clickhouse, "ours", table.schema.types, order_by="k")
    attach(clickhouse, "ours", "all_1_1_0", table.handle.store, table.handle.directory, part.manifest)
    sql = "SELECT k, x, y, z FROM {} ARRAY JOIN n.a AS x, n.b AS y, n.c AS z ORDER BY k, x"
    assert str(clickhouse.query(sql.format("ours"), "TSV")) == "0\t3\tc\t['y','z']\n1\t1\ta\t['x']\n1\t2\tb\t[]\n"
    assert db.sql(sql.format("t")).rows() == [(0, 3, "c", ["y", "z"]), (1, 1, "a", ["x"]), (1, 2, "b", [])]
    for profile in PROFILES:
        create(clickhouse, "theirs", table.schema.types, order_by="k", settings=profile)
        clickhouse.query("INSERT INTO theirs SELECT * FROM ours")
        (path,) = part_paths(clickhouse, "theirs").values()
        opened = open_directory(beside := DirectoryStore(str(path.parent)), path.name)
        reader = PartReader(beside, opened.directory, opened.manifest, opened.columns)
        assert _read(reader, table.schema) == _selected(clickhouse, "ours", table.schema)


def test_a_nested_column_that_is_not_there_is_as_long_as_its_siblings(clickhouse: Any) -> None:
    kinds = {"k": "UInt8", "n.a": "Array(UInt8)", "n.b": "Array(String)", "n.c": "Array(Nullable(Int64))"}
    types = {name: parse_type(kind) for name, kind in kinds.items()}
    db = mergelake.connect("memory://nested_default")
    db.sql("CREATE TABLE t (k UInt8, n Nested(a UInt8, b String, c Nullable(Int64))) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t (k, n.a) VALUES (1, [1, 2]), (2, [])")
    rows = [(1, [1, 2], ["", ""], [None, None]), (2, [], [], [])]
    assert db.sql("SELECT * FROM t ORDER BY k").rows() == rows
    for profile in PROFILES:
        create(clickhouse, "theirs", {name: types[name] for name in ("k", "n.a")}, order_by="k", settings=profile)
        clickhouse.query("INSERT INTO theirs VALUES (1, [1, 2]), (2, [])")
        (path,) = part_paths(clickhouse, "theirs").values()
        opened = open_directory(store := DirectoryStore(str(path.parent)), path.name)
        columns = {name: Column(i, name, kind) for i, (name, kind) in enumerate(types.items())}
        reader = PartReader(store, opened.directory, opened.manifest, columns)
        for names in (list(types), ["n.c"], ["n.c", "n.a"]):
            (batch,) = reader.read(names)
            found = to_public_table(batch, types)
            assert found.to_pylist() == [{name: row[list(kinds).index(name)] for name in names} for row in rows]


def test_nullable_tuples_that_clickhouse_wrote_are_read(clickhouse: Any) -> None:
    kinds = {
        "k": "UInt8",
        "v": "Nullable(Tuple(a UInt8, c Nullable(String)))",
        "w": "Array(Nullable(Tuple(UInt8, Int8)))",
    }
    types = {name: parse_type(kind) for name, kind in kinds.items()}
    for profile in PROFILES:
        create(clickhouse, "theirs", types, order_by="k", settings=profile)
        clickhouse.query("INSERT INTO theirs VALUES (1, (1, NULL), [NULL, (1, 2)]), (2, NULL, []), (3, (3, 'd'), [])")
        (path,) = part_paths(clickhouse, "theirs").values()
        opened = open_directory(store := DirectoryStore(str(path.parent)), path.name)
        (batch,) = PartReader(store, opened.directory, opened.manifest, opened.columns).read(list(types))
        found = to_public_table(batch, types)
        assert found.column("v").to_pylist() == [{"a": 1, "c": None}, None, {"a": 3, "c": "d"}]
        assert found.column("w").to_pylist() == [[None, {"1": 1, "2": 2}], [], []]


@pytest.mark.parametrize("kind", ["Nullable(Nothing)", "Tuple()", "QBit(Float32, 8)"])
def test_types_that_cannot_be_kept_are_refused_by_name_at_create(kind: str) -> None:
    db = mergelake.connect("memory://refused")
    with pytest.raises(MergelakeError, match=kind.partition("(")[0]):
        db.sql(f"CREATE TABLE t (k UInt8, v {kind}) ENGINE = MergeTree ORDER BY k")
