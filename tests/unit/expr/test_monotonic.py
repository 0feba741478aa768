# ruff: noqa: E501  (tables read best with one idea a line)
from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mergelake.core.arrow import storage_type
from mergelake.core.types import parse_type
from mergelake.expr import compile_expression, monotonic, range_of
from mergelake.expr.values import python_value

EXPRESSIONS = [
    ("Int32", "x + 5"), ("Int32", "x - 3"), ("Int32", "7 - x"), ("Int32", "-x"), ("Int32", "intDiv(x, 10)"), ("UInt64", "x + 1"),
    ("Int64", "x - 1"), ("Int32", "x * -3"), ("Int32", "toInt8(x)"), ("Int64", "toUInt64(x)"), ("UInt32", "x % 100"),
    ("UInt16", "toFloat32(x) / 2"), ("Int64", "toFloat64(x)"), ("Date", "toYYYYMM(x)"), ("Date", "toStartOfMonth(x)"), ("Date", "toMonth(x)"),
    ("Date", "x + 400"), ("Date", "x + INTERVAL 1 MONTH"), ("Date", "x - INTERVAL 3 YEAR"), ("Date", "toDayOfWeek(x)"),
    ("Date", "toDateTime(x)"), ("Date", "toDateTime(x, 'Asia/Tokyo')"), ("DateTime('UTC')", "toDate(x)"), ("DateTime('UTC')", "toStartOfHour(x)"), ("DateTime('UTC')", "toHour(x)"),
    ("DateTime('Europe/Berlin')", "toDate(x)"), ("DateTime('Europe/Berlin')", "toStartOfInterval(x, INTERVAL 3 HOUR)"),
    ("DateTime('America/St_Johns')", "toDate(x)"), ("DateTime('America/St_Johns')", "toYYYYMMDDhhmmss(x)"),
    ("DateTime('Europe/Berlin')", "toStartOfDay(x)"), ("DateTime('Asia/Kolkata')", "toStartOfHour(x)"), ("DateTime('UTC')", "x + INTERVAL 1 DAY"),
    ("DateTime('UTC')", "toYear(toStartOfMonth(x)) + 1"), ("DateTime64(3, 'UTC')", "toDate(x)"), ("DateTime64(3, 'UTC')", "toStartOfMinute(x)"),
    ("DateTime64(3, 'UTC')", "toUnixTimestamp(x)"), ("Float64", "x * 2"), ("Float32", "toInt32(x)"), ("UInt64", "toInt64(x)"),
]  # fmt: skip


@settings(max_examples=20)
@pytest.mark.parametrize(("kind", "text"), EXPRESSIONS)
@given(data=st.data())
def test_no_value_between_the_ends_leaves_the_image(kind: str, text: str, data: st.DataObject) -> None:
    arrow = storage_type(parse_type(kind))
    if pa.types.is_floating(arrow):
        value = st.floats(-1e6, 1e6, width=32)
        low, high = sorted(data.draw(st.tuples(value, value)))
        between = np.linspace(low, high, 300)
    else:
        info = np.iinfo(arrow.to_pandas_dtype())
        near = data.draw(st.integers(int(info.min), int(info.max)))
        width = data.draw(st.sampled_from([0, 1, 100, 5000, 100_000, 40_000_000, 2**33]))
        low, high = near, min(near + width, int(info.max))
        between = np.unique(np.array([low + (high - low) * i // 299 for i in range(300)], dtype=object))
    compiled = compile_expression(text, {"x": parse_type(kind)})
    image = range_of(compiled.node, low, high)
    if image is None:
        return
    values = compiled.evaluate(pa.record_batch({"x": pa.array(between.tolist(), arrow)}))
    found = [python_value(value, compiled.type) for value in values]
    assert image[0] <= min(found)
    assert max(found) <= image[1]


def _image(kind: str, text: str, low: object, high: object) -> object:
    return range_of(compile_expression(text, {"x": parse_type(kind)}).node, low, high)


def test_the_usual_key_expressions_have_an_image() -> None:
    day = (datetime.date(2020, 2, 3) - datetime.date(1970, 1, 1)).days
    assert _image("Date", "toYYYYMM(x)", day, day + 40) == (202002, 202003)
    assert _image("DateTime('UTC')", "toDate(x)", day * 86400, day * 86400 + 90000) == (day, day + 1)
    assert _image("Int32", "-x", 1, 5) == (-5, -1)
    assert _image("UInt8", "intDiv(x, 10)", 0, 255) == (0, 25)
    assert monotonic("toStartOfHour")


def test_wrapping_and_clock_changes_have_none() -> None:
    assert _image("UInt64", "x + 1", 0, 2**64 - 1) is None
    assert _image("Int32", "toInt8(x)", 0, 300) is None
    assert _image("Date", "toMonth(x)", 0, 400) is None
    assert _image("Int32", "x % 7", 0, 10) is None
    assert _image("String", "lower(x)", b"a", b"b") is None
    assert _image("DateTime('Europe/Berlin')", "toYYYYMMDDhhmmss(x)", 1603580000, 1603600000) is None
