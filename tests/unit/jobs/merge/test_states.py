"""Columns of aggregate states without ClickHouse: what is merged here, and what is left alone."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import Column
from mergelake.core.types.types import parse_type
from mergelake.engines.rules.modes import working_mode
from mergelake.engines.rules.states import StateRule, bound, state_rule
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.plan import plan_merge
from mergelake.jobs.node.actions import Merge, Propose
from mergelake.query.embedded.states import EMBEDDED
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.plan import plan_scan
from mergelake.scan.read.read import read_items
from mergelake.table.definition.define import define
from tests.helpers.combining import combined
from tests.helpers.merging import SmallTable
from tests.helpers.nodes import Lake, TinyNode

ENGINES = ["AggregatingMergeTree", "SummingMergeTree", "CoalescingMergeTree"]
SIMPLE = {"k": "UInt64", "s": "AggregateFunction(sum, UInt8)", "n": "AggregateFunction(count)"}
OTHER = {"k": "UInt64", "s": "AggregateFunction(uniqExact, UInt8)"}


def rule_of(kind: str) -> StateRule:
    rule = state_rule(Column(0, "s", parse_type(kind)))
    assert isinstance(rule, StateRule)
    return rule


def number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def block(rows: list[tuple[int, int]]) -> pa.Table:
    """Rows of `SIMPLE` with sums over one value each."""
    keys, values = zip(*rows, strict=True)
    states = [pa.array(map(number, values), pa.binary()), pa.array([b"\1"] * len(rows), pa.binary())]
    return pa.table([pa.array(keys, pa.uint64()), *states], ["k", "s", "n"])


@pytest.mark.parametrize(
    ("kind", "states", "merged"),
    [
        ("AggregateFunction(count)", [b"\x05", b"\xff\x01", b"\0"], b"\x84\x02"),
        ("AggregateFunction(sum, Int64)", [number(2**64 - 1), number(3)], number(2)),
        ("AggregateFunction(sum, Float64)", [np.float64(x).tobytes() for x in (1e16, 1.0, -1e16)], bytes(8)),
        ("AggregateFunction(avg, UInt8)", [number(10) + b"\2", number(5) + b"\1"], number(15) + b"\3"),
        ("AggregateFunction(max, Int8)", [b"\1\xff", b"\0", b"\1\x05"], b"\1\x05"),
        ("AggregateFunction(min, Nullable(Int8))", [b"\0", b"\1\1\x07", b"\1\1\xf0"], b"\1\1\xf0"),
        ("AggregateFunction(any, Nullable(UInt8))", [b"\0", b"\0"], b"\0"),
        ("AggregateFunction(anyLast, UInt16)", [b"\1ab", b"\1cd", b"\0"], b"\1cd"),
        ("AggregateFunction(groupBitXor, UInt16)", [b"\3\1", b"\1\1"], b"\2\0"),
    ],
)
def test_states_of_simple_functions_are_merged_in_whatever_pieces_they_come(kind, states, merged):
    groups = [states, [states[0]], states[::-1] if kind.startswith("AggregateFunction(sum, I") else states]
    rows = sum(map(len, groups))
    expected = [merged, states[0], merged]
    for cuts in ([], [1], [2, 3], list(range(rows))):
        assert combined(rule_of(kind), groups, cuts, pa.binary()) == expected


@pytest.mark.parametrize(
    "kind",
    [
        "AggregateFunction(uniq, UInt8)",
        "AggregateFunction(sumIf, UInt8, Nullable(UInt8))",
        "AggregateFunction(sum, BFloat16)",
        "AggregateFunction(groupBitmap, UInt8)",
        "AggregateFunction(1, sumMap, Array(UInt8), Array(UInt8))",
    ],
)
def test_states_of_other_functions_need_clickhouse_only_where_rows_have_equal_keys(kind):
    rule, states = rule_of(kind), pa.array([b"a", b"b"], pa.binary())
    assert rule.merge is None
    assert rule(states, np.array([0, 1])).to_pylist() == [b"a", b"b"]
    with pytest.raises(MergelakeError, match="pip install") as caught:
        rule(states, np.array([0]))
    assert caught.value.name == "SUPPORT_IS_DISABLED"
    with pytest.raises(MergelakeError, match="column s, "):
        bound({"s": rule}, None)


def test_bytes_that_are_no_state_are_refused_before_they_are_merged():
    for kind in ("AggregateFunction(sum, UInt8)", "AggregateFunction(uniqExact, UInt8)"):
        rule = bound({"s": rule_of(kind)}, EMBEDDED)["s"]
        with pytest.raises(MergelakeError, match="not one state") as caught:
            rule(pa.array([b"\x09\1", b"\2\1"], pa.binary()), np.array([0]))
        assert caught.value.name == "INCORRECT_DATA"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("chunk", [100, 1 << 20])
def test_a_table_of_simple_states_needs_no_clickhouse(engine, chunk):
    table = SmallTable(define(SIMPLE, order_by="k", engine=engine, settings={"merge_max_chunk_bytes": chunk}))
    table.insert(block([(1, 10), (1, 5), (2, 7)]))
    assert table.rows()["s"].to_pylist() == [number(15), number(7)]
    table.insert(block([(n, 1) for n in range(1, 300)] * 2))
    table.insert(block([(2, 250)]))
    expected = {n: 2 + {1: 15, 2: 257}.get(n, 0) for n in range(1, 300)}
    request = ScanRequest(("k", "s", "n"), final=True)
    plan = plan_scan(table.store, "t", table.handle.snapshot(), request)
    final = pa.Table.from_batches(read_items(table.store, "t", plan)).to_pylist()
    table.optimize()
    for rows in (final, table.rows().to_pylist()):
        assert {row["k"]: row["s"] for row in rows} == {n: number(value) for n, value in expected.items()}
        assert {row["k"]: row["n"][0] for row in rows} == {n: 2 + {1: 2, 2: 2}.get(n, 0) for n in range(1, 300)}


@pytest.mark.parametrize("engine", ENGINES)
def test_other_states_are_refused_before_anything_is_written(engine):
    schema = define(OTHER, order_by="k", engine=engine, settings={"optimize_on_insert": 0})
    assert working_mode(schema, EMBEDDED) is not None
    table = SmallTable(schema)
    rows = pa.table([pa.array([1, 1], pa.uint64()), pa.array([b"\1\1", b"\1\2"], pa.binary())], ["k", "s"])
    for _ in range(2):
        table.insert(rows)
    before = {item.key for item in table.store.list("")}
    state = table.handle.refresh()
    task = plan_merge("t", state.schema, state.parts())
    plan = plan_scan(table.store, "t", table.handle.snapshot(), ScanRequest(("k",), final=True))
    collapsing = SmallTable(define(OTHER, order_by="k", engine=engine))
    for act in (
        lambda: execute_merge(table.store, task, table.ids, table.clock),
        lambda: list(read_items(table.store, "t", plan)),
        lambda: collapsing.insert(rows),
    ):
        with pytest.raises(MergelakeError, match="uniqExact") as caught:
            act()
        assert caught.value.name == "SUPPORT_IS_DISABLED"
    assert {item.key for item in table.store.list("")} == before
    assert not collapsing.parts


@pytest.mark.parametrize("has_disk", [False, True])
def test_a_node_leaves_merges_alone_that_it_cannot_do_and_says_so(has_disk, caplog):
    lake, said = Lake(merge_upload_policy="auto"), "States of column s are merged by ClickHouse, which is not here"

    def refuse(schema):
        raise MergelakeError(said)

    lake.insert(8)
    able, unable = (
        TinyNode(lake, name, has_disk=has_disk, check_merges=check) for name, check in (("a", None), ("b", refuse))
    )
    assert any(isinstance(action, Merge | Propose) for action in able.due())
    with caplog.at_level(logging.WARNING, "mergelake.node"):
        assert unable.due() == []
        assert unable.due() == []
    assert caplog.text.count(said) == 1
    assert said in unable.status.last_error
