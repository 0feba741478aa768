"""From blocks to parts to one entry."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.names import PartInfo
from mergelake.log.model.operations import DropTable
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.handle.handle import TableHandle
from mergelake.table.handle.snapshot import Snapshot
from mergelake.table.write.deduplication import InsertIdentity
from mergelake.table.write.insert import commit_parts, insert_target, write_blocks
from mergelake.table.write.throttle import throttle
from mergelake.testing.faulty_store import Fault, FaultyStore, SimulatedCrash
from tests.helpers.manifests import manifest

EXAMPLE = define({"a": "Int32", "b": "Int32"}, partition_by="a", order_by="b", settings={"index_granularity": 3})

REPLACING = define({"a": "Int32", "b": "Int32"}, partition_by="a", order_by="b", engine="ReplacingMergeTree")


def new_table(schema=EXAMPLE, store=None, **options):
    return TableHandle.create(store or MemoryStore(), "t", schema, clock=ManualClock(), ids=SeededIds(1), **options)


def block(a, b):
    return pa.table({"a": pa.array(a, pa.int32()), "b": pa.array(b, pa.int32())})


def write(handle, *blocks, **options):
    target = insert_target(handle.store, handle.directory, handle.schema, handle.ids, handle.clock)
    return write_blocks(target, blocks, **options)


def insert(handle, *blocks, dedup_token=None, **options):
    return commit_parts(handle, write(handle, *blocks, **options), InsertIdentity(dedup_token or ""))


def objects(handle):
    return [item.key for item in handle.store.list(handle.directory) if "_log" not in item.key]


def test_the_learning_example_gives_its_part_names_marks_and_rows():  # M-050, M-052
    handle = new_table()
    commits = [
        insert(handle, block([1], [1])),
        insert(handle, block([5] * 2 + [3] * 7, [4, 2, 7, 6, 5, 4, 3, 2, 1])),
    ]
    assert [commit.parts for commit in commits] == [("1_1_1_0",), ("5_2_2_0", "3_3_3_0")]
    parts = {part.name: part for part in handle.snapshot().parts}
    assert {name: (part.manifest.rows, part.manifest.marks) for name, part in parts.items()} == {
        "1_1_1_0": (1, 1),
        "5_2_2_0": (2, 1),
        "3_3_3_0": (7, 3),
    }
    assert parts["3_3_3_0"].manifest.minmax["a"] == ("03000000", "03000000")
    assert parts["3_3_3_0"].manifest.key_range == ("01000000", "07000000")


def test_a_small_insert_is_two_puts():  # M-068
    handle = new_table()
    insert(handle, block([1], [1]))
    before = handle.store.counters
    insert(handle, block([1, 1], [2, 1]))
    after = handle.store.counters
    assert (after.put - before.put, after.get - before.get, after.list - before.list) == (2, 0, 0)
    assert (after.head - before.head, after.delete - before.delete) == (0, 0)


def test_every_part_is_sorted_and_holds_its_partition_only(monkeypatch):
    seen = []

    def spy(piece, schema, keys, mode):
        seen.append(piece)
        return piece

    monkeypatch.setattr("mergelake.table.write.insert.collapse_block", spy)
    handle = new_table(REPLACING)
    rng = np.random.default_rng(1)
    rows = block(rng.integers(0, 5, 500), rng.integers(0, 50, 500))
    parts = insert(handle, rows).parts
    assert [name.rpartition("_")[2] for name in parts] == ["1"] * 5
    assert len(seen) == 5
    for piece in seen:
        assert len(set(piece["a"].to_pylist())) == 1
        assert piece["b"].to_pylist() == sorted(piece["b"].to_pylist())
    got = sorted(row for piece in seen for row in zip(*piece.to_pydict().values(), strict=True))
    assert got == sorted(zip(*rows.to_pydict().values(), strict=True))


def test_an_inserted_block_is_merged_by_its_engine_first():
    handle = new_table(REPLACING)
    assert insert(handle, block([1, 1, 1], [5, 5, 6])).parts == ("1_1_1_1",)
    assert handle.snapshot().rows == 2
    plain = new_table(REPLACING.with_settings({"optimize_on_insert": "0"}))
    assert insert(plain, block([1, 1, 1], [5, 5, 6])).parts == ("1_1_1_0",)
    assert plain.snapshot().rows == 3


def test_a_collapse_to_nothing_writes_no_part(monkeypatch):
    monkeypatch.setattr(
        "mergelake.table.write.insert.collapse_block", lambda piece, schema, keys, mode: piece.slice(0, 0)
    )
    handle = new_table(REPLACING)
    assert write(handle, block([1], [1])) == []
    assert objects(handle) == []


def test_large_inserts_are_cut_into_blocks_of_one_commit():
    handle = new_table(define({"a": "Int32", "b": "Int32"}, order_by="b", settings={"max_insert_block_size": 10}))
    commit = insert(handle, block([1] * 25, range(25)), block([2] * 3, range(3)))
    assert commit.parts == ("all_1_1_0", "all_2_2_0", "all_3_3_0")
    assert commit.rows == 28
    assert commit.version == 2


def test_too_many_partitions_are_refused_before_anything_is_written():
    handle = new_table(EXAMPLE.with_settings({"max_partitions_per_insert_block": "3"}))
    insert(handle, block([1, 2, 3], [1, 2, 3]))
    before = objects(handle)
    with pytest.raises(MergelakeError, match=r"Code: 252.*4 partitions, limit is 3"):
        write(handle, block([1, 2, 3, 4], [1, 2, 3, 4]))
    assert objects(handle) == before


def test_a_later_block_that_fails_takes_the_earlier_ones_along():
    handle = new_table(EXAMPLE.with_settings({"max_insert_block_size": "2"}))
    wrong = pa.table({"a": pa.array([9], pa.int32()), "b": pa.array([9], pa.int64())})
    with pytest.raises((MergelakeError, pa.ArrowInvalid)):
        write(handle, block([1, 1], [1, 2]), wrong)
    assert objects(handle) == []


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("setting", ["max_bytes_to_share_object", "min_bytes_for_full_part_storage"])
def test_a_store_that_fails_leaves_no_objects(threads, setting, monkeypatch):
    monkeypatch.setattr("mergelake.table.write.insert._ROWS_WORTH_THREADS", 0)
    store = MemoryStore()
    schema = EXAMPLE.with_settings({setting: "0"})
    handle = new_table(schema, store=store)
    broken = FaultyStore(store, rates={Fault.FAIL_BEFORE: 0.4}, seed=5, only=lambda kind, key: kind.startswith("put"))
    with pytest.raises(UnavailableError):
        write_blocks(
            insert_target(broken, "t", schema, SeededIds(2), ManualClock()),
            [block(range(9), range(9))],
            threads=threads,
        )
    assert objects(handle) == []


def test_threads_write_the_same_parts(monkeypatch):
    monkeypatch.setattr("mergelake.table.write.insert._ROWS_WORTH_THREADS", 0)
    one, many = new_table(), new_table()
    rows = block(np.arange(60) % 4, np.arange(60))
    insert(one, rows)
    insert(many, rows, threads=4)
    assert [(p.name, p.manifest.rows, p.manifest.bytes_on_disk) for p in one.snapshot().parts] == [
        (p.name, p.manifest.rows, p.manifest.bytes_on_disk) for p in many.snapshot().parts
    ]


def test_a_repeated_token_adds_nothing_and_leaves_no_objects():
    handle = new_table()
    first = insert(handle, block([1], [1]), dedup_token="t")
    before = objects(handle)
    again = insert(handle, block([2], [2]), dedup_token="t")
    assert (again.duplicate, again.rows, again.version) == (True, 0, first.version)
    assert handle.snapshot().rows == 1
    assert objects(handle) == before


@pytest.mark.parametrize("seed", range(12))
def test_a_retried_insert_with_a_token_happens_once_whatever_the_store_says(seed):
    store = MemoryStore()
    new_table(store=store)
    faulty = FaultyStore(store, rates={Fault.FAIL_BEFORE: 0.1, Fault.LOSE_REPLY: 0.1}, seed=seed)
    ids, rows = SeededIds(seed), 0
    for number in range(5):
        for _ in range(200):
            try:
                handle = TableHandle.open(faulty, "t", clock=ManualClock(), ids=ids)
                insert(handle, block([number], [number]), dedup_token=f"batch {number}")
                rows += 1
                break
            except UnavailableError:
                continue
    snapshot = TableHandle.open(store, "t", clock=ManualClock(), ids=SeededIds(9)).snapshot()
    assert snapshot.rows == rows == 5


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.FAIL_BEFORE, Fault.LOSE_REPLY])
def test_an_insert_that_dies_anywhere_is_there_wholly_or_not_at_all(fault):  # M-069, M-094
    def world():
        store = MemoryStore()
        insert(new_table(store=store), block([1], [1]))
        return store

    def run(store, number):
        handle = TableHandle.open(store, "t", clock=ManualClock(), ids=SeededIds(number))
        return insert(handle, block([1, 2, 3], [1, 2, 3]), dedup_token="batch")

    counting = FaultyStore(world())
    run(counting, 0)
    for step in range(counting.operations):
        store = world()
        try:
            acknowledged = run(FaultyStore(store, script={step: fault}), step + 10)
        except (SimulatedCrash, UnavailableError):
            acknowledged = None
        rows = TableHandle.open(store, "t", clock=ManualClock(), ids=SeededIds(5)).snapshot().rows
        assert rows == 4 if acknowledged else rows in (1, 4)
        assert run(store, step + 1000).duplicate == (rows == 4)
        handle = TableHandle.open(store, "t", clock=ManualClock(), ids=SeededIds(5))
        assert handle.snapshot().rows == 4
        keys = {f"t/{key}" for part in handle.snapshot().parts for key in part.manifest.object_keys()}
        assert keys <= set(objects(handle))


def test_an_insert_into_a_dropped_table_fails_and_leaves_no_objects():
    handle = new_table()
    manifests = write(handle, block([1], [1]))
    handle.log.commit(lambda _: [DropTable()])
    with pytest.raises(MergelakeError, match="UNKNOWN_TABLE"):
        commit_parts(handle, manifests)
    assert objects(handle) == []


def test_an_insert_of_nothing_commits_nothing():
    handle = new_table()
    commit = insert(handle, block([], []))
    assert (commit.version, commit.rows, commit.parts) == (1, 0, ())


def test_inserts_into_a_crowded_partition_slow_down_and_then_fail():
    settings = {"parts_to_delay_insert": "3", "parts_to_throw_insert": "5", "max_delay_to_insert": "4"}
    handle = new_table(EXAMPLE.with_settings(settings))
    waits = []
    for number in range(5):
        started = handle.clock.now_ms()
        throttle(handle)
        waits.append((handle.clock.now_ms() - started) / 1000)
        commit_parts(handle, [manifest(number, "1")])
    assert waits == [0, 0, 0, 2, 4]
    with pytest.raises(MergelakeError, match=r"Code: 252\. Too many parts \(5\)"):
        throttle(handle)


def test_inserts_are_refused_at_the_limit_of_all_partitions():
    handle = new_table(EXAMPLE.with_settings({"max_parts_in_total": "3"}))
    for number in range(3):
        throttle(handle)
        commit_parts(handle, [manifest(number, str(number))])
    with pytest.raises(MergelakeError, match=r"Code: 252\. Too many parts \(3\) in all partitions"):
        throttle(handle)


def test_a_snapshot_pickles_and_stays():
    import pickle

    handle = new_table()
    insert(handle, block([1], [1]))
    snapshot = handle.snapshot()
    insert(handle, block([1], [2]))
    assert [part.name for part in snapshot.parts] == ["1_1_1_0"]
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
    assert isinstance(snapshot, Snapshot)
    assert snapshot.partition("1")[0].info == PartInfo("1", 1, 1, 0)
    assert handle.snapshot(version=2) == snapshot
    assert handle.snapshot().rows == 2
