"""Variant, Dynamic and JSON both ways: every serialisation that ClickHouse writes is read, what we write it reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import mergelake
from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.storage import to_public, to_storage
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.single_value import read_value
from mergelake.core.types.type_binary import decode_type
from mergelake.core.types.types import DataType, parse_type
from mergelake.format.serializations.values import decode_values
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.adopt import open_directory
from mergelake.store.objects.directory import DirectoryStore
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.blocks import insert
from tests.helpers.clickhouse_tables import CLASSIC, attach, create, part_paths
from tests.helpers.parts import part_target, write_block
from tests.helpers.random_mixed import mixed_array, random_mixed_type

ROUNDS = int(os.environ.get("MERGELAKE_TYPE_ROUNDS", "4"))
ROWS = 90
WIDE = "min_bytes_for_full_part_storage=0, min_bytes_for_wide_part=0"
COMPACT = "min_bytes_for_full_part_storage=0, min_bytes_for_wide_part=100000000000, min_rows_for_wide_part=100000000000"
SHARED = (
    "object_shared_data_serialization_version_for_zero_level_parts='{0}', object_shared_data_buckets_for_wide_part=3, "
    "object_shared_data_serialization_version='{0}', object_shared_data_buckets_for_compact_part=2, "
    "object_shared_data_target_chunk_rows=7"
)
OLD = (
    "object_serialization_version='{0}', dynamic_serialization_version='{0}', "
    "string_serialization_version='single_stream', use_compact_variant_discriminators_serialization=0"
)
MAP = SHARED.format("map")
PROFILES = [
    WIDE,
    COMPACT,
    f"{CLASSIC}, {MAP}",
    f"{COMPACT}, {MAP}, write_marks_for_substreams_in_compact_parts=0",
    *(f"{form}, {SHARED.format(v)}" for form in (WIDE, COMPACT) for v in ("map", "advanced", "advanced_chunked")),
    *(f"{form}, {OLD.format(v)}" for form in (WIDE, COMPACT) for v in ("v1", "v2")),
]
FORMS: dict[str, dict[str, Any]] = {
    "wide": {},
    "compact": {"min_rows_for_wide_part": 1000, "default_compression_codec": "ZSTD(1)"},
    "modern": {"part_profile": "modern"},
    "modern, compact": {"part_profile": "modern", "min_bytes_for_wide_part": 1 << 30},
}


@pytest.fixture(scope="module")
def clickhouse(oracle: Any) -> Any:
    for name in ("enable_time_time64_type", "allow_suspicious_low_cardinality_types", "allow_suspicious_variant_types"):
        oracle.query(f"SET {name} = 1")
    return oracle


def _schema(kinds: list[str]) -> TableSchema:
    columns = [Column(0, "k", parse_type("UInt32"))]
    columns += [Column(i, f"c{i}", parse_type(text)) for i, text in enumerate(kinds, 1)]
    return TableSchema(tuple(columns), order_by=("k",), primary_key=("k",))


def _selected(clickhouse: Any, table: str, schema: TableSchema, rows: int) -> dict[str, list[Any]]:
    out = {}
    for name, kind in schema.types.items():
        (values,) = decode_values(
            clickhouse.query(f"SELECT `{name}` FROM {table} ORDER BY k", "RowBinary").bytes(), [kind], rows
        )
        out[name] = values.to_pylist()
    return out


def _read(path: Path, names: tuple[str, ...], batch_rows: int) -> dict[str, list[Any]]:
    store = DirectoryStore(str(path.parent))
    opened = open_directory(store, path.name)
    reader = PartReader(store, opened.directory, opened.manifest, opened.columns)
    return {
        n: pa.Table.from_batches(list(reader.read([n], batch_rows=batch_rows))).column(n).to_pylist() for n in names
    }


def _same(found: dict[str, list[Any]], wanted: dict[str, list[Any]], schema: TableSchema) -> None:
    for name, values in wanted.items():
        kind = schema.types[name]
        assert [_normal(v, kind) for v in found[name]] == [_normal(v, kind) for v in values], kind


def _normal(value: Any, kind: DataType) -> Any:
    """A storage value in which the paths of JSON values that lie in Dynamic values have an order."""
    if value is None:
        return None
    match kind:
        case t.Nullable(inner):
            return _normal(value, inner)
        case t.Array(inner):
            return [_normal(each, inner) for each in value]
        case t.Map(_, inner):
            return [(each["keys"], _normal(each["values"], inner)) for each in value]
        case t.Tuple(elements) | t.Variant(elements):
            return [_normal(each, element) for each, element in zip(value.values(), elements, strict=True)]
        case t.Json():
            return [(each["path"], _normal(each["value"], t.Dynamic())) for each in value]
        case t.Dynamic():
            inside, at = decode_type(value, 0)
            return str(inside), _normal(read_value(value, at, inside)[0], inside)
    return value


@pytest.mark.parametrize("seed", range(ROUNDS * 2))
def test_values_of_any_type_travel_both_ways(clickhouse: Any, tmp_path: Path, seed: int) -> None:
    # M-049
    rng = np.random.default_rng([seed, 7])
    schema = _schema([random_mixed_type(rng, int(rng.integers(1, 4))) for _ in range(4)])
    block = pa.table({name: mixed_array(rng, kind, ROWS) for name, kind in schema.types.items()})
    block = block.set_column(0, "k", pa.array(np.arange(ROWS, dtype=np.uint32)))
    want = {name: block.column(name).to_pylist() for name in schema.names}
    profile = PROFILES[seed % len(PROFILES)]
    create(clickhouse, "theirs", schema.types, order_by="k", settings=f"{profile}, index_granularity=40")
    insert(clickhouse, "theirs", block, schema.types, tmp_path)
    _same(_selected(clickhouse, "theirs", schema, ROWS), want, schema)
    (path,) = part_paths(clickhouse, "theirs").values()
    for batch_rows in (1, 1000):
        _same(_read(path, schema.names, batch_rows), want, schema)
    later = block.set_column(0, "k", pa.array(np.arange(ROWS, 2 * ROWS, dtype=np.uint32)))
    insert(clickhouse, "theirs", later, schema.types, tmp_path)
    clickhouse.query("OPTIMIZE TABLE theirs FINAL")
    (path,) = part_paths(clickhouse, "theirs").values()
    _same(_read(path, schema.names, 100), _selected(clickhouse, "theirs", schema, 2 * ROWS), schema)
    store = MemoryStore()
    given = {"index_granularity": 37, **list(FORMS.values())[seed % len(FORMS)]}
    manifest = write_block(part_target(store, schema, settings=given), block)
    reader = PartReader(store, "t", manifest, {column.name: column for column in schema.columns})
    _same(pa.Table.from_batches(list(reader.read(schema.names, batch_rows=50))).to_pydict(), want, schema)
    create(clickhouse, "ours", schema.types, order_by="k")
    attach(clickhouse, "ours", "all_1_1_0", store, "t", manifest)
    _same(_selected(clickhouse, "ours", schema, ROWS), want, schema)
    told = str(clickhouse.query("CHECK TABLE ours SETTINGS check_query_single_value_result = 0", "TSV"))
    assert told.split("\t")[1] == "1", told
    clickhouse.query("INSERT INTO ours SELECT * REPLACE (k + 1000 AS k) FROM ours")
    clickhouse.query("OPTIMIZE TABLE ours FINAL")
    twice = {name: values * 2 for name, values in want.items() if name != "k"}
    _same(_selected(clickhouse, "ours", schema, 2 * ROWS), twice, schema)


def test_names_of_types_in_file_names_need_not_be_escaped(clickhouse: Any) -> None:
    schema = _schema(["Variant(Array(UInt8), String)", "Dynamic", "JSON(max_dynamic_paths=1)"])
    for form in (WIDE, COMPACT):
        settings = f"{form}, escape_variant_subcolumn_filenames=0, {OLD.format('v1')}"
        create(clickhouse, "theirs", schema.types, order_by="k", settings=settings)
        clickhouse.query(
            "INSERT INTO theirs SELECT number, number % 2 ? 'x'::Variant(Array(UInt8), String) : "
            "range(number)::Array(UInt8)::Variant(Array(UInt8), String), range(number)::Array(UInt64)::Dynamic, "
            """'{"a":[1],"b":["x"]}' FROM numbers(9)"""
        )
        (path,) = part_paths(clickhouse, "theirs").values()
        _same(_read(path, schema.names, 1), _selected(clickhouse, "theirs", schema, 9), schema)


def test_many_paths_make_wide_indexes_of_shared_data(clickhouse: Any) -> None:
    schema = _schema(["JSON(max_dynamic_paths=0)"])
    for paths in (256, 257):
        for form in (WIDE, COMPACT):
            create(clickhouse, "theirs", schema.types, order_by="k", settings=f"{form}, {SHARED.format('advanced')}")
            clickhouse.query(
                f"INSERT INTO theirs SELECT number, concat('{{\"p', toString(number), '\":', toString(number), '}}') "
                f"FROM numbers({paths})"
            )
            (path,) = part_paths(clickhouse, "theirs").values()
            _same(_read(path, schema.names, 10_000), _selected(clickhouse, "theirs", schema, paths), schema)


def test_json_text_is_that_of_clickhouse(clickhouse: Any) -> None:
    kinds = ["JSON(max_dynamic_paths=3, `t.x` UInt32)", "Dynamic", "Array(Dynamic)", "Nullable(JSON)"]
    schema = _schema(kinds)
    rng = np.random.default_rng(4)
    block = pa.table({name: mixed_array(rng, kind, ROWS) for name, kind in schema.types.items()})
    block = block.set_column(0, "k", pa.array(np.arange(ROWS, dtype=np.uint32)))
    create(clickhouse, "theirs", schema.types, order_by="k", settings=WIDE)
    insert(clickhouse, "theirs", block, schema.types, Path(clickhouse.query("SELECT 1") and "/tmp"))
    sql = "SELECT * FROM theirs ORDER BY k SETTINGS output_format_json_quote_64bit_integers = 0"
    told = [
        json.loads(line)
        for line in clickhouse.query(sql, "JSONEachRow").bytes().decode("utf-8", "replace").splitlines()
    ]
    for name, kind in list(schema.types.items())[1:]:
        texts = to_public(block.column(name).combine_chunks(), kind).to_pylist()
        found = [_parsed(text) for text in texts]
        for mine, row in zip(found, told, strict=True):
            assert _plain(mine) == _plain(row[name]), kind


def _parsed(text: Any) -> Any:
    if isinstance(text, list):
        return [_parsed(each) for each in text]
    return None if text is None else json.loads(text)


def _plain(value: Any) -> Any:
    """Numbers to 12 digits: ClickHouse prints Float32 shorter."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return float(f"{value:.12g}") if isinstance(value, float) else value


def test_json_text_becomes_what_clickhouse_makes_of_it_but_for_dates(clickhouse: Any) -> None:
    kind = parse_type("JSON(`t.x` UInt32, SKIP zz)")
    texts = [
        '{"a":{"b":1,"c":"x"},"t":{"x":7},"zz":{"y":1}}', "{}",
        '{"d":[],"e":[1,2.5],"f":[1,"a"],"g":[{"z":1,"y":[null]}],"j":[null],"k":[[1],[]],"l":18446744073709551615}',
        '{"m":-1,"n":1e5,"q":null,"r":[{"z":1},2],"s":[[1,"a"]],"u":[true],"v":false,"w":"é\\n\\"","x":[1,null]}',
    ]  # fmt: skip
    mine = to_storage(pa.array(texts), kind).to_pylist()
    for text, entries in zip(texts, mine, strict=True):
        raw = clickhouse.query(f"SELECT CAST({_quoted(text)}, {_quoted(str(kind))})", "RowBinary").bytes()
        (theirs,) = decode_values(raw, [kind], 1)
        assert entries == theirs[0].as_py(), text


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def test_mixed_types_go_through_create_insert_merge_and_scan() -> None:
    # M-049
    db = mergelake.connect("memory://mixed")
    db.sql("CREATE TABLE t (k UInt32, v Variant(UInt64, String), d Dynamic, j JSON, a Array(Dynamic))"
           " ENGINE = MergeTree ORDER BY k")  # fmt: skip
    db.sql("""INSERT INTO t VALUES (1, 5, 5, '{"a":1}', [1]), (3, NULL, NULL, '{"b":[1]}', [])""")
    db.table("t").append({"k": [2], "v": pa.array(["x"]), "d": pa.array(["y"]), "j": pa.array([{"p": {"q": 1}}])})
    db.table("t").optimize(final=True)
    found = db.table("t").scan().arrow()
    assert found.to_pylist() == [
        {"k": 1, "v": {"String": None, "UInt64": 5}, "d": "5", "j": '{"a":1}', "a": ["1"]},
        {"k": 2, "v": {"String": "x", "UInt64": None}, "d": '"y"', "j": '{"p":{"q":1}}', "a": []},
        {"k": 3, "v": {"String": None, "UInt64": None}, "d": None, "j": '{"b":[1]}', "a": []},
    ]
    assert found.schema.field("j").type == pa.json_(pa.string())
    assert db.sql("SELECT k, variantType(v) FROM t ORDER BY k").rows() == [(1, "UInt64"), (2, "String"), (3, "None")]
    assert db.sql("CHECK TABLE t").rows()[0][1] == 1
    db.sql("CREATE TABLE u (k UInt32, v Variant(UInt64, String), d Dynamic, j JSON, a Array(Dynamic))"
           " ENGINE = MergeTree ORDER BY k")  # fmt: skip
    db.table("u").append(found)
    assert db.table("u").scan().arrow().equals(found)
    for column in ("d", "j", "a"):
        computed = db.sql(f"SELECT {column} FROM t ORDER BY k").arrow()[column]
        assert computed.to_pylist() == found[column].to_pylist()
    for kind in ("Dynamic", "JSON", "Variant(UInt8, String)"):
        with pytest.raises(MergelakeError):
            db.sql(f"CREATE TABLE w (k UInt8, v {kind}) ENGINE = MergeTree ORDER BY v SETTINGS allow_nullable_key = 1")


def test_what_fits_no_type_of_a_variant_is_refused() -> None:
    kind = parse_type("Variant(UInt64, String)")
    with pytest.raises(MergelakeError, match="none of the types"):
        to_storage(pa.array([True]), kind)
    with pytest.raises(MergelakeError, match="more than one type"):
        to_storage(pa.array([{"UInt64": 1, "String": "x"}]), kind)
    for text in ("[1]", "{", "1", '{"a":NaN}'):
        with pytest.raises(MergelakeError):
            to_storage(pa.array([text]), parse_type("JSON"))


def test_a_column_of_an_unknown_type_leaves_its_part_readable(clickhouse: Any) -> None:
    types = {"k": parse_type("UInt8"), "q": parse_type("Array(Float32)"), "v": parse_type("String")}
    for profile in (WIDE, COMPACT):
        create(clickhouse, "plain", types, order_by="k", settings=profile)
        clickhouse.query("DROP TABLE IF EXISTS theirs")
        clickhouse.query(
            "CREATE TABLE theirs (k UInt8, q QBit(Float32, 8), v String) ENGINE = MergeTree ORDER BY k "
            f"SETTINGS {profile}"
        )
        clickhouse.query("INSERT INTO theirs SELECT number, arrayWithConstant(8, 1.5), 'v' FROM numbers(5)")
        (path,) = part_paths(clickhouse, "theirs").values()
        assert _read(path, ("k", "v"), 10) == {"k": [0, 1, 2, 3, 4], "v": [b"v"] * 5}
        with pytest.raises(MergelakeError, match="QBit"):
            _read(path, ("q",), 10)
