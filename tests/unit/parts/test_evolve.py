"""Which type changes are made while reading."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.core.model.schema import TypeChange
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.parts.read.evolve import can_evolve, converted, evolve, may_fail

YES = [
    ("UInt8", "UInt64"),
    ("UInt32", "Int64"),
    ("Int8", "Nullable(Int16)"),
    ("Float32", "Float64"),
    ("String", "LowCardinality(String)"),
    ("LowCardinality(String)", "Nullable(String)"),
    ("LowCardinality(String)", "LowCardinality(Nullable(String))"),
    ("DateTime('UTC')", "DateTime('Asia/Tokyo')"),
    ("DateTime64(3)", "DateTime64(3, 'UTC')"),
    ("Enum8('a' = 1)", "Enum16('a' = 1, 'b' = 500)"),
    ("Decimal(9, 2)", "Decimal(18, 2)"),
    ("SimpleAggregateFunction(sum, UInt64)", "UInt64"),
]
NO = [
    ("UInt64", "Int64"),
    ("Int64", "Int32"),
    ("Int8", "UInt16"),
    ("Nullable(Int8)", "Int8"),
    ("String", "FixedString(3)"),
    ("DateTime64(3)", "DateTime64(6)"),
    ("Enum8('a' = 1)", "Enum8('b' = 1)"),
    ("Date", "DateTime"),
    ("Decimal(9, 2)", "Decimal(18, 3)"),
    ("Decimal(18, 2)", "Decimal(9, 2)"),
    ("Decimal(9, 2)", "Decimal(38, 2)"),
    ("Array(UInt8)", "Array(UInt16)"),
]


@pytest.mark.parametrize(("stored", "wanted"), YES)
def test_changes_that_lose_nothing_are_made(stored: str, wanted: str) -> None:
    before, after = parse_type(stored), parse_type(wanted)
    value: object = b"a" if "String" in stored else 1
    array = pa.array([value, value], storage_type(before))
    found = evolve(array, before, after)
    assert found.type == storage_type(after)
    assert found.to_pylist() == [value, value]


@pytest.mark.parametrize(("stored", "wanted"), NO)
def test_changes_that_could_alter_values_are_casts(stored: str, wanted: str) -> None:
    before, after = parse_type(stored), parse_type(wanted)
    assert not can_evolve(before, after)
    assert evolve(pa.array([], storage_type(before)), before, after).type == storage_type(after)


def test_a_type_that_changed_several_times_is_converted_step_by_step() -> None:
    int32, uint8, text = parse_type("Int32"), parse_type("UInt8"), parse_type("String")
    array = pa.array([300, 5, None], storage_type(int32))
    changes = (TypeChange(2, uint8, "7"), TypeChange(4, text))
    assert converted(array, parse_type("Nullable(Int32)"), text, changes).to_pylist() == [b"44", b"5", b"7"]
    assert converted(array.drop_null(), int32, text).to_pylist() == [b"300", b"5"]


def test_a_text_that_cannot_be_read_is_null_where_it_may_be() -> None:
    texts = pa.array([b"12", b"x", b"300", None], pa.binary())
    nullable = parse_type("Nullable(String)")
    assert converted(texts, nullable, parse_type("Nullable(UInt8)")).to_pylist() == [12, None, None, None]
    only = texts.take([0, 2, 3])
    assert evolve(only, nullable, parse_type("UInt8"), "7").to_pylist() == [12, 44, 7]  # what replaces NULL is for NULL


@pytest.mark.parametrize(
    ("stored", "wanted", "null", "fails"),
    [
        ("Int32", "UInt8", "", False),
        ("Int32", "String", "", False),
        ("String", "Int32", "", True),
        ("String", "Nullable(Int32)", "", False),
        ("String", "Nullable(Bool)", "", True),
        ("Nullable(String)", "Int32", "5", True),
        ("Nullable(Int32)", "Int32", "", True),
        ("Nullable(Int32)", "Int32", "5", False),
        ("Enum8('a' = 1, 'b' = 2)", "Enum8('b' = 2)", "", True),
        ("FixedString(3)", "FixedString(2)", "", True),
        ("Array(Int32)", "Array(Int64)", "", True),
    ],
)
def test_values_are_tried_where_some_may_not_fit(stored: str, wanted: str, null: str, fails: bool) -> None:
    assert may_fail(parse_type(stored), parse_type(wanted), null) is fails
