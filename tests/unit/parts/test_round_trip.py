"""A part written and read back: all types, packed and full, mark ranges, renamed and missing columns, requests."""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import CorruptDataError, InvalidInputError, MergelakeError
from mergelake.core.base.ids import SeededIds
from mergelake.core.model.manifest import PartManifest
from mergelake.core.model.manifest_json import ManifestJson, decode_manifest
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types.types import parse_type
from mergelake.format.files.checksums import decode_checksums
from mergelake.format.files.partition import partition_keys
from mergelake.parts.read.cache import PartCache
from mergelake.parts.read.listing import plain_files
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.part_spec import PartSpec
from mergelake.parts.write.writer import PartWriter
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.parts import part_target, write_block
from tests.helpers.random_arrays import TYPES, equal, random_array


def _schema(types: list[str], **more: object) -> TableSchema:
    columns = tuple(Column(i, f"c{i}", parse_type(text)) for i, text in enumerate(types))
    return TableSchema(columns, order_by=("c0",), primary_key=("c0",), **more)  # type: ignore[arg-type]


def _by_name(schema: TableSchema) -> dict[str, Column]:
    return {column.name: column for column in schema.columns}


def _write(store: MemoryStore, schema: TableSchema, block: pa.Table, key: str = "c0", **settings: int) -> PartManifest:
    return write_block(
        part_target(store, schema, keys=[key], settings=settings, ids=SeededIds(len(block))), block, [key]
    )


def _block(schema: TableSchema, rows: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table([random_array(rng, column.type, rows) for column in schema.columns], names=schema.names)


@pytest.mark.parametrize("limit", [0, 100 << 20], ids=["full", "packed"])
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_every_type_comes_back(limit: int, rows: int) -> None:
    schema = _schema(TYPES)
    block = _block(schema, rows)
    store = MemoryStore()
    manifest = _write(store, schema, block, min_bytes_for_full_part_storage=limit, index_granularity=128)
    assert (manifest.rows, manifest.marks) == (rows, -(-rows // 128))
    assert manifest.storage == ("packed" if limit else "full")
    reader = PartReader(store, "t", manifest, _by_name(schema), threads=2)
    found = pa.Table.from_batches(
        list(reader.read(schema.names, batch_rows=300)) or [pa.RecordBatch.from_pylist([], schema=block.schema)]
    )
    assert found.num_rows == rows
    for name in schema.names:
        assert equal(found.column(name).combine_chunks(), block.column(name).combine_chunks()), name


def test_a_packed_part_is_one_put_and_reads_with_two_gets() -> None:
    """M-054, M-060: one request for everything small, one for the data, none the second time."""
    # M-054 M-060
    schema = _schema(["UInt64", "String", "Float64"])
    block = pa.table(
        [pa.array(np.arange(5000, dtype=np.uint64)), pa.array([b"x" * 300] * 5000), pa.array(np.zeros(5000))],
        names=schema.names,
    )
    store = MemoryStore(gap=0)
    manifest = _write(store, schema, block, index_granularity=100)
    assert store.counters.put == 1
    caches = PartCache()
    for gets in ((1, 1), (0, 1)):
        before = store.counters.get
        reader = PartReader(store, "t", manifest, _by_name(schema), caches)
        assert len(reader.granule_rows) == 50
        (index,) = reader.primary_index([parse_type("UInt64")])
        assert index.to_pylist() == [*range(0, 5000, 100), 4999]
        reader.warm(["c0"])
        assert store.counters.get - before == gets[0]
        (batch,) = reader.read(["c0"], [(7, 8)])
        assert batch.column("c0").to_pylist() == list(range(700, 800))
        assert store.counters.get - before == gets[0] + gets[1]


def test_a_granule_of_a_full_part_is_one_get_per_column_file() -> None:
    """M-054: files of other columns are not touched."""
    # M-054
    schema = _schema(["UInt64", "String", "Nullable(Int32)", "Float64"])
    block = _block(schema, 5000)
    store = MemoryStore()
    manifest = _write(store, schema, block, index_granularity=100, min_bytes_for_full_part_storage=0)
    reader = PartReader(store, "t", manifest, _by_name(schema))
    reader.warm(["c1", "c2"])
    assert len(reader.granule_rows) == 50
    before = store.counters
    (batch,) = reader.read(["c1", "c2"], [(9, 10)])
    assert store.counters.get - before.get == 3  # c1.bin, c2.null.bin, c2.bin
    for name in ("c1", "c2"):
        assert batch.column(name).equals(block.column(name).chunk(0).slice(900, 100))


def test_a_part_that_is_read_whole_needs_the_marks_of_no_column() -> None:
    """Only where a stream begins with something else than its first value, and once for the granules."""
    schema = _schema(["UInt64", "String", "Nullable(Int32)", "Array(Float64)", "LowCardinality(String)"])
    block = _block(schema, 5000)
    store = MemoryStore()
    manifest = _write(store, schema, block, index_granularity=100, min_bytes_for_full_part_storage=0)
    reader = PartReader(store, "t", manifest, _by_name(schema))
    assert len(reader.granule_rows) == 50  # the header files and the marks of c0
    before = store.counters.get
    (batch,) = reader.read(schema.names)
    assert store.counters.get - before == 8 + 2  # all data files, and the marks of c4, of its indexes and dictionary
    for name in schema.names:
        assert equal(batch.column(name), block.column(name).combine_chunks()), name
    before = store.counters.get
    (batch,) = reader.read(["c1"], [(3, 4)])
    assert store.counters.get - before == 2  # now they are wanted
    assert batch.column("c1").equals(block.column("c1").chunk(0).slice(300, 100))


def test_mark_ranges_give_their_rows_and_no_others() -> None:
    schema = _schema(["UInt32", "String", "LowCardinality(String)", "Array(Nullable(String))"])
    block = _block(schema, 2000)
    manifest = _write(store := MemoryStore(), schema, block, index_granularity=64)
    reader = PartReader(store, "t", manifest, _by_name(schema), threads=2)
    ranges = [(0, 1), (2, 9), (20, 32)]
    expected = pa.concat_tables([block.slice(a * 64, min(b * 64, 2000) - a * 64) for a, b in ranges])
    for batch_rows in (1, 100, 10_000):
        batches = list(reader.read(schema.names, ranges, batch_rows=batch_rows))
        found = pa.Table.from_batches(batches)
        for name in schema.names:
            assert equal(found.column(name).combine_chunks(), expected.column(name).combine_chunks())
    assert [b.num_rows for b in reader.read([], ranges, batch_rows=1000)] == [960, 272]


def test_renamed_new_and_dropped_columns_are_told_by_id() -> None:
    schema = _schema(["UInt32", "String", "Int64"])
    block = _block(schema, 100)
    manifest = _write(store := MemoryStore(), schema, block)
    now = {
        "key": replace(schema.column("c0"), name="key"),
        "c1": Column(7, "c1", parse_type("Nullable(Int8)")),
        "e": Column(8, "e", parse_type("Enum8('low' = -5, 'x' = 0)")),
        "list": Column(9, "list", parse_type("Array(LowCardinality(String))")),
        "text": replace(schema.column("c1"), name="text"),
    }
    reader = PartReader(store, "t", manifest, now)
    (batch,) = reader.read(list(now))
    assert batch.column("key").equals(block.column("c0").chunk(0))
    assert batch.column("text").equals(block.column("c1").chunk(0))
    assert batch.column("c1").null_count == 100
    assert set(batch.column("e").to_pylist()) == {-5}
    assert batch.column("list").to_pylist() == [[]] * 100
    assert (reader.has_column("text"), reader.has_column("c1")) == (True, False)
    with pytest.raises(InvalidInputError, match="NO_SUCH_COLUMN_IN_TABLE"):
        next(reader.read(["nope"]))


def test_a_column_with_another_type_is_converted_as_by_cast() -> None:
    schema = _schema(["UInt32", "String"])
    block = _block(schema, 50)
    manifest = _write(store := MemoryStore(), schema, block)
    wide = {
        "c0": Column(0, "c0", parse_type("Nullable(Int64)")),
        "c1": Column(1, "c1", parse_type("LowCardinality(Nullable(String))")),
    }
    (batch,) = PartReader(store, "t", manifest, wide).read(["c0", "c1"])
    assert batch.column("c0").to_pylist() == block.column("c0").to_pylist()
    assert batch.column("c1").to_pylist() == block.column("c1").to_pylist()
    narrow = {"c0": Column(0, "c0", parse_type("UInt16")), "c1": Column(1, "c1", parse_type("UUID"))}
    (batch,) = PartReader(store, "t", manifest, narrow).read(["c0"])
    assert batch.column("c0").to_pylist() == [value % (1 << 16) for value in block.column("c0").to_pylist()]
    with pytest.raises(MergelakeError, match="UUID"):
        next(PartReader(store, "t", manifest, narrow).read(["c1"]))


def test_partition_files_and_the_manifest_say_the_same() -> None:
    schema = _schema(["UInt32", "Date", "String"], partition_by=("c1", "c2"))
    rows = 20
    block = pa.table(
        [
            pa.array(np.arange(rows, dtype=np.uint32)),
            pa.array(np.full(rows, 19782, np.uint16)),
            pa.array([b"eu"] * rows, pa.binary()),
        ],
        names=schema.names,
    )
    keys = [block.column("c1").chunk(0), block.column("c2").chunk(0)]
    groups, (partition,) = partition_keys(keys, [schema.types["c1"], schema.types["c2"]])
    assert not groups.any()
    store = MemoryStore()
    target = part_target(store, schema, keys=["c0", "c2"], settings={"index_granularity": 7}, clock=ManualClock(5))
    manifest = write_block(target, block, ["c0", "c2"], ["c1", "c2"], partition=partition, level=1)
    files = {name: b"".join(map(bytes, chunks)) for name, chunks in plain_files(store, "t", manifest)}
    assert list(files)[-1] == "checksums.txt"
    assert manifest.partition_id == partition.id
    assert files["partition.dat"].hex() == manifest.partition == "464d026575"
    assert files["minmax_c1.idx"].hex() == "464d464d" == "".join(manifest.minmax["c1"])
    assert manifest.key_range == ("00000000026575", "13000000026575")
    assert files["primary.idx"].hex() == "".join(f"{k:02x}000000026575" for k in (0, 7, 14, 19))
    assert files["count.txt"] == b"20"
    assert files["default_compression_codec.txt"] == b"CODEC(LZ4)"
    assert (manifest.marks, manifest.level, manifest.created_ms, manifest.columns) == (3, 1, 5, (0, 1, 2))
    listed = decode_checksums(files["checksums.txt"])
    assert set(files) - set(listed) == {"columns.txt", "default_compression_codec.txt", "checksums.txt"}
    assert all(listed[name].size == len(files[name]) for name in listed)
    assert decode_manifest(msgspec.json.encode(ManifestJson.of(manifest))) == manifest


def test_columns_may_come_in_any_pieces_and_granules_in_any_sizes() -> None:
    schema = _schema(["UInt64", "String", "LowCardinality(String)", "Array(LowCardinality(String))"])
    block = _block(schema, 1000)
    whole = _write(store := MemoryStore(), schema, block, index_granularity=90)
    for granules in (90, np.array([90] * 11 + [10])):
        writer = PartWriter(part_target(store, schema, keys=["c0"], ids=SeededIds(3)), PartSpec(granules))
        cuts = [0, 1, 89, 90, 91, 400, 400, 1000]
        spans = list(itertools.pairwise(cuts))
        for start, end in spans:
            writer.append_keys([block.column("c0").chunk(0).slice(start, end - start)])
        for name in reversed(schema.names):
            writer.write_column(name, [block.column(name).chunk(0).slice(a, b - a) for a, b in spans])
        manifest = writer.finish()
        assert manifest.key_range == whole.key_range
        ours, theirs = manifest.file_table(), whole.file_table()
        for file in ("primary.idx", "c0.bin", "c0.mrk2", "c1.bin", "c1.mrk2"):
            assert ours[file].hash == theirs[file].hash, file
        reader = PartReader(store, "t", manifest, _by_name(schema))
        found = pa.Table.from_batches(list(reader.read(schema.names)))
        for name in schema.names:
            assert equal(found.column(name).combine_chunks(), block.column(name).combine_chunks())


def test_a_failed_part_leaves_nothing_behind() -> None:
    schema = _schema(["UInt64", "String"])
    block = pa.table([pa.array([1, 2], pa.uint64()), pa.array([b"a", None], pa.binary())], names=schema.names)
    store = MemoryStore()
    with pytest.raises(InvalidInputError, match="CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN"):
        _write(store, schema, block, min_bytes_for_full_part_storage=0)
    assert list(store.list("")) == []


def test_nested_siblings_share_their_sizes_and_must_agree() -> None:
    columns = tuple(
        Column(i, name, parse_type(kind))
        for i, (name, kind) in enumerate([("k", "UInt8"), ("n.a", "Array(UInt8)"), ("n.b", "Array(String)")])
    )
    schema = TableSchema(columns, order_by=("k",), primary_key=("k",))
    keys = pa.array([1, 2], pa.uint8())
    block = pa.table(
        [keys, pa.array([[1, 2], []], pa.list_(pa.uint8())), pa.array([[b"x", b"y"], []], pa.list_(pa.binary()))],
        names=schema.names,
    )
    manifest = _write(store := MemoryStore(), schema, block, key="k")
    assert [name for name in manifest.file_table() if "size0" in name] == ["n.size0.bin", "n.size0.mrk2"]
    (batch,) = PartReader(store, "t", manifest, _by_name(schema)).read(["n.a", "n.b"])
    assert batch.column("n.b").to_pylist() == [[b"x", b"y"], []]
    uneven = block.set_column(2, "n.b", pa.array([[b"x"], []], pa.list_(pa.binary())))
    with pytest.raises(InvalidInputError, match="SIZES_OF_ARRAYS_DONT_MATCH"):
        _write(store, schema, uneven, key="k")


@pytest.mark.parametrize("limit", [0, 100 << 20], ids=["full", "packed"])
def test_a_flipped_bit_names_object_offset_expected_and_found(limit: int) -> None:
    schema = _schema(["UInt64", "Nullable(String)"])
    block = _block(schema, 3000)
    store = MemoryStore()
    manifest = _write(store, schema, block, min_bytes_for_full_part_storage=limit, index_granularity=500)
    file = manifest.file_table()["c1.bin"]
    (extent,) = file.extents
    body = bytearray(store.get(f"t/{extent.key}"))
    at = extent.offset + extent.length - 10
    body[at] ^= 1
    store.put(f"t/{extent.key}", bytes(body))
    reader = PartReader(store, "t", manifest, _by_name(schema))
    with pytest.raises(CorruptDataError) as caught:
        list(reader.read(["c0", "c1"]))
    problem = caught.value
    assert problem.object_key == f"t/{extent.key}"
    assert extent.offset <= problem.offset < at
    assert len(problem.expected) == len(problem.found) == 32
    assert "c1.bin" in str(problem)
    store.put(f"t/{extent.key}", bytes(body[: at - 100]))
    with pytest.raises(CorruptDataError) as caught:
        list(PartReader(store, "t", manifest, _by_name(schema)).read(["c1"]))
    assert caught.value.object_key.endswith(extent.key)
