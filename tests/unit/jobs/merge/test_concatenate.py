"""Merges whose sources follow one another: when they copy, what they read, what they write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs

from mergelake.core.base.errors import CorruptDataError
from mergelake.core.model.manifest import Extent, PartManifest, encode_files
from mergelake.core.model.schema import Column, SkipIndex
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.format.columns.reader import ColumnReader
from mergelake.jobs.merge import execute
from mergelake.jobs.merge.concatenate import plan_concatenation
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.plan import MergeTask, plan_merge
from mergelake.parts.read.default_codec import CODEC_FILE
from mergelake.parts.read.layout import object_key
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.verify import check_part
from mergelake.store import Store, open_store
from mergelake.table.definition.define import define
from tests.helpers.far_store import FarStore
from tests.helpers.merging import SmallTable, plain

COLUMNS = {"k": "Int32", "v": "UInt32", "l": "LowCardinality(String)", "a": "Array(LowCardinality(String))"}
GRANULE = 50
ROWS = 4 * GRANULE


def block(keys: Sequence[int], seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    words = pa.array([f"{seed} {n}".encode() for n in range(9)], pa.binary())
    indices = pa.array(random.integers(0, 9, len(keys)), pa.int32())
    counts = np.where(np.arange(len(keys)) < len(keys) // 2, random.integers(0, 3, len(keys)), 0)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    within = pa.DictionaryArray.from_arrays(pa.array(random.integers(0, 9, int(counts.sum())), pa.int32()), words)
    return pa.table(
        {
            "k": pa.array(keys, pa.int32()),
            "v": pa.array(random.integers(0, 1 << 30, len(keys)), pa.uint32()),
            "l": pa.DictionaryArray.from_arrays(indices, words),
            "a": pa.ListArray.from_arrays(offsets, within, storage_type(parse_type(COLUMNS["a"]))),
        }
    )


def table_of(
    runs: Sequence[Sequence[int]],
    *,
    settings: Mapping[str, object] | None = None,
    store: Store | None = None,
    **arguments: Any,
) -> SmallTable:
    """A table with a part for each of the runs of keys."""
    chosen = {"index_granularity": GRANULE, **(settings or {})}
    own = {name: arguments.pop(name) for name in ("order_desc", "indices") if name in arguments}
    schema = define(COLUMNS, **{"order_by": ["k"], "settings": chosen, **arguments})
    table = SmallTable(replace(schema, **own), store)
    for seed, keys in enumerate(runs):
        table.insert(block(keys, seed))
    return table


def task_of(table: SmallTable) -> MergeTask:
    return plan_merge("t", table.handle.schema, table.parts)


def merged(table: SmallTable, task: MergeTask | None = None, **arguments: Any) -> PartManifest:
    return execute_merge(table.store, task or task_of(table), table.ids, table.clock, **arguments)


def rows_of(table: SmallTable, part: PartManifest) -> list[tuple[object, ...]]:
    return plain(table.rows([replace(table.parts[0], manifest=part)]))


def ordinary(table: SmallTable, monkeypatch: pytest.MonkeyPatch) -> PartManifest:
    with monkeypatch.context() as patched:
        patched.setattr(execute, "plan_concatenation", lambda _: None)
        return merged(table)


FIRST, SECOND, THIRD = (list(range(start, start + ROWS)) for start in (0, 1000, 2000))
TIES = [5] * ROWS


@pytest.mark.parametrize(
    ("runs", "arguments", "order"),
    [
        ([FIRST, SECOND, THIRD], {}, [0, 1, 2]),
        ([THIRD, FIRST, SECOND], {}, [1, 2, 0]),
        ([FIRST, [*SECOND[:-1], 2000], THIRD], {}, [0, 1, 2]),
        ([THIRD, [*SECOND[:-1], 2000]], {}, None),
        ([FIRST, [ROWS - 2, *SECOND]], {}, None),
        ([TIES, TIES, TIES], {}, [0, 1, 2]),
        ([[5, *SECOND], TIES], {}, None),
        ([TIES, [5, *SECOND]], {}, [0, 1]),
        ([FIRST, SECOND], {"order_desc": (True,)}, [1, 0]),
        ([FIRST, SECOND], {"order_by": ["k", "v"], "primary_key": ["k"]}, [0, 1]),
        ([TIES, TIES], {"order_by": ["k", "v"], "primary_key": ["k"]}, None),
        ([THIRD, FIRST], {"order_by": []}, [0, 1]),
        ([FIRST], {}, [0]),
        # 2 granules each in place of 5 in all
        ([FIRST[:60], SECOND[:60], THIRD[:60]], {}, None),
        ([FIRST, SECOND], {"engine": "ReplacingMergeTree"}, None),
        ([FIRST, SECOND], {"settings": {"min_rows_for_wide_part": 1000}}, None),
    ],
)
def test_which_merges_copy(
    runs: list[list[int]],
    arguments: dict[str, Any],
    order: list[int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "order_desc" in arguments:
        runs = [keys[::-1] for keys in runs]
    table = table_of(runs, **arguments)
    task = task_of(table)
    found = plan_concatenation(task)
    ids = [source.manifest.id for source in task.sources]
    assert (None if found is None else [ids.index(source.manifest.id) for source in found.sources]) == order
    expected = ordinary(table, monkeypatch)
    if found is not None:
        monkeypatch.setattr(ColumnReader, "decode", None)
    part = merged(table)
    monkeypatch.undo()
    assert rows_of(table, part) == rows_of(table, expected)
    assert (part.key_range, part.rows, part.level) == (expected.key_range, expected.rows, expected.level)


def test_what_changes_rows_or_files_is_merged_in_the_ordinary_way() -> None:
    table = table_of([FIRST, SECOND])
    task = task_of(table)
    assert plan_concatenation(task) is not None
    first, second = task.sources
    table_of_files = second.manifest.file_table()
    strange = [
        [file for file in table_of_files.values() if file.name != CODEC_FILE],
        [structs.replace(file, hash="") for file in table_of_files.values()],
        [*table_of_files.values(), structs.replace(table_of_files["count.txt"], name="metadata_version.txt")],
        [*table_of_files.values(), structs.replace(table_of_files["count.txt"], name="serialization.json")],
        [
            structs.replace(file, extents=(Extent(f"{'9' * 32}/v.bin", 0, file.size),))
            for file in table_of_files.values()
        ],
        [
            structs.replace(file, size=file.size - 24 * file.name.endswith(".mrk2")) for file in table_of_files.values()
        ],  # no final marks
    ]
    newer = replace(task.schema, version=task.schema.version + 1)
    for other in (
        replace(task, kind="mutation"),
        replace(task, deduplicate=("k",)),
        replace(task, schema=newer),
        replace(task, schema=task.schema.with_settings({**task.schema.settings, "part_profile": "modern"})),
        replace(
            task,
            sources=(first, replace(second, manifest=replace(second.manifest, columns=(*first.manifest.columns, -1)))),
        ),
        replace(task, sources=(first, replace(second, manifest=replace(second.manifest, key_range=("", ""))))),
        *(
            replace(
                task, sources=(first, replace(second, manifest=replace(second.manifest, files=encode_files(files))))
            )
            for files in strange
        ),
    ):
        assert plan_concatenation(other) is None


@pytest.mark.parametrize("granularity", [1, 2, 3])
def test_granules_of_skip_indexes_do_not_cross_a_seam(granularity: int) -> None:
    indices = (SkipIndex("i", "v", "minmax", granularity),)
    table = table_of([FIRST, SECOND], indices=indices)
    assert (plan_concatenation(task_of(table)) is None) == (granularity == 3)


@pytest.mark.parametrize("setting", [{"default_compression_codec": "ZSTD(1)"}, {"min_bytes_for_zstd": "8000"}])
def test_blocks_get_the_codec_of_the_result(setting: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The last source has it already, where parts change by size."""
    table = table_of([FIRST, SECOND], settings={"min_compress_block_size": 100})
    small = [source.manifest for source in task_of(table).sources]
    schema = table.handle.schema
    newer = schema.with_settings({**schema.settings, **setting})
    table.insert(block(THIRD, 2))
    task = replace(task_of(table), schema=newer)
    if "min_bytes_for_zstd" in setting:
        assert max(part.bytes_uncompressed for part in small) < 8000 < task.plain_bytes
        last = merged(
            table,
            replace(
                task,
                sources=task.sources[2:],
                schema=schema.with_settings({**schema.settings, "min_bytes_for_zstd": "1"}),
            ),
        )
        task = replace(task, sources=(*task.sources[:2], replace(task.sources[2], manifest=last)))
    found = plan_concatenation(task)
    assert found is not None
    assert [bool(names) for names in found.anew] == [True, True, "min_bytes_for_zstd" not in setting]
    with monkeypatch.context() as patched:
        patched.setattr(ColumnReader, "decode", None)
        part = merged(table, task)
    with monkeypatch.context() as patched:
        patched.setattr(execute, "plan_concatenation", lambda _: None)
        expected = merged(table, task)
    assert rows_of(table, part) == rows_of(table, expected)
    both = [table.reader(replace(table.parts[0], manifest=each)) for each in (part, expected)]
    for name in both[0].files:
        if name.endswith(".bin") or name == CODEC_FILE:
            own, other = (reader.fetch_file(name) for reader in both)
            assert own[16:17] == other[16:17]
    assert both[0].fetch_file("v.bin")[16] == 0x90
    assert check_part(both[0]) == []


def test_any_number_of_threads_and_any_window_give_the_same_part() -> None:
    table = table_of([FIRST, SECOND, THIRD])
    task = task_of(table)
    tight = replace(task, schema=task.schema.with_settings({**task.schema.settings, "merge_max_chunk_bytes": "1"}))
    parts = [merged(table, task, threads=1), merged(table, task, threads=3), merged(table, tight)]
    contents = [{name: (f.size, f.hash) for name, f in part.file_table().items()} for part in parts]
    assert contents[0] == contents[1] == contents[2]


@pytest.mark.parametrize("profile", ["classic", "modern"])
@pytest.mark.parametrize("full", [False, True])
def test_each_byte_of_a_far_source_is_read_once(profile: str, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FarStore()
    settings = {"part_profile": profile, "min_bytes_for_full_part_storage": 0 if full else 1 << 20}
    table = table_of([FIRST, SECOND, THIRD], settings=settings, store=store)
    task = task_of(table)
    assert plan_concatenation(task) is not None
    assert {source.manifest.storage for source in task.sources} == {"full" if full else "packed"}
    store.start()
    monkeypatch.setattr(ColumnReader, "decode", None)
    part = merged(table, task)
    monkeypatch.undo()
    assert store.repeated() == []
    asked = sum(end - start for _, start, end in store.asked)
    if full:
        # Neither headers nor checksums. The marks of indexes of a dictionary are asked for with both of its files.
        assert asked < sum(source.manifest.bytes_on_disk for source in task.sources)
    else:
        assert asked == sum(source.manifest.bytes_on_disk for source in task.sources)
        assert len(store.asked) == 3
    assert part.storage == ("full" if full else "packed")
    assert len(part.object_keys()) == (len(part.file_table()) if full else 1)
    assert rows_of(table, part) == rows_of(table, ordinary(table, monkeypatch))


@pytest.mark.parametrize("file", ["v.bin", "l.dict.bin", "a.bin", "k.mrk2", "primary.idx"])
def test_a_damaged_source_is_found(file: str) -> None:
    table = table_of([FIRST, SECOND], settings={"min_bytes_for_full_part_storage": 0})
    task = task_of(table)
    assert plan_concatenation(task) is not None
    [extent] = task.sources[1].manifest.file_table()[file].extents
    key = object_key("t", extent)
    data = bytearray(table.store.get(key))
    data[len(data) // 2] ^= 1
    table.store.put(key, bytes(data))
    before = {meta.key for meta in table.store.list("t/")}
    with pytest.raises(CorruptDataError) as caught:
        merged(table, task)
    assert caught.value.object_key == key
    assert {meta.key for meta in table.store.list("t/")} == before


def test_a_copied_part_is_merged_and_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of([FIRST, SECOND])
    table.optimize()
    table.insert(block(THIRD, 5))
    assert plan_concatenation(task_of(table)) is not None
    assert rows_of(table, merged(table)) == rows_of(table, ordinary(table, monkeypatch))
    table.optimize()
    table.insert(block(SECOND, 6))
    assert plan_concatenation(task_of(table)) is None
    before = table.rows()
    table.optimize()
    assert sorted(map(repr, plain(table.rows()))) == sorted(map(repr, plain(before)))


def test_sources_in_different_stores_give_a_part_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of([FIRST, SECOND, THIRD], store=FarStore())
    disk = open_store("memory://disk-of-concatenate")
    task = task_of(table)
    pair = replace(task, sources=task.sources[:2], local=True)
    local = merged(table, pair, disk=disk)
    assert all(disk.get(f"t/{key}") for key in local.object_keys())
    mixed = replace(task, sources=(replace(task.sources[0], manifest=local, local=True), task.sources[2]))
    found = plan_concatenation(mixed)
    assert found is not None
    assert [source.local for source in found.sources] == [True, False]
    seen: list[tuple[int, int]] = []
    part = merged(table, mixed, disk=disk, on_progress=lambda *now: seen.append(now))
    assert rows_of(table, part) == rows_of(table, ordinary(table, monkeypatch))
    assert seen == sorted(seen)
    assert 0 < seen[-1][0] <= seen[-1][1] == 3 * ROWS


@pytest.mark.parametrize("extra", ["", "7"])
def test_parts_that_lack_the_same_column_are_copied_unless_it_has_a_default(extra: str) -> None:
    table = table_of([range(ROWS), range(ROWS, 2 * ROWS), range(2 * ROWS, 3 * ROWS)])
    added = Column(90, "x", parse_type("String"), "DEFAULT" if extra else "", f"'{extra}'" if extra else "")
    schema = replace(table.handle.schema, columns=(*table.handle.schema.columns, added))
    copied = plan_merge("t", schema, table.parts)
    assert (plan_concatenation(copied) is None) == bool(extra)
    part = merged(table, copied)
    assert (added.id in part.columns) == bool(extra)
    assert rows_of(table, part) == rows_of(table, merged(table))
    columns = {column.name: column for column in schema.stored}
    assert check_part(PartReader(table.store, "t", part, columns)) == []
