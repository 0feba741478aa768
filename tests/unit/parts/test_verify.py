"""`check_part` finds what is wrong, and nothing where nothing is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.format.files.partition import partitions_of
from mergelake.parts.read.reader import PartReader
from mergelake.parts.tools.public import read_part
from mergelake.parts.tools.verify import Problem, check_part
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.parts import part_target, write_block

KINDS = {"k": parse_type("Int64"), "day": parse_type("Date"), "s": parse_type("Nullable(String)")}
SCHEMA = TableSchema(
    tuple(Column(i, name, kind) for i, (name, kind) in enumerate(KINDS.items())),
    partition_by=("day",),
    order_by=("k",),
    primary_key=("k",),
)


def _part(store: MemoryStore, *, full: bool, keys: list[int] | None = None) -> PartManifest:
    numbers = keys or list(range(1000))
    rows = len(numbers)
    block = pa.table(
        {
            "k": pa.array(numbers, pa.int64()),
            "day": pa.array(np.full(rows, 19782, np.uint16)),
            "s": pa.array([None if i % 3 else b"text %d" % i for i in range(rows)], pa.binary()),
        }
    )
    (partition,) = partitions_of([pa.array([19782], pa.uint16())], [KINDS["day"]])
    settings = {"index_granularity": 100, "min_bytes_for_full_part_storage": 0 if full else 1 << 30}
    return write_block(part_target(store, SCHEMA, settings=settings), block, sources=["day"], partition=partition)


def _check(store: MemoryStore, manifest: PartManifest, **more: Any) -> list[Problem]:
    reader = PartReader(store, "t", manifest, {column.name: column for column in SCHEMA.columns})
    return check_part(reader, key_types=[KINDS["k"]], partition_types=[KINDS["day"]], **more)


@pytest.mark.parametrize("full", [False, True], ids=["packed", "full"])
def test_a_good_part_has_no_problems(full: bool) -> None:
    store = MemoryStore()
    manifest = _part(store, full=full)
    assert _check(store, manifest) == []
    assert _check(store, manifest, deep=False) == []


@pytest.mark.parametrize("full", [False, True], ids=["packed", "full"])
@pytest.mark.parametrize(
    "name", ["k.bin", "s.null.bin", "s.mrk2", "primary.idx", "partition.dat", "count.txt", "columns.txt"]
)
def test_a_flipped_bit_in_any_file_is_found(name: str, full: bool) -> None:
    store = MemoryStore()
    manifest = _part(store, full=full)
    (extent,) = manifest.file_table()[name].extents
    body = bytearray(store.get(f"t/{extent.key}"))
    body[extent.offset + extent.length // 2] ^= 16
    store.put(f"t/{extent.key}", bytes(body))
    problems = _check(store, manifest)
    assert problems
    assert any(f"t/{extent.key}" in str(problem) for problem in problems) or name == "columns.txt"


def test_a_missing_or_short_object_is_found() -> None:
    store = MemoryStore()
    manifest = _part(store, full=True)
    key = f"t/{manifest.id}/s.bin"
    body = store.get(key)
    store.put(key, body[:-5])
    (short, *_) = (problem for problem in _check(store, manifest) if problem.object_key == key)
    assert short.found.endswith("bytes")
    store.delete([key])
    assert any("s.bin" in str(problem) for problem in _check(store, manifest))


def test_an_unsorted_part_is_found() -> None:
    store = MemoryStore()
    manifest = _part(store, full=False, keys=[*range(500), *range(500)])
    (problem,) = _check(store, manifest, deep=False)
    assert "not in order at mark 5" in problem.message
    assert problem.file == "primary.idx"


def test_a_manifest_that_lies_is_found() -> None:
    store = MemoryStore()
    manifest = _part(store, full=False)
    lies = replace(manifest, rows=999, marks=9, partition_id="20240301", partition="474d")
    text = "\n".join(map(str, _check(store, lies)))
    for word in ("row count", "other rows", "another id", "partition differs"):
        assert word in text, text
    (problem,) = _check(store, replace(manifest, minmax={"day": ("474d", "474d")}))
    assert "outside of its minimum" in problem.message
    assert _check(store, replace(manifest, minmax={"day": ("004d", "ff4d")})) == []


def test_read_part_is_the_short_way_in(tmp_path: Any) -> None:
    from mergelake.parts.read.listing import plain_files

    store = MemoryStore()
    manifest = _part(store, full=False)
    for name, chunks in plain_files(store, "t", manifest):
        (tmp_path / name).write_bytes(b"".join(map(bytes, chunks)))
    part = read_part(str(tmp_path), columns=["s", "k"])
    assert (part.rows, list(part.types)) == (1000, ["s", "k"])
    assert part.storage().column("k").to_pylist() == list(range(1000))
    assert [batch.num_rows for batch in part.batches(batch_rows=400)] == [400, 400, 200]
    opened = read_part(str(tmp_path)).part
    assert check_part(opened, key_types=[KINDS["k"]]) == []
    with pytest.raises(ValueError, match="nope"):
        read_part(str(tmp_path), columns=["nope"])
    with pytest.raises(KeyError, match="NO_SUCH_DATA_PART"):
        read_part(str(tmp_path / "absent"))
