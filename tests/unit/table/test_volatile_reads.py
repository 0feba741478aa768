"""Reads of volatile parts from the nodes that have them: the same rows, whatever becomes of the nodes."""

from __future__ import annotations

import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.jobs.node.actions import Build
from mergelake.log.model.operations import DropRange, Mutation
from mergelake.scan.read.read import read_items
from mergelake.store.peer.client import NotSent, UnknownOutcome
from mergelake.table.volatile.volatile_reads import AVOID_FIRST_S, OFF, volatile_mode
from mergelake.table.volatile.volatile_wire import SERVICE, BytesRequest, ReadyRequest, encode_request
from tests.helpers.nodes import Lake, TinyNode
from tests.helpers.peer_reads import Reader, serving
from tests.helpers.peers import Network

COLUMNS = ("k", "v")


class World:
    """A table of five parts, merged on the disk of the node `a`, and a reader."""

    def __init__(self, build=True, rows=2000, **settings):
        self.lake = Lake(
            **{"max_bytes_to_merge_volatile": 10_000_000, "write_amplification_target": 1.0001, **settings}
        )
        self.lake.insert(5, rows=rows)
        self.node = TinyNode(self.lake)
        self.node.rest() if build else self.node.step()
        self.network = Network()
        self.address = serving(self.network, self.lake, self.node)
        self.reader = Reader(self.lake, self.network)

    def gets(self):
        return self.lake.store.counters.details.get("get data", 0)


LARGE = 12_000
"""Rows of each part with which the merged one is not fetched whole."""


@pytest.fixture(params=[{}, {"rows": LARGE, "index_granularity": 256}], ids=["small", "large"])
def world(request):
    return World(**request.param)


def test_a_merged_part_is_read_from_its_node_and_nothing_of_its_sources_from_the_store(world):
    # M-010
    before = world.gets()
    assert world.reader.rows() == sorted(world.lake.rows)
    assert world.gets() == before
    assert world.reader.says() == ["Volatile part all_1_5_1 from node a, in place of 5 stored parts"]


@pytest.mark.parametrize(
    "request_of",
    [
        {"where": "k < 100"},
        {"where": "v % 7 = 1", "columns": ("k",)},
        {"columns": ("_part_offset", "k"), "where": "k = 333"},
        {"ordered": True},
        {"ordered": True, "limit": 7, "columns": ("k",)},
        {"ordered": True, "columns": ("v",), "where": "v > 5000"},
    ],
)
def test_all_that_a_read_needs_is_fetched_before_its_first_row(world, request_of):
    found = world.reader.rows(**request_of)
    if "_part_offset" not in request_of.get("columns", ()):
        stored = world.reader.rows(mode=OFF, **request_of)
        assert sorted(found) == sorted(stored)
        if "v" not in request_of.get("columns", COLUMNS):
            assert found == stored
    assert found


def test_under_a_limit_little_is_fetched():
    world = World(rows=LARGE, index_granularity=256)
    assert len(world.reader.rows(limit=3)) == 3
    (service,) = world.network.services.values()
    few = service.bytes_served
    assert len(world.reader.rows()) == 5 * LARGE
    assert few * 4 < service.bytes_served


# -- no answer ---------------------------------------------------------------------------------------


def test_without_an_answer_the_stored_parts_are_read_and_the_node_is_left_alone_for_a_while(world):
    world.network.services.clear()
    assert world.reader.rows() == sorted(world.lake.rows)
    assert world.network.calls == 1
    assert world.reader.says() == ["5 stored parts, not volatile part all_1_5_1 of node a: it does not answer"]
    assert world.network.calls == 1  # it is not asked again
    world.reader.clock.advance_s(AVOID_FIRST_S + 0.1)
    assert world.reader.rows() == sorted(world.lake.rows)
    assert world.network.calls == 2


def test_a_node_that_comes_back_is_read_again(world):
    services = dict(world.network.services)
    world.network.services.clear()
    assert world.reader.rows() == sorted(world.lake.rows)
    world.network.services.update(services)
    world.reader.clock.advance_s(AVOID_FIRST_S + 0.1)
    assert world.reader.says()[0].startswith("Volatile part")


def test_what_is_not_ready_is_read_from_the_store():
    world = World(build=False)
    assert any(isinstance(action, Build) for action in world.node.due())
    assert world.reader.rows() == sorted(world.lake.rows)
    assert world.reader.says() == ["5 stored parts, not volatile part all_1_5_1 of node a: it is not ready there"]
    world.node.rest()
    assert world.reader.says()[0].startswith("Volatile part")


def test_a_table_may_forbid_that_its_parts_are_served():
    world = World(volatile_peer_reads=0)
    assert world.reader.says() == ["5 stored parts, not volatile part all_1_5_1 of node a: it is not ready there"]
    assert world.reader.rows() == sorted(world.lake.rows)


def test_by_default_nobody_is_asked(world):
    assert world.reader.rows(mode=OFF) == sorted(world.lake.rows)
    assert world.network.calls == 0
    assert world.reader.says(mode=OFF) == [
        "Stored parts, not volatile part all_1_5_1 of node a: read_volatile is off",
    ]


def test_a_node_that_dies_at_any_moment_of_a_read_loses_and_doubles_no_row(world):
    calls = last = 0
    dead = False
    real = world.network.call

    def call(*arguments):
        nonlocal calls, dead
        calls += 1
        if calls > last:
            dead = True
        if dead:
            raise (NotSent if calls % 2 else UnknownOutcome)("it is dead")
        return real(*arguments)

    world.network.call = call
    for request in ({}, {"where": "k < 300"}, {"ordered": True}, {"limit": 10}):
        stored = sorted(Reader(world.lake, None).rows(mode=OFF, **request))
        for allowed in range(8):
            calls, dead, last = 0, False, allowed
            rows = sorted(Reader(world.lake, world.network).rows(**request))
            assert rows == stored if "limit" not in request else len(rows) == 10


def test_a_node_that_dies_after_the_first_rows_is_not_missed(world):
    _, batches, store = world.reader.scan()
    first = next(batches)
    world.network.services.clear()
    rows = [row for batch in (first, *batches) for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
    assert sorted(rows) == sorted(world.lake.rows)
    assert store.late == 0


def test_a_scan_may_be_read_again_after_its_node_died(world):
    plan, _, store = world.reader.scan()
    world.network.services.clear()
    for _ in range(2):
        batches = read_items(store, "t", plan, caches=world.reader.caches, threads=1)
        rows = [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
        assert sorted(rows) == sorted(world.lake.rows)


def test_large_pieces_are_kept_in_a_file_and_read_as_they_were_sent(world, monkeypatch):
    monkeypatch.setattr("mergelake.table.volatile.volatile_store.SPOOL_BYTES", 100)
    monkeypatch.setattr("mergelake.table.volatile.volatile_wire.BYTES_MAX", 1000)
    assert world.reader.rows() == sorted(world.lake.rows)
    monkeypatch.setattr("os.posix_fallocate", no_room)
    assert Reader(world.lake, world.network).rows() == sorted(world.lake.rows)


def no_room(*_):
    raise OSError("no space left on device")


def test_damaged_bytes_count_as_no_answer(world):
    (record,) = [item.key for item in world.node.disk.list("t/volatile")]
    for item in list(world.node.disk.list("t")):
        if item.key == record:
            continue
        whole = world.node.disk.get(item.key)
        for at in range(0, len(whole), max(1, len(whole) // 20)):
            damaged = bytearray(whole)
            damaged[at] ^= 0x41
            world.node.disk.put(item.key, bytes(damaged))
            assert Reader(world.lake, world.network).rows() == sorted(world.lake.rows)
        world.node.disk.put(item.key, whole)
    assert world.reader.says()[0].startswith("Volatile part")


@pytest.mark.parametrize("answer", [b"", b"{}", b"\xff" * 50, b'{"ready":[["x",{}]],"left":[]}'])
def test_an_answer_that_is_none_is_no_answer(world, answer):
    world.network.call = lambda *_: answer
    assert world.reader.rows() == sorted(world.lake.rows)


def test_a_part_that_its_node_dropped_meanwhile_is_missing(world):
    plan, batches, _ = world.reader.scan()
    assert plan.items[0].merged is not None
    world.node.worker._forget(world.node.worker._held())
    rows = [row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
    assert sorted(rows) == sorted(world.lake.rows)
    assert world.reader.says() == ["5 stored parts, not volatile part all_1_5_1 of node a: it is not ready there"]


def test_only_bytes_of_parts_are_served(world):

    service = world.network.services[world.address, "a token", SERVICE]
    (local,) = world.node.worker.served().values()
    key = local.manifest.object_keys()[0]
    assert len(service(encode_request(BytesRequest("t", key, ((0, 10),))))) == 10
    record = f"volatile/{local.id}.json"
    for table, wrong in (
        ("t", record),
        ("t", f"{local.manifest.id[:-1]}/x"),
        ("u", key),
        ("t", f"../t/{key}"),
        ("t", f"{local.manifest.id}/../volatile/{local.id}.json"),
    ):
        assert service(encode_request(BytesRequest(table, wrong, ((0, 10),)))) == b""
    for ranges in (((-1, 5),), ((0, 1 << 40),), ((0, 1),) * 5000):
        with pytest.raises(ValueError, match="ranges"):
            service(encode_request(BytesRequest("t", key, ranges)))
    with pytest.raises(ValueError):
        service(b'{"kind":"delete"}')
    assert b'"ready":[]' in service(encode_request(ReadyRequest("u", (local.id,))))


# -- which state is read -----------------------------------------------------------------------------


def test_a_mutation_that_came_later_is_applied_on_reading(world):
    world.lake.handle.refresh()
    world.lake.handle.log.commit(lambda _: [Mutation("m1", "DELETE WHERE v % 2 = 0")])
    assert world.reader.says()[0].startswith("Volatile part")
    assert world.reader.rows() == sorted(row for row in world.lake.rows if row[1] % 2)


def test_rows_that_were_dropped_do_not_come_back(world):
    version = world.lake.handle.refresh().version
    world.lake.handle.log.commit(lambda _: [DropRange(kind="truncate")])
    world.lake.rows, kept = [], world.lake.rows
    world.lake.insert(1, rows=10)
    assert world.reader.rows() == sorted(world.lake.rows)
    assert world.reader.says() == []
    assert world.reader.rows(version=version) == sorted(kept)  # the old version has it, and the node still does
    assert world.reader.says(version=version)[0].startswith("Volatile part")


def test_older_versions_have_the_volatile_parts_that_were_live_then(world):
    world.lake.handle.refresh()
    for version in range(1, world.lake.handle.log.state.version + 1):
        assert world.reader.rows(version=version) == world.reader.rows(version=version, mode=OFF)


def test_the_setting_has_three_kinds_of_values():
    assert [volatile_mode(each) for each in ("off", "peers", "/disks")] == ["off", "peers", "/disks"]
    for wrong in ("yes", "", True, None, "disks"):
        with pytest.raises(MergelakeError):
            volatile_mode(wrong)
