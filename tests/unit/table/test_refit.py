"""Work that was planned with an older schema is judged when it is committed, never silently wrong."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.api.python.input import storage_batches
from mergelake.core.base.errors import ConflictError
from mergelake.core.model.names import merged_name
from mergelake.jobs.merge.execute import execute_merge
from mergelake.jobs.merge.plan import MergeSource, MergeTask
from mergelake.log.model.conflict import check
from mergelake.log.model.operations import AddParts, Mutation, Publish
from mergelake.table.write.insert import commit_parts, insert_target, write_blocks


@pytest.fixture
def tables(tmp_path):
    """A table, and the same one as a process sees it that does not look for news."""
    db = ml.connect(str(tmp_path))
    db.sql(
        "CREATE TABLE t (k UInt32, v Int32, s String, m Int32 MATERIALIZED v * 2, d Int32 DEFAULT v + 1) "
        "ENGINE = MergeTree ORDER BY k"
    )
    db.sql("INSERT INTO t (k, v, s) VALUES (1, 10, '1')")
    late = ml.connect(str(tmp_path)).table("t")
    assert late.version == db.table("t").version
    return db, late


def read(db, columns):
    return db.sql(f"SELECT {columns} FROM t ORDER BY k").rows()


def written(table, **columns):
    """Parts that an insert has written and not yet committed."""
    handle = table.handle
    target = insert_target(handle.store, handle.directory, handle.schema, handle.ids, handle.clock)
    return write_blocks(target, storage_batches(columns, handle.schema), base_version=handle.base_version())


@pytest.mark.parametrize(
    ("commands", "columns", "row"),
    [
        ("ADD COLUMN z Int8 DEFAULT 7", "k, v, s, z", (2, 20, "2", 7)),
        ("DROP COLUMN s, ADD COLUMN s Int64", "k, s", (2, 0)),
        ("RENAME COLUMN s TO txt, ADD COLUMN s Int8 DEFAULT 3", "k, txt, s", (2, "2", 3)),
        ("MODIFY COLUMN s UInt16", "k, s", (2, 2)),
        ("MODIFY COLUMN s UInt16, MODIFY COLUMN s DEFAULT 5", "k, s", (2, 2)),
        ("CLEAR COLUMN s", "k, s", (2, "")),
        ("MODIFY COLUMN d DEFAULT v + 100", "k, d", (2, 21)),
        ("MODIFY SETTING merge_max_block_size = 5", "k, m", (2, 40)),
    ],
)
def test_an_insert_that_fits_the_new_schema_is_committed(tables, commands, columns, row):
    db, late = tables
    parts = written(late, k=[2], v=[20], s=["2"])
    db.sql(f"ALTER TABLE t {commands}")
    assert commit_parts(late.handle, parts).rows == 1
    assert read(db, columns)[-1] == row
    db.sql("OPTIMIZE TABLE t FINAL")
    assert read(db, columns)[-1] == row


@pytest.mark.parametrize(
    ("commands", "error"),
    [
        ("MODIFY COLUMN m MATERIALIZED v * 3", ConflictError),
        ("MODIFY COLUMN d MATERIALIZED v * 3", ConflictError),
        ("MODIFY COLUMN s UInt16", ml.MergelakeError),
    ],
)
def test_an_insert_that_does_not_fit_is_refused_and_leaves_nothing(tables, commands, error):
    db, late = tables
    store = db.warehouse.store
    before = {item.key for item in store.list("") if "_log" not in item.key}
    parts = written(late, k=[2], v=[20], s=["no number"])
    db.sql(f"ALTER TABLE t {commands}")
    with pytest.raises(error):
        commit_parts(late.handle, parts)
    assert {item.key for item in store.list("") if "_log" not in item.key} == before
    assert late.append({"k": [2], "v": [20], "s": ["2"]}).rows == 1
    assert len(read(db, "k")) == 2


def test_a_mutation_that_was_written_for_an_older_schema_is_checked_anew(tables):
    db, late = tables
    db.sql("ALTER TABLE t DROP COLUMN s, RENAME COLUMN d TO s")
    late.update({"s": "s + 1"}, where="k = 1")  # of the new column
    assert read(db, "k, s") == [(1, 12)]
    with pytest.raises(ml.MergelakeError, match="NO_SUCH_COLUMN_IN_TABLE"):
        late.update({"d": "1"}, where="k = 1")
    state = late.handle.log.state
    old = Mutation("x", "UPDATE v = 1 WHERE 1", schema_version=state.schema_version - 1)
    assert check(state, old).kind == "conflict"
    assert check(state, AddParts((), "t", schema_version=state.schema_version - 1)).kind == "conflict"


def test_a_merge_into_is_not_committed_over_an_altered_table(tables):
    db, late = tables
    db.sql("ALTER TABLE t RENAME COLUMN v TO s2, RENAME COLUMN s TO v")
    with pytest.raises(ml.MergelakeError):
        late.merge({"k": [2], "v": [1], "s": ["x"]}, on="v")
    assert len(read(db, "k")) == 1
    late.refresh()
    late.merge({"k": [2], "v": ["1"]}, on="v")
    assert read(db, "k, v") == [(2, "1")]


def test_a_merge_with_defaults_of_before_is_refused(tables):
    db, _ = tables
    table = db.table("t")
    table.add_column("z", "Int32", default="v * 10")
    db.sql("INSERT INTO t (k, v, s) VALUES (2, 20, '2')")
    handle = table.handle
    handle.refresh()

    def merged():
        state = handle.log.state
        sources = tuple(MergeSource(part.info, part.manifest) for part in state.parts())
        name = merged_name([source.info for source in sources])
        task = MergeTask(handle.directory, state.schema, sources, name, "regular", state.version)
        return task, execute_merge(handle.store, task, handle.ids, handle.clock)

    task, part = merged()
    table.modify_column("z", default="v * 100")
    op = Publish(part, tuple(source.manifest.id for source in task.sources))
    assert check(handle.log.state, op).kind == "conflict"
    task, part = merged()
    assert check(handle.log.state, Publish(part, op.replaced)) is None
    table.add_column("y", "Int8")
    assert check(handle.log.state, Publish(part, op.replaced)) is None
    assert read(db, "k, z") == [(1, 1000), (2, 200)]


def test_a_detached_part_is_judged_when_it_is_attached(tables):
    db, _ = tables
    db.sql("INSERT INTO t (k, v, s) VALUES (2, 20, 'no number')")
    table = db.table("t")
    table.refresh()
    table.detach_part("all_2_2_0")
    table.modify_column("s", "UInt8")
    table.modify_column("m", materialized="v * 3")
    with pytest.raises(ml.MergelakeError, match="CANNOT_PARSE_TEXT"):
        table.attach_part("all_2_2_0")
    table.modify_column("s", "String")
    with pytest.raises(ml.MergelakeError, match="CANNOT_PARSE_TEXT"):
        table.attach_part("all_2_2_0")
    table.drop_column("s")
    table.attach_part("all_2_2_0")
    assert read(db, "k, m") == [(1, 20), (2, 40)]


def test_a_detached_part_keeps_the_meaning_of_the_mutation_that_it_lacks(tables):
    db, _ = tables
    db.sql("UPDATE t SET d = v + 1 WHERE 1")
    db.sql("ALTER TABLE t DETACH PART 'all_1_1_0'")
    db.sql("ALTER TABLE t ADD COLUMN z Int8 DEFAULT 3, COMMENT COLUMN v 'text'")
    db.sql("ALTER TABLE t ATTACH PART 'all_1_1_0'")
    assert read(db, "k, d, z") == [(1, 11, 3)]
    (name,) = [str(part.info) for part in db.table("t").state().parts()]
    db.sql(f"ALTER TABLE t DETACH PART '{name}'")
    db.sql("ALTER TABLE t RENAME COLUMN v TO w, ADD COLUMN v Int32 DEFAULT 77")
    db.sql(f"ALTER TABLE t ATTACH PART '{name}'")
    assert read(db, "k, d, w, v") == [(1, 11, 10, 77)]
    (name,) = [str(part.info) for part in db.table("t").state().parts()]
    db.sql(f"ALTER TABLE t DETACH PART '{name}'")
    db.sql("ALTER TABLE t MODIFY COLUMN w Int64")
    with pytest.raises(ml.MergelakeError, match="column w has been altered") as refused:
        db.sql(f"ALTER TABLE t ATTACH PART '{name}'")
    assert refused.value.name == "INCOMPATIBLE_COLUMNS"
