"""Clones, rollbacks, UNDROP, tags and detached parts of versions at which mutations are pending."""

from __future__ import annotations

import numpy as np
import pytest

from mergelake.api.python import Warehouse
from mergelake.api.sql.database import Database
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.ids import SeededIds
from mergelake.jobs.mutate.commit import run_tasks
from mergelake.jobs.mutate.plan import due_parts, mutation_task
from mergelake.log.model.volatile import unfinished
from mergelake.store.objects.memory import MemoryStore
from mergelake.table.definition.define import define

DAY = 86400


@pytest.fixture
def warehouse():
    clock = ManualClock()
    return Warehouse(MemoryStore(clock=clock), clock=clock, ids=SeededIds(1), author="me", threads=1)


@pytest.fixture
def table(warehouse):
    schema = define({"p": "UInt8", "k": "UInt64", "v": "Int64"}, order_by="k", partition_by="p")
    made = warehouse.create_table("t", schema.with_settings({"checkpoint_interval": "8"}))
    for number in range(4):
        made.append({"p": [1, 2], "k": [number, number + 10], "v": [number, number]})
    return made


def rows(table, **at):
    return sorted(table.scan(**at))


def apply_to_some(table, count):
    """Write the pending mutations into the first parts only."""
    handle = table.handle
    state = handle.refresh()
    for part in list(due_parts(state))[:count]:
        task = mutation_task(handle.directory, state.schema, part, state)
        run_tasks(handle, lambda tasks: table.env.run_mutations(handle, tasks), [task])


def pending(table):
    return [mutation.version for mutation in unfinished(table.handle.refresh())]


def seen_of(table, version, name):
    return list(table.scan(["p", "k", "v"], f"_part = '{name}'", version=version))


def test_a_clone_has_the_mutations_that_its_parts_lack(warehouse, table):
    table.update({"v": "v + 100"}, "k < 2")
    table.append({"p": [1], "k": [0], "v": [0]})
    table.delete("k = 11", partition_id="2")
    expected = rows(table)
    clone = warehouse.clone_table("t", "c")
    assert rows(clone) == rows(table) == expected
    assert len(pending(clone)) == len(pending(table)) == 2
    clone.apply_mutations()
    assert pending(clone) == []
    assert rows(clone) == expected
    clone.update({"v": "-v"}, "p = 1")
    assert rows(table) == expected
    assert rows(clone) == sorted((p, k, -v if p == 1 else v) for p, k, v in expected)
    table.optimize(final=True)
    assert rows(table) == expected


def test_a_half_done_mutation_is_cloned_and_rolled_back_to_with_block_order_kept(warehouse, table):
    table.update({"v": "v + 100"}, "k < 2")
    for number in (4, 5):
        table.append({"p": [1], "k": [number], "v": [number]})
    apply_to_some(table, 1)  # of partition 1: the parts after it lack the mutation
    expected, version = rows(table), table.version
    clone = warehouse.clone_table("t", "c")
    table.append({"p": [1], "k": [1], "v": [1]})
    table.rollback(version)
    for each in (clone, table):
        blocks = [part.manifest.minmax for part in each.handle.refresh().partitions["1"]]
        assert blocks == [part.manifest.minmax for part in table.handle.log.state_at(version).partitions["1"]]
        assert rows(each) == expected
        each.append({"p": [1], "k": [1], "v": [1]})  # which they do not concern
        each.apply_mutations()
        each.optimize(final=True)
        assert rows(each) == sorted([*expected, (1, 1, 1)])
        assert pending(each) == []


def test_a_rollback_brings_pending_mutations_back(table):
    table.update({"v": "v * 10"}, "k = 3")
    version, expected = table.version, rows(table)
    table.apply_mutations()
    table.delete("p = 1")
    table.append({"p": [1], "k": [3], "v": [3]})
    table.rollback(version)
    assert rows(table) == expected
    assert len(pending(table)) == 1
    table.append({"p": [1], "k": [3], "v": [5]})  # later than the mutation
    table.apply_mutations()
    assert rows(table) == sorted([*expected, (1, 3, 5)])
    table.rollback(version)
    table.rollback(version)  # the newest has the same rows, but other blocks
    table.optimize(final=True)
    assert rows(table) == expected


def test_a_dropped_table_comes_back_with_its_pending_mutations(warehouse, table):
    table.delete("k % 2 = 1")
    expected = rows(table)
    warehouse.drop_table("t")
    back = warehouse.undrop_table("t")
    assert rows(back) == expected
    assert len(pending(back)) == 1
    back.apply_mutations()
    assert rows(back) == expected


def test_a_tagged_version_with_pending_mutations_stays_readable(warehouse, table):
    versions = {}
    for number in range(3):
        table.update({"v": f"v * 2 + {number}"}, f"k % 3 = {number} OR k = 999")
        table.delete(f"k = 1{number}")
        table.tag(f"t{number}")
        versions[f"t{number}"] = rows(table)
    table.apply_mutations()
    table.optimize(final=True)
    table.truncate()
    for _ in range(20):
        warehouse.gc()
        warehouse.clock.advance_s(2 * DAY)
    for tag, expected in versions.items():
        assert rows(table, version=tag) == expected
        clone = warehouse.clone_table("t", tag, version=tag)
        assert rows(clone) == expected
    table.rollback("t1")
    assert rows(table) == versions["t1"]


# M-024
def test_a_detached_part_keeps_the_mutations_that_it_lacked(warehouse, table):
    table.update({"v": "v + 100"}, "p = 1")
    table.update({"v": "v * 2"}, "k = 0 OR k = 10")
    visible = rows(table)
    table.detach_part("1_1_1_0")
    table.detach_partition(2)
    table.kill_mutation("mutation_10.txt")  # of the parts that are left: those put aside are as they were
    table.apply_mutations()
    table.append({"p": [1], "k": [77], "v": [7]})
    table.update({"v": "v + 1000"}, "p = 1")  # concerns no part that is attached later
    table.apply_mutations()
    there = rows(table)
    table.attach_part("1_1_1_0")
    assert rows(table) == sorted([*there, (1, 0, 200)])
    table.attach_partition(2)
    assert rows(table) == sorted([*there, (1, 0, 200), *(row for row in visible if row[0] == 2)])
    assert len(pending(table)) > 0
    expected = rows(table)
    table.append({"p": [2], "k": [10], "v": [1]})
    table.apply_mutations()
    assert rows(table) == sorted([*expected, (2, 10, 1)])
    assert pending(table) == []


@pytest.mark.parametrize(
    ("alteration", "columns", "back"),
    [
        ("RENAME COLUMN v TO w", "k, w", [(1, 106), (2, 2)]),
        ("RENAME COLUMN v TO w, RENAME COLUMN u TO v", "k, w", [(1, 106), (2, 2)]),
        ("DROP COLUMN v", "k, u", [(1, 5), (2, 0)]),
        ("DROP COLUMN v, ADD COLUMN v Int64", "k, v", [(1, 0), (2, 0)]),
        ("ADD COLUMN z Int64 DEFAULT k", "k, v, z", [(1, 106, 1), (2, 2, 2)]),
        ("DROP COLUMN u", "", None),
        ("DROP COLUMN u, RENAME COLUMN v TO u", "", None),
        ("MODIFY COLUMN v Int128", "", None),
        ("ADD COLUMN z Int64 DEFAULT v", "", None),
    ],
)
def test_what_a_detached_part_lacked_follows_the_columns(warehouse, alteration, columns, back):
    db = Database(warehouse)
    db.sql("CREATE TABLE a (p UInt8, k Int64, u Int64, v Int64) ENGINE = MergeTree PARTITION BY p ORDER BY k")
    db.sql("INSERT INTO a VALUES (1, 1, 5, 1), (1, 2, 0, 2), (1, 3, 9, 3), (2, 1, 5, 1)")
    db.sql("ALTER TABLE a UPDATE v = v + u + 100 WHERE u = 5")
    db.sql("ALTER TABLE a DELETE WHERE k = 3")
    db.sql("ALTER TABLE a DETACH PARTITION 1")
    table = db.table("a")
    table.apply_mutations()
    db.sql(f"ALTER TABLE a {alteration}")
    version = table.refresh()
    if back is None:
        with pytest.raises(MergelakeError) as refused:
            db.sql("ALTER TABLE a ATTACH PARTITION 1")
        assert refused.value.name == "INCOMPATIBLE_COLUMNS"
        assert table.refresh() == version
        return
    db.sql("ALTER TABLE a ATTACH PARTITION 1")
    for _ in range(2):
        assert sorted(table.scan(columns.split(", "), "p = 1")) == back
        table.apply_mutations()
    assert pending(table) == []


@pytest.mark.parametrize("seed", range(4))
def test_every_version_is_cloned_and_rolled_back_to_with_its_rows(warehouse, table, seed):
    random = np.random.default_rng(seed)
    history, aside = {table.version: rows(table)}, {}
    for step in range(20):
        modulus, rest = int(random.integers(2, 5)), int(random.integers(0, 5))
        where, partition = f"(k + v) % {modulus} = {rest % modulus}", [None, None, "1", "2"][random.integers(0, 4)]
        match random.integers(0, 10):
            case 0 | 1:
                table.append({"p": [1, 2], "k": [step + 20, step + 40], "v": [step, -step]})
            case 2:
                table.update({"v": f"v + k + {rest}"}, where, partition_id=partition)
            case 3:
                table.update({"v": "intDiv(v, 2)"}, where, partition_id=partition)
            case 4:
                scope = f"IN PARTITION ID '{partition}' " if partition else ""
                Database(warehouse).sql(f"ALTER TABLE t DELETE {scope}WHERE ({where}) AND k % 5 = {rest}")
            case 5:
                table.optimize(partition_id=partition, final=partition is None and random.random() < 0.2)
            case 6:
                apply_to_some(table, int(random.integers(1, 4)))
            case 7:
                names = [part.name for part in table.handle.refresh().parts()]
                for name in random.permutation(names)[:2]:
                    table.detach_part(str(name))
            case 8:
                parts, before = table.handle.refresh().detached, rows(table)
                table.attach_partition(partition_id=partition, every=partition is None)
                back = [
                    row for part in parts if partition in (None, part.info.partition_id) for row in aside[part.info]
                ]
                assert rows(table) == sorted(before + back)
            case _:
                version = int(random.choice([*history]))
                table.rollback(version)
                assert rows(table) == history[version]
        for part in table.handle.refresh().detached:
            if part.info not in aside:
                aside[part.info] = seen_of(table, part.detached - 1, part.info)
        history[table.refresh()] = rows(table)
        assert rows(table) == history[table.version]
    for number, (version, expected) in enumerate(history.items()):
        assert rows(table, version=version) == expected
        clone = warehouse.clone_table("t", f"c{number}", version=version)
        assert rows(clone) == expected
        clone.apply_mutations()
        assert rows(clone) == expected
