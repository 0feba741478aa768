"""Deep and wide texts: an answer or a coded error, soon; never RecursionError, never the square of the width."""

from __future__ import annotations

import json

import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.json_load import loads
from mergelake.core.types import types as t
from mergelake.expr.compiled import compile_expression
from mergelake.expr.parser import parse, parse_list
from mergelake.log.storage.encoding import decode_entry
from mergelake.query.statement.select_parser import parse_select
from tests.helpers.work import bytecodes

COLUMNS = {"a": t.Int(64, signed=True), "s": t.STRING}
DEEP = {
    "parentheses": lambda n: "(" * n + "a" + ")" * n,
    "calls": lambda n: "abs(" * n + "a" + ")" * n,
    "operands of calls": lambda n: "or(" * n + "a, 1" + ")" * n,
    "arrays": lambda n: "[" * n + "1" + "]" * n,
    "NOT": lambda n: "NOT " * n + "a",
    "minus": lambda n: "- " * n + "a",
    "a sum": lambda n: " + ".join(["a"] * n),
    "subscripts": lambda n: "a" + "[1]" * n,
    "casts": lambda n: "a" + "::Int64" * n,
    "comparisons": lambda n: "a" + " = 1" * n,
    "IS NULL": lambda n: "a" + " IS NULL" * n,
    "ternary": lambda n: "a ? 1 : " * n + "2",
    "branches": lambda n: "CASE " + " ".join(f"WHEN a = {i} THEN {i}" for i in range(n)) + " END",
}
WIDE = {
    "OR": lambda n: " OR ".join(f"a = {i}" for i in range(n)),
    "OR of AND": lambda n: " OR ".join(f"(a = {i} AND s = '{i}')" for i in range(n)),
    "concatenation": lambda n: " || ".join(["s"] * n),
    "IN": lambda n: f"a IN ({', '.join(map(str, range(n)))})",
}
CODES = {43, 62, 130, 167, 306, 42, 53, 44, 386}


@pytest.mark.parametrize("depth", [1, 100, 119, 120, 121, 400, 1000, 5000])
@pytest.mark.parametrize("name", DEEP)
def test_depth_ends_in_an_answer_or_a_coded_error(name: str, depth: int) -> None:
    text = DEEP[name](depth)
    for read in (
        parse,
        parse_list,
        lambda x: compile_expression(x, COLUMNS),
        lambda x: parse_select(f"SELECT {x} FROM t"),
    ):
        try:
            read(text)
        except MergelakeError as failure:
            assert failure.code in CODES, str(failure)  # noqa: PT017


@pytest.mark.parametrize("name", WIDE)
def test_width_costs_its_length(name: str) -> None:
    def work(width: int) -> int:
        text = WIDE[name](width)
        return bytecodes(lambda: (compile_expression(text, COLUMNS), parse_select(f"SELECT * FROM t WHERE {text}")))

    assert work(1000) < 5 * work(250)  # four times the text; of the square it would be sixteen


@pytest.mark.parametrize("depth", [100, 900, 1000, 100_000])
def test_nested_json_of_the_log_is_corrupt_not_a_crash(depth: int) -> None:
    for ops in (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth):
        with pytest.raises(MergelakeError) as caught:
            decode_entry(b'{"format":3,"version":1,"ops":' + ops + b"}")
        assert caught.value.code == 246


def test_json_that_is_too_deep_is_a_value_error() -> None:
    assert loads("[[1]]") == [[1]]
    with pytest.raises(ValueError, match="deep"):
        loads("[" * 100_000 + "]" * 100_000)
    with pytest.raises(json.JSONDecodeError):
        loads("[")


def test_brackets_of_a_statement_are_counted_before_anything_else() -> None:
    failures: list[MergelakeError] = []

    def read() -> None:
        with pytest.raises(MergelakeError) as caught:
            parse_select("SELECT " + "(" * 50_000 + "1" + ")" * 50_000)
        failures.append(caught.value)

    assert bytecodes(read) < 50_000 * 100
    assert [(failure.code, failure.name) for failure in failures] == [(306, "TOO_DEEP_RECURSION")]
    parse_select("SELECT " + "(" * 900 + "1" + ")" * 900)
