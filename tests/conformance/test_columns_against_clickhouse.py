"""Columns as ClickHouse writes them, in every form of its own, and as we write them: same values, same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.types.types import parse_type
from mergelake.format.codecs.codec import CODEC_LZ4, parse_codec
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks
from mergelake.format.codecs.hashes import FileDigest, digest
from mergelake.format.columns.wide import ColumnWriter
from mergelake.format.files.checksums import encode_checksums
from mergelake.format.files.columns_txt import encode_columns
from mergelake.format.serializations import lowcardinality
from mergelake.format.serializations.values import encode_values
from tests.helpers.blocks import insert
from tests.helpers.columns import CLASSIC_SETTINGS, PartDirectory, read, reader as reader_of, written
from tests.helpers.random_arrays import TYPES, random_array

MORE = [
    "Int128",
    "UInt256",
    "Date32",
    "IPv4",
    "IPv6",
    "Decimal(76, 10)",
    "Nullable(UUID)",
    "LowCardinality(FixedString(3))",
    "LowCardinality(UInt16)",
    "LowCardinality(Nullable(Date))",
    "Array(Nullable(UInt8))",
    "Array(LowCardinality(Nullable(String)))",
    "Array(Array(String))",
    "Tuple(UInt8, String)",
    "Tuple(a Nullable(String), b Array(LowCardinality(String)))",
    "Array(Tuple(x String, y Array(UInt8)))",
    "Map(String, UInt32)",
    "Map(LowCardinality(String), Array(String))",
]
COLUMNS = {f"c{i}": parse_type(text) for i, text in enumerate([*TYPES, *MORE])}
FORMS = {
    "wide": "min_bytes_for_wide_part=0",
    "compact": "min_bytes_for_wide_part='1G', min_rows_for_wide_part=100000000",
    "compact, marks a column": (
        "min_bytes_for_wide_part='1G', min_rows_for_wide_part=100000000, write_marks_for_substreams_in_compact_parts=0"
    ),
    "compact, shared blocks": (
        "min_bytes_for_wide_part='1G', min_rows_for_wide_part=100000000, compress_per_column_in_compact_parts=0"
    ),
    "wide, fixed granules": "min_bytes_for_wide_part=0, index_granularity_bytes=0, index_granularity=1000",
    "wide, ZSTD": "min_bytes_for_wide_part=0, default_compression_codec='ZSTD(1)'",
    "classic": CLASSIC_SETTINGS,
}
ROWS = 9000


@pytest.fixture(scope="module")
def arrays() -> dict[str, pa.Array]:
    rng = np.random.default_rng(7)
    return {name: random_array(rng, data_type, ROWS) for name, data_type in COLUMNS.items()}


def _insert(oracle: Any, settings: str, arrays: dict[str, pa.Array], folder: Path) -> str:
    """Make the table with these settings, insert one block; the path of its one part."""
    oracle.query("CREATE DATABASE IF NOT EXISTS columns_test ENGINE = Atomic")
    oracle.query("DROP TABLE IF EXISTS columns_test.t SYNC")
    columns = ", ".join(f"`{column}` {data_type}" for column, data_type in COLUMNS.items())
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    oracle.query(f"CREATE TABLE columns_test.t ({columns}) ENGINE = MergeTree ORDER BY tuple() SETTINGS {settings}")
    insert(oracle, "columns_test.t", pa.table(arrays), COLUMNS, folder)
    sql = "SELECT path FROM system.parts WHERE database = 'columns_test' AND table = 't' AND active"
    (path,) = str(oracle.query(sql, "TSVRaw")).split()
    return path


@pytest.fixture(scope="module", params=FORMS)
def part(
    request: pytest.FixtureRequest, oracle: Any, arrays: dict[str, pa.Array], tmp_path_factory: pytest.TempPathFactory
) -> PartDirectory:
    folder = tmp_path_factory.mktemp("rows")
    return PartDirectory(_insert(oracle, FORMS[request.param], arrays, folder), ROWS, granularity=1000)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_clickhouse_wrote_reads_as_it_was_inserted(
    part: PartDirectory, arrays: dict[str, pa.Array], column: str
) -> None:
    reader = part.reader(column)
    ends = np.concatenate([[0], np.cumsum(reader.granule_rows)])
    assert ends[-1] == ROWS
    last = len(ends) - 1
    for first, end in {(0, last), (0, 1), (last - 1, last), (last // 2, last)}:
        if first == end:
            continue
        found = read(reader, part.files, first, end)
        want = arrays[column].slice(ends[first], ends[end] - ends[first])
        types = [COLUMNS[column]]
        assert encode_values([found], types) == encode_values([want], types), (first, end)


@pytest.mark.parametrize("codec", ["LZ4", "NONE"])
def test_our_classic_files_have_the_bytes_of_clickhouse(
    oracle: Any, arrays: dict[str, pa.Array], tmp_path: Path, codec: str
) -> None:
    """Blocks are cut at the same places, so marks are equal to the byte; LowCardinality has a form of its own."""
    settings = f"{CLASSIC_SETTINGS}, default_compression_codec = '{codec}'"
    theirs = PartDirectory(_insert(oracle, settings, arrays, tmp_path))
    for column, data_type in COLUMNS.items():
        granules = theirs.reader(column).granule_rows
        ours = written(column, data_type, arrays[column], granules, parse_codec(codec))
        for file, data in ours.items():
            if "LowCardinality" in str(data_type):
                continue
            if file.endswith(".bin"):
                assert decode_compressed_blocks(data) == decode_compressed_blocks(theirs.files[file]), (
                    column,
                    data_type,
                )
            assert data == theirs.files[file], (file, data_type)


def _make(oracle: Any, columns: str, settings: str, *selects: str, final: bool = False) -> PartDirectory:
    """A table filled by these SELECTs; its one part (merged if `final`)."""
    oracle.query("CREATE DATABASE IF NOT EXISTS columns_test ENGINE = Atomic")
    oracle.query("DROP TABLE IF EXISTS columns_test.u SYNC")
    oracle.query(f"CREATE TABLE columns_test.u ({columns}) ENGINE = MergeTree ORDER BY k SETTINGS {settings}")
    for select in selects:
        oracle.query(f"INSERT INTO columns_test.u {select}")
    if final:
        oracle.query("OPTIMIZE TABLE columns_test.u FINAL")
    sql = "SELECT path FROM system.parts WHERE database = 'columns_test' AND table = 'u' AND active"
    (path,) = str(oracle.query(sql, "TSVRaw")).split()
    return PartDirectory(path)


def _check(oracle: Any, part: PartDirectory, run: int = 3) -> None:
    """Every column, in runs of a few granules, equals what ClickHouse selects."""
    for name, data_type in part.columns.items():
        want = oracle.query(f"SELECT `{name}` FROM columns_test.u ORDER BY k", "RowBinary").bytes()
        reader = part.reader(name)
        count = len(reader.granule_rows)
        pieces = [read(reader, part.files, at, min(at + run, count)) for at in range(0, count, run)]
        assert b"".join(encode_values([piece], [data_type]) for piece in pieces) == want, name
        assert encode_values([read(reader, part.files)], [data_type]) == want, name


def test_dictionaries_that_overflow_and_start_anew_are_read(oracle: Any) -> None:
    columns = "k UInt64, a LowCardinality(String), b LowCardinality(Nullable(String)), c Array(LowCardinality(String))"
    select = (
        "SELECT number AS k, toString(cityHash64(number) % 30000), if(number % 5 = 0, NULL, toString(number % 11000)),"
        " arrayMap(i -> toString((number + i) % 17000), range(number % 4)) FROM numbers({}, 40000)"
    )
    for settings in (
        "min_bytes_for_wide_part = 0",
        "min_bytes_for_wide_part = '1G', min_rows_for_wide_part = 1000000000",
    ):
        part = _make(oracle, columns, settings, select.format(0))
        _check(oracle, part)
        part = _make(oracle, columns, settings, select.format(0), select.format(20000), final=True)
        assert part.reader("k").granule_rows.sum() == 80000
        for name in ("a", "b", "c"):
            reader = part.reader(name)
            count = len(reader.granule_rows)
            whole = encode_values([read(reader, part.files)], [part.columns[name]])
            runs = [encode_values([read(reader, part.files, at, at + 1)], [part.columns[name]]) for at in range(count)]
            assert b"".join(runs) == whole
            fold = f"SELECT sum(cityHash64({name})) FROM columns_test.u"
            assert str(oracle.query(fold, "TSV"))


def test_sparse_columns_are_read(oracle: Any) -> None:
    kinds = [
        ("UInt32", "number"),
        ("Int128", "-toInt128(number)"),
        ("String", "toString(number)"),
        ("FixedString(5)", "toString(number % 99999)"),
        ("UUID", "toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')"),
        ("Decimal(18, 3)", "toDecimal64(number, 3)"),
        ("DateTime64(3)", "toDateTime64(number, 3)"),
        ("Enum8('a' = 0, 'b' = 3)", "'b'"),
        ("Tuple(x UInt8, y Tuple(z String, w Float64))", "(1, ('b', toFloat64(number)))"),
    ]
    columns = ", ".join(f"c{i} {kind}" for i, (kind, _) in enumerate(kinds))
    values = ", ".join(
        f"if(number % 40 = {i} AND number > 9000, CAST({value} AS {kind}), defaultValueOfTypeName('{kind}'))".replace(
            "('a' = 0, 'b' = 3)')", "(\\'a\\' = 0, \\'b\\' = 3)')"
        )
        for i, (kind, value) in enumerate(kinds)
    )
    for settings in (
        "min_bytes_for_wide_part = 0",
        "min_bytes_for_wide_part = '1G', min_rows_for_wide_part = 1000000000",
    ):
        part = _make(oracle, f"k UInt64, {columns}", settings, f"SELECT number, {values} FROM numbers(50000)")
        assert sum(kind.any_sparse for kind in part.layout.info.columns.values()) == len(kinds)
        _check(oracle, part)


def test_nullable_columns_that_lie_sparse_are_read(oracle: Any) -> None:
    columns = "k UInt64, a Nullable(UInt32), b Tuple(Nullable(String), Nullable(UUID)), c Nullable(FixedString(3))"
    some = "if(number % 40 = 3, {}, NULL)"
    texts = [some.format(text) for text in ("number % 3", "toString(number)", "generateUUIDv4()", "'ab'")]
    select = f"SELECT number, {texts[0]}, ({texts[1]}, {texts[2]}), {texts[3]} FROM numbers(20000)"
    for layout in ("min_bytes_for_wide_part = 0", "min_bytes_for_wide_part = '1G', min_rows_for_wide_part = 1000000"):
        part = _make(oracle, columns, f"{layout}, nullable_serialization_version = 'allow_sparse'", select)
        assert sum(kind.any_sparse for kind in part.layout.info.columns.values()) == 3
        _check(oracle, part)


def test_nested_columns_and_long_names_are_read(oracle: Any) -> None:
    long = "x" * 140
    columns = f"k UInt64, n Nested(a UInt8, b String), `{long}` String, `we ird.é` Nullable(UInt8)"
    select = (
        "SELECT number, range(number % 3), arrayMap(i -> toString(i), range(number % 3)), toString(number), "
        "if(number % 2, NULL, 0) FROM numbers(20000)"
    )
    for settings in ("min_bytes_for_wide_part = 0", CLASSIC_SETTINGS):
        part = _make(oracle, columns, settings, select)
        _check(oracle, part)
    # The classic part of the last round, written by us.
    for name, data_type in part.columns.items():
        reader = part.reader(name)
        ours = written(name, data_type, read(reader, part.files), reader.granule_rows)
        for file, data in ours.items():
            assert data == part.files[file], file


@pytest.mark.parametrize("keys_max", [lowcardinality.KEYS_MAX, 10000])
def test_clickhouse_reads_our_dictionaries(oracle: Any, monkeypatch: pytest.MonkeyPatch, keys_max: int) -> None:
    """One shared dictionary, also past 8192 keys, and keys kept with each granule; ATTACH PART, then compare."""
    monkeypatch.setattr(lowcardinality, "KEYS_MAX", keys_max)
    monkeypatch.setattr(lowcardinality, "PROBE_KEYS", min(keys_max, lowcardinality.PROBE_KEYS))
    rows = 60000
    rng = np.random.default_rng(3)
    shapes = {
        "few": rng.integers(0, 100, rows),
        "many": rng.integers(0, 30000, rows),
        "own": np.arange(rows) * 7,
    }
    kinds = {
        "s": ("LowCardinality(String)", pa.binary()),
        "n": ("LowCardinality(Nullable(String))", pa.binary()),
        "d": ("LowCardinality(UInt32)", pa.uint32()),
        "a": ("Array(LowCardinality(Nullable(String)))", pa.binary()),
    }
    granules = np.array([1, 8192, 9999, 20000, rows - 38192])
    types: dict[str, Any] = {}
    values: dict[str, pa.Array] = {}
    for shape, numbers in shapes.items():
        for kind, (text, arrow) in kinds.items():
            name = f"{shape}_{kind}"
            types[name] = parse_type(text)
            cells = pa.array(numbers.astype(np.uint32))
            if arrow == pa.binary():
                cells = cells.cast(pa.string()).cast(pa.binary())
            if kind in "na":
                cells = pa.array(cells.to_pylist(), arrow, mask=numbers % 11 == 3)
            if kind == "a":
                # Granule 0 and the first rows have no elements at all.
                offsets = np.maximum(np.arange(rows + 1) - 10, 0).astype(np.int32)
                cells = pa.ListArray.from_arrays(pa.array(offsets), cells.slice(0, rows - 10).dictionary_encode())
            values[name] = cells
    oracle.query("CREATE DATABASE IF NOT EXISTS columns_test ENGINE = Atomic")
    oracle.query("DROP TABLE IF EXISTS columns_test.v SYNC")
    oracle.query("SET allow_suspicious_low_cardinality_types = 1")
    columns = ", ".join(f"{name} {kind}" for name, kind in types.items())
    oracle.query(
        f"CREATE TABLE columns_test.v ({columns}) ENGINE = MergeTree ORDER BY tuple() SETTINGS {CLASSIC_SETTINGS}"
    )
    sql = "SELECT data_paths[1] FROM system.tables WHERE database = 'columns_test' AND name = 'v'"
    folder = Path(str(oracle.query(sql, "TSVRaw")).strip()) / "detached" / "all_1_1_0"
    folder.mkdir(parents=True)
    checks: dict[str, FileDigest] = {}
    for name, data_type in types.items():
        writer = ColumnWriter(name, data_type, CODEC_LZ4)
        done = 0
        for count in granules.tolist():  # chunk dictionaries that differ, as a merge has them
            piece = values[name].slice(done, count)
            piece = piece.dictionary_encode() if "_a" not in name and count % 2 else piece
            writer.append(piece, np.array([count]))
            done += count
        for file, data in writer.finish():
            with (folder / file).open("ab") as out:
                out.write(data)
        checks |= writer.digests()
        files = {file: (folder / file).read_bytes() for file in writer.digests()}
        assert encode_values([read(reader_of(name, data_type, files), files)], [data_type]) == encode_values(
            [values[name]], [data_type]
        )
    (folder / "columns.txt").write_bytes(encode_columns(types))
    (folder / "count.txt").write_bytes(str(rows).encode())
    checks["count.txt"] = digest(str(rows).encode())
    (folder / "checksums.txt").write_bytes(encode_checksums(checks))
    oracle.query("ALTER TABLE columns_test.v ATTACH PART 'all_1_1_0'")
    assert str(oracle.query("CHECK TABLE columns_test.v", "TSV")).strip().endswith("\t1")
    for name, data_type in types.items():
        found = oracle.query(f"SELECT {name} FROM columns_test.v", "RowBinary").bytes()
        assert found == encode_values([values[name]], [data_type]), name
    # A range in the middle alone: each granule stands for itself.
    for name, data_type in types.items():
        sql = f"SELECT {name} FROM columns_test.v WHERE _part_offset BETWEEN 30000 AND 30500"
        assert oracle.query(sql, "RowBinary").bytes() == encode_values([values[name].slice(30000, 501)], [data_type])
