"""OPTIMIZE … DEDUPLICATE: rows that come in blocks, and tasks that travel as documents."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from mergelake.api.sql.database import connect
from mergelake.core.base.errors import MergelakeError
from mergelake.jobs.merge.deduplicate import Repetitions, _Hashes, deduplicated_columns
from mergelake.jobs.merge.optimize import plan_optimize
from mergelake.jobs.merge.task_json import decode_task, encode_task
from mergelake.table.definition.define import define
from tests.helpers.merging import SmallTable

SCHEMA = define({"k": "Float32", "d": "UInt8", "v": "Nullable(Float32)"}, order_by=("k", "d % 2"))
NUMBERS = st.sampled_from([-1.0, 0.0, -0.0, 2.0])
ROWS = st.lists(st.tuples(NUMBERS, st.integers(0, 2), st.none() | NUMBERS), max_size=30)


@given(ROWS, st.lists(st.integers(0, 30)), st.booleans())
@settings(max_examples=60, deadline=None)
def test_rows_repeat_whatever_the_blocks(rows, cuts, with_value):
    rows.sort(key=lambda row: (row[0], row[1] % 2))
    names = ("k", "d", "v") if with_value else ("d", "k")
    columns = [
        pa.array([row[at] for row in rows], kind) for at, kind in enumerate((pa.float32(), pa.uint8(), pa.float32()))
    ]
    block = pa.RecordBatch.from_arrays(columns, ["k", "d", "v"])
    repetitions, found = Repetitions(SCHEMA, names), []
    for start, end in itertools.pairwise([0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]):
        found += repetitions.push(block.slice(start, end - start)).tolist()
    seen: set[object] = set()
    expected = []
    for k, d, v in rows:
        key = (k + 0.0, d, None if v is None else np.float32(v).tobytes()) if with_value else (k + 0.0, d)
        expected.append(key in seen)
        seen.add(key)
    assert found == expected


@pytest.mark.parametrize("order_by", ["k", "tuple()"])
@pytest.mark.parametrize("chunk", [50, 1 << 20])
def test_only_the_first_of_equal_rows_stays(order_by, chunk):
    db = connect("memory://first")
    db.sql("DROP TABLE IF EXISTS t SYNC")
    db.sql(
        f"CREATE TABLE t (k UInt8, v UInt8) ENGINE = MergeTree ORDER BY {order_by} "
        f"SETTINGS merge_max_chunk_bytes = {chunk}"
    )
    for first in range(3):
        db.sql(f"INSERT INTO t SELECT number % 5, number % 7 FROM numbers({first}, 40)")
    table = db.table("t")
    assert table.optimize(final=True, deduplicate=True) == 1
    assert sorted(table.scan()) == [(k, v) for k in range(5) for v in range(7)]
    columns = ["k", "v"][: 1 if order_by == "k" else 2]
    assert table.optimize(final=True, deduplicate=columns) == 1
    assert sum(1 for _ in table.scan()) == (5 if order_by == "k" else 35)


def test_a_task_that_removes_rows_travels():
    table = SmallTable(define({"k": "UInt8", "v": "UInt8"}, order_by="k"))
    for _ in range(2):
        table.insert(pa.table([pa.array([1], pa.uint8())] * 2, ["k", "v"]))
    table.handle.refresh()
    for deduplicate, names in ((False, None), (True, ("k", "v")), (["k"], ("k",))):
        (task,) = plan_optimize(table.handle, final=True, deduplicate=deduplicate)
        assert task.deduplicate == names
        assert decode_task(encode_task("memory://x", task)).task == task


@pytest.mark.parametrize(
    ("names", "name"),
    [
        ([], "EMPTY_LIST_OF_COLUMNS_QUERIED"),
        (["k", "d", "w"], "NO_SUCH_COLUMN_IN_TABLE"),
        (["k", "d", "k"], "COLUMN_QUERIED_MORE_THAN_ONCE"),
        (["k", "v"], "THERE_IS_NO_COLUMN"),
    ],
)
def test_lists_without_what_is_needed_are_refused(names, name):
    with pytest.raises(MergelakeError) as caught:
        deduplicated_columns(SCHEMA, names)
    assert caught.value.name == name


def test_partitions_whose_rows_all_cancel_are_merged_beside_others():
    db = connect("memory://cancelled")
    db.sql("DROP TABLE IF EXISTS t SYNC")
    db.sql(
        "CREATE TABLE t (k UInt8, p UInt8, sign Int8, v UInt8) ENGINE = VersionedCollapsingMergeTree(sign, v) "
        "PARTITION BY p ORDER BY k"
    )
    for sign in (1, -1):
        db.sql(f"INSERT INTO t VALUES (1, 0, {sign}, 1), (1, 1, {sign}, {sign + 1}), (1, 2, {sign}, 1)")
    db.sql("OPTIMIZE TABLE t FINAL")
    assert sorted(row[1:] for row in db.table("t").scan()) == [(1, -1, 0), (1, 1, 2)]


def test_sums_are_never_minus_zero():
    db = connect("memory://minus")
    db.sql("DROP TABLE IF EXISTS t SYNC")
    db.sql("CREATE TABLE t (k UInt8, f Float64, n UInt8) ENGINE = SummingMergeTree ORDER BY k")
    db.sql("INSERT INTO t VALUES (1, -0., 1), (2, -0., 1), (2, -0., 1)")
    assert [str(row[1]) for row in db.table("t").scan(ordered=True)] == ["0.0", "0.0"]


def test_hashes_whose_halves_are_equal_are_told_apart():
    hashes = _Hashes()
    hashes.add(np.array([[5, 1], [5, 2], [1, 9]], np.uint64))
    hashes.add(np.array([[5, 3], [0, 0]], np.uint64))
    asked = np.array([[5, 1], [5, 3], [5, 4], [1, 1], [1, 9], [0, 0], [7, 7]], np.uint64)
    assert hashes.has(asked).tolist() == [True, True, False, False, True, True, False]
    assert _Hashes().has(asked).tolist() == [False] * 7
