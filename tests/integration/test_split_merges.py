"""Merges in slices: bytes and requests, what is lost and found again, leftovers, and the same through every door."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mergelake as ml
from mergelake.api.python.work import commit_work, plan_work, work, work_on_spark
from mergelake.core.base.errors import MergelakeError
from mergelake.jobs.gc.collect import collect_round
from mergelake.jobs.merge import execute, slices as slices_module
from mergelake.jobs.merge.commit import commit_merge
from mergelake.jobs.merge.optimize import plan_optimize
from mergelake.jobs.merge.plan import MergeTask
from mergelake.jobs.merge.slices import execute_slice, execute_split, slice_tasks, with_split, written_slices
from mergelake.log.model.conflict import check
from mergelake.log.model.operations import Publish
from mergelake.log.model.retention import refers
from mergelake.parts.read import ahead
from mergelake.store import Store, open_store

ROWS = 20_000
PARTS = 3
SETTINGS = (
    "index_granularity = 256, min_compress_block_size = 100, min_bytes_to_split_merge = 1, merge_slice_bytes = 120000"
)


def filled(url: str, options: dict[str, str] | None = None, spark: Any = None, more: str = "") -> ml.Table:
    db = ml.connect(url, options, spark=spark)
    db.sql(
        "CREATE TABLE t (k UInt32, v UInt32, s LowCardinality(String), x UInt64) ENGINE = ReplacingMergeTree(v) "
        f"ORDER BY k SETTINGS {SETTINGS}{more}"
    )
    for part in range(PARTS):
        db.sql(
            f"INSERT INTO t SELECT cityHash64(number, {part}) % 30000, {part}, toString(number % 90), "
            f"cityHash64(number) FROM numbers({ROWS})"
        )
    return db.table("t")


def planned(table: ml.Table) -> MergeTask:
    (task,) = plan_optimize(table.handle, final=True)
    return with_split(table.handle.store, task, table.handle.log.state.fence)


def rows(table: ml.Table, final: bool = False) -> list[tuple[Any, ...]]:
    table.refresh()
    return sorted(tuple(row.values()) for row in table.scan(final=final).arrow().to_pylist())


@pytest.mark.parametrize("packed", [False, True])
def test_slices_read_their_ranges_alone_and_nothing_is_written_twice(
    packed: bool, s3_url: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "SLICE_GAP_BYTES", 100)  # these parts are small: granules have 1 KB
    monkeypatch.setattr(ahead, "SMALL_BYTES", 1000)
    table = filled(s3_url, s3_options, more="" if packed else ", min_bytes_for_full_part_storage = 0")
    handle, expected = table.handle, rows(table, final=True)
    task = planned(table)
    assert task.split is not None
    assert task.split.slices > 4
    store = open_store(s3_url, s3_options)
    before = store.counters
    for piece in slice_tasks(task):
        execute_slice(store, piece, handle.ids, handle.clock)
    read = store.counters - before
    parts = [part for _, part in sorted(written_slices(store, task).items())]
    small = sum(file.size for source in task.sources for name, file in source.manifest.file_table().items()
                if not name.endswith(".bin"))  # fmt: skip
    whole = task.bytes_on_disk
    key_columns = sum(
        file.size for source in task.sources for name, file in source.manifest.file_table().items()
        if name in ("k.bin", "v.bin")
    )  # fmt: skip
    # The key columns are read twice, as in every merge. Marks and indexes are read by each slice; granules at borders
    # by two: here a granule is a twentieth of a slice.
    assert read.bytes_get < 1.1 * (whole + key_columns) + 0.2 * whole + task.split.slices * small
    before = store.counters
    part = execute_split(store, task, handle.ids, handle.clock)
    assembling = store.counters - before
    data = sum(each.bytes_on_disk for each in parts)
    assert assembling.bytes_put < 0.2 * data  # marks, the index, and small files
    assert assembling.bytes_get < 1.2 * data
    commit_merge(handle, task, part)
    assert rows(table) == expected
    assert table.check().column("is_passed").to_pylist() == [1]


class Dies(Exception):
    """What a process that is killed never returns from."""


def test_a_restarted_driver_writes_what_is_missing_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(str(tmp_path))
    handle, expected = table.handle, rows(table, final=True)
    task = planned(table)
    assert task.split is not None
    written: list[int | None] = []

    def counted(store: Store, piece: MergeTask, *arguments: Any) -> Any:
        if len(written) == 2:
            raise Dies
        written.append(piece.slice)
        return execute_slice(store, piece, *arguments)

    monkeypatch.setattr(slices_module, "execute_slice", counted)
    with pytest.raises(Dies):
        execute_split(handle.store, task, handle.ids, handle.clock)
    assert written == [0, 1]
    found = written_slices(handle.store, task)
    assert sorted(found) == [0, 1]
    # A record that is damaged or torn off, and one of an attempt that nobody knows, do no harm.
    folder = tmp_path / handle.directory / task.split.id
    (folder / "2-damaged.json").write_bytes(b'{"format": 1')
    written[:] = []
    monkeypatch.setattr(slices_module, "execute_slice", lambda *a: written.append(a[1].slice) or execute_slice(*a))
    again = planned(ml.connect(str(tmp_path)).table("t"))
    assert again.split == task.split
    part = execute_split(handle.store, again, handle.ids, handle.clock)
    assert written == list(range(2, task.split.slices))
    commit_merge(handle, again, part)
    assert rows(table) == expected
    assert {found[0].id, found[1].id} <= {key.partition("/")[0] for key in part.object_keys()}


def test_a_part_of_slices_is_a_part_for_everything_else(tmp_path: Path) -> None:
    table = filled(str(tmp_path), more=", min_bytes_for_full_part_storage = 10000")
    expected = rows(table, final=True)
    task = planned(table)
    commit_merge(table.handle, task, execute_split(table.handle.store, task, table.handle.ids, table.handle.clock))
    db = ml.connect(str(tmp_path))
    findings = [finding for _, report in db.warehouse.fsck() for finding in report.findings]
    assert task.split is not None
    assert [(finding.kind, finding.where) for finding in findings] == [("orphan", task.split.id)]  # the records
    table.publish()
    clone = db.warehouse.clone_table("t", "copy")
    assert rows(clone) == expected
    for each in (table, clone):
        each.update({"x": "x + 1"}, where="k % 3 = 0")
        each.apply_mutations()
        assert rows(each) == [(k, v, s, x + (k % 3 == 0)) for k, v, s, x in expected]
        assert each.check().column("is_passed").to_pylist() == [1]
    assert sum(1 for _ in table.scan(where="k BETWEEN 5000 AND 5100")) == sum(5000 <= k <= 5100 for k, *_ in expected)


def test_collection_keeps_slices_that_count_and_takes_all_others(tmp_path: Path) -> None:
    table = filled(str(tmp_path), more=", gc_grace_seconds = 0, history_retention_seconds = 0")
    handle, expected = table.handle, rows(table, final=True)
    task = planned(table)
    part = execute_split(handle.store, task, handle.ids, handle.clock)
    attempt = execute_slice(handle.store, slice_tasks(task)[0], handle.ids, handle.clock)  # a second one, for nothing
    state, ids = handle.log.state, task.source_ids
    assert check(state, Publish(part, ids, "optimize", begun=refers(part))) is None
    assert "no longer kept" in check(state, Publish(part, ids, "optimize", begun=refers(part)[1:])).reason
    assert "another table" in check(state, Publish(part, ids, "optimize", begun=(*refers(part), "/t/x"))).reason
    commit_merge(handle, task, part)
    for _ in range(4):
        collect_round(handle)
    assert rows(table) == expected
    assert table.check().column("is_passed").to_pylist() == [1]
    used = {key.partition("/")[0] for key in part.object_keys()}
    left = {
        path.name for path in (tmp_path / handle.directory).iterdir() if len(path.name) == 32 and any(path.iterdir())
    }
    assert left == used | {part.id}
    assert attempt.id not in left


def test_slices_from_before_a_collection_do_not_count(tmp_path: Path) -> None:
    table = filled(str(tmp_path), more=", gc_grace_seconds = 0, history_retention_seconds = 0")
    handle, expected = table.handle, rows(table, final=True)
    task = planned(table)
    execute_slice(handle.store, slice_tasks(task)[1], handle.ids, handle.clock)
    collect_round(handle)  # noted
    part = execute_split(handle.store, task, handle.ids, handle.clock)
    collect_round(handle)  # deleted
    with pytest.raises(MergelakeError, match=r"begun|no longer"):
        commit_merge(handle, task, part)
    handle.refresh()
    late = planned(table)
    assert late.split is not None
    assert task.split is not None
    assert late.split.id == task.split.id
    assert late.split.fence > task.split.fence
    assert written_slices(handle.store, late) == {}
    commit_merge(handle, late, execute_split(handle.store, late, handle.ids, handle.clock))
    assert rows(table) == expected


def test_spark_optimizes_in_slices_and_goes_on_with_those_of_a_lost_driver(spark: Any, tmp_path: Path) -> None:
    table = filled(str(tmp_path), spark=spark)
    expected = rows(table, final=True)
    task = planned(table)
    assert task.split is not None
    kept = execute_slice(table.handle.store, slice_tasks(task)[1], table.handle.ids, table.handle.clock)
    table.optimize(final=True)
    assert rows(table) == expected
    (part,) = table.handle.log.state.parts()
    assert len({key.partition("/")[0] for key in part.manifest.object_keys()}) == task.split.slices + 1
    assert kept.id in {key.partition("/")[0] for key in part.manifest.object_keys()}
    assert table.check().column("is_passed").to_pylist() == [1]


def test_slices_are_documents_too(spark: Any, tmp_path: Path) -> None:
    table = filled(str(tmp_path))
    expected = rows(table, final=True)
    *pieces, merge = plan_work(table, final=True)
    assert [json.loads(piece)["slice"] for piece in pieces] == list(range(len(pieces)))
    first = work(pieces[0])
    with pytest.raises(ml.InvalidInputError, match="cannot be committed alone"):
        commit_work(pieces[0], first)
    results = work_on_spark(spark, [merge, *pieces[2:]])
    commit_work(merge, results[0])
    assert rows(table) == expected
    part = json.loads(results[0])["part"]
    assert json.loads(first)["part"]["id"] in json.dumps(part["files"][0])


def test_what_cannot_be_cut_is_merged_whole(tmp_path: Path) -> None:
    db = ml.connect(str(tmp_path))
    for name, columns, key in (
        ("no_key", "k UInt32", "tuple()"),
        ("variant", "k UInt32, v Variant(UInt8, String)", "k"),
        ("one_value", "k UInt8 DEFAULT 1, n UInt32", "k"),
    ):
        db.sql(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY {key} SETTINGS {SETTINGS}")
        for _ in range(2):
            column = "n" if name == "one_value" else "k"
            db.sql(f"INSERT INTO {name} ({column}) SELECT number FROM numbers(5000)")
        assert planned(db.table(name)).split is None, name
    db.sql(f"CREATE TABLE t (k UInt32, v UInt8) ENGINE = ReplacingMergeTree(v) ORDER BY k SETTINGS {SETTINGS}")
    for _ in range(2):
        db.sql("INSERT INTO t SELECT number, 1 FROM numbers(50000)")
    handle = db.table("t").handle
    task = replace(planned(db.table("t")), split=None)
    assert with_split(handle.store, replace(task, deduplicate=("v",)), 0).split is None
    plain, cleaned = (with_split(handle.store, replace(task, cleanup=cleanup), 0).split for cleanup in (False, True))
    assert plain is not None
    assert cleaned is not None
    assert (plain.keys, plain.id == cleaned.id) == (cleaned.keys, False)
