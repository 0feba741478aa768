"""Constants as trees: the text binds to the same value and type."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mergelake.core.types import types as t
from mergelake.core.types.types import parse_type
from mergelake.expr.binder import bind
from mergelake.expr.bound import BoundLiteral
from mergelake.expr.exact import exact_tree
from mergelake.expr.parser import parse

# 00:30 UTC of that day is 02:30 in Berlin, and so is 01:30 UTC.
TWICE = 1_729_989_000
VALUES: list[tuple[str, Any]] = [
    ("UInt8", 5),
    ("UInt64", (1 << 64) - 1),
    ("Int64", -(1 << 63)),
    ("Int128", 10**30),
    ("UInt256", (1 << 256) - 1),
    ("Float32", 1.5),
    ("Float64", -0.0),
    ("Float64", math.inf),
    ("Float64", 1e300),
    ("Bool", 1),
    ("String", b"it's \\ \xff\x00"),
    ("FixedString(3)", b"a\0\0"),
    ("Date", 20_000),
    ("Date32", -5),
    ("DateTime", 1),
    ("DateTime('Europe/Berlin')", TWICE),
    ("DateTime('Europe/Berlin')", TWICE + 3600),
    ("DateTime64(3, 'Europe/Berlin')", TWICE * 1000 + 125),
    ("DateTime64(9)", -1),
    ("Decimal(9, 2)", -150),
    ("Decimal(38, 20)", 12345678901234567),
    ("Enum8('it\\'s' = -3)", -3),
    ("UUID", bytes(range(16))),
    ("IPv4", 2130706433),
    ("IPv6", bytes(range(16))),
    ("Nullable(Int32)", None),
    ("Nullable(Int32)", 7),
    ("Array(UInt64)", [1, 2]),
    ("Array(String)", []),
    ("Array(Nullable(Int8))", [1, None]),
    ("Array(Array(DateTime('Asia/Tokyo')))", [[5], []]),
    ("Array(Int256)", [1 << 200]),
    ("Tuple(UInt64, String)", (1, b"x")),
    ("Tuple(a UInt64, b Nullable(String))", (1, None)),
    ("Tuple(DateTime('Europe/Berlin'))", (TWICE + 3600,)),
    ("Map(String, UInt64)", [(b"a", 1), (b"b", 2)]),
    ("Map(UInt8, String)", []),
    ("Array(Tuple(UInt64, String))", [(1, b"x"), (2, b"y")]),
    ("Array(Tuple(UInt8, UInt8))", []),
    ("IntervalDay", 3),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=str)
def test_a_value_is_written_exactly(kind: str, value: Any) -> None:
    bound = bind(parse(str(exact_tree(value, parse_type(kind)))), {})
    assert isinstance(bound, BoundLiteral)
    assert (bound.value, bound.type) == (value, parse_type(kind))
    assert not isinstance(value, float) or math.copysign(1, bound.value) == math.copysign(1, value)


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=str)
def test_values_are_written_as_an_array(kind: str, value: Any) -> None:
    bound = bind(parse(str(exact_tree([value, value], t.Array(parse_type(kind))))), {})
    assert isinstance(bound, BoundLiteral)
    assert (bound.value, bound.type) == ([value, value], t.Array(parse_type(kind)))


def test_nan_stays_nan() -> None:
    bound = bind(exact_tree(math.nan, t.Float(32)), {})
    assert isinstance(bound, BoundLiteral)
    assert math.isnan(bound.value)
    assert bound.type == t.Float(32)


def test_a_dictionary_is_left_out() -> None:
    assert bind(exact_tree(b"x", parse_type("LowCardinality(Nullable(String))")), {}).type == t.Nullable(t.STRING)
