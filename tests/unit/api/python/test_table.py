"""Tables as a user sees them: what goes in, what is refused, what can be looked at."""

from __future__ import annotations

import datetime
import threading

import numpy as np
import pyarrow as pa
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import ConflictError, CorruptDataError, MergelakeError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.merge import optimize
from mergelake.store import open_store
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define

COLUMNS = {"k": "UInt64", "v": "String", "n": "Nullable(Int8)", "d": "Date"}
SCHEMA = define(COLUMNS, order_by="k")
DAY = datetime.date(2026, 1, 2)


@pytest.fixture
def warehouse():
    return Warehouse(MemoryStore(), clock=ManualClock(), ids=SeededIds(1), author="me", threads=1)


@pytest.fixture
def table(warehouse):
    return warehouse.create_table("t", SCHEMA)


def objects(table):
    return [item.key for item in table.handle.store.list(table.handle.directory) if "_log" not in item.key]


ROWS = {"k": [2, 1], "v": ["b", "a"], "n": [None, -1], "d": [DAY, DAY]}


def shapes():
    arrow = pa.table(ROWS)
    yield "table", arrow
    yield "batch", arrow.to_batches()[0]
    yield "reader", pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches(max_chunksize=1))
    yield "dict", ROWS
    yield "rows", arrow.to_pylist()
    for module in ("pandas", "polars"):
        try:
            __import__(module)
        except ImportError:
            continue
        yield module, arrow.to_pandas() if module == "pandas" else __import__(module).from_arrow(arrow)


@pytest.mark.parametrize(("shape", "data"), list(shapes()), ids=lambda value: value if isinstance(value, str) else "")
def test_rows_of_every_shape_are_taken(table, shape, data):
    commit = table.append(data)
    assert (commit.rows, commit.parts, commit.version, commit.duplicate) == (2, ("all_1_1_0",), 2, False)
    assert commit.bytes == table.parts()["bytes_on_disk"].to_pylist()[0] > 0


def test_missing_columns_get_their_defaults(table):
    assert table.append({"k": [1]}).rows == 1


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        ({"k": [1], "x": [1]}, 16, "x"),
        ({"k": [1], "K": [1]}, 16, "K"),
        ({"k": [None]}, 349, "k"),
        ({"k": [-1]}, None, "k"),
        ({"k": ["a lot"]}, None, "k"),
        ({"k": [1], "n": [200]}, None, "n"),
        ({"k": [1], "d": ["yesterday"]}, None, "d"),
        ({"k": [1, 2], "v": ["a"]}, 117, "different numbers of rows"),
        ([{"k": 1}, {"v": "a"}], 117, "Row 1"),
        ([1, 2], 53, "not a dict"),
        ([], 90, "no columns"),
        ({}, 90, "no columns"),
        ("k", 53, "str"),
        ({"k": "12"}, 53, "given as a str"),
        ({"k": 5}, 53, "given as a int"),
        ({"k": None}, 53, "given as a NoneType"),
        ({1: [1]}, 53, "name of a column is 1"),
        ([{1: 1}], 53, "name of a column is 1"),
        (pa.chunked_array([[1]]), 53, "no columns"),
        (pa.array([1]), 53, "Int64Array"),
        ((row for row in [{"k": 1}]), 53, "generator"),
    ],
)
def test_bad_data_is_refused_before_anything_is_written(table, data, code, says):
    before = table.handle.store.counters
    with pytest.raises(MergelakeError, match=says) as caught:
        table.append(data)
    assert caught.value.code == code if code else caught.value.code
    assert table.handle.store.counters.put == before.put
    assert objects(table) == []
    assert table.version == 1


def test_a_small_insert_is_two_puts_and_nothing_else(table):  # M-068
    table.append(ROWS)
    before = table.handle.store.counters
    table.append(ROWS)
    now = table.handle.store.counters
    spent = {kind: getattr(now, kind) - getattr(before, kind) for kind in ("put", "get", "list", "head", "delete")}
    assert spent == {"put": 2, "get": 0, "list": 0, "head": 0, "delete": 0}


def test_a_token_makes_an_insert_happen_once(table, warehouse):
    first = table.append(ROWS, dedup_token="batch 1")
    again = warehouse.table("t").append({"k": [9]}, dedup_token="batch 1")
    assert (again.duplicate, again.rows, again.version) == (True, 0, first.version)
    before = table.handle.store.counters
    assert table.append(ROWS, dedup_token="batch 1").duplicate
    assert (table.handle.store.counters - before).requests == 1  # one look: its rows may have been dropped
    table.truncate()
    assert not table.append(ROWS, dedup_token="batch 1").duplicate


@pytest.mark.parametrize("token", ["", 7, b"x", True])
def test_what_is_no_token_is_refused(table, token):
    with pytest.raises(MergelakeError, match="no token of an insert"):
        table.append(ROWS, dedup_token=token)
    assert table.version == 1


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"columns": "kv"}, "columns is the text"),
        ({"columns": ["K"]}, "Maybe you meant k"),
        ({"where": 1}, "where is 1"),
        ({"prewhere": True}, "prewhere is True"),
        ({"final": "false"}, "final is 'false'"),
        ({"ordered": 1}, "ordered is 1"),
        ({"sample": "0.1"}, "sample is"),
        ({"sample": 2}, "SAMPLE 2"),
        ({"limit": "1"}, "limit is"),
        ({"limit": 1.5}, "limit is"),
        ({"limit": -1}, "LIMIT -1"),
        ({"version": True}, "no number"),
        ({"version": 1.0}, "no number"),
        ({"version": "nosuch"}, "nosuch"),
        ({"version": 1, "timestamp": 0}, "not both"),
        ({"timestamp": 1.5}, "A float is not a time"),
        ({"timestamp": True}, "A bool is not a time"),
        ({"timestamp": "soon"}, "is not a time"),
        ({"read_consistency": "weak"}, "read_consistency"),
    ],
)
def test_a_scan_refuses_what_it_does_not_know(table, asked, says):
    with pytest.raises(MergelakeError, match=says):
        table.scan(**asked)


def test_a_version_may_be_a_number_of_any_library_and_a_time_a_day(table):
    table.append(ROWS)
    assert table.scan(version=np.int64(2)).arrow().num_rows == 2
    assert table.scan(timestamp=datetime.date(2999, 1, 1)).arrow().num_rows == 2
    assert table.scan(timestamp=np.int64(table.handle.clock.now_ms())).arrow().num_rows == 2


def test_a_partition_is_named_once(warehouse):
    plain = warehouse.create_table("plain", SCHEMA)
    plain.append(ROWS)
    for call in (
        plain.drop_partition,
        lambda: plain.drop_partition((), partition_id="all"),
        lambda: plain.optimize((), partition_id="all"),
    ):
        with pytest.raises(MergelakeError, match="partition"):
            call()
    for call, says in (
        (lambda: plain.optimize(final="no"), "final is 'no'"),
        (plain.rollback, "which version"),
        (lambda: plain.history(-1), "limit"),
        (lambda: plain.tag(5), "name of a tag"),
        (lambda: plain.tag(" "), "name of a tag"),
    ):
        with pytest.raises(MergelakeError, match=says):
            call()
    assert plain.snapshot().rows == 2


def test_a_table_with_a_window_remembers_rows(warehouse):
    schema = define(COLUMNS, order_by="k", settings={"non_replicated_deduplication_window": 2})
    table = warehouse.create_table("w", schema)
    assert not table.append(ROWS).duplicate
    shuffled_columns = {name: ROWS[name] for name in reversed(ROWS)}
    assert table.append(shuffled_columns).duplicate
    assert table.append(pa.table(ROWS)).duplicate
    assert table.append(pa.Table.from_batches(pa.table(ROWS).to_batches(max_chunksize=1))).duplicate
    assert not table.append({name: values[::-1] for name, values in ROWS.items()}).duplicate
    assert not table.append({"k": [1]}).duplicate
    assert not table.append(ROWS).duplicate  # two others have come since
    assert len(objects(table)) == 4


def test_a_table_without_a_window_takes_the_same_rows_again(table):
    assert not table.append(ROWS).duplicate
    assert not table.append(ROWS).duplicate


def test_parts_have_the_names_of_clickhouses_system_table(warehouse):
    schema = define({"s": "String", "k": "UInt32"}, order_by="k", partition_by=["s", "k % 2"])
    table = warehouse.create_table("p", schema)
    table.append({"s": ["x", "y", "x"], "k": [1, 2, 3]})
    parts = table.parts().to_pylist()
    assert {part["partition"]: part["rows"] for part in parts} == {"('x',1)": 2, "('y',0)": 1}
    assert [part["active"] for part in parts] == [1, 1]
    assert {part["part_type"] for part in parts} == {"Wide"}
    table.truncate()
    assert table.parts().num_rows == 0
    gone = table.parts(active_only=False).to_pylist()
    assert {part["removed_version"] for part in gone} == {3}
    assert {part["active"] for part in gone} == {0}


def test_history_says_who_did_what_and_when(table):
    table.handle.clock.advance_s(60)
    table.append(ROWS)
    table.truncate()
    history = table.history().to_pylist()
    assert [row["operations"] for row in history] == ["truncate", "insert 2 rows", "create table"]
    assert [row["version"] for row in history] == [3, 2, 1]
    assert [history[1][name] for name in ("rows_added", "rows_removed", "parts_added", "parts_removed")] == [2, 0, 1, 0]
    assert [history[0][name] for name in ("rows_added", "rows_removed", "parts_added", "parts_removed")] == [0, 2, 0, 1]
    assert history[1]["author"] == "me"
    assert (history[1]["time"] - history[2]["time"]).total_seconds() == 60
    assert table.history(limit=1).num_rows == 1


def test_an_old_version_is_seen_by_number_and_by_time(table):
    clock = table.handle.clock
    table.append(ROWS)
    then = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC)
    clock.advance_s(10)
    table.truncate()
    assert table.snapshot().rows == 0
    assert table.snapshot(version=2).rows == 2
    assert table.snapshot(timestamp=then).rows == 2
    assert table.snapshot(timestamp=then.isoformat()).rows == 2
    assert table.snapshot(timestamp=clock.now_ms()).rows == 0
    for wrong in ({"version": 4}, {"timestamp": 0}, {"timestamp": "lunchtime"}):
        with pytest.raises(MergelakeError):
            table.snapshot(**wrong)


def test_partitions_are_dropped_by_value_or_by_id(warehouse):
    schema = define({"d": "Date", "s": "String"}, order_by="s", partition_by=["d", "s"])
    table = warehouse.create_table("p", schema)
    table.append({"d": [DAY, DAY, DAY], "s": ["a", "b", "c"]})
    table.drop_partition((DAY, "a"))
    assert table.snapshot().rows == 2
    table.drop_partition(partition_id=table.partition_id((DAY, "b")))
    assert table.snapshot().rows == 1
    table.drop_partition((DAY, "nobody"))
    assert table.snapshot().rows == 1
    with pytest.raises(MergelakeError, match="INVALID_PARTITION_VALUE"):
        table.drop_partition(DAY)
    numbers = warehouse.create_table("n", define({"k": "UInt32"}, order_by="k", partition_by="intDiv(k, 10)"))
    numbers.append({"k": [1, 11, 12]})
    numbers.drop_partition(1)
    assert numbers.snapshot().rows == 1
    whole = warehouse.create_table("w", define({"k": "UInt32"}, order_by="k"))
    whole.append({"k": [1]})
    whole.drop_partition(())
    assert whole.snapshot().rows == 0


@pytest.mark.parametrize("kind", ["memory", "directory"])
@pytest.mark.parametrize("shared", [True, False])
def test_eight_threads_insert_every_row_once(tmp_path, kind, shared):  # M-065, M-095
    store = MemoryStore() if kind == "memory" else open_store(str(tmp_path), {"sync": "false"})
    warehouse = Warehouse(store, threads=1)
    one = warehouse.create_table("t", define({"k": "UInt64"}, order_by="k", partition_by="k % 3"))
    failures = []

    def work(thread):
        table = one if shared else warehouse.table("t")
        try:
            for number in range(5):
                table.append({"k": [100 * thread + 10 * number + i for i in range(6)]})
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    fresh = warehouse.table("t")
    assert fresh.snapshot().rows == 240
    last = fresh.version
    assert last <= 41  # those who meet share log entries
    history = fresh.history()
    assert history["version"].to_pylist() == list(range(last, 0, -1))
    assert sum(history["rows_added"].to_pylist()) == 240
    assert one.refresh() == last


@pytest.fixture
def partitioned(warehouse):
    table = warehouse.create_table("parts", define({"p": "UInt8", "k": "UInt8"}, partition_by="p", order_by="k"))
    for k in (1, 2):
        table.append({"p": [1, 2, 3], "k": [k] * 3})
    return table


def test_a_merge_of_one_partition_that_is_lost_does_not_take_the_others_along(partitioned, monkeypatch):
    real = optimize.execute_together

    def drop_meanwhile(*arguments):
        made = real(*arguments)
        partitioned.drop_partition(1)
        return made

    monkeypatch.setattr(optimize, "execute_together", drop_meanwhile)
    with pytest.raises(ConflictError, match="no longer active"):
        partitioned.optimize(final=True)
    assert [name[:1] + name[5:] for name in partitioned.parts()["name"].to_pylist()] == ["2_1", "3_1"]
    active = {m.manifest.id for m in partitioned.snapshot().parts}
    retired = {name for part in partitioned.handle.log.state.retired for name in part.refers}
    assert {key.split("/")[1] for key in objects(partitioned)} == active | retired


def test_a_partition_that_cannot_be_merged_leaves_those_before_it_merged(partitioned):
    partitioned.append({"p": [2], "k": [3]})
    broken = partitioned.snapshot().parts[4].manifest
    assert (broken.partition_id, broken.object_keys()) == ("2", [f"{broken.id}/files.packed"])
    partitioned.handle.store.put(f"{partitioned.handle.directory}/{broken.id}/files.packed", b"")
    with pytest.raises(CorruptDataError):
        partitioned.optimize(final=True)
    assert sorted(p.info.partition_id for p in partitioned.snapshot().parts) == ["1", "2", "2", "2", "3"]
