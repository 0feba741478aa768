# ruff: noqa: E501  (tables read best with one idea a line)
from __future__ import annotations

import pytest

from mergelake.core.base.errors import MergelakeError, UnsupportedError
from mergelake.core.types.types import Float, Int
from mergelake.expr import Call, ColumnRef, Literal, column_name, parse, parse_list, referenced_columns
from mergelake.expr.parser import number_literal


@pytest.mark.parametrize(
    ("text", "printed", "named"),
    [
        ("a+b*2", "a + (b * 2)", "plus(a, multiply(b, 2))"),
        ("NOT a = 1 AND b OR c", "((NOT (a = 1)) AND b) OR c", "or(and(not(equals(a, 1)), b), c)"),
        ("a and b and c", "a AND b AND c", "and(a, b, c)"),
        ("x NOT IN (1, 'a')", "x NOT IN (1, 'a')", "notIn(x, tuple(1, 'a'))"),
        ("x between 1 and 2", "(x >= 1) AND (x <= 2)", "and(greaterOrEquals(x, 1), lessOrEquals(x, 2))"),
        ("a = b IS NULL", "(a = b) IS NULL", "isNull(equals(a, b))"),
        ("x::Nullable(UInt8)", "CAST(x, 'Nullable(UInt8)')", "CAST(x, 'Nullable(UInt8)')"),
        ("t.1.2", "tupleElement(tupleElement(t, 1), 2)", "tupleElement(tupleElement(t, 1), 2)"),
        ("n.`a b`", "n.`a b`", "n.a b"),
        ("-1 - -x", "-1 - (-x)", "minus(-1, negate(x))"),
        ("a ? b : c", "if(a, b, c)", "if(a, b, c)"),
        ("ts + interval 1 day", "ts + toIntervalDay(1)", "plus(ts, toIntervalDay(1))"),
        ("interval '2 weeks'", "toIntervalWeek(2)", "toIntervalWeek(2)"),
        ("case x when 1 then 'a' end", "multiIf(x = 1, 'a', NULL)", "multiIf(equals(x, 1), 'a', NULL)"),
        ("[1, 2][1]", "arrayElement([1, 2], 1)", "arrayElement(array(1, 2), 1)"),
        ("toYYYYMM( ts ) -- comment", "toYYYYMM(ts)", "toYYYYMM(ts)"),
        ("(a)", "a", "a"),
        ("tuple()", "tuple()", "tuple()"),
    ],
)
def test_text_is_read_by_clickhouses_priorities_and_printed_back(text: str, printed: str, named: str) -> None:
    node = parse(text)
    assert str(node) == printed
    assert column_name(node) == named
    assert parse(printed) == node


def test_function_names_stay_as_typed() -> None:
    assert parse("DATE_TRUNC('day', x)") == Call("DATE_TRUNC", (Literal(b"day", parse("'x'").type), ColumnRef("x")))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "value", "bits", "signed"),
    [("255", 255, 8, False), ("256", 256, 16, False), ("-1", -1, 8, True), ("-129", -129, 16, True), ("0x1F", 31, 8, False),
     ("18446744073709551615", 2**64 - 1, 64, False), ("1_000", 1000, 16, False)],
)  # fmt: skip
def test_integers_take_the_narrowest_type(text: str, value: int, bits: int, signed: bool) -> None:
    assert number_literal(text) == Literal(value, Int(bits, signed))


def test_other_numbers_are_float64() -> None:
    assert parse("1.5e3") == Literal(1500.0, Float(64))
    assert parse("18446744073709551616") == Literal(2.0**64, Float(64))


def test_strings_are_bytes_with_clickhouses_escapes() -> None:
    node = parse(r"'a\'b''c\n\xFF\%é'")
    assert isinstance(node, Literal)
    assert node.value == b"a'b'c\n\xff\\%" + "é".encode()
    assert parse(str(node)) == node


@pytest.mark.parametrize(
    "text", ["", "a +", "(a", "a b", "f(a,", "CASE WHEN a", "'x", "a AND", "x IS 1", "interval 1 foo"]
)
def test_what_cannot_be_read_is_a_syntax_error(text: str) -> None:
    with pytest.raises(MergelakeError) as failure:
        parse(text)
    assert failure.value.name == "SYNTAX_ERROR"


@pytest.mark.parametrize("text", ["x IN (SELECT 1)", "x -> x + 1", "{p:UInt8}", "quantile(0.5)(x)", "a <=> b"])
def test_what_clickhouse_can_and_we_cannot_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedError):
        parse(text)


def test_deep_nesting_is_refused_before_the_stack_ends() -> None:
    with pytest.raises(MergelakeError):
        parse("(" * 5000 + "1" + ")" * 5000)


def test_lists_and_their_columns() -> None:
    nodes = parse_list("toYYYYMM(ts), (a, b), a")
    assert [str(node) for node in nodes] == ["toYYYYMM(ts)", "(a, b)", "a"]
    assert parse_list(" ") == ()
    assert referenced_columns(nodes[1]) == ("a", "b")
