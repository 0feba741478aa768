"""Which type changes are made while reading."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.core.arrow import storage_type
from mergelake.core.errors import UnsupportedError
from mergelake.core.types import parse_type
from mergelake.parts.evolve import can_evolve, evolve

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
    ("Decimal(9, 2)", "Decimal(18, 2)"),
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
def test_changes_that_could_alter_values_are_refused(stored: str, wanted: str) -> None:
    before, after = parse_type(stored), parse_type(wanted)
    assert not can_evolve(before, after)
    with pytest.raises(UnsupportedError, match="NOT_IMPLEMENTED"):
        evolve(pa.array([], storage_type(before)), before, after)
