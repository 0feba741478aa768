"""Scans of small tables: what comes out, and what was asked of the store for it."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from mergelake.core.base.errors import InvalidInputError, MergelakeError
from mergelake.core.model.schema import Column
from mergelake.core.types.types import parse_type
from mergelake.scan.prune.request import ScanRequest
from mergelake.scan.read.explain import explain_text
from mergelake.scan.read.filter import RowSelection
from mergelake.scan.read.pieces import cut_pieces
from mergelake.scan.read.plan import ScanItem
from mergelake.scan.read.read import read_items
from mergelake.scan.read.stats import ScanStats
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.far_store import FarStore
from tests.helpers.scans import ScanTable, make_schema

EXAMPLE = ([(1, 1, 1)], [(5, 2, 2), (5, 3, 3)], [(3, 14 - c, c) for c in range(4, 11)])


@pytest.fixture(autouse=True, params=[MemoryStore, FarStore], ids=["near", "far"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs on a store that is read as a directory is, and on one that is read as a bucket is."""
    monkeypatch.setattr("tests.helpers.scans.new_store", request.param)


@pytest.fixture
def example() -> ScanTable:
    """The learning example: three inserts, granules of three rows."""
    columns = {"a": "Int32", "b": "Int32", "c": "Int32"}
    table = ScanTable(make_schema(columns, partition_by=("a",), order_by=("b",), settings={"index_granularity": "3"}))
    for rows in EXAMPLE:
        table.insert([dict(zip("abc", row, strict=True)) for row in rows])
    return table


def many(rows: int = 1000, granularity: int = 100, **kwargs: object) -> ScanTable:
    """k ascending, v = k * 2, text long enough to matter."""
    columns = {"k": "UInt32", "v": "UInt32", "text": "String"}
    settings = {"index_granularity": str(granularity), "min_bytes_for_full_part_storage": "0"}
    table = ScanTable(make_schema(columns, order_by=("k",), settings=settings, **kwargs))
    table.insert([{"k": i, "v": 2 * i, "text": b"%08d" % (i * 7919) * 20} for i in range(rows)])
    return table


def test_learning_example_has_the_part_names_of_the_sources(example: ScanTable) -> None:
    # M-050 M-052
    assert [str(part.info) for part in example.handle.snapshot().parts] == ["1_1_1_0", "3_3_3_0", "5_2_2_0"]
    assert [part.manifest.marks for part in example.handle.snapshot().parts] == [1, 3, 1]


def test_learning_example_selects_one_part_and_three_marks_for_a_equals_3(example: ScanTable) -> None:
    # M-057
    plan = example.plan(ScanRequest(where="a = 3"))
    assert [(str(item.info), item.ranges) for item in plan.items] == [("3_3_3_0", ((0, 3),))]
    assert [(step.parts, step.parts_total, step.granules) for step in plan.steps] == [(1, 3, 3), (1, 1, 3), (1, 1, 3)]


def test_learning_example_selects_one_mark_in_one_range_for_b_equals_5(example: ScanTable) -> None:
    # M-058
    plan = example.plan(ScanRequest(where="b = 5"))
    assert (len(plan.items), plan.marks, plan.ranges) == (1, 1, 1)
    assert example.scan(ScanRequest(where="b = 5")) == [{"a": 3, "b": 5, "c": 9}]


def test_explain_prints_what_clickhouse_prints(example: ScanTable) -> None:
    text = explain_text(example.plan(ScanRequest(where="b = 5 AND a = 3")), "learn.example")
    assert text == (
        "Output: a, b, c\n"
        "ReadFromMergeTree (learn.example)\n"
        "   Read type: Default\n"
        "   Parts: 1 | Granules: 1\n"
        "   Output: a, b, c\n"
        "   Prewhere filter\n"
        "   Prewhere filter column:  b = 5 AND a = 3\n"
        "   Indexes:\n"
        "     Min-Max\n"
        "       Keys:\n"
        "         a\n"
        "       Condition: (a in [3, 3])\n"
        "       Parts: 1/3\n"
        "       Granules: 3/5\n"
        "     Partition\n"
        "       Keys:\n"
        "         a\n"
        "       Condition: (a in [3, 3])\n"
        "       Parts: 1/1\n"
        "       Granules: 3/3\n"
        "     PrimaryKey\n"
        "       Keys:\n"
        "         b\n"
        "       Condition: (b in [5, 5])\n"
        "       Parts: 1/1\n"
        "       Granules: 1/3\n"
        "       Search Algorithm: binary search\n"
        "     Ranges: 1\n"
    )


def test_scan_without_conditions_gives_every_row_once(example: ScanTable) -> None:
    rows = example.scan(ScanRequest())
    assert sorted((row["a"], row["b"], row["c"]) for row in rows) == sorted(row for part in EXAMPLE for row in part)


def test_batches_hold_exactly_the_requested_columns_in_order(example: ScanTable) -> None:
    for batch in example.batches(ScanRequest(("c", "a"), where="b > 4")):
        assert batch.schema.names == ["c", "a"]
        assert batch.schema.types == [pa.int32(), pa.int32()]


def test_virtual_columns_tell_where_a_row_lies(example: ScanTable) -> None:
    rows = example.scan(ScanRequest(("_part", "_partition_id", "_part_offset", "b"), where="b >= 9"))
    assert [(r["_part"], r["_partition_id"], r["_part_offset"], r["b"]) for r in rows] == [
        (b"3_3_3_0", b"3", 5, 9),
        (b"3_3_3_0", b"3", 6, 10),
    ]
    assert len(example.plan(ScanRequest(where="_part = '5_2_2_0'")).items) == 1
    assert len(example.scan(ScanRequest(where="_partition_id IN ('1', '5')"))) == 3


def test_plan_and_items_pickle(example: ScanTable) -> None:
    plan = pickle.loads(pickle.dumps(example.plan(ScanRequest(where="b > 2"))))
    for item in plan.items:
        one = pickle.loads(pickle.dumps(item))
        assert all(b.num_rows for b in read_items(example.store, "t", plan, [one]))


def test_limit_stops_reading_early() -> None:
    table = many()
    stats = ScanStats()
    batches = list(table.batches(ScanRequest(limit=5), stats=stats, threads=1))
    assert sum(batch.num_rows for batch in batches) == 5
    assert stats.rows <= 100
    assert list(table.batches(ScanRequest(limit=0))) == []


def test_a_filter_reads_other_columns_only_for_granules_with_survivors() -> None:
    # M-059
    table = many()
    plain, moved = ScanStats(), ScanStats()
    list(table.batches(ScanRequest(), stats=plain))
    rows = [row for batch in table.batches(ScanRequest(where="v = 824"), stats=moved) for row in batch.to_pylist()]
    assert [row["k"] for row in rows] == [412]
    assert moved.bytes < plain.bytes / 5


def test_a_point_look_up_costs_one_range_request_a_column_once_marks_are_known() -> None:
    # M-054 M-060 M-084
    table = many()
    request = ScanRequest(("k", "v", "text"), where="k = 412")
    first = table.scan(request)
    before = replace(table.store.counters)
    assert table.scan(request) == first
    after = table.store.counters
    assert after.get - before.get <= 3
    assert after.bytes_get - before.bytes_get < 30_000
    assert after.list == before.list


def test_columns_that_nobody_asks_for_are_not_fetched() -> None:
    table = many()
    table.scan(ScanRequest(("k",)))
    before = replace(table.store.counters)
    table.scan(ScanRequest(("v",), where="k >= 900"))
    text = table.handle.snapshot().parts[0].manifest.file_table()["text.bin"].size
    assert table.store.counters.bytes_get - before.bytes_get < text


def test_ordered_reading_keeps_the_order_of_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mergelake.scan.read.pieces.PIECE_BYTES", 20_000)
    monkeypatch.setattr("mergelake.scan.read.ahead.JOB_BYTES", (1, 2_000))
    table = many()
    batches = list(table.batches(ScanRequest(("k",)), threads=2, ordered=True))
    assert len(batches) > 3
    assert [k for batch in batches for k in batch.column(0).to_pylist()] == list(range(1000))
    unordered = table.batches(ScanRequest(("k",)), threads=2)
    assert sorted(k for batch in unordered for k in batch.column(0).to_pylist()) == list(range(1000))


def test_column_added_later_reads_as_its_default() -> None:
    table = many(rows=5, granularity=2)
    kinds = [("w", "UInt64", "DEFAULT", "k + 100"), ("x", "String", "", ""), ("y", "UInt64", "ALIAS", "w * 2")]
    added = tuple(Column(10 + i, n, parse_type(kind), d, e) for i, (n, kind, d, e) in enumerate(kinds))
    snapshot = table.handle.snapshot()
    later = replace(snapshot, schema=replace(snapshot.schema, columns=(*snapshot.schema.columns, *added)))
    from mergelake.scan.read.plan import plan_scan

    plan = plan_scan(table.store, "t", later, ScanRequest(("k", "w", "x", "y"), where="y > 204"))
    rows = [row for batch in read_items(table.store, "t", plan) for row in batch.to_pylist()]
    assert rows == [{"k": 3, "w": 103, "x": b"", "y": 206}, {"k": 4, "w": 104, "x": b"", "y": 208}]


def test_condition_that_can_raise_only_sees_rows_that_passed_the_others() -> None:
    table = many(rows=20, granularity=4)
    rows = table.scan(ScanRequest(("k",), where="intDiv(100, k) = 20 AND k != 0"))
    assert [row["k"] for row in rows] == [5]


def test_sample_reads_a_range_of_the_sampling_key() -> None:
    table = many(rows=256, granularity=8, sample_by="k")
    assert table.scan(ScanRequest(("k",), sample=0.5)) == [{"k": i} for i in range(256)]
    columns = {"h": "UInt8", "v": "UInt8"}
    small = ScanTable(make_schema(columns, order_by=("h",), sample_by="h", settings={"index_granularity": "8"}))
    small.insert([{"h": i, "v": i} for i in range(256)])
    request = ScanRequest(("h",), sample=0.25, sample_offset=0.5)
    assert [row["h"] for row in small.scan(request)] == list(range(128, 192))
    assert small.plan(request).marks == 9


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (ScanRequest(("nope",)), "NO_SUCH_COLUMN_IN_TABLE"),
        (ScanRequest(where="nope = 1"), "UNKNOWN_IDENTIFIER"),
        (ScanRequest(where="text"), "ILLEGAL_TYPE_OF_COLUMN_FOR_FILTER"),
        (ScanRequest(final=True), "ILLEGAL_FINAL"),
        (ScanRequest(sample=0.1), "SAMPLING_NOT_SUPPORTED"),
        (ScanRequest(where="k = = 1"), "SYNTAX_ERROR"),
    ],
)
def test_bad_requests_are_refused_with_clickhouse_names(request_: ScanRequest, name: str) -> None:
    with pytest.raises(MergelakeError) as caught:
        many(rows=3).plan(request_)
    assert caught.value.name == name
    assert caught.value.code > 0


def test_scan_without_columns_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        list(many(rows=3).batches(ScanRequest(())))


def test_items_are_cut_into_pieces_of_bounded_size() -> None:
    manifest = many(rows=3).handle.snapshot().parts[0].manifest
    info = many(rows=3).handle.snapshot().parts[0].info
    item = ScanItem(info, manifest, ((0, 5), (8, 9), (20, 23)))
    assert [piece.ranges for piece in cut_pieces(item, 4)] == [((0, 4),), ((4, 5), (8, 9), (20, 22)), ((22, 23),)]


def test_survivors_keep_columns_in_step_with_rows() -> None:
    table = many(rows=50, granularity=5)
    rows = [r for b in table.batches(ScanRequest(where="v % 3 = 0 AND k % 7 = 1")) for r in b.to_pylist()]
    assert [(r["k"], r["v"]) for r in rows] == [(i, 2 * i) for i in range(50) if 2 * i % 3 == 0 and i % 7 == 1]
    assert RowSelection.__doc__
