"""`system.merges`, `system.nodes` and `system.freshness` tell what the log and the nodes of this process know."""

from __future__ import annotations

from msgspec.structs import replace

from mergelake.api.python import Warehouse
from mergelake.api.sql.database import Database
from mergelake.api.sql.system_nodes import merge_rows
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.node.actions import Build
from mergelake.jobs.node.report import NodeReport, Requests, VolatileWork, Work, volatile_work
from mergelake.log.model.operations import Mutation
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.volatile import MIB, START_MS, Shared

MERGES = "SELECT result_part_name, is_volatile, num_parts, total_rows, state, node, progress FROM system.merges"


def database(store: MemoryStore, seed: int = 1) -> Database:
    """A connection whose clock stands still."""
    return Database(Warehouse(store, clock=ManualClock(), ids=SeededIds(seed), threads=1, author=f"writer-{seed}"))


def filled(db: Database, inserts: int = 6) -> None:
    """A table with that many parts, whose merges are volatile."""
    db.sql(
        "CREATE TABLE t (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS merge_upload_policy = 'volatile', "
        "min_age_to_force_merge_seconds = 1"
    )
    for n in range(inserts):
        db.table("t").append({"k": [n]})
    db.warehouse.clock.advance_s(60)


def test_a_volatile_merge_is_shown_with_its_state_where_its_node_runs_and_without_elsewhere():
    store = MemoryStore()
    db = database(store)
    filled(db)
    assert db.sql(MERGES).rows() == []
    node = db.warehouse.node("n1", local=MemoryStore(), poll_s=0.01)
    worker = node._worker(db.warehouse.handles()["default.t"])
    seen = []
    finish = worker.finish

    def watched(action):
        if isinstance(action, Build):
            seen.extend(db.sql(MERGES).rows())
        finish(action)

    worker.finish = watched
    for _ in range(200):
        node.step()
        if worker.view().local and node.idle():
            break
        node.abandon.wait(0.01)
    assert seen[0] == ("all_1_6_1", 1, 6, 6, "building", "n1", None), "no row is merged yet"
    (row,) = db.sql(MERGES).rows()
    assert row == ("all_1_6_1", 1, 6, 6, "ready", "n1", None)
    assert db.sql("SELECT source_part_names[1], partition, merge_type FROM system.merges").rows() == [
        ("all_1_1_0", "tuple()", "Regular")
    ]
    elsewhere = database(store, 2)
    assert elsewhere.sql(MERGES).rows() == [("all_1_6_1", 1, 6, 6, None, "n1", None)]
    columns = "table, node, is_expired, has_disk, volatile_parts, is_here"
    assert db.sql(f"SELECT {columns} FROM system.nodes").rows() == [("t", "n1", 0, 1, 1, 1)]
    assert elsewhere.sql(f"SELECT {columns} FROM system.nodes").rows() == [("t", "n1", 0, 1, 1, 0)]
    elsewhere.warehouse.clock.advance_s(3600)
    assert elsewhere.sql("SELECT is_expired FROM system.nodes").scalar() == 1
    node.drain(0)
    assert db.sql(MERGES).rows() == db.sql("SELECT * FROM system.nodes").rows() == []


def test_secrets_of_leases_are_not_shown():
    store = MemoryStore()
    db = database(store)
    filled(db, 1)
    from mergelake.log.model.operations import RenewLease

    db.table("t").handle.log.commit(lambda state: [RenewLease("n", 1, 1, "host:1", "very-secret", False)])
    text = db.sql("SELECT * FROM system.nodes").text("Vertical")
    assert "host:1" in text
    assert "secret" not in text


def report(running: list[Work], volatile: list[VolatileWork] | None = None, node: str = "n") -> NodeReport:
    """What a node tells that does this."""
    return NodeReport(
        node=node, now_ms=START_MS + 2500, started_ms=START_MS, roles=[], slots=1, healthy=True, draining=False,
        disk=True, disk_free_bytes=None, disk_parts_bytes=0, memory_bytes=0, counters={}, last_error="",
        requests=Requests(), running=running, volatile=volatile or [], back_offs=[], tables=[],
    )  # fmt: skip


def work(part: str, kind: str, parts: int, rows_done: int = 0) -> Work:
    """A long action on `d.t`, begun half a second after the start."""
    return Work(
        table="d.t", partition_id="all", part=part, kind=kind, parts=parts, rows=20, rows_done=rows_done, bytes=2 * MIB,
        bytes_done=0, started_ms=START_MS + 500,
    )  # fmt: skip


def test_merges_and_mutations_straight_to_the_store_are_told_by_their_nodes():
    shared = Shared()
    shared.insert(6)
    shared.commit(Mutation("m" * 32, "DELETE WHERE k = 1"))
    running = [
        work("all_1_2_1", "direct", 2, rows_done=5),
        work("all_3_3_0", "mutate", 1),
        work("all_4_4_0", "mutate", 2),
        work("all_5_5_0", "direct", 2),
    ]
    columns = ("result_part_name", "source_part_names", "num_parts", "is_mutation", "progress", "rows_read", "elapsed")
    told = merge_rows("d.t", shared.state, [report(running)], 0, [])
    rows = [tuple(row.get(column) for column in columns) for row in told]
    assert rows == [
        ("all_1_2_1", ["all_1_1_0", "all_2_2_0"], 2, 0, 0.25, 5, 2.0),
        ("all_3_3_0_7", ["all_3_3_0"], 1, 1, None, None, 2.0),
        ("", None, 2, 1, None, None, 2.0),
        ("", None, 2, 0, None, None, 2.0),
    ]
    assert list(merge_rows("d.other", shared.state, [report(running)], 0, [])) == []


def test_the_state_of_a_volatile_part_is_how_far_its_owner_says_that_it_is():
    shared = Shared()
    shared.insert(8)
    parts = [shared.intend(n, n + 2) for n in range(4)]
    states = ("live", "building", "ready", "uploading")
    committed = volatile_work("d.t", shared.state)
    volatile = [replace(each, state=state) for each, state in zip(committed, states, strict=True)]
    own = report([work(parts[1].name, "volatile", 2, rows_done=10)], volatile, node="me")
    rows = list(merge_rows("d.t", shared.state, [own], START_MS + 1500, []))
    assert [row["state"] for row in rows] == list(states)
    assert [row["elapsed"] for row in rows] == [1.5, 2.0, 1.5, 1.5], "of what runs, since it began"
    assert [row.get("progress") for row in rows] == [None, 0.5, None, None]
    assert [row["state"] for row in merge_rows("d.t", shared.state, [], 0, [])] == [None] * 4


def test_a_node_elsewhere_that_listens_is_asked():
    store = MemoryStore()
    db, worker = database(store), database(store, 2)
    filled(db)
    db.table("t").modify_settings({"volatile_peer_reads": 1})  # so that its node says where it listens
    worker.warehouse.clock.advance_s(60)
    node = worker.warehouse.node("n1", local=MemoryStore(), poll_s=0.01, listen="127.0.0.1:0")
    for _ in range(300):
        node.step()
        if node.idle() and db.sql("SELECT count() FROM system.merges WHERE state = 'ready'").scalar():
            break
        node.abandon.wait(0.01)
    assert db.sql(MERGES).rows() == [("all_1_6_1", 1, 6, 6, "ready", "n1", None)]
    assert db.sql("SELECT is_here, address != '' FROM system.nodes").rows() == [(0, 1)]
    node.drain(0)


def test_freshness_compares_what_is_known_here_with_what_is_in_the_store():
    store = MemoryStore()
    writer = database(store)
    filled(writer, 1)
    reader = database(store, 2)
    assert reader.sql("SELECT table, version FROM system.freshness").rows() == [("t", None)]
    reader.sql("SELECT count() FROM t")
    writer.warehouse.clock.advance_s(30)
    writer.table("t").append({"k": [1]})
    gets = store.counters.get
    assert reader.sql("SELECT version FROM system.freshness").rows() == [(2,)]
    assert store.counters.get - gets == 1, "the catalog alone is asked"
    query = "SELECT version, newest_version, absolute_delay FROM system.freshness"
    assert reader.sql(query).rows() == [(2, 3, 90)]
    assert reader.sql(query).rows() == [(3, 3, 0)], "who has asked knows it"
