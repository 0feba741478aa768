"""`immutable_partitions`: no door changes rows of these partitions, or adds any; mutations go to the others."""

from __future__ import annotations

import random

import pytest

import mergelake as ml
from mergelake.core.base.errors import MergelakeError
from mergelake.log.model import conflict
from mergelake.log.model.fold import fold
from mergelake.log.model.operations import AddParts, CreateTable, DropRange, Entry, Publish
from mergelake.log.model.state import State
from tests.helpers.manifests import SCHEMA, manifest

CREATE = "CREATE TABLE t (p Int16, k Int64, v Int64) ENGINE = MergeTree PARTITION BY p ORDER BY k"


@pytest.fixture(params=["memory", "directory"])
def db(request, tmp_path):
    made = ml.connect(f"memory://immutable-{tmp_path.name}" if request.param == "memory" else str(tmp_path / "w"))
    made.sql(CREATE)
    made.sql("INSERT INTO t VALUES (-5, 1, 1), (7, 2, 2), (100, 3, 3), (200, 4, 4)")
    return made


def rows(db):
    here = sorted(db.sql("SELECT p, k, v FROM t").rows())
    assert sorted(db.table("t").scan()) == here
    return here


def refused(do, name="TABLE_IS_READ_ONLY"):
    with pytest.raises(MergelakeError) as failure:
        do()
    assert failure.value.name == name, failure.value


# M-092
def test_mutations_go_to_the_mutable_partitions_and_others_are_refused(db):
    db.sql("ALTER TABLE t MODIFY SETTING immutable_partitions = 'p < 100'")
    table = db.table("t")
    db.sql("ALTER TABLE t UPDATE v = v + 10 WHERE 1")
    db.sql("DELETE FROM t WHERE k >= 4")
    table.update({"v": "v * 2"}, "k > 0")
    expected = [(-5, 1, 1), (7, 2, 2), (100, 3, 26)]
    assert rows(db) == expected
    db.sql("ALTER TABLE t ADD INDEX i v TYPE minmax, MATERIALIZE INDEX i")
    table.apply_mutations()
    assert rows(db) == expected
    version, objects = table.refresh(), {meta.key for meta in table.handle.store.list("")}
    for do in (
        lambda: db.sql("ALTER TABLE t UPDATE v = 0 IN PARTITION 7 WHERE 1"),
        lambda: db.sql("DELETE FROM t IN PARTITION ID '-5' WHERE 1"),
        lambda: db.sql("ALTER TABLE t DELETE WHERE 1, UPDATE v = 0 IN PARTITION 7 WHERE 1"),
        lambda: db.sql("INSERT INTO t VALUES (100, 9, 9), (7, 9, 9)"),
        lambda: table.append({"p": [-5], "k": [1], "v": [1]}),
        lambda: table.merge({"p": [7], "k": [2], "v": [5]}, on=["p", "k"]),
        lambda: table.merge({"p": [300], "k": [2], "v": [5]}, on="k"),
        lambda: table.overwrite({"p": [7], "k": [2], "v": [5]}),
        lambda: table.overwrite({"p": [7], "k": [2], "v": [5]}, dynamic=True),
        lambda: table.overwrite({"p": [7], "k": [2], "v": [5]}, "p = 7"),
        lambda: table.overwrite({"p": [100], "k": [2], "v": [5]}, "k = 2"),
    ):
        refused(do)
    assert table.refresh() == version
    assert {meta.key for meta in table.handle.store.list("")} == objects
    table.merge({"p": [100], "k": [3], "v": [0]}, on=["p", "k"])
    table.overwrite({"p": [200], "k": [6], "v": [6]}, "p = 200")
    table.optimize(final=True)
    assert rows(db) == [(-5, 1, 1), (7, 2, 2), (100, 3, 0), (200, 6, 6)]


def test_whole_partitions_may_go_and_come_back_where_none_is(db):
    table = db.table("t")
    db.sql("ALTER TABLE t UPDATE v = v + 1 WHERE 1")  # it was submitted before
    db.sql("ALTER TABLE t MODIFY SETTING immutable_partitions = '_partition_id IN (\\'7\\', \\'-5\\')'")
    version, expected = table.refresh(), rows(db)
    clone = db.warehouse.clone_table("t", "c")
    assert sorted(clone.scan()) == expected
    db.sql("ALTER TABLE t DETACH PARTITION 7")
    db.sql("ALTER TABLE t ATTACH PARTITION 7")
    assert rows(db) == expected
    db.sql("ALTER TABLE t DETACH PARTITION 7, DROP PARTITION -5")
    db.sql("INSERT INTO t VALUES (7, 70, 70)")
    refused(lambda: db.sql("ALTER TABLE t ATTACH PARTITION 7"))
    refused(lambda: db.sql("INSERT INTO t VALUES (7, 71, 71)"))
    table.rollback(version)
    assert rows(db) == expected
    db.sql("DROP TABLE t")
    db.sql("UNDROP TABLE t")
    assert rows(db) == expected
    db.sql("ALTER TABLE t RESET SETTING immutable_partitions")
    db.sql("DELETE FROM t WHERE p = 7")
    assert rows(db) == [row for row in expected if row[0] != 7]


def test_what_is_no_condition_on_partitions_is_refused(db):
    for text in ("k = 1", "p", "p = ", "nothing = 1", "_partition_id", "sum(p) = 1", "p = now()"):
        version = db.table("t").version
        with pytest.raises(MergelakeError) as failure:
            db.sql(f"ALTER TABLE t MODIFY SETTING immutable_partitions = '{text}'")
        assert failure.value.name == "BAD_ARGUMENTS", (text, failure.value)
        assert db.table("t").version == version
    db.sql("CREATE TABLE u (k Int64) ENGINE = MergeTree PARTITION BY k % 4 ORDER BY k")
    refused(lambda: db.sql("ALTER TABLE u MODIFY SETTING immutable_partitions = 'k = 1'"), "BAD_ARGUMENTS")
    db.sql("INSERT INTO u VALUES (1), (2)")
    db.sql("ALTER TABLE u MODIFY SETTING immutable_partitions = '_partition_id = ''1'''")
    refused(lambda: db.sql("INSERT INTO u VALUES (5)"))
    db.sql("INSERT INTO u VALUES (6)")


@pytest.mark.parametrize("seed", range(3))
def test_random_statements_leave_immutable_partitions_alone(seed):
    draw = random.Random(seed)
    db = ml.connect(f"memory://immutable-random-{seed}")
    db.sql(CREATE)
    model, limit = [], None
    for step in range(30):
        match draw.randrange(6):
            case 0 | 1:
                new = [(draw.choice([-2, 1, 3]), step, draw.randrange(5)) for _ in range(2)]
                held = {row[0] for row in model}
                if limit is not None and any(row[0] < limit and row[0] in held for row in new):
                    refused(lambda new=new: db.sql(f"INSERT INTO t VALUES {', '.join(map(str, new))}"))
                else:
                    db.sql(f"INSERT INTO t VALUES {', '.join(map(str, new))}")
                    model += new
            case 2:
                low = draw.randrange(30)
                db.sql(f"ALTER TABLE t UPDATE v = v + 1 WHERE k >= {low}")
                model = [(p, k, v + (k >= low and (limit is None or p >= limit))) for p, k, v in model]
            case 3:
                value = draw.randrange(5)
                db.sql(f"DELETE FROM t WHERE v = {value}")
                model = [row for row in model if row[2] != value or (limit is not None and row[0] < limit)]
                held_back = model  # partitions without rows may still have parts: fill none of these
                db.table("t").apply_mutations()
                db.table("t").optimize(final=True)
                if {row[0] for row in held_back} != {int(name) for name in db.table("t").handle.refresh().partitions}:
                    db.sql("TRUNCATE TABLE t")
                    model = []
            case 4:
                limit = draw.choice([None, 0, 2, 10])
                db.table("t").modify_settings(*(({}, ["immutable_partitions"]) if limit is None else (
                    {"immutable_partitions": f"p < {limit}"},)))  # fmt: skip
            case _:
                draw.choice([db.table("t").apply_mutations, lambda: db.table("t").optimize(final=True)])()
        assert rows(db) == sorted(model)


def test_a_partition_that_is_merged_in_the_same_entry_is_not_one_that_the_entry_fills():
    schema = SCHEMA.with_settings({"immutable_partitions": "_partition_id = 'a'"})
    old, merged, new, more = (manifest(f"{number:032x}", "a") for number in range(4))
    state = fold(State(), [entry_of(1, CreateTable(schema), AddParts((old,)))])
    merge, insert = Publish(merged, (old.id,)), AddParts((new,))
    assert isinstance(conflict.step(state, entry_of(2, merge)), State)
    for ops in ((insert,), (merge, insert)):
        outcome = conflict.step(state, entry_of(2, *ops))
        assert isinstance(outcome, conflict.Reject)
        assert outcome.name == "TABLE_IS_READ_ONLY"
    filled = conflict.step(state, entry_of(2, DropRange("a", "drop"), insert, AddParts((more,))))
    assert isinstance(filled, State), "a partition without parts, by one entry"


def entry_of(version, *ops):
    return Entry(version, f"{version:032x}", version, "me", ops)
