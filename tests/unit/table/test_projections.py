"""Projections: definitions and their errors, what ALTER costs, what parts have of them."""

from __future__ import annotations

from typing import Any

import pytest

import mergelake as ml
from mergelake.engines.projections.projections import table_projections
from mergelake.parts.read.listing import projection_names
from mergelake.parts.read.reader import PartReader
from mergelake.parts.write.projected import projection_manifest
from mergelake.query.embedded import engine


@pytest.fixture
def db() -> ml.Database:
    return ml.connect("memory://projections")


def _create(db: ml.Database, projections: str = "", tail: str = "") -> ml.Table:
    db.sql("DROP TABLE IF EXISTS t")
    body = f"k UInt32, v Int32, s String, a UInt8 ALIAS v{projections and ', '}{projections}"
    db.sql(f"CREATE TABLE t ({body}) ENGINE = MergeTree ORDER BY k {tail}")
    return db.table("t")


def _projections(table: ml.Table) -> list[dict[str, int]]:
    table.refresh()
    parts = list(table.handle.log.state.parts())
    for part in parts:
        assert set(projection_names(part.manifest.file_table())) == set(part.manifest.projections)
    return [{name: facts.rows for name, facts in part.manifest.projections.items()} for part in parts]


@pytest.mark.parametrize(
    ("projection", "name"),
    [
        ("SELECT * ", "BAD_ARGUMENTS"),
        ("SELECT x ORDER BY v", "UNKNOWN_IDENTIFIER"),
        ("SELECT a ORDER BY v", "NOT_IMPLEMENTED"),
        ("SELECT v ORDER BY rand()", "BAD_ARGUMENTS"),
        ("SELECT v ORDER BY 1", "ILLEGAL_COLUMN"),
        ("SELECT v, max(k) GROUP BY v ORDER BY v", "ILLEGAL_PROJECTION"),
        ("SELECT v, k GROUP BY v", "NOT_AN_AGGREGATE"),
        ("SELECT max(sum(k))", "ILLEGAL_AGGREGATION"),
        ("SELECT v, sparkbar(3)(k, v) GROUP BY v", "NOT_IMPLEMENTED"),
        ("SELECT v, sequenceMatch('(?1)(?2)')(k, v, v) GROUP BY v", "NOT_IMPLEMENTED"),
        ("SELECT v, quantile(0.00001)(k) GROUP BY v", "NOT_IMPLEMENTED"),
        ("SELECT v, argMax(k) GROUP BY v", "NOT_IMPLEMENTED"),
        ("SELECT v, quantiles(0.5, 2)(k) GROUP BY v", "PARAMETER_OUT_OF_BOUND"),
        ("SELECT v, sumState(k) GROUP BY v", "ILLEGAL_AGGREGATION"),
        ("SELECT v, uniq(max(k)) GROUP BY v", "ILLEGAL_AGGREGATION"),
        ("SELECT v, max(k + 0.5) GROUP BY v", "NOT_IMPLEMENTED"),
        ("SELECT DISTINCT v ORDER BY v", "NOT_IMPLEMENTED"),
        ("SELECT v WHERE k = 1 ORDER BY v", "NOT_IMPLEMENTED"),
        ("SELECT v ORDER BY v, _part_offset", "NOT_IMPLEMENTED"),
        ("SELECT v, max(_part_offset) GROUP BY v", "NOT_IMPLEMENTED"),
        ("SELECT v, _part_index ORDER BY v", "NOT_IMPLEMENTED"),
        ("SELECT v, (SELECT 1) ORDER BY v", "NOT_IMPLEMENTED"),
        ("SELECT * EXCEPT (v) ORDER BY v", "NOT_IMPLEMENTED"),
        ("SELECT row_number() OVER (), v ORDER BY v", "NOT_IMPLEMENTED"),
        ("SELECT k AS v, count() GROUP BY v", "NOT_IMPLEMENTED"),
        ("SELECT v ORDER BY", "SYNTAX_ERROR"),
        ("SELECT , v ORDER BY v", "SYNTAX_ERROR"),
        ("v ORDER BY v", "SYNTAX_ERROR"),
    ],
)
def test_what_is_no_projection_is_refused_before_anything_is_logged(
    db: ml.Database, projection: str, name: str
) -> None:
    table = _create(db)
    for statement in (
        f"ALTER TABLE t ADD PROJECTION p ({projection})",
        f"CREATE TABLE u (k Int8, v Int32, a Int8 ALIAS v, PROJECTION p ({projection})) ENGINE = MergeTree ORDER BY k",
    ):
        with pytest.raises(ml.MergelakeError) as caught:
            db.sql(statement)
        assert caught.value.name == name, statement
    assert table.refresh() == 1
    assert db.tables() == ["t"]


def test_engines_that_remove_rows_want_to_be_told_what_becomes_of_projections(db: ml.Database) -> None:
    create = "CREATE TABLE u (k UInt32, PROJECTION p (SELECT max(k))) ENGINE = ReplacingMergeTree ORDER BY k"
    for mode, name in (
        ("", "SUPPORT_IS_DISABLED"),
        ("deduplicate_merge_projection_mode = 'throw'", "SUPPORT_IS_DISABLED"),
        ("deduplicate_merge_projection_mode = 'ignore'", "NOT_IMPLEMENTED"),
        ("deduplicate_merge_projection_mode = 'x'", "BAD_ARGUMENTS"),
        ("lightweight_mutation_projection_mode = 'x', deduplicate_merge_projection_mode = 'drop'", "BAD_ARGUMENTS"),
    ):
        with pytest.raises(ml.MergelakeError) as caught:
            db.sql(f"{create}{mode and ' SETTINGS '}{mode}")
        assert caught.value.name == name
    for mode, kept in (("drop", [{}]), ("rebuild", [{"p": 1}])):
        db.sql("DROP TABLE IF EXISTS u")
        db.sql(f"{create} SETTINGS deduplicate_merge_projection_mode = '{mode}'")
        for _ in range(2):
            db.sql("INSERT INTO u SELECT number FROM numbers(10)")
        assert _projections(db.table("u")) == [{"p": 1}, {"p": 1}]
        db.sql("OPTIMIZE TABLE u FINAL")
        assert _projections(db.table("u")) == kept
        assert db.sql("SELECT max(k), count() FROM u").rows() == [(9, 10)]


def test_adding_and_dropping_writes_no_data(db: ml.Database) -> None:
    table = _create(db)
    db.sql("INSERT INTO t (k) SELECT number FROM numbers(100)")
    table.refresh()
    objects = {meta.key for meta in table.handle.store.list(table.handle.directory)}
    db.sql(
        "ALTER TABLE t ADD PROJECTION p (SELECT v, count() GROUP BY v), ADD PROJECTION q (SELECT * ORDER BY s) FIRST"
    )
    table.drop_projection("q")
    table.add_projection("r", "SELECT max(v)")
    new = {meta.key for meta in table.handle.store.list(table.handle.directory)} - objects
    assert len(new) == 3
    assert all("/_log/" in key for key in new)
    assert [each.name for each in table.schema.projections] == ["p", "r"]
    assert _projections(table) == [{}]


def test_parts_get_a_projection_when_they_are_written(db: ml.Database) -> None:
    table = _create(db)
    db.sql("INSERT INTO t (k, v) SELECT number, number % 3 FROM numbers(100)")
    db.sql("ALTER TABLE t ADD PROJECTION p (SELECT v, count() GROUP BY v)")
    db.sql("INSERT INTO t (k, v) SELECT number, number % 5 FROM numbers(100)")
    assert _projections(table) == [{}, {"p": 5}]
    assert table.materialize_projection("p") == 1
    assert table.materialize_projection("p") == 0
    assert _projections(table) == [{"p": 3}, {"p": 5}]
    assert table.clear_projection("p") == 2
    assert _projections(table) == [{}, {}]
    db.sql("OPTIMIZE TABLE t FINAL")
    assert _projections(table) == [{"p": 5}]
    db.sql("ALTER TABLE t DROP PROJECTION p")
    assert _projections(table) == [{"p": 5}]
    db.sql("OPTIMIZE TABLE t FINAL")
    assert _projections(table) == [{}]


def test_a_name_stands_for_one_query(db: ml.Database) -> None:
    table = _create(db, "PROJECTION p (SELECT v, count() GROUP BY v)")
    db.sql("INSERT INTO t (k, v) SELECT number, number % 3 FROM numbers(100)")
    db.sql("ALTER TABLE t DROP PROJECTION p")
    with pytest.raises(ml.MergelakeError) as caught:
        db.sql("ALTER TABLE t ADD PROJECTION p (SELECT max(v))")
    assert caught.value.name == "NOT_IMPLEMENTED"
    db.sql("ALTER TABLE t ADD PROJECTION p (SELECT v, count() GROUP BY v)")
    assert table.materialize_projection("p") == 0  # the parts have it still
    assert _projections(table) == [{"p": 3}]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("ALTER TABLE t ADD PROJECTION p (SELECT v ORDER BY v)", "ILLEGAL_PROJECTION"),
        ("ALTER TABLE t DROP PROJECTION x", "NO_SUCH_PROJECTION_IN_TABLE"),
        ("ALTER TABLE t MODIFY PROJECTION p (SELECT v ORDER BY v)", "NOT_IMPLEMENTED"),
        ("ALTER TABLE t DROP COLUMN s", "UNKNOWN_IDENTIFIER"),
        ("ALTER TABLE t RENAME COLUMN v TO w", "UNKNOWN_IDENTIFIER"),
        ("ALTER TABLE t MODIFY COLUMN s LowCardinality(String)", "NOT_IMPLEMENTED"),
        ("ALTER TABLE t CLEAR COLUMN s", "NOT_IMPLEMENTED"),
        ("DELETE FROM t WHERE k = 1", "SUPPORT_IS_DISABLED"),
        ("OPTIMIZE TABLE t FINAL DEDUPLICATE", "SUPPORT_IS_DISABLED"),
        ("SELECT * FROM system.projection_parts", "NOT_IMPLEMENTED"),
    ],
)
def test_statements_that_do_not_fit_are_refused(db: ml.Database, statement: str, name: str) -> None:
    table = _create(db, "PROJECTION p (SELECT s, max(v) GROUP BY s)")
    with pytest.raises(ml.MergelakeError) as caught:
        db.sql(statement)
    assert caught.value.name == name
    assert table.refresh() == 1


def test_where_if_exists_is_said_nothing_happens(db: ml.Database) -> None:
    table = _create(db, "PROJECTION p (SELECT s, max(v) GROUP BY s)")
    for command in (
        "ADD PROJECTION IF NOT EXISTS p (SELECT max(k))",
        "DROP PROJECTION IF EXISTS x",
        "MATERIALIZE PROJECTION IF EXISTS x",
        "CLEAR PROJECTION IF EXISTS x",
        "MATERIALIZE PROJECTION x",
        "CLEAR PROJECTION x IN PARTITION tuple()",
    ):
        db.sql(f"ALTER TABLE t {command}")
    with pytest.raises(ml.MergelakeError) as caught:
        table.materialize_projection("x")
    assert caught.value.name == "NO_SUCH_PROJECTION_IN_TABLE"
    assert table.refresh() == 1


def test_projections_are_listed_and_shown(db: ml.Database) -> None:
    _create(db, "PROJECTION p (SELECT v % 7 AS m, max(s) GROUP BY m), PROJECTION q (SELECT * ORDER BY s, v + 1)")
    rows: list[Any] = db.sql("SELECT name, type, sorting_key, query FROM system.projections WHERE table = 't'").rows()
    assert rows == [
        ("p", "Aggregate", ["modulo(v, 7)"], "SELECT v % 7 AS m, max(s) GROUP BY m"),
        ("q", "Normal", ["s", "plus(v, 1)"], "SELECT * ORDER BY s, v + 1"),
    ]
    shown = db.sql("SHOW CREATE TABLE t").scalar()
    db.sql("DROP TABLE t")
    db.sql(shown)
    assert db.sql("SHOW CREATE TABLE t").scalar() == shown


def test_a_lightweight_delete_rebuilds_or_drops(db: ml.Database) -> None:
    for mode, left in (("rebuild", {"p": 2}), ("drop", {})):
        settings = "min_bytes_for_wide_part = 0, min_bytes_for_full_part_storage = 0"
        tail = f"SETTINGS lightweight_mutation_projection_mode = '{mode}', {settings}"
        table = _create(db, "PROJECTION p (SELECT v, count() GROUP BY v)", tail)
        db.sql("INSERT INTO t (k, v, s) SELECT number, number % 3, hex(cityHash64(number)) FROM numbers(40000)")
        db.sql("DELETE FROM t WHERE v = 1")
        table.apply_mutations()
        assert _projections(table) == [left]
        assert all(part.manifest.masked for part in table.handle.log.state.parts())
        assert db.sql("SELECT v, count() FROM t GROUP BY v ORDER BY v").rows() == [(0, 13334), (2, 13333)]


def test_parts_that_move_keep_projections_of_tables_that_have_them(db: ml.Database) -> None:
    def create(name: str, columns: str, projections: str) -> ml.Table:
        db.sql(f"DROP TABLE IF EXISTS {name}")
        db.sql(f"CREATE TABLE {name} ({columns}{projections}) ENGINE = MergeTree ORDER BY k")
        return db.table(name)

    projection = ", PROJECTION p (SELECT * ORDER BY v)"
    create("t", "k UInt32, v UInt8, w UInt8", projection)
    db.sql("INSERT INTO t SELECT number, number % 3, 7 FROM numbers(30)")
    for others in ("", ", PROJECTION p (SELECT v ORDER BY v)"):
        create("u", "k UInt32, v UInt8, w UInt8", others)
        with pytest.raises(ml.MergelakeError) as caught:
            db.sql("ALTER TABLE t MOVE PARTITION tuple() TO TABLE u")
        assert (caught.value.name, "different projections" in str(caught.value)) == ("BAD_ARGUMENTS", True)
    # Columns of the same names, with other ids.
    table = create("u", "k UInt32, w UInt8, v UInt8", f"{projection}, PROJECTION q (SELECT max(v))")
    db.sql("ALTER TABLE u ATTACH PARTITION tuple() FROM t")
    assert _projections(table) == [{"p": 30}]
    db.sql("INSERT INTO u (k, v, w) SELECT number, number % 3, 7 FROM numbers(30)")
    db.sql("OPTIMIZE TABLE u FINAL")
    assert _projections(table) == [{"p": 60, "q": 1}]
    assert db.sql("SELECT v, w, count() FROM u GROUP BY v, w ORDER BY v").rows() == [(n, 7, 20) for n in range(3)]
    (part,) = table.handle.log.state.parts()
    bound = next(each for each in table_projections(table.schema) if each.name == "p")
    manifest = projection_manifest(part.manifest, "p", bound.schema.stored)
    columns = {column.name: column for column in bound.schema.stored}
    (batch,) = PartReader(table.handle.store, table.handle.directory, manifest, columns).read(["v", "w"])
    assert batch.column("v").to_pylist() == sorted(n % 3 for n in range(60))
    assert set(batch.column("w").to_pylist()) == {7}
    # A dropped one whose files parts still have.
    create("t", "k UInt32, v UInt8", ", PROJECTION p (SELECT max(v))")
    db.sql("INSERT INTO t SELECT number, number % 3 FROM numbers(30)")
    db.sql("ALTER TABLE t DROP PROJECTION p")
    create("u", "k UInt32, v UInt8", "")
    with pytest.raises(ml.MergelakeError) as caught:
        db.sql("ALTER TABLE t MOVE PARTITION tuple() TO TABLE u")
    assert caught.value.name == "BAD_ARGUMENTS"
    db.sql("OPTIMIZE TABLE t FINAL")
    db.sql("ALTER TABLE t MOVE PARTITION tuple() TO TABLE u")
    assert db.sql("SELECT count() FROM u").scalar() == 30


UNIQ = (
    "PROJECTION p (SELECT v, uniqExact(k), argMaxIf(s, k, v > 0) GROUP BY v), "
    "PROJECTION q (SELECT v, sum(k) GROUP BY v)"
)


def test_states_of_any_function_are_made_wherever_parts_are_written(db: ml.Database) -> None:
    wide = "SETTINGS min_bytes_for_wide_part = 0, min_bytes_for_full_part_storage = 0, merge_max_chunk_bytes = 4000"
    table = _create(db, UNIQ, wide)

    def check(*parts: dict[str, int]) -> None:
        assert _projections(table) == list(parts)
        expected = "SELECT v, uniqExact(k), argMaxIf(s, k, v > 0) FROM t GROUP BY v ORDER BY v"
        apart = f"{expected} SETTINGS optimize_use_projections = 0"
        assert db.sql(expected).rows() == db.sql(apart).rows()

    for number in range(2):
        # No k twice: of equal ones argMax takes that which a thread meets first.
        rows = f"SELECT 2 * number + {number}, number % 3, hex(number * {number}) FROM numbers(500)"
        db.sql(f"INSERT INTO t (k, v, s) {rows}")
    check({"p": 3, "q": 3}, {"p": 3, "q": 3})
    db.sql("ALTER TABLE t UPDATE v = 7 WHERE k % 5 = 1")
    table.apply_mutations()
    check({"p": 4, "q": 4}, {"p": 4, "q": 4})
    table.clear_projection("p")
    assert table.materialize_projection("p") == 2
    check({"p": 4, "q": 4}, {"p": 4, "q": 4})
    db.sql("OPTIMIZE TABLE t FINAL")
    check({"p": 4, "q": 4})
    db.sql("ALTER TABLE t DELETE WHERE v = 0")
    table.apply_mutations()
    check({"p": 3, "q": 3})


def test_without_clickhouse_parts_lack_what_it_makes_and_merges_are_left_to_others(
    db: ml.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _create(db, UNIQ)
    monkeypatch.setattr(engine, "available", lambda: False)
    for _ in range(2):
        table.append({"k": [1, 2, 3], "v": [1, 1, 2], "s": ["a", "b", "c"]})
    assert _projections(table) == [{"q": 2}, {"q": 2}]
    create = f"CREATE TABLE without (k UInt32, v Int32, s String, {UNIQ}) ENGINE = MergeTree ORDER BY k"
    for act in (
        lambda: db.sql("OPTIMIZE TABLE t FINAL"),
        lambda: table.materialize_projection("p"),
        lambda: table.env.check_merges(table.schema),
        lambda: table.add_projection("r", "SELECT uniq(k)"),
        lambda: db.sql(create),
        lambda: db.sql("ALTER TABLE t ADD PROJECTION r (SELECT uniq(k))"),
    ):
        with pytest.raises(ml.MergelakeError, match="pip install") as caught:
            act()
        assert caught.value.name == "SUPPORT_IS_DISABLED"
    assert "without" not in db.tables()
    monkeypatch.undo()
    db.sql("OPTIMIZE TABLE t FINAL")
    assert _projections(table) == [{"p": 2, "q": 2}]
