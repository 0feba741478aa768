"""A node that listens: when it says so in a log, and what it takes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import InvalidInputError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.merge.select import MergeSlots
from mergelake.jobs.node.actions import NodeView, Renew, TableView
from mergelake.jobs.node.disk import LocalDisk
from mergelake.jobs.node.listening import OTHERS_MIN, OTHERS_S, Listening, Traffic
from mergelake.jobs.node.plan import tick
from mergelake.jobs.node.worker import TableWorker
from mergelake.log.model.operations import RenewLease
from tests.helpers.manifests import SCHEMA
from tests.helpers.nodes import Lake, TinyNode
from tests.helpers.volatile import Shared

HERE = ("lake-1:9440", "token")


def due(lease=None, listens=HERE, draining=False, left_ms=60_000):
    """Whether the node renews its lease."""
    shared = Shared()
    state = shared.state
    if lease is not None:
        shared.commit(RenewLease("me", state.version, shared.now_ms + left_ms, *lease))
    node = NodeView("me", shared.now_ms, MergeSlots(total=1), draining=draining)
    return Renew("t") in tick(node, [TableView("t", shared.state, listens=listens)])


def test_a_node_is_announced_where_others_commit_and_nowhere_else():
    assert due()
    assert not due(listens=None)
    assert due(lease=())  # it has one, without an address
    assert due(lease=("lake-1:9440", "of its last life"))
    assert not due(lease=HERE)
    assert due(lease=HERE, left_ms=20_000)
    assert not due(draining=True)
    assert not due(lease=HERE, left_ms=1000, listens=None)  # it has become quiet: the lease runs out


class Served:
    of_others = 0


def test_others_commit_if_a_few_of_theirs_were_seen_lately():
    clock, served = ManualClock(), Served()
    traffic = Traffic(served, clock)
    served.of_others += OTHERS_MIN - 1
    assert not traffic.busy
    served.of_others += 1
    assert traffic.busy
    clock.sleep_s(OTHERS_S + 1)
    assert not traffic.busy
    served.of_others += 1000
    assert traffic.busy


@pytest.mark.parametrize(
    ("listen", "advertise", "address"),
    [
        ("127.0.0.1:0", "", "127.0.0.1"),
        ("0.0.0.0:0", "", "lake-1"),
        ("0.0.0.0:0", "10.0.0.9:0", "10.0.0.9"),
        ("[::]:0", "", "lake-1"),
    ],
)
def test_what_others_dial(listen, advertise, address):
    listening = Listening(listen, advertise, "lake-1", clock=ManualClock(), ids=SeededIds())
    host, _, port = listening.address.rpartition(":")
    assert host == address
    assert int(port) > 0
    listening.close()


def test_a_port_may_be_another_one_outside():
    listening = Listening("127.0.0.1:0", "lake.example:9440", "lake-1", clock=ManualClock(), ids=SeededIds())
    assert listening.address == "lake.example:9440"
    listening.close()


def rows(number):
    return pa.table({"k": pa.array([number], pa.int64())})


@pytest.fixture
def warehouse(tmp_path):
    made = Warehouse(str(tmp_path), author="node")
    made.create_table("t", SCHEMA.with_settings({"merge_selector_base": "1000"}))
    return made


def test_a_node_takes_commits_of_a_busy_table_and_withdraws_when_it_leaves(warehouse, tmp_path):
    other = Warehouse(str(tmp_path), author="other").table("t")
    node = warehouse.node("n", listen="127.0.0.1:0", roles=("merge",))
    node.step()
    for number in range(OTHERS_MIN):
        other.append(rows(number))
    while node.step():  # it reads them, and announces itself
        pass
    (lease,) = warehouse.table("t").state().leases.values()
    assert lease.address == node.address
    assert len(lease.token) == 32
    other.refresh()
    before = other.handle.store.counters.put
    for number in range(5):
        other.append(rows(100 + number))
    other.refresh()
    entries = [*other.handle.log.entries(other.handle.log.state.version - 4)]
    assert {entry.author for entry in entries} == {"node"}
    assert {member.author for entry in entries for member in entry.members if member.ops} == {"other"}
    assert other.handle.store.counters.put - before == 5  # the parts: no entry
    node.drain(0.0)
    other.refresh()
    assert not other.handle.log.state.leases
    other.append(rows(200))
    assert next(other.handle.log.entries(other.handle.log.state.version)).author == "other"
    assert other.scan().arrow().num_rows == OTHERS_MIN + 6


def test_a_quiet_table_costs_no_entry(warehouse):
    warehouse.table("t").append(rows(1))
    node = warehouse.node("n", listen="127.0.0.1:0", roles=("merge",))
    version = warehouse.table("t").handle.refresh().version
    for _ in range(5):
        node.step()
    assert warehouse.table("t").handle.refresh().version == version
    node.drain(0.0)
    assert warehouse.table("t").handle.refresh().version == version


def test_what_cannot_be_is_refused_with_the_way_out(warehouse):
    with pytest.raises(InvalidInputError, match="Give listen"):
        warehouse.node(advertise="lake:1")
    with pytest.raises(InvalidInputError, match="HOST:PORT"):
        warehouse.node(listen="9440")
    with pytest.raises(InvalidInputError, match="HOST:PORT"):
        warehouse.node(listen="127.0.0.1:0", advertise="lake")


def test_two_nodes_of_one_name_do_not_take_turns_in_the_lease(warehouse, tmp_path):
    other = Warehouse(str(tmp_path), author="other").table("t")
    nodes = [each.node("n", listen="127.0.0.1:0", roles=("merge",)) for each in (warehouse, Warehouse(str(tmp_path)))]
    for node in nodes:
        node.step()
    for number in range(OTHERS_MIN):
        other.append(rows(number))
    for _ in range(5):
        for node in nodes:
            node.step()
    other.refresh()
    renewals = [op for entry in other.handle.log.entries() for op in entry.ops if isinstance(op, RenewLease)]
    assert len(renewals) == 2
    for node in nodes:
        node.drain(0.0)


def entries_of(listening: Listening | None, **settings: object) -> tuple[int, bool]:
    """Entries of a table in whose life a node merges five parts on its disk; whether its address is in the lease."""
    lake = Lake(max_bytes_to_merge_volatile=10_000_000, write_amplification_target=1.0001, **settings)
    lake.insert(5)
    node = TinyNode(lake)
    node.worker = TableWorker(
        "a",
        node.handle,
        node._merge,
        disk=LocalDisk(node.disk, "t"),
        build=node.worker._build_bytes,
        listening=listening,
    )
    node.rest()
    for _ in range(10):
        lake.clock.advance_s(30)
        node.rest()
    state = lake.handle.refresh()
    assert lake.live == ["all_1_5_1"]
    return state.version, bool(state.leases["a"].address)


def test_a_node_with_volatile_parts_says_where_it_serves_them_for_one_entry_more():
    listening = Listening("127.0.0.1:0", "", "lake-1", clock=ManualClock(), ids=SeededIds())
    try:
        quiet, announced = entries_of(None)
        assert not announced
        heard, announced = entries_of(listening)
        assert announced
        assert heard <= quiet + 1
        assert entries_of(listening, volatile_peer_reads=0) == (quiet, False)
    finally:
        listening.close()
