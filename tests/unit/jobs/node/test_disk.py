"""Bytes on a node's disk, and their way to the store."""

from __future__ import annotations

import pytest

from mergelake.core.base.errors import CorruptDataError, MergelakeError, UnavailableError
from mergelake.jobs.node import disk as disk_module
from mergelake.jobs.node.disk import LocalDisk, copy_part, open_disk, sweep
from mergelake.parts.read.reader import PartReader
from mergelake.store.objects.memory import MemoryStore
from mergelake.testing.faulty_store import Fault, FaultyStore
from tests.helpers.nodes import Lake, TinyNode

NEW = "f" * 32


@pytest.fixture(params=[0, 1 << 20], ids=["full", "packed"])
def held(request):
    """A table, and a node's disk with one volatile part."""
    lake = Lake(min_bytes_for_full_part_storage=request.param)
    lake.insert(5)
    node = TinyNode(lake)
    node.rest()
    (part,) = node.worker.view().local.values()
    return lake, node, part


def objects(store, part_id) -> list[str]:
    return [item.key for item in store.list(f"t/{part_id}")]


@pytest.mark.parametrize("small", [0, 16 << 20])
def test_a_copy_has_the_same_rows_under_another_id(held, monkeypatch, small):
    lake, node, part = held
    monkeypatch.setattr(disk_module, "_SMALL", small)
    monkeypatch.setattr(disk_module, "_CHUNK", 50)
    target = FaultyStore(MemoryStore())
    copy = copy_part(node.disk, target, "t", part.manifest, NEW, 7)
    assert (copy.id, copy.base_version, copy.storage) == (NEW, 7, part.manifest.storage)
    assert len(objects(target, NEW)) == len(objects(node.disk, part.manifest.id))
    if copy.storage == "full":
        assert [line for line in target.trace if line.startswith("put")][-1].endswith("checksums.txt")
    columns = {column.name: column for column in lake.handle.schema.stored}
    rows = [
        [batch.to_pydict() for batch in PartReader(store, "t", manifest, columns).read(["k", "v"])]
        for store, manifest in ((node.disk, part.manifest), (target, copy))
    ]
    assert rows[0] == rows[1]


def test_a_copy_that_is_given_up_or_fails_leaves_nothing(held):
    _, node, part = held
    calls = []

    def go_on(size):
        calls.append(1)
        if len(calls) == len(objects(node.disk, part.manifest.id)):
            raise UnavailableError("the node leaves")

    target = MemoryStore()
    with pytest.raises(UnavailableError):
        copy_part(node.disk, target, "t", part.manifest, NEW, 0, go_on)
    assert objects(target, NEW) == []
    failing = FaultyStore(target, rates={Fault.LOSE_REPLY: 1.0}, only=lambda kind, key: kind == "put")
    with pytest.raises(UnavailableError):
        copy_part(node.disk, failing, "t", part.manifest, NEW, 0)
    assert objects(target, NEW) == []


def test_a_file_whose_hash_is_wrong_is_not_copied(held):
    _, node, part = held
    key = next(k for k in objects(node.disk, part.manifest.id) if k.endswith((".bin", "files.packed")))
    data = bytearray(node.disk.get(key))
    data[-30] ^= 255
    node.disk.put(key, bytes(data))
    target = MemoryStore()
    with pytest.raises(CorruptDataError) as problem:
        copy_part(node.disk, target, "t", part.manifest, NEW, 0)
    assert problem.value.name == "CHECKSUM_DOESNT_MATCH"
    assert objects(target, NEW) == []


def test_what_has_no_readable_record_is_deleted_when_the_node_comes_back(held):
    _, node, part = held
    disk = LocalDisk(node.disk, "t")
    for name, record in (("a", b"{"), ("b", b'{"id": "b"}'), ("c", b"[]")):
        node.disk.put(f"t/volatile/{name}.json", record)
    node.disk.put("other/files.packed", b"of another table")
    assert disk.load() == {part.id: part}
    assert len(list(node.disk.list("t/volatile"))) == 1
    assert objects(node.disk, part.manifest.id)
    disk.drop([part])
    assert disk.load() == {}
    assert [item.key for item in node.disk.list("")] == ["other/files.packed"]
    sweep(node.disk, {"t"})
    assert list(node.disk.list("")) == []


def test_a_record_with_a_wrong_bit_is_none(held):
    """Its manifest would be published: with other numbers of rows, of another partition."""
    _, node, part = held
    key = f"t/volatile/{part.id}.json"
    good = node.disk.get(key)
    for at in range(0, len(good), 7):
        node.disk.put(key, good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        assert LocalDisk(Kept(node.disk), "t").load() in ({}, {part.id: part})
    node.disk.put(key, good)
    assert LocalDisk(Kept(node.disk), "t").load() == {part.id: part}


class Kept:
    """A disk from which nothing goes."""

    def __init__(self, store):
        self.get, self.list = store.get, store.list

    def delete(self, keys):
        pass


def test_each_node_has_a_directory_of_its_own(tmp_path):
    store, free = open_disk(str(tmp_path), "n1")
    store.put("t/x", b"1")
    other, _ = open_disk(str(tmp_path), "n2")
    assert list(other.list("")) == []
    assert (free() or 0) > 0
    for directory, node in (("s3://bucket", "n1"), (str(tmp_path), ".."), (str(tmp_path), "a/b"), (str(tmp_path), "")):
        with pytest.raises(MergelakeError) as refused:
            open_disk(directory, node)
        assert refused.value.name == "BAD_ARGUMENTS"
