"""hasToken, hasAny, hasAll."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import parse_type
from mergelake.expr import compile_expression

TEXTS = ["foo bar", "foobar", "a-foo-b", "föo foo", "éfoo", "foo\tx", "FOO x", "xfoo foo", "", " foo"]


def test_a_token_stands_between_separators():
    column = pa.table({"s": pa.array([text.encode() for text in TEXTS], pa.binary())})
    types = {"s": parse_type("String")}
    found = compile_expression("hasToken(s, 'foo')", types).evaluate(column).to_pylist()
    assert found == [1, 0, 1, 1, 0, 1, 0, 1, 0, 1]
    found = compile_expression("hasTokenCaseInsensitive(s, 'foo')", types).evaluate(column).to_pylist()
    assert found == [1, 0, 1, 1, 0, 1, 1, 1, 0, 1]
    with pytest.raises(MergelakeError, match="separator"):
        compile_expression("hasToken(s, 'foo bar')", types)


def test_any_and_all_of_an_array():
    column = pa.table({"a": pa.array([[1, 2], [], [3], [2, 2]], pa.list_(pa.int32()))})
    types = {"a": parse_type("Array(Int32)")}
    expected = {"hasAny(a, [1, 3])": [1, 0, 1, 0], "hasAll(a, [1, 2])": [1, 0, 0, 0], "hasAny(a, [9])": [0, 0, 0, 0]}
    for text, values in expected.items():
        assert compile_expression(text, types).evaluate(column).to_pylist() == values, text
    assert str(compile_expression("hasAll(a, [])", types).node) == "1"
