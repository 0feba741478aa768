"""Column codecs: every codec that fits a type, both ways, byte for byte where the algorithm is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import DataType, parse_type
from mergelake.format.codecs.codec import parse_codec
from mergelake.format.codecs.codec_run import decompress
from mergelake.format.codecs.codec_types import check_codec, stream_codec, stream_types
from mergelake.format.codecs.compressed_blocks import decode_compressed_blocks
from mergelake.format.codecs.hashes import FileDigest, digest
from mergelake.format.columns.wide import ColumnWriter
from mergelake.format.files.checksums import encode_checksums
from mergelake.format.files.columns_txt import encode_columns
from mergelake.format.kernels.memory import allocate, region
from mergelake.format.serializations.values import encode_values
from tests.helpers.blocks import insert
from tests.helpers.columns import CLASSIC_SETTINGS, PartDirectory, read
from tests.helpers.series import SHAPES, series

TYPES = [
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)),
    *("Float32", "Float64", "BFloat16", "Bool", "Date", "Date32", "DateTime('UTC')", "DateTime64(3, 'UTC')"),
    *("Time", "Time64(3)", "Enum8('a' = -3, 'b' = 7)", "Enum16('x' = 1, 'y' = 300)", "IPv4", "UUID", "IPv6"),
    *("Decimal(9, 2)", "Decimal(18, 4)", "Decimal(38, 6)", "Decimal(76, 6)", "FixedString(4)", "FixedString(3)"),
]
CODECS = [
    *("Delta", "DoubleDelta", "Gorilla", "T64", "T64('bit')", "FPC", "FPC(3)", "GCD", "LZ4HC", "LZ4HC(3)", "ZSTD(0)"),
    *("Delta, LZ4", "DoubleDelta, LZ4HC(12)", "Gorilla, ZSTD(3)", "GCD, Delta, T64('bit'), LZ4", "Delta(1), NONE"),
    *("Delta, DoubleDelta, Gorilla", "Delta(8), LZ4", "Gorilla(4), LZ4", "Gorilla, FPC, LZ4", "GCD, ZSTD", "T64, LZ4"),
    *("GCD, GCD, Delta, Delta, LZ4", "Default"),
]
NESTED = [
    ("Nullable(Int64)", "Delta, LZ4"),
    ("Nullable(DateTime)", "T64"),
    ("Array(Nullable(Float64))", "Gorilla, LZ4"),
    ("Array(Int64)", "DoubleDelta"),
    ("Map(Int32, Int64)", "Delta, LZ4"),
    ("Tuple(a Int64, b Int16, c Tuple(Float32, UInt8))", "DoubleDelta, LZ4"),
    ("LowCardinality(String)", "Delta(1), LZ4"),
    ("LowCardinality(Nullable(String))", "Delta(2), ZSTD(2)"),
    ("SimpleAggregateFunction(sum, Int64)", "GCD, LZ4"),
    ("String", "Delta(1), LZ4"),
    ("Array(String)", "Delta(4), LZ4HC"),
]
ROWS, GRANULE = 250 * SHAPES, 250
BLOCK = 200
"""Bytes after which blocks are cut: one a granule."""
SETTINGS = f"{CLASSIC_SETTINGS}, index_granularity={GRANULE}, min_compress_block_size={BLOCK}"


def _fits(codec: str, data_type: DataType) -> bool:
    try:
        for values in stream_types(data_type):
            stream_codec(parse_codec(codec), values)
    except MergelakeError:
        return False
    return True


def _without_general(stored: bytes) -> list[bytes]:
    """Blocks without the last step of their chain if it is LZ4 or ZSTD, whose bytes are up to library and state.

    (ClickHouse's LZ4 keeps a table from block to block in a chain.) A mark file comes as it is.
    """
    if stored[16] == 0x90:
        return [decode_compressed_blocks(stored)]
    if stored[16] != 0x91 or stored[25 + stored[25]] not in (0x82, 0x90):
        return [stored]
    found: list[bytes] = []
    while stored:
        block, stored = stored[: 16 + _size(stored, 17)], stored[16 + _size(stored, 17) :]
        start = 26 + block[25]
        plain = allocate(_size(block, start + 5))
        decompress(block[start], region(block[start + 9 :]), plain, 0)
        found += [block[25:start], plain.tobytes()]
    return found


def _size(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _value(rng: np.random.Generator, data_type: DataType) -> pa.Array:
    return pa.concat_arrays([series(rng, data_type, GRANULE, shape) for shape in range(SHAPES)])


@pytest.fixture(scope="module")
def columns() -> dict[str, tuple[DataType, str, pa.Array]]:
    """Name -> type, codec and values, of every type with every codec that fits."""
    rng = np.random.default_rng(11)
    found: dict[str, tuple[DataType, str, pa.Array]] = {}
    for text in TYPES:
        data_type = parse_type(text)
        array = _value(rng, data_type)
        for codec in CODECS:
            if _fits(codec, data_type):
                found[f"c{len(found)}"] = data_type, codec, array
    assert len(found) > 300
    return found


def _create(oracle: Any, table: str, columns: dict[str, tuple[DataType, str, Any]]) -> None:
    oracle.query("CREATE DATABASE IF NOT EXISTS codecs_test ENGINE = Atomic")
    oracle.query(f"DROP TABLE IF EXISTS codecs_test.{table} SYNC")
    listed = ", ".join(f"{name} {data_type} CODEC({codec})" for name, (data_type, codec, _) in columns.items())
    oracle.query(f"CREATE TABLE codecs_test.{table} ({listed}) ENGINE = MergeTree ORDER BY tuple() SETTINGS {SETTINGS}")


def _part(oracle: Any, table: str) -> PartDirectory:
    sql = f"SELECT path FROM system.parts WHERE database = 'codecs_test' AND table = '{table}' AND active"
    (path,) = str(oracle.query(sql, "TSVRaw")).split()
    return PartDirectory(path)


def _files(name: str, data_type: DataType, codec: str, array: pa.Array, granules: Any) -> ColumnWriter:
    writer = ColumnWriter(name, data_type, parse_codec(codec), min_block=BLOCK)
    writer.append(array, granules)
    return writer


@pytest.fixture(scope="module")
def part(oracle: Any, columns: Any, tmp_path_factory: pytest.TempPathFactory) -> PartDirectory:
    oracle.query("SET allow_suspicious_codecs = 1")
    _create(oracle, "theirs", columns)
    oracle.query("SET allow_suspicious_codecs = 0")
    block = pa.table({name: array for name, (_, _, array) in columns.items()})
    types = {name: data_type for name, (data_type, _, _) in columns.items()}
    insert(oracle, "codecs_test.theirs", block, types, tmp_path_factory.mktemp("rows"))
    return _part(oracle, "theirs")


def test_what_clickhouse_compressed_reads_as_it_was_inserted(part: PartDirectory, columns: Any) -> None:
    for name, (data_type, codec, array) in columns.items():
        found = read(part.reader(name), part.files)
        assert encode_values([found], [data_type]) == encode_values([array], [data_type]), (str(data_type), codec)


def test_what_we_compress_has_the_bytes_of_clickhouse(part: PartDirectory, columns: Any) -> None:
    for name, (data_type, codec, array) in columns.items():
        granules = part.reader(name).granule_rows
        ours = dict(_files(name, data_type, codec, array, granules).finish())
        for file, data in ours.items():
            if file.endswith(".mrk2"):
                continue
            found, want = (_without_general(stored) for stored in (data, part.files[file]))
            assert found == want, (str(data_type), codec, file)


def _attach(oracle: Any, table: str, columns: dict[str, tuple[DataType, str, pa.Array]]) -> None:
    oracle.query("SET allow_suspicious_codecs = 1")
    _create(oracle, table, columns)
    oracle.query("SET allow_suspicious_codecs = 0")
    sql = f"SELECT data_paths[1] FROM system.tables WHERE database = 'codecs_test' AND name = '{table}'"
    folder = Path(str(oracle.query(sql, "TSVRaw")).strip()) / "detached" / "all_1_1_0"
    folder.mkdir(parents=True)
    checks: dict[str, FileDigest] = {}
    rows = 0
    for name, (data_type, codec, array) in columns.items():
        rows = len(array)
        writer = _files(name, data_type, codec, array, np.full(rows // GRANULE, GRANULE))
        for file, data in writer.finish():
            (folder / file).write_bytes(data)
        checks |= writer.digests()
    (folder / "columns.txt").write_bytes(encode_columns({name: kind for name, (kind, _, _) in columns.items()}))
    (folder / "count.txt").write_bytes(str(rows).encode())
    checks["count.txt"] = digest(str(rows).encode())
    (folder / "checksums.txt").write_bytes(encode_checksums(checks))
    oracle.query(f"ALTER TABLE codecs_test.{table} ATTACH PART 'all_1_1_0'")
    assert str(oracle.query(f"CHECK TABLE codecs_test.{table}", "TSV")).strip().endswith("\t1")
    for name, (data_type, codec, array) in columns.items():
        found = oracle.query(f"SELECT {name} FROM codecs_test.{table}", "RowBinary").bytes()
        assert found == encode_values([array], [data_type]), (str(data_type), codec)


def test_clickhouse_reads_what_we_compressed(oracle: Any, columns: Any) -> None:
    _attach(oracle, "ours", columns)


def test_only_streams_of_values_get_codecs_of_values(oracle: Any, tmp_path: Path) -> None:
    """Null maps, sizes and dictionary indexes have the general part of a chain, in both directions."""
    from tests.helpers.random_arrays import random_array

    rng = np.random.default_rng(5)
    columns = {
        f"n{i}": (parse_type(text), codec, random_array(rng, parse_type(text), 1000))
        for i, (text, codec) in enumerate(NESTED)
        if "Simple" not in text
    }
    _attach(oracle, "nested", columns)
    oracle.query("TRUNCATE TABLE codecs_test.nested")
    block = pa.table({name: array for name, (_, _, array) in columns.items()})
    insert(oracle, "codecs_test.nested", block, {name: kind for name, (kind, _, _) in columns.items()}, tmp_path)
    part = _part(oracle, "nested")
    for name, (data_type, codec, array) in columns.items():
        reader = part.reader(name)
        assert encode_values([read(reader, part.files)], [data_type]) == encode_values([array], [data_type])
        ours = dict(_files(name, data_type, codec, array, reader.granule_rows).finish())
        for file, data in ours.items():
            theirs = part.files[file]
            assert data[16] == theirs[16], (str(data_type), codec, file)
            if "LowCardinality" not in str(data_type) and file.endswith(".bin"):
                assert _without_general(data) == _without_general(theirs), (str(data_type), codec, file)


JUDGED = [
    *((text, codec) for text in ("Int64", "Float64", "String", "Decimal(38, 2)", "FixedString(3)") for codec in CODECS),
    *NESTED,
    *(
        ("Int64", codec)
        for codec in (
            *("Delta(3)", "Delta('x')", "Delta(1, 2)", "Delta(-1)", "delta", "Delta()", "LZ4, ZSTD", "LZ4, Delta"),
            *("NONE", "NONE, LZ4", "Delta, NONE", "Delta, Foo", "Foo(1)", "GCD(4)", "T64('x')", "T64(1)", "t64"),
            *("T64('bit', 'byte')", "LZ4HC('a')", "LZ4HC(1, 2)", "LZ4(1)", "LZ4()", "ZSTD(23)", "ZSTD(3, 1)"),
            *("ZSTD(3, 40)", "ZSTD(3, 24, 1)", "ZSTD('a')", "ZSTD(1.5)", "NONE(1)", "Default(1)", "Multiple", "1", ""),
            *("DoubleDelta(8)", "DoubleDelta(3)", "DoubleDelta('x')", "Gorilla('x')", "Default, LZ4", "Delta, Default"),
            *("lz4", "DEFAULT", "T64, T64", "LZ4HC(13)", "ZSTD(22)", "Delta, T64", "LZ4,", "Delta Delta", "GCD, NONE"),
        )
    ),
    *(
        ("Float64", codec)
        for codec in (
            *("FPC(0)", "FPC(29)", "FPC(12, 3)", "FPC(12, 4, 4)", "FPC(12, 4)", "FPC('a')", "FPC(12, 'a')"),
            *("Delta(4), FPC, LZ4", "DoubleDelta, Gorilla", "Gorilla, Delta", "Gorilla(4), LZ4"),
        )
    ),
    *(("Tuple(Int64, Int32)", codec) for codec in ("Delta, ZSTD", "Delta(4), ZSTD", "T64", "DoubleDelta, ZSTD", "GCD")),
    *(("Tuple(Float64, Float32)", codec) for codec in ("FPC", "FPC(3, 4), ZSTD", "Gorilla, ZSTD")),
    *(("Tuple(Float64, Int64)", codec) for codec in ("Gorilla, LZ4", "FPC", "Delta")),
    *((text, "Gorilla, LZ4") for text in ("Map(Int64, Float64)", "Nullable(Float32)", "BFloat16", "Point", "Date")),
    *((text, "DoubleDelta, LZ4") for text in ("UUID", "IPv4", "IPv6", "IntervalDay", "Enum8('a' = 1)", "Int128")),
    *((text, "Delta, LZ4") for text in ("UUID", "IPv6", "BFloat16", "IntervalDay", "Map(Int64, String)", "Bool")),
    *((text, "GCD, LZ4") for text in ("Time", "IPv4", "Enum8('a' = 1)", "Bool", "Int256", "Date32", "IntervalDay")),
]


def _theirs(oracle: Any, data_type: str, codec: str) -> tuple[int, str]:
    oracle.query("DROP TABLE IF EXISTS codec_case SYNC")
    try:
        oracle.query(f"CREATE TABLE codec_case (x {data_type} CODEC({codec})) ENGINE = MergeTree ORDER BY tuple()")
    except RuntimeError as failure:
        found = re.search(r"Code: (\d+)", str(failure))
        assert found is not None
        return int(found.group(1)), ""
    sql = "SELECT compression_codec FROM system.columns WHERE database = currentDatabase() AND table = 'codec_case'"
    return 0, str(oracle.query(sql, "TSVRaw")).strip()


@pytest.mark.parametrize(("data_type", "codec"), [case for case in JUDGED if case[1]])
def test_a_codec_is_judged_and_spelled_as_clickhouse_does(oracle: Any, data_type: str, codec: str) -> None:
    try:
        ours = 0, f"CODEC({check_codec(codec, parse_type(data_type))})"
    except MergelakeError as failure:
        ours = failure.code, ""
    assert ours == _theirs(oracle, data_type, codec)
