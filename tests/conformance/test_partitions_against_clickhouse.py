"""Partition ids, partition.dat, minmax files and the printed partition: random values, byte for byte."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import pytest

from mergelake.core.types.types import parse_type
from mergelake.format.files.extremes import extremes
from mergelake.format.files.partition import partition_keys
from mergelake.format.files.partition_text import partition_text
from mergelake.format.serializations.names import escape_for_file_name
from tests.helpers.blocks import select

# Column types and a ClickHouse expression for their values (`number` counts rows, `r` is random).
SHAPES: list[list[tuple[str, str]]] = [
    [("UInt8", "r % 5")],
    [("UInt16", "r % 4 * 9000")],
    [("UInt32", "202401 + r % 4")],
    [("UInt64", "r % 3 + 18446744073709551613 - 5")],
    [("Int8", "toInt8(r % 5) - 3")],
    [("Int16", "r % 4 - 30000")],
    [("Int32", "-toInt32(r % 5)")],
    [("Int64", "-toInt64(r % 3) * 1000000000000")],
    [("Date", "toDate(r % 4 * 16000)")],
    [("Date32", "toDate32('1950-01-01') + r % 4")],
    [("DateTime('UTC')", "toDateTime(r % 4 * 1000000000, 'UTC')")],
    [("DateTime('Asia/Kolkata')", "toDateTime(r % 4 * 1000000000, 'UTC')")],
    [("DateTime64(3, 'UTC')", "toDateTime64(r % 4, 3, 'UTC')")],
    [("DateTime64(0, 'UTC')", "toDateTime64(r % 4, 3, 'UTC')")],
    [("Bool", "r % 2")],
    [("Enum8('a' = -3, 'b' = 4)", "if(r % 2, 'a', 'b')")],
    [("Enum16('it\\'s' = 300)", "'it\\'s'")],
    [("IPv4", "toIPv4(toUInt32(r % 4 * 99999999))")],
    [("IPv6", "toIPv6(toIPv4(toUInt32(r % 4 * 99999999)))")],
    [("UUID", "reinterpretAsUUID(toUInt128(r % 5) * toUInt128('99999999999999999999'))")],
    [("String", "repeat('ab\\'c\\n', r % 5)")],
    [("FixedString(5)", "toString(r % 5)")],
    [("LowCardinality(String)", "toString(r % 5)")],
    [("LowCardinality(Nullable(String))", "if(r % 4 = 0, NULL, toString(r % 4))")],
    [("Nullable(UInt8)", "if(r % 4 = 0, NULL, r % 4)")],
    [("Nullable(Date)", "if(r % 4 = 0, NULL, toDate(r % 4))")],
    [("Nullable(String)", "if(r % 4 = 0, NULL, toString(r % 4))")],
    [("Float64", "r % 5 / 3 * exp10(r % 60 - 30)")],
    [("Float32", "r % 5 / 3")],
    [("Decimal(9, 2)", "(r % 5 - 2) / 4")],
    [("Decimal(18, 4)", "(r % 5 - 2) / 4")],
    [("Decimal(38, 10)", "(r % 5 - 2) / 4")],
    [("Decimal(76, 20)", "(r % 5 - 2) / 4")],
    [("Int128", "(toInt128(r % 5) - 2) * toInt128('99999999999999999999')")],
    [("UInt256", "toUInt256(r % 5) * toUInt256('99999999999999999999')")],
    [("Date", "toDate(r % 3)"), ("UInt8", "r % 3")],
    [("Int8", "toInt8(r % 3) - 1"), ("Int8", "toInt8(number % 3) - 1")],
    [("String", "toString(r % 3)"), ("UInt32", "number % 3")],
    [("Date", "toDate(r % 3)"), ("String", "toString(number % 3)"), ("Nullable(Int64)", "if(r % 4 = 0, NULL, -1)")],
    [("UUID", "reinterpretAsUUID(toUInt128(r % 5))"), ("DateTime('UTC')", "number % 2"), ("Bool", "r % 2")],
    [("Nullable(UInt8)", "if(r % 4 = 0, NULL, r % 4)"), ("Int32", "number % 2")],
    [("IPv4", "toIPv4(toUInt32(r % 4 * 99999999))"), ("String", "toString(number % 2)")],
    [("Nullable(IPv4)", "if(r % 4 = 0, NULL, toIPv4('1.2.3.4'))"), ("IPv6", "toIPv6('::1')")],
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: ",".join(kind for kind, _ in shape))
def test_partitions_are_clickhouses(oracle: Any, shape: list[tuple[str, str]]) -> None:
    """M-051, M-057: ids, partition.dat and minmax files of more than 30 key shapes."""
    # M-051 M-057
    name = f"partitions_{zlib.crc32(repr(shape).encode()):08x}"
    types = {f"c.{i}": parse_type(kind) for i, (kind, _) in enumerate(shape)}
    columns = ", ".join(f"`{column}` {kind}" for column, kind in types.items())
    key = ", ".join(f"`{column}`" for column in types)
    oracle.query(f"DROP TABLE IF EXISTS {name}")
    oracle.query(
        f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY tuple() PARTITION BY ({key}) "
        "SETTINGS allow_nullable_key = 1, allow_floating_point_partition_key = 1"
    )
    values = ", ".join(f"{value} AS v{i}" for i, (_, value) in enumerate(shape))
    oracle.query(
        f"INSERT INTO {name} SELECT {', '.join(f'v{i}' for i in range(len(shape)))} FROM "
        f"(SELECT {values} FROM (SELECT number, cityHash64(number) AS r FROM numbers(60)))"
    )
    block = select(oracle, f"SELECT * FROM {name}", types)
    arrays = [block.column(column).combine_chunks() for column in types]
    groups, partitions = partition_keys(arrays, list(types.values()))
    ours = {partition.id: number for number, partition in enumerate(partitions)}
    listed = str(oracle.query(
        f"SELECT partition_id, base64Encode(partition), path, rows FROM system.parts "
        f"WHERE table = '{name}' AND active AND database = currentDatabase()", "TSV"))  # fmt: skip
    parts = [line.split("\t") for line in listed.splitlines()]
    assert sorted(ours) == sorted(part[0] for part in parts)
    for partition_id, text, path, rows in parts:
        number = ours[partition_id]
        partition = partitions[number]
        mask = groups == number
        assert int(mask.sum()) == int(rows)
        assert partition.data == (Path(path) / "partition.dat").read_bytes()
        assert partition_text(partition.data, list(types.values())).encode() == base64.b64decode(text)
        for (column, kind), array in zip(types.items(), arrays, strict=True):
            low, high = extremes(array.filter(mask), kind)
            file = Path(path) / f"minmax_{escape_for_file_name(column)}.idx"
            assert (low + high).hex() == file.read_bytes().hex()
    oracle.query(f"DROP TABLE {name}")
