"""Engines that make one row of several, against row-by-row models of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mergelake.core.base.errors import ConflictError, MergelakeError
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.engines.rules.combining import first_value, last_row, last_value
from mergelake.engines.rules.modes import collapse_block, mode_of
from mergelake.engines.rules.sums import total
from mergelake.jobs.merge.commit import merge_parts
from mergelake.jobs.merge.plan import plan_merge
from mergelake.log.model.operations import Mutation
from mergelake.table.definition.define import define
from tests.helpers.combining import combined
from tests.helpers.merging import SmallTable, plain

GROUPS = st.lists(st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=6), min_size=1, max_size=10)
CUTS = st.lists(st.integers(0, 60), max_size=6)
KINDS = (pa.int8(), pa.binary(), pa.dictionary(pa.int32(), pa.binary()), pa.list_(pa.int8()))


@given(GROUPS, CUTS, st.sampled_from(KINDS))
def test_a_column_is_combined_alike_in_any_pieces(
    groups: list[list[object]], cuts: list[int], kind: pa.DataType
) -> None:
    def value(number: object) -> object:
        if number is None or pa.types.is_integer(kind):
            return number
        return [number] if pa.types.is_list(kind) else str(number).encode()

    given_values = [[value(number) for number in group] for group in groups]
    known = [[v for v in group if v is not None] for group in given_values]
    assert combined(last_value, given_values, cuts, kind) == [group[-1] if group else None for group in known]
    assert combined(last_row, given_values, cuts, kind) == [group[-1] for group in given_values]
    assert combined(first_value, given_values, cuts, kind) == [group[0] for group in given_values]


NUMBERS = st.lists(st.lists(st.none() | st.integers(-(2**70), 2**70), min_size=1, max_size=6), min_size=1, max_size=10)


@given(NUMBERS, CUTS, st.sampled_from(["Int8", "UInt16", "Int64", "UInt64", "Int128", "UInt256", "Decimal(30, 2)"]))
def test_sums_wrap_around_and_skip_nulls(groups: list[list[int | None]], cuts: list[int], name: str) -> None:
    data_type = parse_type(f"Nullable({name})")
    bits = storage_type(data_type).bit_width
    signed = not name.startswith("U")

    def wrapped(number: int) -> int:
        number %= 1 << bits
        return number - (1 << bits) if signed and number >> (bits - 1) else number

    def stored(number: int | None) -> object:
        if number is None:
            return None
        number = wrapped(number)
        return number.to_bytes(bits // 8, "little", signed=signed) if bits > 64 else number

    known = [[number for number in group if number is not None] for group in groups]
    expected = [stored(sum(group)) if group else None for group in known]
    kind = storage_type(data_type)
    assert combined(total, [[stored(n) for n in group] for group in groups], cuts, kind) == expected
    dictionary = pa.dictionary(pa.int32(), kind)
    if bits <= 64:
        assert combined(total, [[stored(n) for n in group] for group in groups], cuts, dictionary) == expected


@given(st.lists(st.lists(st.floats(width=32), min_size=1, max_size=20), min_size=1, max_size=6), CUTS)
def test_floats_are_added_one_after_the_other(groups: list[list[float]], cuts: list[int]) -> None:
    for dtype, kind in ((np.float32, pa.float32()), (np.float64, pa.float64())):
        expected = []
        with np.errstate(all="ignore"):
            for group in groups:
                value = dtype(group[0])
                for number in group[1:]:
                    value = dtype(value + dtype(number))
                expected.append(float(value))
        assert np.array_equal(combined(total, groups, cuts, kind), expected, equal_nan=True)


SUMMED = {"k": "UInt32", "u": "UInt8", "n": "Nullable(Int8)", "f": "Float64", "s": "String"}
SUMS = st.lists(
    st.tuples(
        st.integers(0, 4), st.sampled_from([0, 1, 128, 255]), st.sampled_from([None, 0, 5, -5]),
        st.sampled_from([0.0, -0.0, 1.5, -1.5]), st.sampled_from([b"a", b"b"]),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@given(st.lists(SUMS, min_size=1, max_size=4), st.sampled_from(["", "(u)", "((u, n))"]))
@settings(max_examples=40)
def test_rows_that_sum_to_nothing_go(inserts: list[list[tuple[object, ...]]], arguments: str) -> None:
    listed = [name.strip("() ") for name in arguments.split(",") if name] or ["u", "n", "f"]

    def merged(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        out = []
        for key in sorted({row[0] for row in rows}, key=str):
            group = [row for row in rows if row[0] == key]
            numbers = [row[2] for row in group if row[2] is not None]
            sums = {
                "u": sum(row[1] for row in group) % 256,  # type: ignore[misc]
                "n": sum(numbers) if numbers else None,  # type: ignore[arg-type]
                "f": sum(row[3] for row in group),  # type: ignore[misc]
            }
            values = [sums[name] if name in listed else group[0][at] for at, name in enumerate(("u", "n", "f"), 1)]
            if any(sums[name] not in ((None,) if name == "n" else (0,)) for name in listed):
                out.append((key, *values, group[0][4]))
        return out

    schema = define(SUMMED, order_by="k", engine=f"SummingMergeTree{arguments}", settings={"merge_max_chunk_bytes": 64})
    table = SmallTable(schema)
    expected: list[tuple[object, ...]] = []
    kinds = (pa.uint32(), pa.uint8(), pa.int8(), pa.float64(), pa.binary())
    for rows in inserts:
        table.insert(pa.table({n: pa.array([r[i] for r in rows], kinds[i]) for i, n in enumerate(SUMMED)}))
        expected += merged(rows)
    assert Counter(plain(table.rows())) == Counter(expected)
    table.optimize()
    assert plain(table.rows()) == merged(expected)


COLUMNS = {"k": "UInt32", "n": "Nullable(Int64)", "s": "LowCardinality(Nullable(String))", "a": "UInt8"}


def block(*rows: tuple[object, ...]) -> pa.Table:
    kinds = (pa.uint32(), pa.int64(), pa.dictionary(pa.int32(), pa.binary()), pa.uint8())
    return pa.table({name: pa.array([row[i] for row in rows], kinds[i]) for i, name in enumerate(COLUMNS)})


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("CoalescingMergeTree", [(1, 5, b"y", 3), (2, None, None, 9)]),
        ("CoalescingMergeTree(n)", [(1, 5, b"x", 1), (2, None, None, 9)]),
        ("CoalescingMergeTree((`n`, a))", [(1, 5, b"x", 3), (2, None, None, 9)]),
    ],
)
def test_the_last_values_that_are_not_null_stay(engine: str, expected: list[tuple[object, ...]]) -> None:
    rows = block((1, None, b"x", 1), (1, 5, b"y", 2), (1, None, None, 3), (2, None, None, 9))
    schema = define(COLUMNS, order_by="k", engine=engine)
    found = collapse_block(rows, schema)
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected


def test_columns_of_keys_are_not_combined() -> None:
    schema = define(COLUMNS, order_by="k % 3", partition_by="a", engine="CoalescingMergeTree")
    mode = mode_of(schema)
    assert mode is not None
    assert mode.combination is not None
    assert {"k", "a"}.isdisjoint(mode.combination.rules)
    assert {"n", "s"} <= set(mode.combination.rules)


def test_simple_aggregates_are_refused() -> None:
    kind = "SimpleAggregateFunction(sum, UInt64)"
    with pytest.raises(MergelakeError) as caught:
        define({"k": "UInt8", "x": kind}, order_by="k", engine="CoalescingMergeTree")
    assert caught.value.name == "NOT_IMPLEMENTED"


def test_an_index_over_several_columns_has_the_combined_values() -> None:
    schema = define(COLUMNS, order_by="k", engine="CoalescingMergeTree", settings={"merge_max_chunk_bytes": 1000})
    table = SmallTable(schema)
    for number in range(3):
        table.insert(block(*((k, number if k % 3 == number else None, b"s", number) for k in range(300))))
    table.optimize()
    assert plain(table.rows()) == [(k, k % 3, b"s", 2) for k in range(300)]


@pytest.mark.parametrize("engine", ["CoalescingMergeTree", "SummingMergeTree", "AggregatingMergeTree"])
def test_a_merge_before_a_mutation_is_refused(engine: str) -> None:
    table = SmallTable(define(COLUMNS, order_by="k", engine=engine))
    for number in range(2):
        table.insert(block((1, number, b"s", number)))
    task = plan_merge("t", table.handle.schema, table.parts)
    update = Mutation("m", "UPDATE n = NULL WHERE a = 1", None, False)
    table.handle.log.commit(lambda state: [update])
    with pytest.raises(ConflictError, match="changes its outcome"):
        merge_parts(table.handle, task)
