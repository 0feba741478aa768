"""Minimum and maximum in ClickHouse's order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.format.files.extremes import extremes, extremes_each, merge_extremes, order_keys
from mergelake.format.serializations.values import encode_values


def _bytes(value: object, text: str) -> bytes:
    kind = parse_type(text)
    return encode_values([pa.array([value], storage_type(kind))], [kind])


def _le(value: int, width: int = 16) -> bytes:
    return value.to_bytes(width, "little", signed=value < 0)


CASES = [
    ("Int32", [3, -5, 9], -5, 9),
    ("String", [b"b", b"a\xff", b"ab"], min(b"ab", b"a\xff"), b"b"),
    ("FixedString(2)", [b"zz", b"aa"], b"aa", b"zz"),
    ("Float64", [2.0, float("nan"), -1.0], -1.0, 2.0),
    ("Nullable(Int8)", [3, None, 1], 1, None),
    ("Nullable(Int8)", [None, None], None, None),
    ("Nullable(Int8)", [3, 4], 3, 4),
    ("LowCardinality(String)", [b"q", b"p"], b"p", b"q"),
    ("LowCardinality(Nullable(String))", [b"q", None], b"q", None),
    ("Int128", [_le(-1), _le(1 << 100), _le(5)], _le(-1), _le(1 << 100)),
    ("UInt128", [_le(255), _le(256), _le(5)], _le(5), _le(256)),
    ("Decimal(38, 2)", [_le(-300), _le(2)], _le(-300), _le(2)),
    ("UUID", [bytes(8) + _le(9, 8), _le(9, 8) + bytes(8)], _le(9, 8) + bytes(8), bytes(8) + _le(9, 8)),
    ("Array(Int32)", [[3, 1], [2, 9], [2]], [2], [3, 1]),
    ("Array(Int32)", [[3, 1], []], [], [3, 1]),
    ("IPv6", [b"\0" * 15 + b"\2", b"\1" + b"\0" * 15], b"\0" * 15 + b"\2", b"\1" + b"\0" * 15),
]


@pytest.mark.parametrize(("text", "values", "low", "high"), CASES, ids=lambda value: str(value)[:24])
def test_extremes_follow_clickhouses_order(text: str, values: list[object], low: object, high: object) -> None:
    kind = parse_type(text)
    array = pa.array(values, storage_type(kind))
    expected = (_bytes(low, text), _bytes(high, text))
    assert extremes(array, kind) == expected
    padded = pa.concat_arrays([array.slice(0, 1), array, array.slice(0, 1)]).slice(1, len(array))
    assert extremes(padded, kind) == expected
    assert merge_extremes([extremes(array.slice(i, 1), kind) for i in range(len(array))], kind) == expected


def test_the_order_of_bfloat16_keeps_nulls() -> None:
    kind = parse_type("Nullable(BFloat16)")
    keys = order_keys(pa.array([0x3F80, None, 0xBF80], pa.uint16()), kind)
    assert keys.to_pylist() == [1.0, None, -1.0]


def test_only_nan_is_its_own_extreme() -> None:
    kind = parse_type("Float32")
    low, high = extremes(pa.array([float("nan")] * 2, pa.float32()), kind)
    assert low == high == _bytes(float("nan"), "Float32")


def test_values_that_are_not_compared_have_no_extremes() -> None:
    kind = parse_type("Array(Dynamic)")
    with pytest.raises(MergelakeError, match="DATA_TYPE_CANNOT_BE_USED_IN_KEY"):
        extremes(pa.array([[b"1"]], storage_type(kind)), kind)


def test_a_tuple_has_the_extremes_of_its_elements_and_parts_together_those_of_whole_tuples() -> None:
    text = "Tuple(a Int32, b Nullable(Int8))"
    kind = parse_type(text)
    rows = [{"a": 1, "b": None}, {"a": 2, "b": 3}]
    first = extremes(pa.array(rows, storage_type(kind)), kind)
    assert first == (_bytes({"a": 1, "b": 3}, text), _bytes({"a": 2, "b": 3}, text))
    second = extremes(pa.array([{"a": 1, "b": 5}], storage_type(kind)), kind)
    assert merge_extremes([first, second], kind) == first


DRAWN = {
    "Int8": st.integers(-128, 127),
    "UInt64": st.integers(0, 2**64 - 1),
    "Int64": st.integers(-(2**63), 2**63 - 1),
    "Date": st.integers(0, 65535),
    "DateTime": st.integers(0, 2**32 - 1),
    "Float32": st.floats(width=32),
    "String": st.binary(max_size=3),
    "Nullable(Int32)": st.none() | st.integers(-5, 5),
}


@given(st.data())
def test_the_extremes_of_many_pieces_are_those_of_each(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(sorted(DRAWN)))
    pieces = data.draw(st.lists(st.lists(DRAWN[text], min_size=1, max_size=4), min_size=1, max_size=5))
    kind = parse_type(text)
    array = pa.array([value for piece in pieces for value in piece], storage_type(kind))
    ends = np.cumsum([len(piece) for piece in pieces])
    alone = [extremes(pa.array(piece, storage_type(kind)), kind) for piece in pieces]
    assert extremes_each(array, kind, ends) == alone
