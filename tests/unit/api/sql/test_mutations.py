"""ALTER … UPDATE | DELETE, UPDATE, DELETE FROM and KILL MUTATION: parsing, settings, subqueries, ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from itertools import count
from unittest.mock import patch

import pytest

import mergelake as ml
from mergelake.api.sql import statements as s
from mergelake.api.sql.parser import parse_one
from mergelake.api.sql.subqueries import Subqueries
from mergelake.core.base.clock import ManualClock
from mergelake.core.base.errors import MergelakeError
from mergelake.store.objects.memory import MemoryStore
from tests.helpers.refusals import refused

PAIRS = "CAST([(1, 'x'), (2, 'y')], 'Array(Tuple(UInt64, String))')"
_NUMBERS = count()


@pytest.fixture
def db() -> Iterator[ml.Database]:
    with ml.connect(f"memory://mutations-{next(_NUMBERS)}") as found:
        found.sql("CREATE TABLE t (p UInt8, k UInt64, a Int64, s String) ENGINE = MergeTree PARTITION BY p ORDER BY k")
        found.sql("INSERT INTO t SELECT number % 2, number, number * 10, toString(number) FROM numbers(6)")
        found.sql("CREATE TABLE other (k UInt64, s String) ENGINE = MergeTree ORDER BY k")
        found.sql("INSERT INTO other VALUES (1, 'x'), (2, 'y')")
        yield found


def command(db: ml.Database) -> str:
    """The newest command."""
    return str(db.table("t").mutations()["command"].to_pylist()[-1])


def open_ids(db: ml.Database) -> list[str]:
    rows = db.sql("SELECT DISTINCT mutation_id FROM system.mutations WHERE NOT is_done ORDER BY mutation_id").rows()
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "ALTER TABLE d.t UPDATE a = f(1, 2), `b c` = 'x, y' WHERE k IN (1, 2)",
            s.Mutate(s.Name("d", "t"), (s.MutationCommand("k IN (1, 2)", (("a", "f(1, 2)"), ("b c", "'x, y'"))),)),
        ),
        (
            "ALTER TABLE t UPDATE a = CASE WHEN x THEN 1 ELSE 2 END WHERE y -- why\n AND z, DELETE WHERE w",
            s.Mutate(
                s.Name("", "t"),
                (
                    s.MutationCommand("y AND z", (("a", "CASE WHEN x THEN 1 ELSE 2 END"),)),
                    s.MutationCommand("w"),
                ),
            ),
        ),
        (
            "ALTER TABLE t (DELETE IN PARTITION (1, 'a') WHERE 1), (DELETE IN PARTITION ID 'p' WHERE 2)",
            s.Mutate(
                s.Name("", "t"),
                (
                    s.MutationCommand("1", partition=s.PartitionClause((1, "a"))),
                    s.MutationCommand("2", partition=s.PartitionClause(id="p")),
                ),
            ),
        ),
        (
            "UPDATE t SET a = b IN PARTITION 3 WHERE c IN (SELECT 1 FROM x WHERE y)",
            s.Mutate(
                s.Name("", "t"),
                (s.MutationCommand("c IN (SELECT 1 FROM x WHERE y)", (("a", "b"),), s.PartitionClause((3,))),),
                lightweight=True,
            ),
        ),
        (
            "DELETE FROM t WHERE settings = 1 SETTINGS mutations_sync = 1",
            s.Tailed(
                s.Mutate(s.Name("", "t"), (s.MutationCommand("settings = 1"),), lightweight=True),
                settings={"mutations_sync": "1"},
            ),
        ),
        ("KILL MUTATION WHERE a = 1 AND test SYNC", s.KillMutation("a = 1 AND test")),
        ("KILL MUTATION WHERE a = 1 ASYNC", s.KillMutation("a = 1")),
        ("KILL MUTATION WHERE a, b TEST", None),
        ("KILL MUTATION WHERE a TEST FORMAT JSON", s.Tailed(s.KillMutation("a", test=True), format="JSON")),
        ("KILL MUTATION", None),
        ("UPDATE t SET a = 1", None),
        ("UPDATE t SET a.b = 1 WHERE 1", None),
        ("DELETE t WHERE 1", None),
        ("DELETE FROM t", None),
        ("ALTER TABLE t UPDATE a = (1 WHERE 1", None),
    ],
)
def test_statements_are_read(text: str, expected: s.Statement | None) -> None:
    if expected is not None:
        assert parse_one(text) == expected
        return
    with pytest.raises(MergelakeError) as refused:
        parse_one(text)
    assert refused.value.name == "SYNTAX_ERROR"


def test_a_mutation_is_seen_at_once_and_returns_nothing(db: ml.Database) -> None:
    assert db.sql("ALTER TABLE t UPDATE a = a + 1 WHERE k < 2, DELETE WHERE k = 5").rows() == []
    db.sql("UPDATE t SET s = 'x' IN PARTITION 1 WHERE 1")
    db.sql("DELETE FROM t IN PARTITION ID '0' WHERE k = 4")
    found = db.sql("SELECT k, a, s FROM t ORDER BY k").rows()
    assert found == [(0, 1, "0"), (1, 11, "x"), (2, 20, "2"), (3, 30, "x")]
    assert len(open_ids(db)) == 3


@pytest.mark.parametrize("value", ["1", "2", "3"])
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t UPDATE a = 0 WHERE k = 1 SETTINGS mutations_sync = {}",
        "ALTER TABLE t DELETE WHERE k = 1 SETTINGS mutations_sync = {}",
        "UPDATE t SET a = 0 WHERE k = 1 SETTINGS mutations_sync = {}",
        "DELETE FROM t WHERE k = 1 SETTINGS lightweight_deletes_sync = {}",
    ],
)
def test_a_statement_may_wait(db: ml.Database, statement: str, value: str) -> None:
    db.sql("UPDATE t SET a = 7 WHERE k = 2")
    db.sql(statement.format(value))
    assert open_ids(db) == []
    assert db.sql("SELECT a FROM t WHERE k = 2").scalar() == 7
    assert {row[0] for row in db.sql("SELECT max(data_version) FROM system.parts WHERE active").rows()} != {2}


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE t DELETE WHERE k = 1", "UPDATE t SET a = 0 WHERE 1", "DELETE FROM t WHERE k = 1"]
)
def test_the_setting_of_the_other_statement_does_not_make_it_wait(db: ml.Database, statement: str) -> None:
    names = "('mutations_sync', 'lightweight_deletes_sync')"
    assert db.sql(f"SELECT value FROM system.settings WHERE name IN {names}").rows() == [("0",)] * 2
    other = "mutations_sync" if statement.startswith("DELETE") else "lightweight_deletes_sync"
    db.sql(statement, settings={other: 1})
    assert len(open_ids(db)) == 1


def test_a_wait_for_a_mutation_that_fails_ends_in_an_error(db: ml.Database) -> None:
    db.sql("INSERT INTO t VALUES (0, 9, 9, 'no number')")
    statement = "ALTER TABLE t UPDATE a = toInt64(s) + 1 WHERE k > 4"
    with pytest.raises(MergelakeError) as failed:
        db.sql(statement, settings={"mutations_sync": 1})
    assert failed.value.name == "UNFINISHED"
    columns = "is_done, parts_to_do, latest_failed_part != '', latest_fail_error_code_name, latest_fail_time > 0"
    (row,) = db.sql(f"SELECT {columns} FROM system.mutations").rows()
    assert row == (0, 1, 1, "CANNOT_PARSE_TEXT", 1)
    with pytest.raises(MergelakeError, match="CANNOT_PARSE_TEXT"):
        db.sql("SELECT sum(a) FROM t")
    (killed,) = db.sql("KILL MUTATION WHERE latest_fail_reason != ''").rows()
    assert killed == ("waiting", "default", "t", open_or_killed(db), command(db))
    # The part of the other partition had it already.
    assert db.sql("SELECT k, a FROM t WHERE k > 4 ORDER BY k").rows() == [(5, 6), (9, 9)]
    assert db.sql("SELECT is_killed, is_done FROM system.mutations").rows() == [(1, 1)]


def open_or_killed(db: ml.Database) -> str:
    return str(db.table("t").mutations()["mutation_id"].to_pylist()[-1])


def test_too_many_unfinished_mutations_are_refused(db: ml.Database) -> None:
    db.sql("ALTER TABLE t MODIFY SETTING number_of_mutations_to_throw = 2")
    for _ in range(2):
        db.sql("UPDATE t SET a = a + 1 WHERE 1")
    for statement in ("UPDATE t SET a = 0 WHERE 1", "DELETE FROM t WHERE 1"):
        with pytest.raises(MergelakeError) as refused:
            db.sql(statement)
        assert refused.value.name == "TOO_MANY_MUTATIONS"
    with pytest.raises(MergelakeError, match="TOO_MANY_MUTATIONS"):
        db.table("t").update({"a": "0"}, "1")
    db.sql("UPDATE t SET a = a + 1 WHERE 1 SETTINGS number_of_mutations_to_throw = 3")
    with pytest.raises(MergelakeError, match="TOO_MANY_MUTATIONS"):
        db.sql("UPDATE t SET a = a + 1 WHERE 1 SETTINGS number_of_mutations_to_throw = 1")
    db.table("t").apply_mutations()
    db.sql("UPDATE t SET a = a + 1 WHERE 1")
    assert db.sql("SELECT sum(a) FROM t").scalar() == 150 + 4 * 6


def test_the_time_is_that_of_the_statement() -> None:
    clock = ManualClock(1_767_323_045_678)
    db = ml.Database(ml.Warehouse(MemoryStore(), clock=clock))
    db.sql("CREATE TABLE t (k UInt64, s String, d Date) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO t VALUES (1, '', 0)")
    db.sql("UPDATE t SET s = toString(now()), d = today() WHERE now() > '2026-01-01 00:00:00'")
    clock.sleep_s(100_000)
    assert db.sql("SELECT s, d FROM t").rows() == [("2026-01-02 03:04:05", date(2026, 1, 2))]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("k IN (SELECT k FROM other)", "k IN CAST([1, 2], 'Array(UInt64)')"),
        ("k NOT IN (SELECT k FROM other WHERE 0)", "k NOT IN CAST([], 'Array(UInt64)')"),
        ("k GLOBAL NOT IN (SELECT k FROM other)", "k NOT IN CAST([1, 2], 'Array(UInt64)')"),
        ("in(k, (SELECT k FROM other))", "k IN CAST([1, 2], 'Array(UInt64)')"),
        ("k IN ((SELECT k FROM other))", "k IN CAST([1, 2], 'Array(UInt64)')"),
        ("k = (SELECT max(k) FROM other)", "k = CAST(2, 'Nullable(UInt64)')"),
        ("k = (SELECT k FROM other WHERE 0)", "k = CAST(NULL, 'Nullable(UInt64)')"),
        ("EXISTS (SELECT * FROM other WHERE k = 5)", "0"),
        ("NOT exists(SELECT * FROM other)", "NOT 1"),
        ("(k, s) IN other", f"(k, s) IN {PAIRS}"),
        ("(k, s) IN default.other", f"(k, s) IN {PAIRS}"),
        ("s = '(SELECT 1)'", "s = '(SELECT 1)'"),
        ("k IN (WITH 2 AS x SELECT x::UInt64)", "k IN CAST([2], 'Array(UInt64)')"),
        ("k IN (SELECT NULL)", "k IN CAST([], 'Array(Nothing)')"),
        ("s IN (SELECT 'it''s')", "s IN CAST(['it\\'s'], 'Array(String)')"),
        ("k IN (SELECT k FROM (SELECT k FROM other WHERE k IN (SELECT 1)))", "k IN CAST([1], 'Array(UInt64)')"),
    ],
)  # fmt: skip
def test_subqueries_become_their_results(db: ml.Database, where: str, expected: str) -> None:
    db.sql("ALTER TABLE t UPDATE a = 1 WHERE " + where)
    assert command(db) == f"(UPDATE a = 1 WHERE {expected})"
    db.sql("SELECT * FROM t")


def test_results_of_subqueries_are_not_what_they_would_be_later(db: ml.Database) -> None:
    db.sql("UPDATE t SET a = (SELECT count() FROM other) WHERE k IN (SELECT k FROM other)")
    db.sql("INSERT INTO other VALUES (3, 'z')")
    db.sql("DROP TABLE other")
    assert db.sql("SELECT a FROM t ORDER BY k").rows() == [(0,), (2,), (2,), (30,), (40,), (50,)]


def test_the_size_of_results_is_limited(db: ml.Database) -> None:
    statement = "DELETE FROM t WHERE k IN (SELECT number FROM numbers(400000))"
    with pytest.raises(MergelakeError) as refused:
        db.sql(statement)
    assert refused.value.name == "LIMIT_EXCEEDED"
    assert "mutations_max_literal_size_to_replace" in refused.value.hint
    with pytest.raises(MergelakeError, match="LIMIT_EXCEEDED"):
        db.sql("DELETE FROM t WHERE k IN (SELECT 1)", settings={"mutations_max_literal_size_to_replace": 5})
    with pytest.raises(MergelakeError, match="LIMIT_EXCEEDED"):
        db.sql(
            "DELETE FROM t WHERE k = (SELECT 1) AND s != (SELECT groupArray(repeat('x', 1000000)) FROM numbers(2))[1]"
        )
    db.sql("DELETE FROM t WHERE k IN (SELECT number FROM numbers(5000))")
    assert db.sql("SELECT count() FROM t").scalar() == 0


def test_subqueries_of_a_statement_read_one_version(db: ml.Database) -> None:
    original, seen = Subqueries._rows, []

    def insert_between(self: Subqueries, query: str) -> object:
        found = original(self, query)
        rows = list(found[0])
        seen.append(rows)
        db.sql("INSERT INTO other VALUES (7, 'z')")
        return iter(rows), found[1]

    with patch.object(Subqueries, "_rows", insert_between):
        db.sql("UPDATE t SET a = (SELECT count() FROM other) WHERE k < (SELECT count() FROM other)")
    assert seen == [[(2,)], [(2,)]]
    assert db.sql("SELECT count() FROM other").scalar() == 4


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("k = ANY (SELECT 1)", "NOT_IMPLEMENTED"),
        ("k > ALL (SELECT k FROM other)", "NOT_IMPLEMENTED"),
        ("k IN (SELECT 1", "SYNTAX_ERROR"),
        ("k IN (SELECT number FROM numbers(3)) AND file('/etc/passwd') = ''", "ACCESS_DENIED"),
        ("s IN (SELECT * FROM file('/etc/passwd'))", "ACCESS_DENIED"),
        ("a = (SELECT k FROM other)", "INCORRECT_RESULT_OF_SCALAR_SUBQUERY"),
        ("a IN nosuch", "UNKNOWN_IDENTIFIER"),
        ("a = (SELECT s)", "NOT_IMPLEMENTED"),
    ],
)
def test_other_subqueries_are_refused(db: ml.Database, where: str, name: str) -> None:
    with pytest.raises(MergelakeError) as refused:
        db.sql(f"DELETE FROM t WHERE {where}")
    assert refused.value.name == name
    assert db.table("t").mutations().num_rows == 0


def test_settings_that_change_what_expressions_mean_are_refused(db: ml.Database) -> None:
    for settings in ({"session_timezone": "Asia/Tokyo"}, {"cast_keep_nullable": 1}):
        with pytest.raises(MergelakeError, match=f"{next(iter(settings))}.*NOT_IMPLEMENTED"):
            db.sql("UPDATE t SET a = 1 WHERE 1", settings=settings)
    db.sql("UPDATE t SET a = 1 WHERE 1", settings={"session_timezone": "UTC", "cast_keep_nullable": 0})
    db.sql("UPDATE t SET a = 1 WHERE 1", settings={"date_time_input_format": "best_effort"})


@pytest.mark.parametrize(
    "settings", [{"readonly": 1}, {"readonly": 2}, {"allow_ddl": 0}], ids=lambda given: str(*given.items())
)
@pytest.mark.parametrize(
    "statement", ["ALTER TABLE t DELETE WHERE 1", "UPDATE t SET a = 1 WHERE 1", "KILL MUTATION WHERE 1"]
)
def test_who_may_not_change_tables_changes_no_rows(db: ml.Database, settings: dict[str, int], statement: str) -> None:
    with pytest.raises(MergelakeError) as refused:
        db.sql(statement, settings=settings)
    assert refused.value.name in ("READONLY", "QUERY_IS_PROHIBITED")


def test_kill_mutation_gives_up_what_its_condition_selects(db: ml.Database) -> None:
    db.sql("CREATE TABLE u (k UInt64) ENGINE = MergeTree ORDER BY k")
    db.sql("INSERT INTO u VALUES (1)")
    db.sql("DELETE FROM u WHERE 1")
    db.sql("UPDATE t SET a = 1 WHERE 1, UPDATE a = 2 WHERE k = 1".replace("UPDATE t SET", "ALTER TABLE t UPDATE"))
    told = db.sql("KILL MUTATION WHERE table = 't' TEST")
    assert [row[0] for row in told.rows()] == ["unknown_status"] * 2
    assert len(open_ids(db)) == 2
    first = db.sql("KILL MUTATION WHERE table = 't' FORMAT TSVWithNames").text()
    assert first.splitlines()[0] == "kill_status\tdatabase\ttable\tmutation_id\tcommand"
    assert [line.split("\t")[0] for line in first.splitlines()[1:]] == ["waiting", "finished"]
    assert db.sql("KILL MUTATION WHERE is_killed").rows()[0][0] == "finished"
    assert db.sql("KILL MUTATION WHERE database = 'nowhere'").rows() == []
    assert db.sql("SELECT sum(a) FROM t").scalar() == 150
    assert db.sql("SELECT count() FROM u").scalar() == 0


def test_other_kinds_of_kill_are_refused(db: ml.Database) -> None:
    for statement in ("KILL QUERY WHERE 1", "KILL TRANSACTION WHERE 1"):
        with pytest.raises(MergelakeError, match="NOT_IMPLEMENTED"):
            db.sql(statement)


def test_expressions_of_python_are_checked_alike(db: ml.Database) -> None:
    table = db.table("t")
    for call, name in (
        (lambda: table.update({"k": "1"}, "1"), "CANNOT_UPDATE_COLUMN"),
        (lambda: table.update({"a": "nosuch(1)"}, "1"), "UNKNOWN_FUNCTION"),
        (lambda: table.update({"a": "length(arrayStringConcat(['x']))"}, "1"), "NOT_IMPLEMENTED"),
        (lambda: table.update({"a": "sum(a)"}, "1"), "UNKNOWN_IDENTIFIER"),
        (lambda: table.update({"a": "1 extra"}, "1"), "SYNTAX_ERROR"),
        (lambda: table.update({"a": "1) FROM x --"}, "1"), "SYNTAX_ERROR"),
        (lambda: table.update({"a": "(SELECT 1)"}, "1"), "NOT_IMPLEMENTED"),
        (lambda: table.update({"a": "1"}, "1", partition_id=""), "INVALID_PARTITION_VALUE"),
        (lambda: table.delete("1", partition_id="a/b"), "INVALID_PARTITION_VALUE"),
        (lambda: table.clear_column("a", partition_id="no id"), "INVALID_PARTITION_VALUE"),
        (lambda: table.update({"a": 1}, "1"), "TYPE_MISMATCH"),  # type: ignore[dict-item]
        (lambda: table.update([("a", "1")], "1"), "TYPE_MISMATCH"),  # type: ignore[arg-type]
        (lambda: table.update({}, "1"), "BAD_ARGUMENTS"),
        (lambda: table.delete(1), "TYPE_MISMATCH"),  # type: ignore[arg-type]
        (lambda: table.delete("rand() = 1"), "BAD_ARGUMENTS"),
        (lambda: table.kill_mutation("mutation_9.txt"), "BAD_ARGUMENTS"),
    ):
        with pytest.raises(MergelakeError) as refused:
            call()
        assert refused.value.name == name
    assert table.mutations().num_rows == 0


def test_mutations_are_listed_and_killed_by_name_and_by_id(db: ml.Database) -> None:
    table = db.table("t")
    table.update({"a": "a + 1"}, "k = 1")
    table.delete("t.k = 2")
    found = table.mutations().to_pylist()
    assert [row["command"] for row in found] == [
        "(UPDATE a = a + 1 WHERE k = 1)",
        "(UPDATE _row_exists = 0 WHERE k = 2)",
    ]
    assert [row["mutation_id"] for row in found] == ["mutation_3.txt", "mutation_4.txt"]
    assert [row["block_numbers.number"] for row in found] == [[3], [4]]
    assert [sorted(row["parts_to_do_names"]) for row in found] == [["0_1_1_0", "1_2_2_0"]] * 2
    assert all(row["finish_time"] is None and not row["is_done"] for row in found)
    table.kill_mutation("mutation_3.txt")
    table.kill_mutation(table.handle.log.state.mutations[1].id)
    assert table.mutations()["is_killed"].to_pylist() == [1, 1]
    with pytest.raises(MergelakeError, match="There are no unfinished mutations"):
        table.kill_mutation("mutation_3.txt")
    assert db.sql("SELECT sum(a) FROM t").scalar() == 150


def test_a_table_that_was_dropped_is_not_mutated(db: ml.Database) -> None:
    table = db.table("t")
    db.sql("DROP TABLE t")
    with pytest.raises(MergelakeError, match="UNKNOWN_TABLE"):
        db.sql("DELETE FROM t WHERE 1")
    with pytest.raises(MergelakeError):
        table.delete("1")


def test_a_stale_table_learns_of_new_settings_first(db: ml.Database) -> None:
    stale = ml.Warehouse(db.warehouse.url).table("default.t")
    db.sql("ALTER TABLE t MODIFY SETTING number_of_mutations_to_throw = 1")
    db.sql("UPDATE t SET a = 1 WHERE 1")
    with pytest.raises(MergelakeError, match="TOO_MANY_MUTATIONS"):
        stale.delete("1")


@pytest.mark.parametrize(
    ("commands", "name"),
    [
        ("ADD COLUMN q UInt8, UPDATE nosuch = 1 WHERE 1", "NO_SUCH_COLUMN_IN_TABLE"),
        ("ADD COLUMN q UInt8, UPDATE q = 1 WHERE zz = 1", "UNKNOWN_IDENTIFIER"),
        ("UPDATE a = 1 WHERE 1, DROP COLUMN a, UPDATE a = 1 WHERE 1", "NO_SUCH_COLUMN_IN_TABLE"),
        ("DELETE WHERE 1, ADD COLUMN k UInt8", "DUPLICATE_COLUMN"),
        ("RENAME COLUMN a TO b, DELETE WHERE a = 1", "UNKNOWN_IDENTIFIER"),
        ("ADD COLUMN q UInt8, DROP PARTITION (1, 2)", "INVALID_PARTITION_VALUE"),
        ("DELETE WHERE 1, ATTACH PARTITION 1 FROM nosuch", "UNKNOWN_TABLE"),
        ("DROP PARTITION 1, DELETE WHERE 1, DROP PARTITION 0", "QUERY_IS_PROHIBITED"),
        ("UPDATE a = 1 WHERE 1, MODIFY COLUMN s UInt8", "BAD_ARGUMENTS"),
    ],
)
def test_steps_are_checked_before_the_first_is_done(db: ml.Database, commands: str, name: str) -> None:
    db.sql("ALTER TABLE t UPDATE s = 'x' WHERE k = 1")  # unfinished: its column stays as it is
    with refused(db, name):
        db.sql(f"ALTER TABLE t {commands}")


def test_steps_stand_in_the_order_in_which_they_were_written(db: ml.Database) -> None:
    """A mutation that a later step would make another one is written down before it; others are not."""
    before = db.table("t").version
    db.sql(
        "ALTER TABLE t ADD COLUMN b Int64 DEFAULT k, UPDATE b = a WHERE k > 3, DELETE WHERE k = 5, ADD COLUMN c UInt8"
    )
    assert (db.table("t").version, len(open_ids(db))) == (before + 3, 1)
    assert db.sql("SELECT k, b, c FROM t ORDER BY k").rows() == [(0, 0, 0), (1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 40, 0)]
    db.table("t").apply_mutations()
    db.sql("ALTER TABLE t UPDATE b = 300 WHERE k = 0, MODIFY COLUMN b UInt8, UPDATE b = 301 WHERE k = 1")
    assert db.sql("SELECT b FROM t ORDER BY k").rows() == [(44,), (45,), (2,), (3,), (40,)]
    assert len(open_ids(db)) == 1
    with pytest.raises(MergelakeError, match="CANNOT_PARSE_TEXT"):
        db.sql("ALTER TABLE t UPDATE s = 'no number' WHERE k = 1, MODIFY COLUMN s UInt8")
    assert db.sql("SELECT s FROM t WHERE k < 2 ORDER BY k").rows() == [("0",), ("no number",)]
