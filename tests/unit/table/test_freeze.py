"""FREEZE keeps a version, or partitions of it, under a name: what is read of it, and what collection leaves."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.api.python import Warehouse
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import SeededIds
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define

DAY = 86400


@pytest.fixture
def warehouse():
    clock = ManualClock()
    return Warehouse(MemoryStore(clock=clock), clock=clock, ids=SeededIds(1), author="me", threads=1)


@pytest.fixture
def table(warehouse):
    schema = define({"p": "Int8", "k": "UInt64", "v": "Int64"}, order_by="k", partition_by="p")
    made = warehouse.create_table("t", schema.with_settings({"checkpoint_interval": "8"}))
    for number in range(3):
        for p, k in ((1, number), (-2, number + 10), (3, 77)):  # each an object of its own
            made.append({"p": [p], "k": [k], "v": [number]})
    made.update({"v": "v + 100"}, "k % 2 = 0")
    return made


def rows(table, **at):
    return sorted(table.scan(**at))


def age(warehouse, table):
    """Change everything, and collect until nothing old is left that need not be."""
    table.apply_mutations()
    table.optimize(final=True)
    table.append({"p": [1, -2], "k": [5, 15], "v": [5, 5]})
    table.delete("k < 2")
    table.apply_mutations()
    for _ in range(25):
        warehouse.gc()
        warehouse.clock.advance_s(DAY)


def data_objects(warehouse, table):
    prefix = table.handle.directory
    return {meta.key for meta in warehouse.store.list(prefix) if "/_" not in meta.key}


def other_process(warehouse):
    return Warehouse(warehouse.store, clock=warehouse.clock, ids=SeededIds(2), author="other", threads=1).table("t")


def test_a_frozen_version_stays_and_costs_no_data_object(warehouse, table):
    before, expected = data_objects(warehouse, table), rows(table)
    assert table.freeze("before") == "before"
    assert data_objects(warehouse, table) == before
    age(warehouse, table)
    for each in (table, other_process(warehouse)):
        assert rows(each, version="before") == expected
    assert rows(warehouse.clone_table("t", "c", version="before")) == expected
    table.unfreeze("before")
    warehouse.drop_table("c")
    age(warehouse, table)
    assert not before & data_objects(warehouse, table)
    with pytest.raises(MergelakeError, match="no tag"):
        table.scan(version="before")


def test_a_frozen_partition_stays_alone(warehouse, table):
    old, all_rows = data_objects(warehouse, table), rows(table)
    table.freeze("some", -2)
    expected = [row for row in all_rows if row[0] == -2]
    table.tag("whole")
    assert rows(table, version="some") == expected
    assert len(rows(table, version=table.version - 2)) == len(all_rows)
    table.untag("whole")
    age(warehouse, table)
    left = old & data_objects(warehouse, table)
    assert 0 < len(left) < len(old)
    for each in (table, other_process(warehouse)):
        assert rows(each, version="some") == expected
        with pytest.raises(MergelakeError, match="has been collected"):
            each.scan(version=each.tags()["some"])
    with pytest.raises(MergelakeError, match="only some partitions"):
        table.rollback("some")
    clone = warehouse.clone_table("t", "c", version="some")
    clone.apply_mutations()
    assert rows(clone) == expected


def test_partitions_are_taken_out_of_what_is_frozen(warehouse, table):
    expected = rows(table)
    table.freeze("n")
    age(warehouse, table)
    assert rows(table, version="n") == expected
    table.unfreeze("n", 1)
    assert rows(table, version="n") == [row for row in expected if row[0] != 1]
    table.unfreeze("n", partition_id="3")
    table.unfreeze("n", 99)
    age(warehouse, table)
    assert rows(other_process(warehouse), version="n") == [row for row in expected if row[0] == -2]
    table.unfreeze("n", -2)
    assert table.tags() == {}
    assert table.unfreeze("n") == table.version


def test_statements_and_what_they_refuse():
    db = ml.connect("memory://freeze")
    db.sql("CREATE TABLE t (p Int8, k UInt8) ENGINE = MergeTree PARTITION BY p ORDER BY k")
    db.sql("INSERT INTO t VALUES (1, 1), (-2, 2)")
    db.sql("ALTER TABLE t FREEZE PARTITION -2 WITH NAME 'a', FREEZE WITH NAME 'b', FREEZE")
    db.sql("INSERT INTO t VALUES (-2, 3)")
    table = db.table("t")
    (third,) = table.tags().keys() - {"a", "b"}
    assert third == f"freeze_{table.tags()[third]}"
    count = "SELECT groupArray(k) FROM (SELECT k FROM t AS OF TAG '{}' ORDER BY k)"
    assert [db.sql(count.format(name)).scalar() for name in ("a", "b")] == [[2], [1, 2]]
    db.sql("CREATE TABLE c CLONE AS t AS OF TAG 'a'")
    assert db.sql("SELECT k FROM c").rows() == [(2,)]
    for statement, name in {
        "ALTER TABLE t FREEZE WITH NAME 'a'": "DIRECTORY_ALREADY_EXISTS",
        "ALTER TABLE t FREEZE PARTITION ALL WITH NAME 'x'": "SUPPORT_IS_DISABLED",
        "ALTER TABLE t FREEZE PARTITION 1000 WITH NAME 'x'": "ARGUMENT_OUT_OF_BOUND",
        "ALTER TABLE t FREEZE WITH NAME '7'": "BAD_ARGUMENTS",
        "ALTER TABLE t FREEZE PARTITION ID '' WITH NAME 'x'": "INVALID_PARTITION_VALUE",
        "ALTER TABLE t UNFREEZE": "SYNTAX_ERROR",
        "ALTER TABLE t FORGET PARTITION 1": "NOT_IMPLEMENTED",
        "SYSTEM UNFREEZE WITH NAME 'a'": "NOT_IMPLEMENTED",
    }.items():
        version = table.refresh()
        with pytest.raises(MergelakeError) as refused:
            db.sql(statement)
        assert (refused.value.name, table.refresh()) == (name, version), statement
    db.sql("ALTER TABLE t UNFREEZE WITH NAME 'nobody'")
    db.sql("ALTER TABLE t UNFREEZE PARTITION -2 WITH NAME 'b'")
    assert db.sql(count.format("b")).scalar() == [1]
    db.sql("ALTER TABLE t UNFREEZE WITH NAME 'a', UNFREEZE WITH NAME 'b'")
    table.refresh()
    assert list(table.tags()) == [third]


# M-024
def test_commands_on_partitions_put_one_log_entry_and_no_data(warehouse, table):
    name = table.handle.refresh().partitions["1"][0].name
    for command in (
        lambda: table.detach_partition(-2),
        lambda: table.attach_partition(-2),
        lambda: table.detach_part(name),
        lambda: table.attach_part(name),
        lambda: table.freeze("n"),
        lambda: table.freeze("m", 1),
        lambda: table.unfreeze("n", 1),
        lambda: table.detach_partition(every=True),
        lambda: table.drop_detached_partition(1),
        lambda: table.attach_partition(every=True),
        lambda: table.drop_partition(every=True),
    ):
        objects, before, version = data_objects(warehouse, table), warehouse.store.counters, table.version
        command()
        used = warehouse.store.counters - before
        assert table.version == version + 1
        assert used.put <= 3  # a checkpoint and its hint may follow the entry
        assert data_objects(warehouse, table) == objects
