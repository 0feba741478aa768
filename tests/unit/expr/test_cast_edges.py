"""Conversions at the edges of types, as ClickHouse does them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import parse_type
from mergelake.expr import compile_expression


@pytest.mark.parametrize("kind", ["Int8", "UInt64", "Int256"])
def test_nothing_but_padding_is_the_integer_zero(kind: str) -> None:
    compiled = compile_expression(f"to{kind}OrNull(x)", {"x": parse_type("FixedString(3)")})
    found = compiled.evaluate(pa.table({"x": pa.array([b"\0\0\0", b"7\0\0", b"a\0\0"], pa.binary(3))}))
    assert [value is None for value in found.to_pylist()] == [False, False, True]


@pytest.mark.parametrize("kind", ["Float64", "Nullable(Float64)"])
def test_a_float_beyond_uint64_becomes_what_x86_makes_of_it(kind: str) -> None:
    compiled = compile_expression("toUInt64(x)", {"x": parse_type(kind)})
    found = compiled.evaluate(pa.table({"x": pa.array([1e19, 1.9e19, 1.7976931348623157e308, -2642.0])}))
    assert found.to_pylist() == [10**19, 1 << 63, 1 << 63, (1 << 64) - 2642]


@pytest.mark.parametrize(("kind", "member"), [("String", "1"), ("Int32", "'1'"), ("Nullable(String)", "1.5")])
def test_an_array_is_not_asked_for_what_it_cannot_have(kind: str, member: str) -> None:
    with pytest.raises(MergelakeError, match="NO_COMMON_TYPE"):
        compile_expression(f"has(x, {member})", {"x": parse_type(f"Array({kind})")})
