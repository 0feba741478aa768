"""Subcolumns: their types, values and names; what they are the same as."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.expr import bind, compile_expression, parse

CASES = [
    ("Nullable(Int32)", "x.null", [1, None], "UInt8", [0, 1]),
    ("Nullable(String)", "x.size", [b"ab", None], "Nullable(UInt64)", [2, None]),
    ("String", "x.size", [b"ab", b""], "UInt64", [2, 0]),
    ("Array(Nullable(Int8))", "x.size0", [[1, None], []], "UInt64", [2, 0]),
    ("Array(Nullable(Int8))", "x.null", [[1, None], []], "Array(UInt8)", [[0, 1], []]),
    ("Array(Array(String))", "x.size1", [[[b"a", b"b"], []], []], "Array(UInt64)", [[2, 0], []]),
    ("Array(Tuple(p UInt8, q String))", "x.q.size", [[{"p": 1, "q": b"abc"}]], "Array(UInt64)", [[3]]),
    ("Map(String, UInt8)", "x.keys", [[{"keys": b"a", "values": 1}]], "Array(String)", [[b"a"]]),
    ("Map(String, UInt8)", "x.key_a", [[{"keys": b"a", "values": 7}], []], "UInt8", [7, 0]),
    ("Map(UInt8, String)", "x.key_3", [[{"keys": 3, "values": b"z"}]], "String", [b"z"]),
    ("Tuple(a Tuple(b Nullable(Int8)))", "x.a.b.null", [{"a": {"b": None}}], "UInt8", [1]),
]


@pytest.mark.parametrize(("kind", "name", "values", "result", "expected"), CASES, ids=lambda v: str(v)[:30])
def test_a_subcolumn_has_type_and_values(
    kind: str, name: str, values: list[object], result: str, expected: list[object]
) -> None:
    data_type = parse_type(kind)
    compiled = compile_expression(name, {"x": data_type})
    block = pa.table({"x": pa.array(values, storage_type(data_type))})
    assert str(compiled.type) == result
    assert compiled.evaluate(block).to_pylist() == expected
    path = name.removeprefix("x.")
    again = compile_expression(f"getSubcolumn(x, '{path}')", {"x": data_type})
    assert again.evaluate(block).to_pylist() == expected


def test_a_subcolumn_is_the_function_that_says_the_same() -> None:
    columns = {"n": parse_type("Nullable(Int32)"), "a": parse_type("Array(Int8)")}
    assert bind(parse("n.null"), columns) == bind(parse("isNull(n)"), columns)
    assert bind(parse("`a.size0`"), columns) == bind(parse("length(a)"), columns)


def test_a_column_with_a_point_in_its_name_comes_first() -> None:
    columns = {"a": parse_type("Tuple(b UInt8)"), "a.b": parse_type("String"), "a.b.c": parse_type("Nullable(Int8)")}
    assert str(bind(parse("a.b"), columns).type) == "String"
    assert str(bind(parse("a.b.size"), columns).type) == "UInt64"
    assert str(bind(parse("a.b.c.null"), columns).type) == "UInt8"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        ("Int32", "x.null", 47),
        ("Array(Int32)", "x.size1", 47),
        ("LowCardinality(Nullable(String))", "x.null", 47),
        ("Tuple(a UInt8)", "x.b", 47),
        ("Map(UInt8, String)", "x.key_word", 47),
        ("Variant(String, UInt8)", "x.UInt8", 48),
        ("Dynamic", "x.Int64", 48),
        ("JSON(a UInt8)", "x.a", 48),
        ("JSON", "x.b.:Int64", 48),
    ],
)
def test_what_is_no_subcolumn_is_unknown_and_what_is_not_supported_is_named(kind: str, name: str, code: int) -> None:
    with pytest.raises(MergelakeError) as caught:
        compile_expression(name, {"x": parse_type(kind)})
    assert caught.value.code == code
