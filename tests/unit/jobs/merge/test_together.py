"""Merges of many small partitions: executed together, committed in groups, each with the result that it has alone."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import mergelake as ml
from mergelake.core.base.errors import ConflictError, CorruptDataError, MergelakeError
from mergelake.core.model.manifest import encode_files
from mergelake.core.model.schema import Column
from mergelake.core.types.types import parse_type
from mergelake.engines.rules.modes import mode_of
from mergelake.jobs.merge.commit import commit_merges
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.plan import plan_merge
from mergelake.jobs.merge.select import select_optimize
from mergelake.jobs.merge.together import TASKS_MAX, execute_together, groups, is_simple
from mergelake.log.model.operations import AlterMetadata, DropRange
from mergelake.table.definition.define import define
from tests.helpers.far_store import FarStore
from tests.helpers.merging import SmallTable, plain
from tests.helpers.random_arrays import random_array
from tests.helpers.random_types import random_type

ENGINES = (
    *("MergeTree", "ReplacingMergeTree", "ReplacingMergeTree(v)", "SummingMergeTree", "SummingMergeTree(v)"),
    *("AggregatingMergeTree", "CoalescingMergeTree"),
)
KEYS = {"p": "UInt8", "k": "UInt16", "v": "Int32"}


def tasks_of(table):
    state = table.handle.refresh()
    chosen = select_optimize(state.parts(), table.handle.settings, table.clock.now_ms(), final=True)
    return [plan_merge("t", state.schema, parts, "optimize", state.version, state.mutations) for parts in chosen]


def together(table, tasks):
    return execute_together(table.store, tasks, table.ids, table.clock)


def alone(table, task):
    return execute_merge(table.store, task, table.ids, table.clock)


def keys_block(rng, rows, columns=()):
    keys = {
        "p": pa.array(rng.integers(0, 5, rows), pa.uint8()),
        "k": pa.array(rng.integers(0, 30, rows), pa.uint16()),
        "v": pa.array(rng.integers(-9, 9, rows), pa.int32()),
    }
    return pa.table({**keys, **{name: random_array(rng, parse_type(kind), rows) for name, kind in columns}})


def small_table(seed=1, inserts=3, rows=60, engine="MergeTree", **arguments):
    table = SmallTable(define(KEYS, order_by="k", partition_by="p", engine=engine, **arguments))
    rng = np.random.default_rng(seed)
    for _ in range(inserts):
        table.insert(keys_block(rng, rows))
    return table


def facts(manifest):
    """All that does not depend on the attempt."""
    files = [(file.name, file.size, file.hash, file.uncompressed_hash) for file in manifest.file_table().values()]
    return replace(manifest, id="", files=encode_files([]), created_ms=0, base_version=0), files


@pytest.mark.parametrize("seed", range(14))
def test_the_parts_are_those_of_merges_alone_file_by_file(seed):
    rng = np.random.default_rng([7, seed])
    columns = [(f"c{at}", random_type(rng, 2)) for at in range(3)]
    settings = {"part_profile": ["classic", "modern"][seed % 2], "min_rows_for_wide_part": 0}
    settings["allow_dimensions_outside_sorting_key"] = 1
    order = [["k"], ["k", "v"], ["v % 3", "k"], []][seed % 4]
    engine = ENGINES[seed % len(ENGINES)] if order else "MergeTree"
    columns_of_all = {**KEYS, **dict(columns)}
    if engine == "AggregatingMergeTree" and order in ([], ["k"]):
        columns_of_all["v"] = f"SimpleAggregateFunction({['max', 'min', 'any', 'anyLast'][seed // 7 % 4]}, Int32)"
    options = {"order_by": order, "partition_by": "p", "engine": engine, "settings": settings}
    try:
        mode_of(schema := define(columns_of_all, **options))
    except MergelakeError:  # an engine that does not take these columns
        schema = define(columns_of_all, **{**options, "engine": "MergeTree"})
    table = SmallTable(schema)
    for _ in range(int(rng.integers(2, 5))):
        table.insert(keys_block(rng, int(rng.integers(1, 120)), columns))
    tasks = tasks_of(table)
    results = together(table, tasks)
    for task, manifest in zip(tasks, results, strict=True):
        expected = alone(table, task)
        if manifest is None:
            continue
        parts = [replace(table.parts[0], manifest=each) for each in (manifest, expected)]
        assert plain(table.rows(parts[:1])) == plain(table.rows(parts[1:]))
        assert (manifest.rows, manifest.marks, manifest.level, manifest.key_range, manifest.partition) == (
            expected.rows, expected.marks, expected.level, expected.key_range, expected.partition,
        )  # fmt: skip
        assert manifest.file_table().keys() == expected.file_table().keys()


def test_nearly_all_merges_of_small_parts_are_simple():
    for engine in ENGINES:
        table = small_table(engine=engine)
        tasks = tasks_of(table)
        results = together(table, tasks)
        assert len(tasks) == 5
        assert all(map(is_simple, tasks))
        assert [facts(manifest) for manifest in results] == [facts(alone(table, task)) for task in tasks]


def test_what_a_merge_has_to_add_or_to_apply_is_left_to_merges_alone():
    for engine in ("CollapsingMergeTree(v)", "ReplacingMergeTree(k, p)"):
        table = SmallTable(define({**KEYS, "v": "Int8"}, order_by="k", partition_by="p", engine=engine))
        for _ in range(2):
            table.insert(
                pa.table(
                    {"p": pa.array([1], pa.uint8()), "k": pa.array([1], pa.uint16()), "v": pa.array([1], pa.int8())}
                )
            )
        assert not any(map(is_simple, tasks_of(table)))
    assert not any(map(is_simple, tasks_of(small_table(settings={"index_granularity": 16}))))
    assert not any(map(is_simple, tasks_of(small_table(settings={"min_bytes_for_zstd": 100}))))
    assert not any(map(is_simple, tasks_of(small_table(settings={"min_bytes_for_full_part_storage": 0}))))
    table = small_table()
    schema = table.handle.schema
    added = replace(schema, columns=(*schema.columns, Column(99, "new", parse_type("UInt8"))), version=2)
    table.handle.log.commit(lambda state: [AlterMetadata(added)])
    assert not any(map(is_simple, tasks_of(table)))


def test_a_damaged_source_costs_the_others_nothing():
    table = small_table()
    tasks = tasks_of(table)
    (key,) = tasks[1].sources[0].manifest.object_keys()
    other = next(part for part in tasks[1].sources if part.manifest.object_keys() != [key])
    assert other is not None
    data = bytearray(table.store.get(f"t/{key}"))
    extent = tasks[1].sources[0].manifest.file_table()["v.bin"].extents[0]
    data[extent.offset + 30] ^= 1
    table.store.put(f"t/{key}", bytes(data))
    assert together(table, tasks) == [None] * 5
    for task in tasks[:1] + tasks[2:]:
        alone(table, task)
    with pytest.raises(CorruptDataError):
        alone(table, tasks[1])


def test_a_conflict_of_one_merge_does_not_keep_out_the_others():
    table = small_table()
    tasks = tasks_of(table)
    results = list(zip(tasks, together(table, tasks), strict=True))
    before = table.handle.log.state
    gone = tasks[2].result.partition_id
    table.handle.log.commit(lambda state: [DropRange(gone, None)])
    failures = commit_merges(table.handle, results)
    assert [type(failure) for failure in failures] == [type(None)] * 2 + [ConflictError] + [type(None)] * 2
    assert table.handle.log.state.version == before.version + 2
    assert sorted(part.info.partition_id for part in table.parts) == sorted({"0", "1", "2", "3", "4"} - {gone})
    stored = {meta.key.split("/")[1] for meta in table.store.list("t")}
    assert results[2][1].id not in stored
    assert {manifest.id for task, manifest in results if task is not tasks[2]} <= stored


def test_groups_keep_their_order_and_bounds():
    (task, *_) = tasks_of(small_table())
    many = [task] * 600
    sizes = [len(group) for group in groups(many)]
    assert sizes == [TASKS_MAX, TASKS_MAX, 600 - 2 * TASKS_MAX]
    large = replace(task, sources=tuple(replace(s, manifest=replace(s.manifest, rows=100_000)) for s in task.sources))
    assert [len(group) for group in groups([large, task, task, large])] == [1, 2, 1]


@pytest.mark.parametrize("engine", ["MergeTree", "ReplacingMergeTree", "SummingMergeTree"])
def test_optimize_of_300_partitions_takes_a_few_entries_and_requests(tmp_path, engine):
    db = ml.connect(str(tmp_path))
    create = f"CREATE TABLE t (p UInt16, k UInt32, v Int64) ENGINE = {engine} PARTITION BY p ORDER BY k"
    db.sql(f"{create} SETTINGS max_partitions_per_insert_block = 0")
    table, partitions = db.table("t"), np.arange(300, dtype=np.uint16)
    for number in range(3):
        table.append({"p": partitions, "k": partitions % 7 + number, "v": np.full(300, number + 1)})
    version, before, said = table.version, table.handle.store.counters, []
    assert table.optimize(final=True, on_progress=said.append) == 300
    after = table.handle.store.counters
    assert table.handle.log.state.part_count == 300
    assert table.version - version <= 4
    assert after.put - before.put == 300 + table.version - version
    if engine != "SummingMergeTree":
        assert after.get - before.get <= 3 * 2 + 4  # the parts of an insert share an object
    assert [said[-1].rows, said[-1].total_rows] == [900, 900]
    assert sorted(db.sql("SELECT sum(v), count() FROM t").rows()) == [(1800, 900)]


def test_optimize_with_a_damaged_part_merges_the_rest_and_says_so(tmp_path):
    db = ml.connect(str(tmp_path))
    create = "CREATE TABLE t (p UInt16, k UInt32) ENGINE = MergeTree PARTITION BY p ORDER BY k"
    db.sql(f"{create} SETTINGS max_bytes_to_share_object = 0")
    table = db.table("t")
    for number in range(2):
        table.append({"p": list(range(10)), "k": [number] * 10})
    store, handle = table.handle.store, table.handle
    part = next(part for part in handle.log.state.parts() if part.info.partition_id == "3")
    (key,) = part.manifest.object_keys()
    data = bytearray(store.get(f"{handle.directory}/{key}"))
    data[part.manifest.file_table()["k.bin"].extents[0].offset + 26] ^= 1
    store.put(f"{handle.directory}/{key}", bytes(data))
    with pytest.raises(CorruptDataError):
        table.optimize(final=True)
    assert handle.log.state.part_count == 11


@pytest.mark.parametrize("share", [1 << 20, 0], ids=["shared objects", "an object each"])
def test_merges_of_a_far_store_ask_for_each_part_once_all_in_one_round(share):
    store = FarStore()
    db = ml.Database(ml.Warehouse(store, threads=1))
    create = "CREATE TABLE t (p UInt16, k UInt32, s String) ENGINE = MergeTree PARTITION BY p ORDER BY k"
    db.sql(f"{create} SETTINGS max_bytes_to_share_object = {share}")
    for number in range(2):
        db.table("t").append({"p": list(range(30)), "k": [number] * 30, "s": [f"text {number}"] * 30})
    table = ml.Warehouse(store, threads=1).table("t")
    store.start()
    store.gated = True
    assert table.optimize(final=True) == 30
    of_parts = [key for key, _, _ in store.asked if "/_log/" not in key and "_catalog" not in key]
    assert len(of_parts) == len(set(of_parts)) == (2 if share else 60)
    assert store.rounds <= 2  # news of the log, and all sources
    store.gated = False
    assert table.handle.log.state.part_count == 30
    assert db.sql("SELECT count(), uniqExact(p, k, s) FROM t").rows() == [(60, 60)]
