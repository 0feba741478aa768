from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.types.types import DataType, parse_type
from mergelake.expr import BoundCall, BoundColumn, BoundLiteral, compile_expression, conjuncts

TYPES: dict[str, DataType] = {
    "a": parse_type("Int32"),
    "n": parse_type("Nullable(Int64)"),
    "s": parse_type("String"),
    "lc": parse_type("LowCardinality(String)"),
    "ts": parse_type("DateTime('UTC')"),
    "nested.x": parse_type("Array(UInt8)"),
}
BLOCK = pa.record_batch(
    {
        "a": pa.array([0, 1, 2, 3], pa.int32()),
        "n": pa.array([None, 0, 5, None], pa.int64()),
        "s": pa.array([b"foo", b"bar", b"", b"xx"], pa.binary()),
        "lc": pa.array([b"p", b"q", b"p", b"q"], pa.binary()).dictionary_encode(),
        "ts": pa.array([0, 1_600_000_000, 1_700_000_000, 5], pa.uint32()),
        "nested.x": pa.array([[1], [], [2, 3], [4]], pa.list_(pa.field("item", pa.uint8(), nullable=False))),
    }
)


def test_the_result_has_a_row_for_each_row_of_the_block_even_for_a_constant() -> None:
    assert compile_expression("1 + 1", TYPES).evaluate(BLOCK).to_pylist() == [2, 2, 2, 2]
    assert compile_expression("1 + 1", TYPES).evaluate(BLOCK.slice(0, 0)).to_pylist() == []
    assert compile_expression("a + 1", TYPES).evaluate(BLOCK.slice(0, 0)).to_pylist() == []


def test_sliced_and_chunked_columns_are_read_from_their_own_rows() -> None:
    compiled = compile_expression("concat(s, toString(a), lc)", TYPES)
    whole = compiled.evaluate(BLOCK).to_pylist()
    assert compiled.evaluate(BLOCK.slice(1, 2)).to_pylist() == whole[1:3]
    table = pa.Table.from_batches([BLOCK.slice(0, 1), BLOCK.slice(1, 3)])
    assert compiled.evaluate(table).to_pylist() == whole


def test_a_mask_takes_null_for_false() -> None:
    assert compile_expression("n = 5", TYPES).mask(BLOCK).tolist() == [False, False, True, False]
    assert compile_expression("NOT n = 5", TYPES).mask(BLOCK).tolist() == [False, True, False, False]
    assert compile_expression("1", TYPES).mask(BLOCK).tolist() == [True] * 4


def test_a_condition_guards_what_follows_it() -> None:
    assert compile_expression("a != 0 AND 6 % a = 0", TYPES).mask(BLOCK).tolist() == [False, True, True, True]
    assert compile_expression("a = 0 OR 6 DIV a > 2", TYPES).mask(BLOCK).tolist() == [True, True, True, False]
    assert compile_expression("if(a = 0, -1, 6 DIV a)", TYPES).evaluate(BLOCK).to_pylist() == [-1, 6, 3, 2]
    assert compile_expression("6 % a = 0 OR 1", TYPES).mask(BLOCK).tolist() == [True] * 4
    with pytest.raises(MergelakeError, match="Division by zero"):
        compile_expression("6 % a = 0", TYPES).mask(BLOCK)


def test_only_the_columns_it_reads_are_needed() -> None:
    compiled = compile_expression("a > 1 AND s != ''", TYPES)
    assert compiled.columns == ("a", "s")
    assert compiled.mask(BLOCK.select(["a", "s"])).tolist() == [False, False, False, True]


def test_literals_take_the_other_sides_type_in_the_bound_tree() -> None:
    node = compile_expression("ts >= '2020-09-13'", TYPES).node
    assert isinstance(node, BoundCall)
    assert (node.function, node.args) == (
        "greaterOrEquals",
        (BoundColumn("ts", TYPES["ts"]), BoundLiteral(1599955200, TYPES["ts"])),
    )
    assert str(node) == "ts >= '2020-09-13 00:00:00'"


def test_conjuncts_are_what_and_joins_at_any_depth() -> None:
    node = compile_expression("a > 1 AND (s = 'x' AND (n IS NULL OR a = 2))", TYPES).node
    assert [str(piece) for piece in conjuncts(node)] == ["a > 1", "s = 'x'", "(n IS NULL) OR (a = 2)"]


def test_constants_are_folded() -> None:
    node = compile_expression("toYYYYMM(toDate('2020-02-03')) + 1", TYPES).node
    assert node == BoundLiteral(202003, parse_type("UInt64"))


def test_a_compiled_expression_pickles() -> None:
    compiled = pickle.loads(pickle.dumps(compile_expression("a IN (1, 2) AND lc = 'q'", TYPES)))
    assert compiled.mask(BLOCK).tolist() == [False, True, False, False]


def test_nested_columns_are_named_with_their_dot() -> None:
    assert compile_expression("length(nested.x)", TYPES).evaluate(BLOCK).to_pylist() == [1, 0, 2, 1]


def test_now_needs_a_clock_reading() -> None:
    with pytest.raises(MergelakeError, match=r"now\(\)"):
        compile_expression("ts < now()", TYPES)
    assert compile_expression("ts < now()", TYPES, now_ms=1_650_000_000_000).mask(BLOCK).tolist() == [
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("text", "name", "hint"),
    [
        ("aa + 1", "UNKNOWN_IDENTIFIER", "a"),
        ("toYYYYM(ts)", "UNKNOWN_FUNCTION", "toYYYYMM"),
        ("s + 1", "ILLEGAL_TYPE_OF_ARGUMENT", ""),
    ],
)
def test_what_does_not_bind_names_the_nearest(text: str, name: str, hint: str) -> None:
    with pytest.raises(MergelakeError) as failure:
        compile_expression(text, TYPES)
    assert failure.value.name == name
    assert hint in failure.value.hint


def test_a_dictionary_is_computed_on_once_for_each_value() -> None:
    codes = np.arange(100_000, dtype=np.int32) % 3
    column = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([b"foo", b"bar", b"baz"], pa.binary()))
    block = pa.record_batch({"lc": column})
    found = compile_expression("upper(lc) LIKE 'BA%'", TYPES).mask(block)
    assert found.tolist() == (codes > 0).tolist()


def test_dictionary_values_that_no_row_has_are_not_judged() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array([b"1", b"no number"], pa.binary()))
    assert compile_expression("toInt8(lc)", TYPES).evaluate(pa.record_batch({"lc": column})).to_pylist() == [1, 1]
