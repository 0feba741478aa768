"""SimpleAggregateFunction columns: rules, in pieces and at once, and which columns and tables are refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mergelake.api.sql.database import connect
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.engines.rules.aggregates import simple_aggregate
from mergelake.engines.rules.mode import Rule
from mergelake.engines.rules.modes import collapse_block
from mergelake.table.definition.define import define
from tests.helpers.combining import combined
from tests.helpers.merging import SmallTable, plain

Values = list[Any]
SMALL = st.integers(0, 3)
TEXTS = st.sampled_from([b"", b"a", b"aaaaaaaa", b"aaaaaaaaa", b"aaaaaaaab", b"b", b"a\0"])
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -2.0, math.nan, math.inf])
WIDE = st.integers(-3, 3).map(lambda number: number.to_bytes(16, "little", signed=True))
PAIRS = st.builds(lambda number, text: {"1": number, "2": text}, SMALL, TEXTS)


def known(values: Values) -> Values:
    return [value for value in values if value is not None]


def of_known(function: Callable[[Values], Any]) -> Callable[[Values], Any]:
    """Of the values that are not NULL, or NULL."""
    return lambda values: function(known(values)) if known(values) else None


def different(values: Values) -> Values:
    return list(dict.fromkeys(itertools.chain.from_iterable(values)))


def least(values: Values) -> object:
    numbers = [value for value in values if value == value]
    return min(numbers) if numbers else values[0]


def greatest(values: Values) -> object:
    numbers = [value for value in values if value == value]
    return max(numbers) if numbers else values[0]


def wide(value: bytes) -> int:
    return int.from_bytes(value, "little", signed=True)


CASES: list[tuple[str, str, st.SearchStrategy[Any], Callable[[Values], Any]]] = [
    ("sum", "UInt64", SMALL, sum),
    ("sum", "Nullable(Int64)", st.none() | SMALL, of_known(sum)),
    ("sum", "LowCardinality(UInt64)", SMALL, sum),
    ("sum", "Float64", FLOATS, lambda values: reduce(lambda x, y: x + y, values, 0.0)),
    ("sumWithOverflow", "UInt8", st.integers(0, 255), lambda values: sum(values) % 256),
    ("min", "Int8", st.integers(-3, 3), min),
    ("max", "Nullable(UInt8)", st.none() | SMALL, of_known(max)),
    ("min", "String", TEXTS, min),
    ("max", "LowCardinality(Nullable(String))", st.none() | TEXTS, of_known(max)),
    ("min", "Float64", FLOATS, least),
    ("max", "Float64", FLOATS, greatest),
    ("max", "Int128", WIDE, lambda values: max(values, key=wide)),
    ("min", "Array(UInt8)", st.lists(SMALL, max_size=3), min),
    ("max", "Tuple(UInt8, String)", PAIRS, lambda values: max(values, key=lambda v: (v["1"], v["2"]))),
    ("any", "Nullable(String)", st.none() | TEXTS, of_known(lambda values: values[0])),
    ("anyLast", "Nullable(Int8)", st.none() | SMALL, of_known(lambda values: values[-1])),
    ("any_respect_nulls", "Nullable(Int8)", st.none() | SMALL, lambda values: values[0]),
    ("anyLast_respect_nulls", "Nullable(Int8)", st.none() | SMALL, lambda values: values[-1]),
    ("any", "Array(UInt8)", st.lists(SMALL), lambda values: values[0]),
    ("groupBitAnd", "UInt16", st.integers(0, 7), lambda values: reduce(lambda x, y: x & y, values)),
    ("groupBitOr", "Nullable(UInt8)", st.none() | SMALL, of_known(lambda values: reduce(lambda x, y: x | y, values))),
    ("groupBitXor", "LowCardinality(UInt32)", SMALL, lambda values: reduce(lambda x, y: x ^ y, values)),
    ("groupArrayArray", "Array(String)", st.lists(TEXTS, max_size=3), lambda values: list(itertools.chain(*values))),
    ("groupUniqArrayArray", "Array(String)", st.lists(TEXTS, max_size=3), different),
    ("groupUniqArrayArray", "Array(Int64)", st.lists(SMALL, max_size=3), different),
]  # fmt: skip


def rule_of(function: str, kind: str) -> tuple[Rule, pa.DataType]:
    data_type = parse_type(f"SimpleAggregateFunction({function}, {kind})")
    return simple_aggregate(Column(0, "v", data_type), "AggregatingMergeTree"), storage_type(data_type)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
@given(st.data(), st.lists(st.integers(0, 40), max_size=6))
@settings(max_examples=25, deadline=None)
def test_a_column_is_combined_alike_in_any_pieces_and_as_by_hand(
    case: tuple[str, str, st.SearchStrategy[Any], Callable[[Values], Any]], data: st.DataObject, cuts: list[int]
) -> None:
    function, kind, values, model = case
    rule, stored = rule_of(function, kind)
    groups = data.draw(st.lists(st.lists(values, min_size=1, max_size=5), min_size=1, max_size=8))
    found = combined(rule, groups, cuts, stored)
    assert repr(found) == repr([model(group) for group in groups])
    assert repr(combined(rule, groups, [], stored)) == repr(found)


def test_elements_are_told_apart_by_their_bits() -> None:
    for kind in ("Array(Float32)", "Array(Float64)"):
        rule, stored = rule_of("groupUniqArrayArray", kind)
        found = combined(rule, [[[0.0, -0.0, math.nan], [math.nan, 0.0]], [[]]], [1], stored)
        assert repr(found) == "[[0.0, -0.0, nan], []]"
    rule, stored = rule_of("groupUniqArrayArray", "Array(Tuple(UInt8, Nullable(String)))")
    pairs = [{"1": 1, "2": None}, {"1": 1, "2": b""}]
    assert combined(rule, [[pairs, pairs]], [], stored) == [pairs]


@pytest.mark.parametrize(
    ("name", "same"),
    [("SUM", "sum"), ("first_value", "any"), ("last_value", "anyLast"), ("anyRespectNulls", "any_respect_nulls"),
     ("BIT_OR", "groupBitOr"), ("any_value", "any")],
)  # fmt: skip
def test_other_names_of_functions(name: str, same: str) -> None:
    groups: list[Values] = [[None, 3, 1], [None], [2, None]]
    (rule, stored), (other, _) = rule_of(name, "Nullable(UInt64)"), rule_of(same, "Nullable(UInt64)")
    assert combined(rule, groups, [], stored) == combined(other, groups, [], stored)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("SimpleAggregateFunction(sumMap, Tuple(Array(Float64), Array(UInt64)))", "NOT_IMPLEMENTED"),
        ("SimpleAggregateFunction(minMap, Tuple(Array(UInt8), Array(Float64)))", "NOT_IMPLEMENTED"),
        ("SimpleAggregateFunction(sumMap, Map(UInt8, UInt8))", "BAD_ARGUMENTS"),
        ("SimpleAggregateFunction(maxMap, Map(Date32, UInt8))", "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("SimpleAggregateFunction(groupArrayArray(3), Array(UInt8))", "NOT_IMPLEMENTED"),
        ("SimpleAggregateFunction(max, Array(Nullable(UInt8)))", "NOT_IMPLEMENTED"),
        ("SimpleAggregateFunction(min, Tuple(Float64, UInt8))", "NOT_IMPLEMENTED"),
        ("SimpleAggregateFunction(groupUniqArrayArray, Array(Array(Float64)))", "NOT_IMPLEMENTED"),
        ("SimpleAggregateFunction(sumWithOverflow, BFloat16)", "NOT_IMPLEMENTED"),
        ("SimpleAggregateFunction(sum, Float32)", "BAD_ARGUMENTS"),
        ("SimpleAggregateFunction(any, Array(LowCardinality(String)))", "BAD_ARGUMENTS"),
        ("SimpleAggregateFunction(groupBitOr, String)", "ILLEGAL_TYPE_OF_ARGUMENT"),
    ],
)
@pytest.mark.parametrize("engine", ["AggregatingMergeTree", "SummingMergeTree"])
def test_what_cannot_be_combined_is_refused_by_name(engine: str, kind: str, name: str) -> None:
    with pytest.raises(MergelakeError, match="Column v") as caught:
        define({"k": "UInt8", "v": kind}, order_by="k", engine=engine)
    assert caught.value.name == name
    define({"k": "UInt8", "v": kind}, order_by="k")  # a MergeTree combines nothing


def test_an_aggregated_column_of_a_key_is_refused() -> None:
    columns = {"k": "UInt8", "v": "SimpleAggregateFunction(max, UInt8)"}
    with pytest.raises(MergelakeError, match="in a key"):
        define(columns, order_by="k", partition_by="v", engine="AggregatingMergeTree")
    with pytest.raises(MergelakeError) as caught:
        define(columns, order_by=["k", "v"], engine="AggregatingMergeTree")
    assert caught.value.name == "DATA_TYPE_CANNOT_BE_USED_IN_KEY"


def test_single_rows_are_combined_too() -> None:
    kinds = {"k": "UInt8", "u": "SimpleAggregateFunction(groupUniqArrayArray, Array(UInt8))"}
    schema = define(kinds, order_by="k", engine="AggregatingMergeTree", settings={"optimize_on_insert": 0})
    block = pa.table(
        {"k": pa.array([1, 2], pa.uint8()), "u": pa.array([[1, 1], [2]], storage_type(parse_type("Array(UInt8)")))}
    )
    assert collapse_block(block, schema).column("u").to_pylist() == [[1], [2]]
    table = SmallTable(schema)
    table.insert(block)
    assert plain(table.rows()) == [(1, [1, 1]), (2, [2])]
    table.optimize()
    assert plain(table.rows()) == [(1, [1]), (2, [2])]


def test_sums_remove_no_row_beside_columns_with_functions() -> None:
    kinds = {"k": "UInt8", "a": "Int8", "v": "SimpleAggregateFunction(max, UInt8)"}
    block = pa.table({n: pa.array(v, storage_type(parse_type(kinds[n]))) for n, v in
                      {"k": [1, 1, 2], "a": [1, -1, 0], "v": [3, 5, 0]}.items()})  # fmt: skip
    for engine, expected in (
        ("SummingMergeTree", [(1, 0, 5), (2, 0, 0)]),
        ("SummingMergeTree(v)", [(1, 1, 5), (2, 0, 0)]),
        ("SummingMergeTree(a)", []),
    ):
        assert plain(collapse_block(block, define(kinds, order_by="k", engine=engine))) == expected


def test_a_constant_for_a_column_with_a_dictionary() -> None:
    db = connect("memory://aggregated-dictionary")
    kind = "SimpleAggregateFunction(anyLast, LowCardinality(Nullable(String)))"
    db.sql(f"CREATE TABLE t (k UInt8, v {kind}) ENGINE = AggregatingMergeTree ORDER BY k")
    db.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    db.sql("INSERT INTO t VALUES (1, NULL), (2, 'c')")
    db.sql("ALTER TABLE t UPDATE v = 'd' WHERE v = 'a', UPDATE v = NULL WHERE v = 'c'")
    for _ in range(2):
        assert [tuple(row) for row in db.table("t").scan(final=True)] == [(1, "d"), (2, "b")]
        db.sql("OPTIMIZE TABLE t FINAL")
    assert [tuple(row) for row in db.table("t").scan()] == [(1, "d"), (2, "b")]
