"""The sorting kernel against plain Python and against ClickHouse."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.types.types import parse_type
from mergelake.engines.order.sorting import sort_order

RNG = np.random.default_rng(7)


def order_of(array, kind, descending=False):
    order = sort_order([array], [parse_type(kind)], [descending])
    return list(range(len(array))) if order is None else order.tolist()


def test_rows_in_order_need_no_permutation():
    assert sort_order([pa.array([1, 1, 2, 5])], [parse_type("Int64")]) is None
    assert sort_order([pa.array([b"a", b"a\0", b"ab"])], [parse_type("String")]) is None
    assert sort_order([], []) is None


def test_equal_keys_keep_the_order_of_their_rows():
    values = RNG.integers(0, 5, 1000)
    assert order_of(pa.array(values), "Int64") == np.argsort(values, kind="stable").tolist()


@pytest.mark.parametrize("kind", ["Int8", "UInt8", "Int16", "Int32", "UInt32", "Int64", "UInt64"])
def test_integers_of_full_range_sort_as_numbers(kind):
    dtype = kind.lower()
    info = np.iinfo(dtype)
    values = RNG.integers(info.min, info.max, 500, dtype=dtype, endpoint=True)
    values[:2] = [info.max, info.min]
    assert order_of(pa.array(values), kind) == np.argsort(values, kind="stable").tolist()
    nullable = pa.array([None, *values.tolist()], pa.array(values).type)
    assert order_of(nullable, f"Nullable({kind})") == [*(np.argsort(values, kind="stable") + 1).tolist(), 0]


def test_floats_put_nan_last_and_take_both_zeros_for_equal():
    values = [float("nan"), 1.0, 0.0, -0.0, float("-inf"), -0.0, float("inf"), -2.5]
    assert order_of(pa.array(values), "Float64") == [4, 7, 2, 3, 5, 1, 6, 0]
    assert order_of(pa.array(values, pa.float32()), "Float32") == [4, 7, 2, 3, 5, 1, 6, 0]


@pytest.mark.parametrize(("alphabet", "longest"), [(b"a\0", 6), (b"ab", 12), (bytes(range(256)), 39), (b"xy", 90)])
def test_strings_sort_bytewise(alphabet, longest):
    lengths = RNG.integers(0, longest, 700)
    values = [bytes(RNG.choice(list(alphabet), n).astype(np.uint8)) for n in lengths]
    expected = sorted(range(len(values)), key=lambda i: values[i])
    assert order_of(pa.array(values, pa.binary()), "String") == expected
    assert order_of(pa.array([b"junk", *values], pa.binary())[1:], "String") == expected
    low = pa.array(values, pa.binary()).dictionary_encode()
    assert order_of(low, "LowCardinality(String)") == expected
    with_null = pa.array([None, *values], pa.binary())
    assert order_of(with_null, "Nullable(String)") == [*(i + 1 for i in expected), 0]


def test_dictionary_with_duplicates_and_nulls_sorts_by_value():
    dictionary = pa.array([b"b", None, b"a", b"b"], pa.binary())
    array = pa.DictionaryArray.from_arrays(pa.array([3, 1, 0, 2, None, 3], pa.int32()), dictionary)
    assert order_of(array, "LowCardinality(Nullable(String))") == [3, 0, 2, 5, 1, 4]


def test_several_keys_sort_lexicographically():
    first = RNG.integers(0, 3, 800)
    second = RNG.integers(-(2**62), 2**62, 800)
    third = [bytes(RNG.choice([97, 98], 3).astype(np.uint8)) for _ in range(800)]
    arrays = [pa.array(first), pa.array(second // 2**60), pa.array(third, pa.binary()), pa.array(second)]
    kinds = [parse_type(k) for k in ("Int64", "Int64", "String", "Int64")]
    order = sort_order(arrays, kinds)
    rows = list(zip(*(a.to_pylist() for a in arrays), strict=True))
    assert order.tolist() == sorted(range(800), key=lambda i: rows[i])


CASES = {
    "UUID": "generateUUIDv4()",
    "IPv6": "toIPv6(concat('::', hex(rand() % 5000)))",
    "Int128": "toInt128(rand64()) * toInt128(rand64()) - toInt128(rand64()) * 5000000000",
    "UInt256": "toUInt256(rand64()) * toUInt256(rand64()) * toUInt256(rand64())",
    "Decimal(30, 4)": "toDecimal128(toInt64(rand64()) / 1000, 4)",
    "FixedString(5)": "toFixedString(substring(toString(rand()), 1, 5), 5)",
    "Float64": "arrayElement([nan, -0., 0., 1., -5., inf], 1 + rand() % 6)",
    "Nullable(Int32)": "if(rand() % 7 = 0, NULL, toInt32(rand()))",
    "LowCardinality(Nullable(String))": "if(rand() % 7 = 0, NULL, toString(rand() % 40))",
    "Nullable(String)": "if(rand() % 7 = 0, NULL, hex(rand64()))",
    "Enum8('b' = -5, 'a' = 3)": "if(rand() % 2, 'a', 'b')",
    "DateTime64(3)": "toDateTime64(toInt32(rand()) / 7, 3)",
    "Tuple(Int8, String)": "tuple(toInt8(rand() % 3), toString(rand() % 9))",
}


@pytest.mark.parametrize("kind", CASES)
def test_order_is_that_of_clickhouse(oracle, kind):
    text = (
        f"SELECT n, v FROM (SELECT number AS n, CAST({CASES[kind]} AS {kind}) AS v FROM numbers(600)) "
        "ORDER BY v ASC NULLS LAST, n SETTINGS output_format_arrow_string_as_string = 0, "
        "output_format_arrow_low_cardinality_as_dictionary = 0, allow_suspicious_low_cardinality_types = 1"
    )
    raw = oracle.query(text, "ArrowStream").bytes()
    table = pa.ipc.open_stream(raw).read_all().sort_by("n").combine_chunks()
    sorted_rows = pa.ipc.open_stream(raw).read_all()["n"].to_pylist()
    array = storage(table["v"].combine_chunks(), kind)
    assert order_of(array, kind) == sorted_rows


def storage(array, kind):
    from mergelake.core.types.arrow import storage_type

    wanted = storage_type(parse_type(kind))
    if kind.startswith("UUID"):
        # The stored form has each half reversed.
        raw = b"".join(v.bytes[:8][::-1] + v.bytes[8:][::-1] for v in array.to_pylist())
        return pa.FixedSizeBinaryArray.from_buffers(wanted, len(array), [None, pa.py_buffer(raw)])
    if kind.startswith("Decimal"):
        return pa.FixedSizeBinaryArray.from_buffers(wanted, len(array), [None, array.buffers()[1]])
    if kind.startswith("Low"):
        return array.cast(pa.binary()).dictionary_encode()
    if kind.startswith("Tuple"):
        parts = [array.field(0).cast(pa.int8()), array.field(1).cast(pa.binary())]
        return pa.StructArray.from_arrays(parts, ["1", "2"])
    if pa.types.is_timestamp(array.type):
        return array.cast(pa.int64())
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    return array if array.type == wanted else array.cast(wanted)
