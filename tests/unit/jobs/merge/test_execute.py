"""Merges end to end, in memory: what they write, what they clean up, how they are committed."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import ConflictError, CorruptDataError, MergelakeError, UnavailableError
from mergelake.core.model.names import PartInfo
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.jobs.merge.commit import commit_merge, merge_parts
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.plan import MergeTask, plan_merge
from mergelake.log.model.operations import AlterMetadata, DropRange
from mergelake.store import OutcomeUnknown
from mergelake.table.definition.define import define
from tests.helpers.merging import SmallTable, plain

COLUMNS = {"k": "UInt32", "s": "String"}


def block(keys: list[int], text: str = "x") -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.uint32()), "s": pa.array([text.encode()] * len(keys), pa.binary())})


def small_table(**arguments: Any) -> SmallTable:
    return SmallTable(define(COLUMNS, **{"order_by": ["k"], **arguments}))


def task_of(table: SmallTable) -> MergeTask:
    return plan_merge("t", table.handle.schema, table.parts)


def objects(table: SmallTable) -> set[str]:
    return {meta.key for meta in table.store.list("t/") if "/_log/" not in meta.key}


def test_rows_come_out_in_key_order_with_ties_in_part_order() -> None:
    table = small_table()
    table.insert(block([1, 3, 3, 9], "a"))
    table.insert(block([0, 3, 10], "b"))
    [merged] = table.optimize()
    assert str(merged.info) == "all_1_2_1"
    assert table.names == ["all_1_2_1"]
    expected = [(0, b"b"), (1, b"a"), (3, b"a"), (3, b"a"), (3, b"b"), (9, b"a"), (10, b"b")]
    assert plain(table.rows()) == expected
    assert merged.manifest.rows == 7
    assert merged.sources == (PartInfo("all", 1, 1, 0), PartInfo("all", 2, 2, 0))


def test_a_table_without_a_key_keeps_its_parts_one_after_the_other() -> None:
    table = small_table(order_by=[])
    table.insert(block([5, 1], "a"))
    table.insert(block([7, 2], "b"))
    table.optimize()
    assert plain(table.rows()) == [(5, b"a"), (1, b"a"), (7, b"b"), (2, b"b")]


def test_the_result_keeps_partition_and_extremes_of_its_sources() -> None:
    table = small_table(partition_by=["k % 2"])
    table.insert(block([1, 5]))
    table.insert(block([3, 11]))
    sources = table.parts
    [merged] = table.optimize()
    manifest = merged.manifest
    assert (manifest.partition_id, manifest.partition) == ("1", sources[0].manifest.partition)
    assert manifest.minmax["k"] == (sources[0].manifest.minmax["k"][0], sources[1].manifest.minmax["k"][1])
    assert manifest.key_range == ("01000000", "0b000000")


def test_the_primary_index_has_the_key_of_every_granule() -> None:
    table = small_table(settings={"index_granularity": 100})
    random = np.random.default_rng(1)
    for _ in range(3):
        table.insert(block(random.integers(0, 10_000, 333).tolist()))
    table.optimize()
    [part] = table.parts
    reader = table.reader(part)
    assert reader.granule_rows.tolist() == [100] * 9 + [99]
    keys = table.rows().column("k").to_pylist()
    [index] = reader.primary_index([parse_type("UInt32")])
    assert index.to_pylist() == [*keys[::100], keys[-1]]


def test_small_chunks_and_any_number_of_threads_give_the_same_part() -> None:
    table = small_table(settings={"index_granularity": 50})
    random = np.random.default_rng(2)
    for _ in range(5):
        table.insert(block(random.integers(0, 500, 1000).tolist()))
    task = task_of(table)
    tight = replace(task, schema=task.schema.with_settings({**task.schema.settings, "merge_max_chunk_bytes": "1"}))
    results = [
        execute_merge(table.store, one, table.ids, table.clock, threads=threads)
        for one, threads in ((task, 1), (task, 3), (tight, 2))
    ]
    tables = [{n: (f.size, f.hash) for n, f in m.file_table().items()} for m in results]
    assert tables[0] == tables[1] == tables[2]


def test_more_sources_than_a_byte_counts() -> None:
    table = small_table()
    for number in range(140):
        table.insert(block([number, 1000 - number], str(number)))
    [merged] = table.optimize()
    assert str(merged.info) == "all_1_140_1"
    rows = plain(table.rows())
    assert [k for k, _ in rows] == sorted([*range(140), *(1000 - n for n in range(140))])
    assert rows[17] == (17, b"17")


def test_a_column_added_later_is_filled_with_its_default() -> None:
    table = small_table()
    table.insert(block([1, 3]))
    old = table.handle.schema
    added = (
        Column(2, "n", parse_type("UInt8")),
        Column(3, "d", parse_type("String"), "DEFAULT", "concat(s, '!', toString(n))"),
        Column(4, "c", parse_type("UInt16"), "DEFAULT", "7"),
    )
    schema = TableSchema((*old.columns, *added), order_by=("k",), primary_key=("k",), version=old.version + 1)
    table.handle.log.commit(lambda _: [AlterMetadata(schema)])
    full = {"n": pa.array([5], pa.uint8()), "d": pa.array([b"own"], pa.binary()), "c": pa.array([8], pa.uint16())}
    table.insert(pa.table({**dict(zip(COLUMNS, block([2]).columns, strict=True)), **full}))
    table.optimize()
    assert plain(table.rows()) == [(1, b"x", 0, b"x!0", 7), (2, b"x", 5, b"own", 8), (3, b"x", 0, b"x!0", 7)]
    assert table.parts[0].manifest.columns == (0, 1, 2, 3, 4)


def test_merging_parts_without_rows_gives_a_part_without_rows() -> None:
    table = small_table()
    schema = table.handle.schema
    empty = [execute_merge(table.store, _without_rows(table), table.ids, table.clock)]
    task = MergeTask(
        "t", schema, tuple(replace(s, manifest=empty[0]) for s in task_of(table).sources), table.parts[0].info
    )
    manifest = execute_merge(table.store, task, table.ids, table.clock)
    assert (manifest.rows, manifest.marks, manifest.minmax) == (0, 0, {})


def _without_rows(table: SmallTable) -> MergeTask:
    """A merge of a part whose manifest says that it has no rows."""
    table.insert(block([1]))
    task = task_of(table)
    hollow = replace(task.sources[0].manifest, rows=0, marks=0, minmax={}, key_range=("", ""))
    return replace(task, sources=(replace(task.sources[0], manifest=hollow),))


def test_progress_goes_up_to_all_rows() -> None:
    table = small_table()
    table.insert(block(list(range(5000))))
    table.insert(block(list(range(5000))))
    seen: list[tuple[int, int]] = []
    execute_merge(table.store, task_of(table), table.ids, table.clock, on_progress=lambda *now: seen.append(now))
    assert seen == sorted(seen)
    assert seen[-1] == (10_000, 10_000)
    assert len(seen) >= 4


def test_a_task_survives_pickle() -> None:
    table = small_table(partition_by=["k % 2"], settings={"index_granularity": 64})
    table.insert(block([1, 5]))
    table.insert(block([3, 11]))
    task = task_of(table)
    assert pickle.loads(pickle.dumps(task)) == task


def test_engines_without_merges_are_refused_by_name() -> None:
    table = small_table()
    table.insert(block([1]))
    other = replace(table.handle.schema, engine="GraphiteMergeTree")
    with pytest.raises(MergelakeError, match="GraphiteMergeTree"):
        plan_merge("t", other, table.parts)


def test_a_damaged_source_is_named_and_nothing_is_left_behind() -> None:
    table = small_table()
    table.insert(block([1, 2, 3]))
    table.insert(block([4]))
    manifest = table.parts[0].manifest
    extent = manifest.file_table()["s.bin"].extents[0]
    data = bytearray(table.store.get(f"t/{extent.key}"))
    data[extent.offset + extent.length - 1] ^= 1
    table.store.put(f"t/{extent.key}", bytes(data))
    before = objects(table)
    with pytest.raises(CorruptDataError) as caught:
        table.optimize()
    assert extent.key in caught.value.object_key
    assert objects(table) == before
    assert len(table.parts) == 2


def test_a_merge_whose_source_was_dropped_meanwhile_deletes_only_its_own_objects() -> None:
    table = small_table()
    table.insert(block([1]))
    table.insert(block([2]))
    before = objects(table)

    def runner(task: MergeTask) -> Any:
        made = execute_merge(table.store, task, table.ids, table.clock)
        table.handle.log.commit(lambda _: [DropRange()])
        return made

    with pytest.raises(ConflictError):
        merge_parts(table.handle, task_of(table), runner)
    assert objects(table) == before
    assert table.parts == ()


def test_of_two_merges_of_the_same_parts_one_wins_and_the_loser_leaves_nothing() -> None:
    table = small_table()
    table.insert(block([1]))
    table.insert(block([2]))
    task = task_of(table)
    first, second = (execute_merge(table.store, task, table.ids, table.clock) for _ in range(2))
    commit_merge(table.handle, task, first)
    before = objects(table)
    with pytest.raises(ConflictError):
        commit_merge(table.handle, task, second)
    assert objects(table) == {key for key in before if second.id not in key}
    assert plain(table.rows()) == [(1, b"x"), (2, b"x")]


def test_an_insert_beside_a_merge_is_no_conflict() -> None:
    table = small_table()
    table.insert(block([1]))
    table.insert(block([3]))
    task = task_of(table)
    made = execute_merge(table.store, task, table.ids, table.clock)
    table.insert(block([2]))
    commit_merge(table.handle, task, made)
    assert table.names == ["all_1_2_1", "all_3_3_0"]


def test_nothing_is_deleted_while_the_outcome_of_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    table = small_table()
    table.insert(block([1]))
    task = task_of(table)
    made = execute_merge(table.store, task, table.ids, table.clock)
    before = objects(table)
    monkeypatch.setattr(table.store, "create", lambda *_: OutcomeUnknown("no answer"))
    with pytest.raises(UnavailableError):
        commit_merge(table.handle, task, made)
    assert objects(table) == before
