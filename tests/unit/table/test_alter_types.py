"""MODIFY and CLEAR COLUMN: values are converted when they are read, and all of them are tried before."""

from __future__ import annotations

import pytest

import mergelake as ml
from mergelake.core.model.schema import TableSchema
from tests.helpers.refusals import refused


@pytest.fixture
def db(tmp_path):
    found = ml.connect(str(tmp_path))
    found.sql(
        "CREATE TABLE t (k UInt32, v Int32, n Nullable(Int32), s String, d Int32 DEFAULT v + 1, INDEX i v TYPE minmax) "
        "ENGINE = MergeTree ORDER BY k SETTINGS index_granularity = 2"
    )
    found.sql("INSERT INTO t (k, v, n, s) VALUES (1, 300, NULL, '7'), (2, 2, 4, '8'), (3, 3, 5, '9')")
    return found


def read(db, columns, tail=""):
    rows = db.sql(f"SELECT {columns} FROM t {tail} ORDER BY k").rows()
    if not tail.startswith("AS OF"):
        names = [name.strip() for name in columns.split(",")]
        where = tail.removeprefix("WHERE ") or None
        scanned = db.table("t").scan(names, where, ordered=True)
        assert [tuple(row) for row in scanned] == rows
    return rows


# M-076
@pytest.mark.parametrize(
    "commands",
    [
        "MODIFY COLUMN v Int64",
        "MODIFY COLUMN v UInt8",
        "MODIFY COLUMN s UInt8",
        "MODIFY COLUMN d DEFAULT v + 2, COMMENT COLUMN d 'x', MODIFY COLUMN s CODEC(ZSTD(3))",
        "CLEAR COLUMN s",
        "MODIFY COLUMN v Int32 FIRST",
    ],
)
def test_no_object_of_data_is_written(db, commands):
    before = db.warehouse.store.counters
    db.sql(f"ALTER TABLE t {commands}")
    used = db.warehouse.store.counters - before
    assert {name: count for name, count in used.details.items() if name.startswith("put")} == {"put _log": 1}


def test_old_values_are_those_of_cast_step_by_step(db):
    db.sql("ALTER TABLE t MODIFY COLUMN v UInt8")
    assert read(db, "k, v, d") == [(1, 44, 301), (2, 2, 3), (3, 3, 4)]
    assert read(db, "k, v", "WHERE v = 44") == [(1, 44)]
    db.sql("ALTER TABLE t MODIFY COLUMN v UInt16")
    assert read(db, "k, v", "WHERE v > 40") == [(1, 44)]
    db.sql("INSERT INTO t (k, v, n, s) VALUES (4, 400, 1, 'x')")
    assert read(db, "k, v", "WHERE v > 40") == [(1, 44), (4, 400)]
    assert read(db, "k, v", "AS OF VERSION 2") == [(1, 300), (2, 2), (3, 3)]
    db.sql("UPDATE t SET v = v + 1 WHERE v > 40")
    for _ in range(2):
        assert read(db, "k, v") == [(1, 45), (2, 2), (3, 3), (4, 401)]
        db.table("t").apply_mutations()
    db.sql("OPTIMIZE TABLE t FINAL")
    assert read(db, "k, v") == [(1, 45), (2, 2), (3, 3), (4, 401)]


def test_null_becomes_the_default_of_that_time(db):
    with refused(db, "BAD_ARGUMENTS"):
        db.sql("ALTER TABLE t MODIFY COLUMN n Int32")
    with refused(db, "UNKNOWN_IDENTIFIER"):
        db.sql("ALTER TABLE t MODIFY COLUMN n Int32 DEFAULT v")
    db.sql("ALTER TABLE t MODIFY COLUMN n Int64 DEFAULT 7")
    db.sql("ALTER TABLE t MODIFY COLUMN n DEFAULT 8")
    db.sql("ALTER TABLE t MODIFY COLUMN n Nullable(Int64)")
    assert read(db, "k, n") == [(1, 7), (2, 4), (3, 5)]


def test_a_value_that_does_not_fit_is_refused_and_nothing_is_logged(db):
    db.sql("INSERT INTO t (k, v, n, s) VALUES (4, 1, 1, 'no number')")
    with refused(db, "CANNOT_PARSE_TEXT"):
        db.sql("ALTER TABLE t MODIFY COLUMN s UInt8")
    db.sql("DELETE FROM t WHERE k = 4")
    with refused(db, "CANNOT_PARSE_TEXT"):  # readers convert the row before they see that it is deleted
        db.sql("ALTER TABLE t MODIFY COLUMN s UInt8")
    db.table("t").apply_mutations()
    db.sql("OPTIMIZE TABLE t FINAL")
    db.sql("ALTER TABLE t MODIFY COLUMN s UInt8")
    assert read(db, "k, s") == [(1, 7), (2, 8), (3, 9)]


def test_another_process_reads_the_new_types_and_parts_that_it_adds_are_looked_at(db, tmp_path):
    other = ml.connect(str(tmp_path))
    other.table("t").refresh()
    table = db.table("t")
    table.refresh()
    other.sql("INSERT INTO t (k, v, n, s) VALUES (9, 1, 1, 'late')")
    with pytest.raises(ml.MergelakeError, match="CANNOT_PARSE_TEXT"):
        table.modify_column("s", "UInt32")
    other.sql("ALTER TABLE t DROP COLUMN n, CLEAR COLUMN s")
    assert read(db, "k, s") == [(1, ""), (2, ""), (3, ""), (9, "")]
    other.table("t").modify_column("s", default="'fresh'")
    assert read(db, "k, s")[0] == (1, "fresh")


def test_a_schema_with_changes_survives_the_log(db):
    table = db.table("t")
    table.modify_column("n", "Int64", default="7")
    schema = table.schema
    assert schema.column("n").changes[0].null == "7"
    assert TableSchema.from_json(schema.to_json()) == schema
    assert "changes" not in TableSchema(schema.columns[:1]).to_json()["columns"][0]
    table.handle.log.write_checkpoint()
    assert ml.connect(db.warehouse.store.url).table("t").schema == schema


def test_a_part_of_an_older_type_is_not_pruned_by_its_indexes(db):
    db.sql("ALTER TABLE t MODIFY COLUMN d REMOVE DEFAULT, MODIFY COLUMN v String")
    assert read(db, "k, v", "WHERE v = '300'") == [(1, "300")]
    assert read(db, "k, v", "WHERE v > '2'") == [(1, "300"), (3, "3")]


def test_a_default_that_is_materialized_stays_when_it_is_changed(db):
    db.sql("ALTER TABLE t ADD COLUMN z Int32 DEFAULT v * 10, ADD COLUMN m Int32 MATERIALIZED v + 1")
    db.sql("INSERT INTO t (k, v, n, s, z) VALUES (4, 4, 1, 'x', 0)")
    db.sql("ALTER TABLE t MATERIALIZE COLUMN z")
    with refused(db, "BAD_ARGUMENTS", "not finished"):
        db.sql("ALTER TABLE t MODIFY COLUMN z DEFAULT 5")
    ids = {part.manifest.id for part in db.table("t").state().parts()}
    db.table("t").apply_mutations()
    kept = {part.manifest.id for part in db.table("t").state().parts()} & ids
    assert len(kept) == 1  # the part that had the column has only got another name
    db.sql("ALTER TABLE t MODIFY COLUMN z DEFAULT 5, MODIFY COLUMN m MATERIALIZED v + 2")
    wanted = [(1, 3000, 302), (2, 20, 4), (3, 30, 5), (4, 0, 6)]
    assert read(db, "k, z, m") != wanted  # m of the last part is as it was written
    db.sql("ALTER TABLE t MATERIALIZE COLUMN m")
    for _ in range(2):
        assert read(db, "k, z, m") == wanted
        db.table("t").apply_mutations()


def test_a_column_is_cleared_in_one_partition(tmp_path):
    db = ml.connect(str(tmp_path / "parted"))
    types = ["Int8", "String", "FixedString(2)", "Array(Int8)", "Nullable(Int8)", "Tuple(Int8, String)", "Date", "UUID",
             "Enum8('a' = 1)", "Decimal(9, 2)", "LowCardinality(String)", "Map(String, Int8)", "Float64"]  # fmt: skip
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(types))
    db.sql(
        f"CREATE TABLE t (k Int8, p Int8, {columns}, d Int8 DEFAULT k + 1) ENGINE = MergeTree PARTITION BY p ORDER BY k"
    )
    db.sql(
        "INSERT INTO t (* EXCEPT d) SELECT number, number % 2, 1, 'a', 'b', [1], 1, (1, 'a'), '2026-01-01', "
        "'61f0c404-5cb3-11e7-907b-a6006ad3dba0', 'a', 1.5, 'x', map('a', 1), 2.5 FROM numbers(2)"
    )
    for at in range(len(types)):
        db.sql(f"ALTER TABLE t CLEAR COLUMN c{at} IN PARTITION 1")
    db.sql("ALTER TABLE t CLEAR COLUMN d IN PARTITION 1")
    names = ", ".join(f"c{at}" for at in range(len(types)))
    db.sql(f"CREATE TABLE zero (k Int8, {', '.join(f'c{at} {kind}' for at, kind in enumerate(types))}) "
           "ENGINE = MergeTree ORDER BY k")  # fmt: skip
    db.sql("INSERT INTO zero (k) VALUES (1)")
    assert db.sql(f"SELECT {names} FROM t WHERE p = 1").rows() == db.sql(f"SELECT {names} FROM zero").rows()
    assert db.sql("SELECT k, c0, c1, d FROM t ORDER BY k").rows() == [(0, 1, "a", 1), (1, 0, "", 2)]
    with refused(db, "ALTER_OF_COLUMN_IS_FORBIDDEN"):
        db.sql("ALTER TABLE t CLEAR COLUMN k IN PARTITION 1")
    with refused(db, "NOT_FOUND_COLUMN_IN_BLOCK"):
        db.sql("ALTER TABLE t CLEAR COLUMN nope IN PARTITION 1")
    db.sql("ALTER TABLE t CLEAR COLUMN IF EXISTS nope IN PARTITION 1")


def test_a_table_like_another_has_its_types_and_not_its_history(db):
    db.sql("ALTER TABLE t MODIFY COLUMN v UInt8")
    db.sql("ALTER TABLE t MODIFY COLUMN v Int64")
    db.sql("CREATE TABLE u AS t")
    db.warehouse.create_table("w", db.table("t").schema)
    for name in ("u", "w"):
        db.sql(f"INSERT INTO {name} (k, v, n, s) VALUES (1, 3000, 1, 'x')")
        assert db.sql(f"SELECT v FROM {name}").rows() == [(3000,)]
        assert db.table(name).schema.version == 1
    db.sql("CREATE TABLE c CLONE AS t")
    assert db.sql("SELECT k, v FROM c ORDER BY k").rows() == [(1, 44), (2, 2), (3, 3)]


def test_a_part_that_was_detached_before_a_rollback_is_judged_by_its_own_type(db):
    table = db.table("t")
    version = table.version
    db.sql("ALTER TABLE t MODIFY COLUMN s Nullable(String)")
    db.sql("INSERT INTO t (k, v, n, s) VALUES (4, 1, 1, NULL)")
    table.refresh()
    table.detach_part("all_2_2_0")
    table.rollback(version)
    with pytest.raises(ml.MergelakeError, match="NULL"):
        table.attach_part("all_2_2_0")
    assert read(db, "k, s") == [(1, "7"), (2, "8"), (3, "9")]
