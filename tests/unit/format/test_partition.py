"""Partition ids: the table of golden values, grouping, and what is refused."""

from __future__ import annotations

import uuid
from ipaddress import IPv4Address, IPv6Address

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.format.files.partition import Partition, partition_keys, partitions_of

_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff").bytes
_STORED_UUID = _UUID[:8][::-1] + _UUID[8:][::-1]
_DAY = 19782  # 2024-02-29


def _wide(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little", signed=True)


# Key types, key values in storage form, id, partition.dat. All ids came from ClickHouse 26.9.
GOLDEN = [
    (["UInt8"], [7], "7", "07"),
    (["Int32"], [-7], "-7", "f9ffffff"),
    (["Date"], [_DAY], "20240229", "464d"),
    (["Date32"], [_DAY], "19782", "464d0000"),
    (["Date32"], [-7305], "-7305", "77e3ffff"),
    (["DateTime"], [1709168523], "1709168523", "8bd7df65"),
    (["UInt32"], [202402], "202402", "a2160300"),
    (["Date"], [_DAY - 28], "20240201", "2a4d"),
    (["Bool"], [1], "1", "01"),
    (["Enum8('a' = -3)"], [-3], "-3", "fd"),
    (["Date", "UInt8"], [_DAY, 3], "20240229-3", "464d03"),
    (["Int8", "Int8"], [-1, -2], "-1--2", "fffe"),
    (["IPv4"], [int(IPv4Address("1.2.3.4"))], "16909060", "04030201"),
    (["IPv4", "String"], [int(IPv4Address("1.2.3.4")), b"x"], "13b9b27666644b36a5417bfbbca76991", "040302010178"),
    (["Nullable(UInt8)"], [7], "7", "0007"),
    (["Nullable(Date)"], [_DAY], "19782", "00464d"),
    (["Nullable(UInt8)"], [None], "2b16b490a87466b6a6d34fd9027f3c3d", "01"),
    (["Nullable(UInt8)", "UInt8"], [None, 3], "20a1fb1c7afb02f32f8d3ba2a7554c78", "0103"),
    (["String"], [b"hello"], "21818ffeee1ae033898614f81c7c3c75", "0568656c6c6f"),
    (["LowCardinality(String)"], [b"hello"], "21818ffeee1ae033898614f81c7c3c75", "0568656c6c6f"),
    (["FixedString(5)"], [b"hello"], "21818ffeee1ae033898614f81c7c3c75", "68656c6c6f"),
    (["Nullable(String)"], [b"hello"], "21818ffeee1ae033898614f81c7c3c75", "000568656c6c6f"),
    (["String"], [b""], "f64abffc6c96f8ef72c783f1b9426e19", "00"),
    (["String", "UInt32"], [b"eu", 42], "5751009fb02b1cbc34cf7ddce0208738", "0265752a000000"),
    (["Date", "String"], [_DAY, b"z"], "5ae24250d5f611d4a05f9d8e1abc900f", "464d017a"),
    (["Int32", "String"], [-5, b"z"], "e123b6ca39c3168d82a218c781eeaf6c", "fbffffff017a"),
    (["UUID"], [_STORED_UUID], "2462615b0a052003f1dfc9e6cda040a3", "7766554433221100ffeeddccbbaa9988"),
    (["Float64"], [1.5], "11876ff8640afac37203e8651c527cea", "000000000000f83f"),
    (["Float32"], [1.5], "11876ff8640afac37203e8651c527cea", "0000c03f"),
    (["UInt128"], [_wide(5, 16)], "7950b33bf17282bc39c6aa3e17c9c7a5", _wide(5, 16).hex()),
    (["Int128"], [_wide(-5, 16)], "1d894163b5898d55565fce607a003475", _wide(-5, 16).hex()),
    (["UInt256"], [_wide(5, 32)], "e1a93702bcea104d9fca12231c6fcfa7", _wide(5, 32).hex()),
    (["Int256"], [_wide(-5, 32)], "a0fe8a7c892175c3ec0438ddafaa49d9", _wide(-5, 32).hex()),
    (["Decimal(9, 2)"], [125], "ef4f1cf591db9967dbc042e1e11dfc6e", "7d000000"),
    (["Decimal(18, 2)"], [125], "0fbb95ee8cfeb1af653c4d42edad9bcc", _wide(125, 8).hex()),
    (["Decimal(38, 2)"], [_wide(125, 16)], "525e43e58176da94c7fd56c1e9c50290", _wide(125, 16).hex()),
    (["Decimal(76, 2)"], [_wide(125, 32)], "0d43257b67ff16bb9f52a2440945f534", _wide(125, 32).hex()),
    (["DateTime64(3)"], [1709168523456], "df1878625d45853d0da5f1cc3d64d35b", "c0f861f28d010000"),
    (["IPv6"], [IPv6Address("::1").packed], "1ebc31932a947b7ca9e898a271e7f028", "00" * 15 + "01"),
    (["Tuple(UInt8, String)"], [{"1": 1, "2": b"a"}], "856971e78dc9ccfd8e6a0270f6924206", "010161"),
    (["Array(UInt8)"], [[1, 2]], "3f00cdd1684ab009c87e93c9e33ec12e", "020102"),
]


@pytest.mark.parametrize(("types", "values", "name", "data"), GOLDEN, ids=lambda value: str(value)[:40])
def test_partition_id_and_file_are_clickhouses(types: list[str], values: list[object], name: str, data: str) -> None:
    """M-051: the golden table."""
    # M-051
    kinds = [parse_type(text) for text in types]
    arrays = [pa.array([value], storage_type(kind)) for value, kind in zip(values, kinds, strict=True)]
    assert partitions_of(arrays, kinds) == [Partition(name, bytes.fromhex(data))]
    groups, partitions = partition_keys([pa.concat_arrays([a, a]) for a in arrays], kinds)
    assert groups.tolist() == [0, 0]
    assert partitions == [Partition(name, bytes.fromhex(data))]


def test_rows_are_grouped_in_order_of_first_appearance() -> None:
    kinds = [parse_type("LowCardinality(String)"), parse_type("Nullable(Int16)")]
    regions = pa.array([b"eu", b"us", b"eu", b"eu", b"us"]).dictionary_encode()
    numbers = pa.array([1, 1, None, 1, 1], pa.int16())
    groups, partitions = partition_keys([regions, numbers], kinds)
    assert groups.tolist() == [0, 1, 2, 0, 1]
    assert [p.data for p in partitions] == [b"\x02eu\x00\x01\x00", b"\x02us\x00\x01\x00", b"\x02eu\x01"]
    assert len({p.id for p in partitions}) == 3


def test_grouping_agrees_with_single_rows_on_many_values() -> None:
    generator = np.random.default_rng(7)
    kinds = [parse_type("Date"), parse_type("String"), parse_type("Float64")]
    days = pa.array(generator.integers(0, 3, 1000).astype(np.uint16))
    texts = pa.array([b"x" * int(n) for n in generator.integers(0, 4, 1000)], pa.binary())
    floats = pa.array(generator.choice([0.0, -0.0, 1.5, float("nan")], 1000))
    groups, partitions = partition_keys([days, texts, floats], kinds)
    alone = partitions_of([days, texts, floats], kinds)
    assert [partitions[g] for g in groups] == alone
    assert len({p.id for p in partitions}) == len(partitions) == 3 * 4 * 4


def test_slices_and_empty_arrays_are_grouped() -> None:
    values = pa.array([9, 9, 1, 2, 1, 9], pa.int64()).slice(2, 3)
    groups, partitions = partition_keys([values], [parse_type("Int64")])
    assert (groups.tolist(), [p.id for p in partitions]) == ([0, 1, 0], ["1", "2"])
    groups, partitions = partition_keys([values.slice(0, 0)], [parse_type("Int64")])
    assert (len(groups), partitions) == (0, [])
