"""Clones, rollbacks, UNDROP, tags and detached parts of versions at which mutations are pending."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from mergelake.core.clock import ManualClock
from mergelake.core.errors import MergelakeError
from mergelake.core.ids import SeededIds
from mergelake.lake import Warehouse
from mergelake.log.volatile import unfinished
from mergelake.mutate.commit import run_tasks
from mergelake.mutate.plan import due_parts, mutation_task
from mergelake.sql.database import Database
from mergelake.store.memory import MemoryStore
from mergelake.table.define import define

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


def refused(do):
    with pytest.raises(MergelakeError) as failure:
        do()
    assert failure.value.name == "UNFINISHED"
    assert "apply_mutations" in str(failure.value)


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


def test_a_part_that_has_a_mutation_comes_after_it_in_a_clone_and_block_order_decides(warehouse, table):
    table.update({"v": "v + 100"}, "k < 2")
    for number in (4, 5):
        table.append({"p": [1], "k": [number], "v": [number]})
    expected = rows(table)
    apply_to_some(table, 1)  # of partition 1: the parts after it lack the mutation
    refused(lambda: warehouse.clone_table("t", "c"))
    version = table.version
    table.append({"p": [3], "k": [1], "v": [1]})
    refused(lambda: table.rollback(version))
    expected = rows(table)
    table.optimize(partition_id="1", final=True)  # one part, which has it; those of partition 2 lack it
    assert len(pending(table)) == 1
    assert rows(warehouse.clone_table("t", "c")) == expected
    table.apply_mutations()
    assert rows(warehouse.clone_table("t", "e")) == rows(table) == expected


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


def test_a_part_that_lacks_a_mutation_is_not_detached(table):
    table.update({"v": "v + 1"}, "p = 1")
    refused(lambda: table.detach_part("1_1_1_0"))
    table.apply_mutations()
    expected = rows(table)
    table.detach_part("1_1_1_0_9")
    table.update({"v": "v + 1000"}, "p = 1")
    table.attach_part("1_1_1_0_9")
    assert rows(table) == sorted((p, k, v + 1000 if p == 1 and k else v) for p, k, v in expected)


def _or_refused(do):
    """None if it is refused as the mutations of that version were half done."""
    try:
        return do()
    except MergelakeError as failure:
        if failure.name != "UNFINISHED":
            raise
        return None


@pytest.mark.parametrize("seed", range(4))
def test_every_version_is_cloned_and_rolled_back_to_with_its_rows_or_refused(warehouse, table, seed):
    random = np.random.default_rng(seed)
    history = {table.version: rows(table)}
    worked = [0, 0]
    for step in range(20):
        modulus, rest = int(random.integers(2, 5)), int(random.integers(0, 5))
        where, partition = f"(k + v) % {modulus} = {rest % modulus}", [None, None, "1", "2"][random.integers(0, 4)]
        match random.integers(0, 8):
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
            case _:
                version = int(random.choice([*history]))
                done = _or_refused(partial(table.rollback, version))
                worked[done is None] += 1
                assert done is None or rows(table) == history[version]
        history[table.refresh()] = rows(table)
        assert rows(table) == history[table.version]
    for number, (version, expected) in enumerate(history.items()):
        assert rows(table, version=version) == expected
        clone = _or_refused(partial(warehouse.clone_table, "t", f"c{number}", version=version))
        worked[clone is None] += 1
        if clone is None:
            continue
        assert rows(clone) == expected
        clone.apply_mutations()
        assert rows(clone) == expected
    assert worked[0] > worked[1]
