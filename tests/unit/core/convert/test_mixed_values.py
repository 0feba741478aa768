"""Variant, Dynamic and JSON without a part: types as text and bytes, values in and out."""

from __future__ import annotations

import json
import uuid

import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.storage import to_public, to_storage
from mergelake.core.types import types as t
from mergelake.core.types.arrow import arrow_type, storage_type
from mergelake.core.types.type_binary import decode_type, encode_name, encode_type
from mergelake.core.types.types import parse_type, stored_type

SPELLINGS = [
    "Variant(Array(UInt8), LowCardinality(String), Map(String, UInt8), Point, String, Tuple(a UInt8, b String))",
    "Dynamic",
    "Dynamic(max_types=3)",
    "JSON",
    "JSON(max_dynamic_types=1, max_dynamic_paths=0, `a b` Array(JSON(c UInt8)), `t.x` UInt32, SKIP `q.w`, SKIP z)",
    "JSON(SKIP REGEXP 'it\\'s.*')",
    "Array(Nullable(JSON))",
    "AggregateFunction(1, sumMapFiltered([1, 2]), Array(UInt8), Array(UInt8))",
    "AggregateFunction(quantiles(0.5, 0.00001), Float64)",
    "AggregateFunction(groupConcat(',', 3), String)",
    "AggregateFunction(sequenceMatch('(?1)(?2)'), DateTime, UInt8)",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_canonical_spellings_parse_to_themselves(text: str) -> None:
    assert str(parse_type(text)) == text


def test_types_of_a_variant_are_sorted_and_told_once() -> None:
    found = parse_type("Variant(String, Variant(UInt8, VARCHAR), Nothing, int)")
    assert str(found) == "Variant(Int32, String, UInt8)"
    assert [field.name for field in arrow_type(found)] == ["Int32", "String", "UInt8"]
    assert str(parse_type("Geometry")).startswith("Variant(LineString, ")


@pytest.mark.parametrize(
    "text",
    ["Nullable(Dynamic)", "Nullable(Variant(UInt8))", "Variant()", "Variant(Nullable(UInt8))", "Variant(Dynamic)",
     "Dynamic(max_types=255)", "Dynamic(max_typos=1)", "JSON(max_dynamic_paths=x)", "JSON(a UInt8, a UInt8)",
     "JSON(a)", "JSON(SKIP 5)", "LowCardinality(JSON)", "AggregateFunction(quantile(0.5, UInt8)"],
)  # fmt: skip
def test_what_clickhouse_refuses_is_refused(text: str) -> None:
    with pytest.raises(MergelakeError):
        parse_type(text)


def test_a_part_may_have_columns_of_types_that_are_not_known() -> None:
    assert stored_type("QBit(Float32, 8)") == t.Unknown("QBit(Float32, 8)")
    with pytest.raises(MergelakeError, match="QBit"):
        storage_type(stored_type("QBit(Float32, 8)"))


@pytest.mark.parametrize(
    "text",
    [
        *SPELLINGS[:7], "DateTime64(3, 'UTC')", "Enum16('a' = -300, 'b' = 2)", "Decimal(76, 3)", "Time64(6)",
        "IntervalWeek", "SimpleAggregateFunction(max, Nullable(Int128))", "Tuple(UInt8, BFloat16)", "FixedString(300)",
        "LowCardinality(IPv6)",
    ],
)  # fmt: skip
def test_types_are_read_from_the_bytes_that_they_are_written_as(text: str) -> None:
    kind = parse_type(text)
    body = encode_type(kind)
    assert decode_type(b"x" + body + b"y", 1) == (kind, 1 + len(body))
    for end in range(len(body)):
        with pytest.raises(MergelakeError):
            decode_type(body[:end], 0)


def test_names_that_clickhouse_keeps_stand_in_the_bytes() -> None:
    body, kind = encode_name("Point")
    assert body == b"\x2c\x05Point"
    assert decode_type(body, 0) == (kind, len(body)) == (parse_type("Point"), 7)


def test_json_goes_in_as_text_and_comes_out_as_text() -> None:
    kind = parse_type("JSON(`t.x` UInt32, SKIP zz)")
    texts = [
        '{"b":{"c":[1,null],"d":"é\\"\\u0001"},"a-c":1.5,"a":{"b":true},"t":{"x":7},"zz":{"y":1},"n":null}',
        "{}", '{"l":[{"p":1},{}],"m":[1,"x",[2]],"e":[]}', None,
    ]  # fmt: skip
    stored = to_storage(pa.array(texts[:3]), kind)
    assert to_storage(to_public(stored, kind), kind).equals(stored)
    told = [json.loads(text) for text in to_public(stored, kind).to_pylist()]
    assert told[0] == {"a-c": 1.5, "a": {"b": True}, "b": {"c": [1, None], "d": 'é"\x01'}, "t": {"x": 7}}
    assert told[1] == {"t": {"x": 0}}
    assert told[2] == {"l": [{"p": 1}, {}], "m": [1, "x", [2]], "e": [], "t": {"x": 0}}
    with pytest.raises(MergelakeError, match="NULL"):
        to_storage(pa.array(texts), kind)
    maybe = t.Nullable(kind)
    assert to_public(to_storage(pa.array(texts), maybe), maybe)[3].as_py() is None


def test_a_dynamic_keeps_what_json_can_tell_and_strings_apart_from_numbers() -> None:
    kind = parse_type("Dynamic")
    texts = pa.array(["5", '"5"', "[1,2]", "null", '{"a":1}', "1.5", "true", '["x"]'])
    stored = to_storage(pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts), kind)
    kinds = [None if cell is None else str(decode_type(cell, 0)[0]) for cell in stored.to_pylist()]
    assert kinds == [
        "Int64", "String", "Array(Nullable(Int64))", None, "JSON", "Float64", "Bool", "Array(Nullable(String))",
    ]  # fmt: skip
    assert to_public(stored, kind).to_pylist() == ["5", '"5"', "[1,2]", None, '{"a":1}', "1.5", "true", '["x"]']
    assert to_public(to_storage(pa.array(["5", None]), kind), kind).to_pylist() == ['"5"', None]
    with pytest.raises(MergelakeError):
        to_storage(pa.array([uuid.UUID(int=1).bytes], pa.binary(16)), kind)


def test_a_variant_takes_a_struct_or_values_of_one_of_its_types() -> None:
    kind = parse_type("Variant(Array(UInt8), LowCardinality(String), UInt64)")
    rows = [{"UInt64": 1}, None, {"Array(UInt8)": []}, {"LowCardinality(String)": "x"}]
    stored = to_storage(pa.array(rows), kind)
    assert [next((v for v in row.values() if v is not None), None) for row in stored.to_pylist()] == [1, None, [], b"x"]
    assert to_storage(to_public(stored, kind), kind).equals(stored)
    assert to_storage(pa.array([7, None], pa.int16()), kind).to_pylist()[0]["UInt64"] == 7
    with pytest.raises(MergelakeError):
        to_storage(pa.array([-1]), kind)
    with pytest.raises(MergelakeError, match="none of the types"):
        to_storage(pa.array([1.5]), kind)
    assert to_storage(pa.nulls(2), kind).field("UInt64").null_count == 2
