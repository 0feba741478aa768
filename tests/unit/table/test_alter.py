"""ADD, DROP and RENAME COLUMN: one entry of the log, and parts that were written before are read through."""

from __future__ import annotations

from dataclasses import replace

import pytest

import mergelake as ml
from tests.helpers.refusals import refused

TABLE = """
CREATE TABLE t (k UInt32, p UInt8, v Int32, n Nullable(Int32), s String, d Int32 DEFAULT v + 1,
    m Int32 MATERIALIZED v * 2, al Int64 ALIAS v + 5, `ne.a` Array(UInt8), `ne.b` Array(String), x Int32,
    INDEX i x TYPE minmax)
ENGINE = MergeTree PARTITION BY p ORDER BY (k, v)
"""
ROWS = "(1, 1, 10, NULL, 'a', [1], ['x'], 7), (2, 2, 20, 4, 'b', [], [], 8)"


@pytest.fixture
def db(tmp_path):
    found = ml.connect(str(tmp_path))
    found.sql(TABLE)
    found.sql(f"INSERT INTO t (k, p, v, n, s, `ne.a`, `ne.b`, x) VALUES {ROWS}")
    return found


def read(db, columns="*", tail=""):
    return db.sql(f"SELECT {columns} FROM t {tail} ORDER BY k").rows()


# M-076
@pytest.mark.parametrize(
    "commands",
    [
        "ADD COLUMN z Int32 DEFAULT x * 2",
        "DROP COLUMN n",
        "RENAME COLUMN s TO txt",
        "ADD COLUMN z Nested(a UInt8, b String) AFTER k, RENAME COLUMN x TO y, DROP COLUMN ne",
        "(ADD COLUMN z Int8 FIRST), (MODIFY SETTING merge_max_block_size = 5)",
    ],
)
def test_a_change_of_columns_is_one_entry_and_no_object_of_data(db, commands):
    version, before = db.table("t").version, db.warehouse.store.counters
    db.sql(f"ALTER TABLE t {commands}")
    used = db.warehouse.store.counters - before
    assert db.table("t").version == version + 1
    assert (used.put, used.delete, {name for name in used.details if name.startswith("put")}) == (1, 0, {"put _log"})


def test_old_parts_have_the_defaults_of_new_columns_and_the_values_of_renamed_ones(db):
    db.sql("ALTER TABLE t ADD COLUMN z Int32 DEFAULT v * 100 AFTER k, RENAME COLUMN s TO txt, RENAME COLUMN x TO y")
    assert read(db, "k, z, txt, y") == [(1, 1000, "a", 7), (2, 2000, "b", 8)]
    assert read(db, "k", "WHERE z = 2000 AND txt = 'b' AND y = 8") == [(2,)]
    assert read(db, "k, s", "AS OF VERSION 2") == [(1, "a"), (2, "b")]
    db.sql("INSERT INTO t (k, p, v, txt, y) VALUES (3, 1, 30, 'c', 9)")
    db.sql("UPDATE t SET txt = concat(txt, '!') WHERE z > 1000")
    wanted = [(1, 1000, "a", 7), (2, 2000, "b!", 8), (3, 3000, "c!", 9)]
    assert read(db, "k, z, txt, y") == wanted
    db.sql("OPTIMIZE TABLE t FINAL")
    assert read(db, "k, z, txt, y") == wanted
    assert [tuple(row.values()) for row in db.table("t").scan(["k", "txt"], ordered=True).arrow().to_pylist()] == [
        (1, "a"), (2, "b!"), (3, "c!"),
    ]  # fmt: skip


def test_a_name_that_is_dropped_and_added_again_never_reads_old_bytes(db):
    db.sql("ALTER TABLE t DROP COLUMN s, ADD COLUMN s Int64 DEFAULT 5")
    assert read(db, "k, s") == [(1, 5), (2, 5)]
    db.sql("ALTER TABLE t RENAME COLUMN s TO other, RENAME COLUMN n TO s")
    assert read(db, "k, s, other") == [(1, None, 5), (2, 4, 5)]
    db.sql("OPTIMIZE TABLE t FINAL")
    assert read(db, "k, s, other") == [(1, None, 5), (2, 4, 5)]


def test_expressions_follow_a_renamed_column():
    db = ml.connect("memory://alter-renamed")
    db.sql(
        "CREATE TABLE t (k Int8, v Int32, t Tuple(a Int8), d Int32 DEFAULT v + t.a, m Int32 MATERIALIZED v * 2, "
        "al Int64 ALIAS v, INDEX i (v + 1) TYPE minmax) ENGINE = MergeTree ORDER BY k"
    )
    db.sql("INSERT INTO t (k, v, t) VALUES (1, 10, (2))")
    db.sql("ALTER TABLE t RENAME COLUMN v TO `new name`, RENAME COLUMN t TO u")
    columns = {column.name: column.default for column in db.table("t").schema.columns}
    assert columns == {
        "k": "", "new name": "", "u": "", "d": "`new name` + u.a", "m": "`new name` * 2", "al": "`new name`",
    }  # fmt: skip
    assert db.table("t").schema.indices[0].expression == "`new name` + 1"
    assert db.sql("SELECT * EXCEPT u, m, al FROM t WHERE `new name` + 1 = 11").rows() == [(1, 10, 12, 20, 10)]


@pytest.mark.parametrize(
    ("commands", "name"),
    [
        ("ADD COLUMN v Int32", "DUPLICATE_COLUMN"),
        ("ADD COLUMN ne UInt8", "DUPLICATE_COLUMN"),
        ("ADD COLUMN z Int32 AFTER nope", "NO_SUCH_COLUMN_IN_TABLE"),
        ("ADD COLUMN z", "SYNTAX_ERROR"),
        ("ADD COLUMN z DEFAULT v + 1", "BAD_ARGUMENTS"),
        ("ADD COLUMN z Int32 DEFAULT nope", "UNKNOWN_IDENTIFIER"),
        ("ADD COLUMN z Int32 ALIAS v CODEC(ZSTD)", "BAD_ARGUMENTS"),
        ("ADD COLUMN z Int32 CODEC(Nope)", "UNKNOWN_CODEC"),
        ("ADD COLUMN z Int32 PRIMARY KEY", "BAD_ARGUMENTS"),
        ("ADD COLUMN _row_exists UInt8", "ILLEGAL_COLUMN"),
        ("DROP COLUMN nope", "NOT_FOUND_COLUMN_IN_BLOCK"),
        ("DROP COLUMN k", "ALTER_OF_COLUMN_IS_FORBIDDEN"),
        ("DROP COLUMN p", "ALTER_OF_COLUMN_IS_FORBIDDEN"),
        ("DROP COLUMN x", "UNKNOWN_IDENTIFIER"),
        ("DROP COLUMN n, DROP COLUMN n", "NOT_FOUND_COLUMN_IN_BLOCK"),
        ("RENAME COLUMN k TO z", "ALTER_OF_COLUMN_IS_FORBIDDEN"),
        ("RENAME COLUMN n TO s", "DUPLICATE_COLUMN"),
        ("RENAME COLUMN nope TO z", "NOT_FOUND_COLUMN_IN_BLOCK"),
        ("RENAME COLUMN ne TO z", "NOT_IMPLEMENTED"),
        ("RENAME COLUMN ne.a TO z", "BAD_ARGUMENTS"),
        ("RENAME COLUMN ne.a TO q.z", "BAD_ARGUMENTS"),
        ("RENAME COLUMN n TO z, RENAME COLUMN z TO y", "NOT_IMPLEMENTED"),
        ("(ADD COLUMN z Int8), DROP COLUMN n", "SYNTAX_ERROR"),
    ],
)
def test_a_change_that_is_impossible_is_refused(db, commands, name):
    with refused(db, name):
        db.sql(f"ALTER TABLE t {commands}")


def test_a_column_that_a_default_needs_is_not_dropped():
    db = ml.connect("memory://alter-default")
    db.sql("CREATE TABLE t (k Int8, v Int32, d Int32 DEFAULT v + 1) ENGINE = MergeTree ORDER BY k")
    with refused(db, "ILLEGAL_COLUMN", "because column d depends on it"):
        db.sql("ALTER TABLE t DROP COLUMN v")
    db.sql("ALTER TABLE t DROP COLUMN d, DROP COLUMN v")
    assert db.table("t").schema.names == ("k",)


@pytest.mark.parametrize(
    "commands",
    [
        "RENAME COLUMN x TO y",
        "DROP COLUMN n",
        "ADD COLUMN z Int32 DEFAULT n + 1",
        "DROP COLUMN ne",
        "MODIFY COLUMN d DEFAULT n",
        "MODIFY COLUMN al ALIAS v + 6",
        "ADD COLUMN z Int32 ALIAS n, ADD COLUMN y Int32 DEFAULT z",
    ],
)
def test_a_column_of_an_unfinished_mutation_stays(db, commands):
    db.sql("UPDATE t SET n = x + length(`ne.a`) + al WHERE s = 'b'")
    with refused(db, "BAD_ARGUMENTS", "mutation_", "not finished yet"):
        db.sql(f"ALTER TABLE t {commands}")
    db.table("t").apply_mutations()
    db.sql(f"ALTER TABLE t {commands}")


@pytest.mark.parametrize("command", ["MODIFY COLUMN one ALIAS 5", "DROP COLUMN one", "RENAME COLUMN one TO uno"])
def test_a_column_that_stands_for_a_constant_stays_in_an_unfinished_mutation(command):
    db = ml.connect("memory://alter-constant")
    db.sql("CREATE OR REPLACE TABLE t (k Int8, one UInt8 ALIAS 1) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t (k) VALUES (1)")
    db.sql("ALTER TABLE t DELETE WHERE one = 5")
    with refused(db, "BAD_ARGUMENTS", "Cannot alter column one", "not finished yet"):
        db.sql(f"ALTER TABLE t {command}")


@pytest.mark.parametrize("default", ["now()", "NOW()", "toString(rand())", "toString(al + rand())"])
def test_no_part_lacks_a_column_whose_default_is_another_one_each_time(db, tmp_path, default):
    late = ml.connect(str(tmp_path)).table("t")
    db.sql("ALTER TABLE t DETACH PARTITION 1")
    for command in (f"ADD COLUMN z String DEFAULT {default}", f"MODIFY COLUMN s DEFAULT {default}, CLEAR COLUMN s"):
        with refused(db, "BAD_ARGUMENTS", "with each read"):
            db.sql(f"ALTER TABLE t {command}")
    db.sql("ALTER TABLE t ADD COLUMN z String DEFAULT 'old'")
    db.sql("ALTER TABLE t MATERIALIZE COLUMN z")
    db.table("t").apply_mutations()
    db.sql(f"ALTER TABLE t MODIFY COLUMN z DEFAULT {default}")
    for do in (lambda: db.sql("ALTER TABLE t ATTACH PARTITION 1"), lambda: late.append({"k": [3], "p": [1]})):
        with pytest.raises(ml.ConflictError, match="have no value in column z"):
            do()
    late.append({"k": [3], "p": [1]})
    first, second = read(db, "k, z"), read(db, "k, z")
    assert first == second
    assert first[0] == (2, "old")
    assert first[1][1]


def test_a_default_gets_no_updated_column_by_way_of_an_alias(db):
    db.sql("ALTER TABLE t ADD COLUMN z Int64 DEFAULT al")
    db.sql("ALTER TABLE t UPDATE x = 100 WHERE 1")
    with refused(db, "BAD_ARGUMENTS", "not finished yet"):
        db.sql("ALTER TABLE t MODIFY COLUMN al ALIAS x")
    db.sql("ALTER TABLE t MODIFY COLUMN al ALIAS v + 6")
    assert read(db, "z, x") == [(16, 100), (26, 100)]


@pytest.mark.parametrize(
    "commands",
    [
        "RENAME COLUMN x TO y, MODIFY ORDER BY (k, y)",
        "DROP COLUMN x, RENAME COLUMN z TO x, MODIFY ORDER BY (k, x)",
        "RENAME COLUMN x TO y, ADD COLUMN x UInt8, MODIFY ORDER BY (k, x + y)",
    ],
)
def test_a_longer_key_has_no_column_of_before_under_another_name(commands):
    db = ml.connect("memory://alter-key")
    db.sql("CREATE OR REPLACE TABLE t (k UInt8, x UInt8, z UInt8) ENGINE = ReplacingMergeTree ORDER BY k")
    with refused(db, "BAD_ARGUMENTS", "Existing column"):
        db.sql(f"ALTER TABLE t {commands}")


def test_rows_that_lack_a_column_of_the_key_have_one_value_in_it():
    db = ml.connect("memory://alter-key-default")
    db.sql("CREATE TABLE t (k UInt8, x UInt8, y UInt8 DEFAULT x) ENGINE = MergeTree ORDER BY (k, y) PRIMARY KEY k")
    db.sql("INSERT INTO t (k, x) VALUES (1, 5), (1, 3)")
    db.sql("ALTER TABLE t MODIFY COLUMN y DEFAULT x + 1")  # every part has it
    db.sql("ALTER TABLE t ADD COLUMN w UInt8, MODIFY ORDER BY (k, y, w)")
    db.sql("ALTER TABLE t MODIFY COLUMN w DEFAULT 7")
    for default, name in (("x", "ALTER_OF_COLUMN_IS_FORBIDDEN"), ("rand()", "BAD_ARGUMENTS")):
        with refused(db, name):
            db.sql(f"ALTER TABLE t MODIFY COLUMN w DEFAULT {default}")
        with refused(db, name):
            db.sql(f"ALTER TABLE t MODIFY COLUMN w MATERIALIZED {default}")
    assert db.sql("SELECT * FROM t ORDER BY k, y, w").rows() == [(1, 3, 3, 7), (1, 5, 5, 7)]


def test_if_exists_and_if_not_exists_change_nothing(db):
    version = db.table("t").version
    db.sql(
        "ALTER TABLE t DROP COLUMN IF EXISTS nope, RENAME COLUMN IF EXISTS nope TO z, ADD COLUMN IF NOT EXISTS k Int8"
    )
    assert db.table("t").version == version


def test_ids_of_columns_are_not_used_again_after_a_rollback(db):
    table = db.table("t")
    before = table.version
    table.add_column("z", "Int32", default="1", after="k")
    db.sql("INSERT INTO t (k, p, v, z) VALUES (3, 1, 30, 5)")
    table.refresh()
    part = next(name for name, rows in zip(*table.parts().select(["name", "rows"]).to_pydict().values(), strict=True)
                if name.startswith("1_") and rows == 1 and not name.startswith("1_1_"))  # fmt: skip
    table.detach_part(part)
    table.rollback(before)
    table.add_column("other", "Int32", default="2")
    table.attach_part(part)
    assert read(db, "k, other") == [(1, 2), (2, 2), (3, 2)]


def test_the_name_of_a_projection_is_not_used_again_after_a_rollback(db):
    before = db.table("t").version
    db.sql("ALTER TABLE t ADD PROJECTION pr (SELECT x, count() GROUP BY x)")
    db.table("t").rollback(before)
    with refused(db, "NOT_IMPLEMENTED", "it was another one"):
        db.sql("ALTER TABLE t ADD PROJECTION pr (SELECT x, sum(v) GROUP BY x)")
    db.sql("ALTER TABLE t ADD PROJECTION pr (SELECT x, count() GROUP BY x)")


def test_a_new_table_like_another_has_nothing_of_its_history(db):
    for command in (
        "MODIFY COLUMN s Nullable(String)",
        "ADD INDEX j v TYPE minmax",
        "ADD PROJECTION pr (SELECT x, count() GROUP BY x)",
        "DROP PROJECTION pr",
    ):
        db.sql(f"ALTER TABLE t {command}")
    db.sql("CREATE TABLE other AS t")
    schema = db.table("other").schema
    assert (schema.version, schema.past_projections, {index.since for index in schema.indices}) == (1, (), {0})
    assert not any(column.changes for column in schema.columns)


def test_a_clone_and_an_older_process_read_what_they_should(db, tmp_path):
    old = ml.connect(str(tmp_path)).table("t")
    old.refresh()
    db.sql("ALTER TABLE t RENAME COLUMN s TO txt, ADD COLUMN z Int8 DEFAULT 9")
    db.sql("CREATE TABLE c CLONE AS t AS OF VERSION 2")
    db.sql("CREATE TABLE now CLONE AS t")
    assert db.sql("SELECT k, s FROM c ORDER BY k").rows() == [(1, "a"), (2, "b")]
    assert db.sql("SELECT k, txt, z FROM now ORDER BY k").rows() == [(1, "a", 9), (2, "b", 9)]
    old.append({"k": [5], "p": [1], "v": [50], "s": ["old"]})
    db.table("t").refresh()
    assert read(db, "k, txt, z")[-1] == (5, "old", 9)


def test_methods_of_a_table_make_the_same_changes(db):
    table = db.table("t")
    table.add_column("z", "Nullable(Int8)", comment="new", codec="ZSTD(1)", first=True)
    table.rename_column("z", "y")
    table.drop_column("ne")
    table.drop_column("nope", if_exists=True)
    column = table.schema.columns[0]
    assert (column.name, str(column.type), column.comment, column.codec) == ("y", "Nullable(Int8)", "new", "ZSTD(1)")
    assert not any(name.startswith("ne.") for name in table.schema.names)
    assert replace(column, id=0) == replace(table.schema.column("y"), id=0)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda table: table.add_column("", "UInt8"), "BAD_ARGUMENTS"),
        (lambda table: table.add_column(5, "UInt8"), "TYPE_MISMATCH"),
        (lambda table: table.add_column("z", 5), "TYPE_MISMATCH"),
        (lambda table: table.add_column("z", "UInt8", default=5), "TYPE_MISMATCH"),
        (lambda table: table.add_column("z", "UInt8", after=5), "TYPE_MISMATCH"),
        (lambda table: table.rename_column("n", 5), "TYPE_MISMATCH"),
        (lambda table: table.comment_column("n", 5), "TYPE_MISMATCH"),
        (lambda table: table.modify_comment(5), "TYPE_MISMATCH"),
        (lambda table: table.add_index("j", "v", "minmax", 1.5), "TYPE_MISMATCH"),
        (lambda table: table.add_index("", "v"), "BAD_ARGUMENTS"),
        (lambda table: table.add_constraint(5, "v > 0"), "TYPE_MISMATCH"),
        (lambda table: table.modify_order_by(["k", 5]), "TYPE_MISMATCH"),
        (lambda table: table.modify_ttl(5), "TYPE_MISMATCH"),
        (lambda table: table.alter("DROP COLUMN n"), "TYPE_MISMATCH"),
        (lambda table: table.move_partition(1, to="t"), "TYPE_MISMATCH"),
        (lambda table: table.move_partition(partition_id="a/b", to=table), "INVALID_PARTITION_VALUE"),
        (lambda table: table.drop_part(5), "BAD_DATA_PART_NAME"),
        (lambda table: table.overwrite({"k": [1]}, unchanged_since=99), "BAD_ARGUMENTS"),
        (lambda table: table.overwrite({"k": [1]}, unchanged_since="2"), "TYPE_MISMATCH"),
    ],
)
def test_what_python_gives_is_checked_before_anything_is_logged(db, change, name):
    with refused(db, name):
        change(db.table("t"))


def test_a_table_has_columns_with_names():
    db = ml.connect("memory://nameless")
    for columns, name in (({"": "UInt8"}, "BAD_ARGUMENTS"), ({5: "UInt8", "k": "UInt8"}, "TYPE_MISMATCH")):
        with refused(db, name):
            db.create_table("t", columns)


def test_reading_old_parts_takes_no_more_requests_than_before(db, tmp_path):
    """What their columns are called there follows from the log."""

    def gets():
        fresh = ml.connect(str(tmp_path))
        before = fresh.warehouse.store.counters
        rows = list(fresh.table("t").scan(["k", "p", "d"], "k > 1", ordered=True))
        return rows, (fresh.warehouse.store.counters - before).details["get data"]

    db.sql("INSERT INTO t (k, p, v, s) VALUES (3, 1, 30, 'c')")
    unaltered = gets()
    db.sql("ALTER TABLE t RENAME COLUMN s TO txt, ADD COLUMN z Int8, MODIFY COLUMN x Int64, DROP COLUMN ne")
    assert gets() == unaltered
