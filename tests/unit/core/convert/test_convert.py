# ruff: noqa: E501, DTZ001  (tables read best with one idea a line; naive times are what is tested)
from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.storage import to_public, to_public_table, to_storage
from mergelake.core.types.arrow import arrow_type, storage_type
from mergelake.core.types.types import parse_type

D = decimal.Decimal
UTC = datetime.UTC
SOME_UUID = uuid.UUID("61f0c404-5cb3-11e7-907b-a6006ad3dba0")

ROUND_TRIPS: list[tuple[str, pa.Array, list[Any]]] = [
    ("UInt8", pa.array([0, 255], pa.int64()), [0, 255]),
    ("Int64", pa.array([1.0, -3.0]), [1, -3]),
    ("Nullable(UInt8)", pa.array([1, None]), [1, None]),
    ("Float32", pa.array([1, 2]), [1.0, 2.0]),
    ("Bool", pa.array([True, False]), [True, False]),
    ("Bool", pa.array([1, 0]), [True, False]),
    ("String", pa.array(["a", "é"]), ["a", "é"]),
    ("String", pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
    ("String", pa.array(["a", "bb"], pa.string_view()), ["a", "bb"]),
    ("String", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    ("LowCardinality(String)", pa.array(["a", "b", "a"]), ["a", "b", "a"]),
    ("LowCardinality(String)", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    ("LowCardinality(Nullable(String))", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    ("FixedString(3)", pa.array(["a", "abc"]), [b"a\0\0", b"abc"]),
    ("Date", pa.array([datetime.date(2149, 6, 6)]), [datetime.date(2149, 6, 6)]),
    ("Date", pa.array([datetime.datetime(2020, 1, 1, 23)]), [datetime.date(2020, 1, 1)]),
    ("Date32", pa.array([datetime.date(1900, 1, 1), datetime.date(9999, 12, 31)]), [datetime.date(1900, 1, 1), datetime.date(9999, 12, 31)]),
    ("DateTime", pa.array([datetime.datetime(2020, 1, 1, 1, 2, 3, 999999)]), [datetime.datetime(2020, 1, 1, 1, 2, 3, tzinfo=UTC)]),
    ("DateTime64(6)", pa.array([datetime.datetime(1950, 1, 1, 1, 2, 3, 999999)]), [datetime.datetime(1950, 1, 1, 1, 2, 3, 999999, tzinfo=UTC)]),
    ("DateTime64(3)", pa.array([1_500], pa.timestamp("ms", "Asia/Tokyo")), [datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC)]),
    ("DateTime64(1)", pa.array([15], pa.int64()), [datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC)]),
    ("Decimal(9, 2)", pa.array([D("1.23"), D("-4.5")]), [D("1.23"), D("-4.50")]),
    ("Decimal(30, 2)", pa.array([7, -7]), [D("7.00"), D("-7.00")]),
    ("Nullable(Decimal(60, 2))", pa.array([D("1.2"), None]), [D("1.20"), None]),
    ("Decimal(9, 2)", pa.array([0.29]), [D("0.29")]),
    ("Decimal(38, 20)", pa.array([D("9" * 18 + "." + "9" * 20)]), [D("9" * 18 + "." + "9" * 20)]),
    ("Decimal(76, 38)", pa.array([D("-" + "9" * 38 + "." + "9" * 38)]), [D("-" + "9" * 38 + "." + "9" * 38)]),
    ("UUID", pa.array([str(SOME_UUID)]), [str(SOME_UUID)]),
    ("UUID", pa.array([SOME_UUID.bytes], pa.binary(16)), [str(SOME_UUID)]),
    ("UUID", pa.array([SOME_UUID.bytes], pa.binary()), [str(SOME_UUID)]),
    ("IPv4", pa.array(["1.2.3.4"]), ["1.2.3.4"]),
    ("IPv6", pa.array(["::1", "1.2.3.4"]), ["::1", "::ffff:1.2.3.4"]),
    ("Enum8('a' = -1, 'b' = 2)", pa.array(["b", "a"]), ["b", "a"]),
    ("Enum8('a' = -1, 'b' = 2)", pa.array([2, -1]), ["b", "a"]),
    ("Nullable(Enum8('a' = -1, 'b' = 2))", pa.array(["b", None]).dictionary_encode(), ["b", None]),
    ("Array(Nullable(Int32))", pa.array([[1, None], [], [3]]), [[1, None], [], [3]]),
    ("Array(String)", pa.array([["a"], ["b", "c"]], pa.large_list(pa.string())).slice(1), [["b", "c"]]),
    ("Array(Array(UInt8))", pa.array([[[1], []], []]), [[[1], []], []]),
    ("Map(String, UInt8)", pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())), [[("a", 1)], []]),
    ("Tuple(a UInt8, b String)", pa.array([{"b": "x", "a": 1}]), [{"a": 1, "b": "x"}]),
    ("Tuple(UInt8, String)", pa.array([{"p": 1, "q": "x"}]), [{"1": 1, "2": "x"}]),
    ("Array(UInt8)", pa.array(["[1, 2]", "[]"]), [[1, 2], []]),
    ("Map(String, Array(UInt8))", pa.array(["{'a:b':[1,2],'c':[]}"]), [[("a:b", [1, 2]), ("c", [])]]),
    ("Tuple(UInt8, Nullable(String), Date)", pa.array(["(1,'x\\'y',2020-01-02)", "(2,NULL,'2020-01-02')"]),
     [{"1": 1, "2": "x'y", "3": datetime.date(2020, 1, 2)}, {"1": 2, "2": None, "3": datetime.date(2020, 1, 2)}]),
    ("DateTime('Europe/Berlin')", pa.array(["2020-07-01 12:00:00"]), [datetime.datetime(2020, 7, 1, 10, tzinfo=UTC)]),
    ("Nullable(Int32)", pa.nulls(2), [None, None]),
    ("UInt64", pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given_array", "public"), ROUND_TRIPS)
def test_what_users_bring_comes_back_in_the_public_form(kind: str, given_array: pa.Array, public: list[Any]) -> None:
    data_type = parse_type(kind)
    stored = to_storage(given_array, data_type)
    stored.validate(full=True)
    assert stored.type == storage_type(data_type)
    back = to_public(stored, data_type)
    back.validate(full=True)
    assert back.type == arrow_type(data_type)
    assert back.to_pylist() == public
    assert to_storage(back, data_type).to_pylist() == stored.to_pylist()
    longer = pa.concat_arrays([given_array, given_array])
    assert to_public(to_storage(longer, data_type).slice(len(given_array)), data_type).to_pylist() == public
    assert to_storage(pa.chunked_array([given_array, given_array]), data_type).to_pylist() == stored.to_pylist() * 2


REFUSALS: list[tuple[str, pa.Array, str, str]] = [
    ("UInt8", pa.array([1, 300]), "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "Value 300 is out of range of UInt8 (0 to 255) (column c, row 1)"),
    ("UInt64", pa.array([1, -1]), "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "row 1"),
    ("Int64", pa.array([2**63], pa.uint64()), "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "row 0"),
    ("UInt8", pa.array([1.0, 1.5]), "TYPE_MISMATCH", "row 1"),
    ("Int64", pa.array([1e30]), "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "row 0"),
    ("Int64", pa.array([float("nan")]), "TYPE_MISMATCH", "row 0"),
    ("UInt8", pa.array([1, None]), "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "row 1"),
    ("LowCardinality(String)", pa.array(["a", None]).dictionary_encode(), "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "row 1"),
    ("Array(UInt8)", pa.array([[1, None]]), "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "column c"),
    ("Array(UInt8)", pa.array([[1], None]), "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "row 1"),
    ("String", pa.array([1]), "TYPE_MISMATCH", "int64"),
    ("Date", pa.array([datetime.date(1969, 12, 31)]), "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "1969-12-31"),
    ("Date", pa.array(["2020-01-01", "x"]), "CANNOT_PARSE_DATE", "row 1"),
    ("DateTime", pa.array([datetime.datetime(2200, 1, 1)]), "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "2200"),
    ("DateTime", pa.array(["yesterday"]), "CANNOT_PARSE_DATETIME", "row 0"),
    ("DateTime64(9)", pa.array([datetime.datetime(2290, 1, 1)]), "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "2290"),
    ("Decimal(9, 2)", pa.array([D("1.234")]), "TYPE_MISMATCH", "Decimal(9, 2)"),
    ("Decimal(9, 2)", pa.array([D("1"), D("12345678.9")]), "DECIMAL_OVERFLOW", "row 1"),
    ("Enum8('a' = 1)", pa.array(["a", "b"]), "UNKNOWN_ELEMENT_OF_ENUM", "row 1"),
    ("Enum8('a' = 1)", pa.array([1, 7]), "UNKNOWN_ELEMENT_OF_ENUM", "row 1"),
    ("FixedString(2)", pa.array(["ab", "abc"]), "TOO_LARGE_STRING_SIZE", "row 1"),
    ("UUID", pa.array(["nope"]), "CANNOT_PARSE_UUID", "nope"),
    ("IPv4", pa.array(["1.2.3"]), "CANNOT_PARSE_IPV4", "1.2.3"),
    ("UInt8", pa.array(["1", "300"]), "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "row 1"),
    ("UInt8", pa.array(["1x"]), "CANNOT_PARSE_TEXT", "1x"),
    ("Array(UInt8)", pa.array(["[1,"]), "CANNOT_PARSE_INPUT_ASSERTION_FAILED", "row 0"),
    ("Tuple(UInt8, UInt8)", pa.array([{"a": 1}]), "CANNOT_INSERT_VALUE_OF_DIFFERENT_SIZE_INTO_TUPLE", "1 field"),
    ("UInt128", pa.array([-1]), "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "row 0"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given_array", "name", "part"), REFUSALS)
def test_what_does_not_fit_is_refused_with_column_row_and_value(
    kind: str, given_array: pa.Array, name: str, part: str
) -> None:
    with pytest.raises(MergelakeError) as failure:
        to_storage(given_array, parse_type(kind), "c")
    assert failure.value.name == name
    assert part in str(failure.value)


def test_dictionary_values_that_no_row_has_are_not_judged() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["1", "x"]))
    assert to_storage(array, parse_type("UInt8")).to_pylist() == [1, 1]
    assert to_storage(array, parse_type("LowCardinality(UInt8)")).to_pylist() == [1, 1]


def test_strings_are_handed_out_without_a_copy() -> None:
    stored = pa.array([b"abc", b"\xff"], pa.binary())
    assert to_public(stored, parse_type("String")).buffers()[2].address == stored.buffers()[2].address
    text = pa.array(["abc"])
    assert to_storage(text, parse_type("String")).buffers()[2].address == text.buffers()[2].address


def test_a_table_is_converted_column_by_column() -> None:
    types = {"d": parse_type("Date"), "s": parse_type("Nullable(String)")}
    table = pa.table({"d": pa.array([1, 2], pa.uint16()), "s": pa.array([b"x", None], pa.binary())})
    public = to_public_table(table, types)
    assert public.to_pylist() == [
        {"d": datetime.date(1970, 1, 2), "s": "x"},
        {"d": datetime.date(1970, 1, 3), "s": None},
    ]
    assert public.schema.field("d").nullable is False


@settings(max_examples=100)
@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**64 - 1)), max_size=20),
    st.sampled_from(["Int8", "UInt16", "Int32", "UInt32", "Int64"]),
)
def test_an_integer_column_is_taken_whole_or_refused(values: list[int | None], kind: str) -> None:
    arrow = pa.int64() if all(v is None or v < 2**63 for v in values) else pa.uint64()
    if arrow == pa.uint64():
        values = [None if v is None else abs(v) for v in values]
    info = np.iinfo(kind.lower())
    fits = all(v is None or info.min <= v <= info.max for v in values)
    data_type = parse_type(f"Nullable({kind})")
    if fits:
        assert to_storage(pa.array(values, arrow), data_type).to_pylist() == values
    else:
        with pytest.raises(MergelakeError):
            to_storage(pa.array(values, arrow), data_type)


def test_a_tuple_may_be_null_as_a_whole() -> None:
    kind = parse_type("Nullable(Tuple(a UInt8, b Nullable(String)))")
    rows = pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": None}])
    assert to_storage(rows, kind).to_pylist() == [{"a": 1, "b": b"x"}, None, {"a": 2, "b": None}]
    with pytest.raises(MergelakeError, match="row 2") as caught:
        to_storage(pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]), kind)
    assert caught.value.name == "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"
