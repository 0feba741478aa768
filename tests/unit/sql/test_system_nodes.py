"""`system.merges`, `system.nodes` and `system.freshness` tell what the log and the nodes of this process know."""

from __future__ import annotations

from mergelake.core.clock import ManualClock
from mergelake.core.ids import SeededIds
from mergelake.lake import Warehouse
from mergelake.log.operations import Mutation
from mergelake.log.volatile import element_id
from mergelake.node.actions import Build, TableView
from mergelake.sql.database import Database
from mergelake.sql.system_nodes import merge_rows
from mergelake.store.memory import MemoryStore
from tests.helpers.volatile import MIB, Shared, here

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
    assert seen[0] == ("all_1_6_1", 1, 6, 6, "building", "n1", None)
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
    from mergelake.log.operations import RenewLease

    db.table("t").handle.log.commit(lambda state: [RenewLease("n", 1, 1, "host:1", "very-secret", False)])
    text = db.sql("SELECT * FROM system.nodes").text("Vertical")
    assert "host:1" in text
    assert "secret" not in text


def test_merges_and_mutations_straight_to_the_store_are_those_of_nodes_here():
    shared = Shared()
    shared.insert(4)
    shared.commit(Mutation("m" * 32, "DELETE WHERE k = 1"))
    first, second, third, fourth = shared.elements()
    merging, rewriting = (frozenset(map(element_id, pair)) for pair in ((first, second), (third, fourth)))
    view = TableView(
        "t",
        shared.state,
        merging={merging: "all", rewriting: "all"},
        mutating=frozenset([rewriting]),
    )
    rows = [
        (row["result_part_name"], row["source_part_names"], row.get("is_mutation"), row["total_size_bytes_compressed"])
        for row in merge_rows(shared.state, {"n": view}, 0, [])
    ]
    assert rows == [
        ("all_1_2_1", ["all_1_1_0", "all_2_2_0"], 0, 2 * MIB),
        ("all_3_3_0_5", ["all_3_3_0"], 1, MIB),
        ("all_4_4_0_5", ["all_4_4_0"], 1, MIB),
    ]


def test_the_state_of_a_volatile_part_is_how_far_its_owner_is():
    shared = Shared()
    shared.insert(8)
    parts = [shared.intend(n, n + 2) for n in range(4)]
    view = TableView(
        "t",
        shared.state,
        here(parts[2], parts[3]),
        building=frozenset([parts[1].id]),
        uploading=frozenset([parts[3].id]),
    )
    rows = list(merge_rows(shared.state, {"me": view}, shared.now_ms + 1500, []))
    assert [row["state"] for row in rows] == ["live", "building", "ready", "uploading"]
    assert {row["elapsed"] for row in rows} == {1.5}
    assert [row["state"] for row in merge_rows(shared.state, {"other": view}, 0, [])] == [None] * 4


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
