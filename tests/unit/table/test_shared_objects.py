"""Small parts of one insert in objects that they share: requests, places, and who may delete what."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import ConflictError, MergelakeError, UnavailableError
from mergelake.core.base.ids import SeededIds
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.types import parse_type
from mergelake.jobs.gc.collect import collect_round
from mergelake.jobs.gc.fsck import fsck
from mergelake.log.model.conflict import check
from mergelake.log.model.operations import AddParts
from mergelake.log.model.retention import reachable, refers
from mergelake.parts.write.objects import PartObjects, shared_size
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define
from mergelake.table.partitions.shared import SharedSpace, shared_space
from mergelake.table.write import insert, pieces
from mergelake.table.write.deduplication import InsertIdentity
from mergelake.table.write.insert import commit_parts, discard_refused, insert_target, write_blocks
from mergelake.testing.faulty_store import Fault, FaultyStore

DAY = 24 * 3600
SETTINGS = {"max_partitions_per_insert_block": 0, "history_retention_seconds": DAY, "gc_grace_seconds": DAY}


@pytest.fixture
def warehouse():
    clock = ManualClock()
    return Warehouse(MemoryStore(clock=clock), clock=clock, ids=SeededIds(1), author="me", threads=1)


def new_table(warehouse, name="t", **settings):
    schema = define({"p": "UInt32", "k": "UInt64"}, partition_by="p", order_by="k", settings=SETTINGS | settings)
    return warehouse.create_table(name, schema)


def block(p, k):
    return pa.table({"p": pa.array(p, pa.uint32()), "k": pa.array(k, pa.uint64())})


def rows(parts, start=0, each=2):
    """`each` rows for each partition."""
    return pa.table(
        {
            "p": pa.array(np.arange(parts).repeat(each), pa.uint32()),
            "k": pa.array(range(start, start + parts * each), pa.uint64()),
        }
    )


def write(table, data):
    handle = table.handle
    return write_blocks(
        insert_target(handle.store, handle.directory, table.schema, handle.ids, handle.clock),
        [data],
        base_version=handle.base_version(),
    )


def numbers(table, **at):
    return sorted(table.scan(**at).arrow()["k"].to_pylist())


def objects(table):
    cut = len(table.handle.directory) + 1
    found = (meta.key[cut:] for meta in table.handle.store.list(table.handle.directory))
    return [key for key in found if not key.startswith("_")]


def collect(table):
    """Rounds until nothing is left to do."""
    for _ in range(4):
        collect_round(table.handle)
        table.handle.clock.advance_s(DAY + 1)
    collect_round(table.handle)


def test_an_insert_into_a_thousand_partitions_is_two_puts(warehouse):
    table = new_table(warehouse)
    before = warehouse.store.counters
    table.append(rows(1000))
    spent = warehouse.store.counters - before
    assert (spent.put, spent.requests) == (2, 2)
    assert numbers(table) == list(range(2000))
    assert len(objects(table)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"order_by": "k"},
        {"order_by": ("name", "k"), "desc": (True, False)},
        {"order_by": ()},
        {"order_by": "k % 3", "engine": "ReplacingMergeTree"},
        {"order_by": ("name", "k"), "primary_key": ("name",), "partition_by": ("p % 7", "toDate(d)")},
    ],
)
def test_parts_of_one_insert_are_what_each_would_be_alone(options, monkeypatch):
    columns = {"p": "UInt32", "k": "UInt64", "name": "LowCardinality(String)", "d": "DateTime", "x": "Array(Int8)"}
    keys = {"partition_by": "p", **options}
    desc = keys.pop("desc", ())
    schema = replace(define(columns, settings=SETTINGS, **keys), order_desc=desc)
    draw = np.random.default_rng(7)
    n = 300
    data = pa.table(
        {
            "p": pa.array(draw.integers(0, 40, n), pa.uint32()),
            "k": pa.array(draw.integers(0, 20, n), pa.uint64()),
            "name": pa.array([b"host-%d" % number for number in draw.integers(0, 9, n)]).dictionary_encode(),
            "d": pa.array(draw.integers(0, 86400 * 3, n), pa.uint32()),
            "x": pa.array([[1] * number for number in draw.integers(0, 4, n)], storage_type(parse_type("Array(Int8)"))),
        }
    )

    def written(rows):
        store, clock = MemoryStore(), ManualClock()
        made = write_blocks(insert_target(store, "t", schema, SeededIds(3), clock), [rows])
        return {
            part.partition_id: {
                name: (file.hash, file.uncompressed_hash, store.get(f"t/{e.key}")[e.offset : e.offset + e.length])
                for name, file in part.file_table().items()
                for e in file.extents
            }
            | {"facts": (part.rows, part.minmax, part.key_range, part.partition, part.columns, part.level)}
            for part in made
        }, [part.partition_id for part in made]

    together, order = written(data)
    monkeypatch.setattr(insert, "_FEW_ROWS", 0)
    monkeypatch.setattr(pieces, "encode_together", lambda *_: None)
    alone, same_order = written(data)
    assert together == alone
    assert order == same_order
    assert len(alone) > 6


def test_objects_are_no_larger_than_the_setting_says_and_their_keys_tell_their_size(warehouse):
    table = new_table(warehouse, max_shared_object_bytes=20_000)
    before = warehouse.store.counters
    table.append(rows(100))
    spent = warehouse.store.counters - before
    sizes = {meta.key: meta.size for meta in warehouse.store.list(table.handle.directory) if ".packed" in meta.key}
    assert spent.put == len(sizes) + 1
    assert len(sizes) > 2
    assert max(sizes.values()) <= 20_000
    cut = len(table.handle.directory) + 1
    assert {key: shared_size(key[cut:]) for key in sizes} == sizes
    assert numbers(table) == list(range(200))


def test_a_part_alone_has_an_object_of_its_own(warehouse):
    table = new_table(warehouse)
    table.append(rows(1))
    (part,) = table.handle.snapshot().parts
    assert part.manifest.object_keys() == [f"{part.manifest.id}/files.packed"]
    assert refers(part.manifest) == ()


def test_a_part_that_is_not_small_has_an_object_of_its_own(warehouse):
    table = new_table(warehouse, max_bytes_to_share_object=4000)
    data = pa.concat_tables(
        [rows(3), pa.table({"p": pa.array([1] * 2000, pa.uint32()), "k": pa.array(range(6, 2006), pa.uint64())})]
    )
    table.append(data)
    own = {part.name: refers(part.manifest) == () for part in table.handle.snapshot().parts}
    assert own == {"0_1_1_0": False, "1_2_2_0": True, "2_3_3_0": False}
    assert numbers(table) == list(range(2006))


def test_sharing_can_be_switched_off(warehouse):
    table = new_table(warehouse, max_bytes_to_share_object=0)
    table.append(rows(10))
    assert {key.partition("/")[2] for key in objects(table)} == {"files.packed"}
    assert len(objects(table)) == 10


def test_a_shared_object_lives_as_long_as_its_last_part_and_what_is_dead_in_it_is_told(warehouse):
    table = new_table(warehouse)
    table.append(rows(3))
    table.append(rows(3, 6))
    (first, second) = objects(table)
    size = shared_size(first) + shared_size(second)
    assert shared_space(table.handle.log.state) == SharedSpace(2, size, 0)
    for partition in (0, 1):  # the first parts of both objects go
        table.optimize(partition=partition, final=True)
    collect(table)
    left = [part for part in table.handle.snapshot().parts if refers(part.manifest)]
    assert {first, second} <= set(objects(table))
    assert len(objects(table)) == 4
    space = shared_space(table.handle.log.state)
    assert space == SharedSpace(2, size, size - sum(part.manifest.bytes_on_disk for part in left))
    assert 0 < space.dead_bytes < size
    assert numbers(table) == list(range(12))
    table.optimize(partition=2, final=True)
    collect(table)
    assert shared_space(table.handle.log.state) == SharedSpace(0, 0, 0)
    assert not {first, second} & set(objects(table))
    assert len(objects(table)) == 3
    assert numbers(table) == list(range(12))


def test_an_older_version_keeps_the_object_of_parts_that_are_gone(warehouse):
    table = new_table(warehouse)
    table.append(rows(3))
    table.tag("first")
    table.truncate()
    collect(table)
    assert (numbers(table), numbers(table, version="first")) == ([], list(range(6)))
    table.rollback("first")
    assert numbers(table) == list(range(6))
    table.untag("first")
    collect(table)
    assert numbers(table) == list(range(6))


def test_a_late_insert_is_refused_also_where_only_its_shared_object_was_noted(warehouse):
    table = new_table(warehouse)
    late = write(table, rows(3))
    collect_round(table.handle)
    table.handle.clock.advance_s(DAY + 1)
    assert len(collect_round(table.handle).deleted) == 1
    with pytest.raises(MergelakeError, match=r"write it again") as refused:
        commit_parts(table.handle, late)
    assert refused.value.name == "ABORTED"


def test_only_what_an_insert_says_it_began_may_be_unreachable(warehouse):
    table = new_table(warehouse)
    parts = tuple(write(table, rows(3)))
    state = table.handle.log.state
    (directory,) = {name for part in parts for name in refers(part)}
    assert check(state, AddParts(parts, begun=(directory,))) is None
    assert "no longer kept" in check(state, AddParts(parts)).reason
    assert "no longer kept" in check(state, AddParts(parts, begun=("f" * 32,))).reason
    assert "another table" in check(state, AddParts(parts, begun=(directory, f"/t/{directory}"))).reason


def test_a_refused_insert_takes_its_objects_along(warehouse):
    table = new_table(warehouse)
    parts = write(table, rows(3))
    other = new_table(warehouse, "other")
    before = objects(table)
    commit_parts(table.handle, parts[:1], InsertIdentity("token"))
    assert commit_parts(table.handle, write(table, rows(3, 6)), InsertIdentity("token")).duplicate
    assert objects(table) == before
    gone = write(other, rows(3))
    warehouse.drop_table("other")
    with pytest.raises(MergelakeError):
        commit_parts(other.handle, gone)
    assert objects(other) == []


@pytest.mark.parametrize("known", [[0], [0, 1], [2]])
def test_parts_that_are_known_leave_the_object_to_those_that_are_new(warehouse, known):
    """The insert's token names each part: some are there already, and the others lie in one object with them."""
    table = new_table(warehouse)
    data = rows(3)
    table.insert(data.filter(pa.array([p in known for p in data["p"].to_pylist()])), "load", by_part=True)
    table.insert(data, "load", by_part=True)
    assert numbers(table) == list(range(6))
    collect(table)
    assert numbers(table) == list(range(6))
    assert {key.partition("/")[0] for key in objects(table)} <= reachable(table.handle.log.state)


def test_a_repetition_of_known_rows_leaves_nothing(warehouse):
    table = new_table(warehouse, non_replicated_deduplication_window=100)
    table.append(rows(3))
    before = objects(table)
    table.append(rows(3))
    assert (objects(table), numbers(table)) == (before, list(range(6)))


def test_the_same_parts_again_after_a_lost_answer_delete_nothing_of_the_table(warehouse):
    table = new_table(warehouse)
    parts = write(table, rows(3))
    commit_parts(table.handle, parts)
    with pytest.raises(ConflictError):
        commit_parts(table.handle, parts)
    table.optimize(partition=0, final=True)
    discard_refused(table.handle, parts)
    assert numbers(table) == list(range(6))


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.LOSE_REPLY])
@pytest.mark.parametrize("step", range(6))
def test_an_upload_that_fails_leaves_nothing(warehouse, fault, step):
    table = new_table(warehouse, max_shared_object_bytes=10_000)
    broken = FaultyStore(warehouse.store, script={step: fault})
    handle = table.handle
    try:
        write_blocks(insert_target(broken, handle.directory, table.schema, handle.ids, handle.clock), [rows(100)])
    except UnavailableError:
        assert objects(table) == []
    else:
        assert fault is not Fault.FAIL_BEFORE


def test_uploads_go_side_by_side_and_no_more_waits_than_fits():
    store, peak, now = MemoryStore(), [0], [0]
    lock, together = threading.Lock(), threading.Barrier(3, timeout=20)

    class Slow:
        def put(self, key, data):
            with lock:
                now[0] += len(data)
                peak[0] = max(peak[0], now[0])
            together.wait()
            store.put(key, data)
            with lock:
                now[0] -= len(data)

    objects = PartObjects(Slow(), "t", SeededIds(1), share_max=0, object_max=0)
    places = [objects.add(f"{n:032x}", [bytes(15 << 20)], 15 << 20) for n in range(6)]
    objects.finish([])
    assert places == [(f"{n:032x}/files.packed", 0) for n in range(6)]
    assert 3 * (15 << 20) <= peak[0] <= 64 << 20
    assert len(list(store.list("t"))) == 6


def test_fsck_knows_shared_objects(warehouse):
    table = new_table(warehouse)
    table.append(rows(3))
    table.detach_part("1_2_2_0")
    assert fsck(table.handle).findings == []
    (key,) = objects(table)
    data = warehouse.store.get(f"{table.handle.directory}/{key}")
    warehouse.store.put(f"{table.handle.directory}/{key}", data[:-1])
    assert [finding.where for finding in fsck(table.handle).findings if finding.kind == "object"] == ["2_3_3_0"]


def test_a_clone_reads_shared_objects_and_keeps_them(warehouse):
    table = new_table(warehouse)
    table.append(rows(3))
    copy = warehouse.clone_table("t", "copy")
    table.truncate()
    collect(table)
    assert numbers(copy) == list(range(6))
    assert shared_space(copy.handle.log.state) == SharedSpace(0, 0, 0)
    copy.optimize(final=True)
    collect(copy)
    collect(table)
    assert (numbers(copy), objects(table)) == (list(range(6)), [])


def test_a_detached_part_keeps_its_object_and_comes_back(warehouse):
    table = new_table(warehouse)
    table.append(rows(3))
    table.detach_part("1_2_2_0")
    table.truncate()
    collect(table)
    assert shared_space(table.handle.log.state).dead_bytes > 0
    table.attach_part("1_2_2_0")
    collect(table)
    assert numbers(table) == [2, 3]


def test_parts_of_several_blocks_share_objects(warehouse):
    table = new_table(warehouse, max_insert_block_size=10)
    before = warehouse.store.counters
    table.append(rows(30, each=2))
    assert (warehouse.store.counters - before).put == 2
    assert numbers(table) == list(range(60))
    assert len(objects(table)) == 1
