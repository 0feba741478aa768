"""CAST between arrays, tuples and maps, and map(), against ClickHouse."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.text_write import to_text
from mergelake.core.types.types import parse_type
from mergelake.expr import compile_expression

pytestmark = pytest.mark.chdb

TYPES = {"k": parse_type("UInt8"), "s": parse_type("String"), "n": parse_type("Nullable(Int32)")}
BLOCK = pa.table(
    {
        "k": pa.array([1, 0, 7], pa.uint8()),
        "s": pa.array([b"a", b"", b"12"], pa.binary()),
        "n": pa.array([None, 3, 4], pa.int32()),
    }
)
ROWS = "values('k UInt8, s String, n Nullable(Int32)', (1, 'a', NULL), (0, '', 3), (7, '12', 4))"
EXPRESSIONS = [
    "[]",
    "CAST([] AS Array(Int32))",
    "if(k > 0, [], [1])",
    "[[], [k]]",
    "[[], []]",
    "CAST([[], []] AS Array(Array(String)))",
    "CAST((1, NULL) AS Tuple(x Int32, y Nullable(String)))",
    "CAST((k, s) AS Tuple(x Int32, y Nullable(String)))",
    "CAST((k, n) AS Tuple(x Int32, y Nullable(String)))",
    "CAST((k, n) AS Tuple(x Int32, y Int8))",
    "CAST((k, ifNull(n, 2)) AS Tuple(Int32, Nullable(Int8)))",
    "CAST((300 + k, s) AS Tuple(UInt8, LowCardinality(String)))",
    "CAST(CAST((k, s) AS Tuple(a UInt8, b String)) AS Tuple(b String, a UInt16))",
    "CAST(CAST((k, s) AS Tuple(a UInt8, b String)) AS Tuple(String, UInt16))",
    "CAST(CAST((k, s) AS Tuple(a UInt8, b String)) AS Tuple(b String, c UInt16))",
    "CAST(CAST((k, s) AS Tuple(a UInt8, b String)) AS Tuple(d Tuple(e Nullable(Int8)), f Array(Date32), a Int8))",
    "CAST(CAST((k, s) AS Tuple(a UInt8, b String)) AS Tuple(c Date32, d Enum8('x' = 3, 'y' = 0), e FixedString(2)))",
    "CAST(CAST((k, s) AS Tuple(a UInt8, b String)) AS Tuple(c Date32, d Enum8('x' = 3, 'y' = 0), b FixedString(2)))",
    "CAST(CAST((k, s) AS Tuple(a UInt8, b String)) AS Tuple(c Map(String, UInt8), d UUID, b LowCardinality(String)))",
    "CAST((k, s) AS Tuple(UInt8))",
    "tuple(CAST(s AS Nullable(UInt8)))",
    "CAST([s, NULL] AS Array(Nullable(UInt8)))",
    "CAST([s] AS Array(Nullable(UInt8)))",
    "CAST(map(s, s) AS Map(String, LowCardinality(Nullable(FixedString(1)))))",
    "CAST((s, s) AS Tuple(Nullable(Date), Nullable(Decimal(9, 2))))",
    "CAST((k, [(s, n)]) AS Tuple(a String, b Array(Tuple(c FixedString(3), d Nullable(UInt8)))))",
    "CAST(tuple() AS Tuple())",
    "CAST([(k, s), (2, 'x')] AS Array(Tuple(UInt16, String)))",
    "CAST([k, n] AS Array(Nullable(String)))",
    "CAST([k, n] AS Array(Int32))",
    "CAST([s, 'x'] AS Array(LowCardinality(String)))",
    "CAST([s, NULL] AS Array(LowCardinality(Nullable(String))))",
    "CAST([1.5, k] AS Array(Decimal(9, 2)))",
    "CAST(['1', 'x'] AS Array(UInt8))",
    "CAST([s] AS Array(UInt8))",
    "map('a', k)",
    "map()",
    "map(s, n)",
    "map('a')",
    "map('a', 1, 'b', 300)",
    "CAST(map('a', k) AS Map(String, UInt64))",
    "if(k > 0, map('a', 1), map('b', 300))",
    "CAST(map(s, [k]) AS Map(LowCardinality(String), Array(String)))",
    "CAST(([s, 'b'], [k, 3]) AS Map(String, UInt8))",
    "CAST(([s, 'b'], [k]) AS Map(String, UInt8))",
    "CAST([(s, k)] AS Map(String, UInt8))",
    "CAST(map() AS Map(String, UInt8))",
    "CAST(map('a', []) AS Map(String, Array(String)))",
    "CAST([] AS Map(String, UInt8))",
    "map('a', 1)['a']",
    "mapKeys(map(s, 1))",
    "CAST(map('a', n) AS Map(String, Int8))",
    "CAST(([n], [k]) AS Map(String, Int8))",
]


def theirs(oracle: Any, expression: str) -> list[str]:
    query = f"SELECT toTypeName({expression}), toString({expression}) FROM {ROWS}"
    try:
        rows = oracle.query(query, "JSONCompactEachRow").bytes().decode().splitlines()
    except RuntimeError as problem:
        return [str(problem).split("Code: ")[1].split(".")[0]]
    cells = [json.loads(row) for row in rows]
    return [str(parse_type(cells[0][0])), *(text for _, text in cells)]


def ours(expression: str) -> list[str]:
    try:
        compiled = compile_expression(expression, TYPES)
        found = compiled.evaluate(BLOCK)
    except MergelakeError as problem:
        return [str(problem.code)]
    found.validate(full=True)
    return [str(compiled.type), *(text.decode() for text in to_text(found, compiled.type).to_pylist())]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_nested_values_are_cast_as_clickhouse_does(oracle: Any, expression: str) -> None:
    assert ours(expression) == theirs(oracle, expression)
