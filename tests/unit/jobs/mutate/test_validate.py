"""Mutations are checked before they are logged, and mean the same to whoever applies them."""

from __future__ import annotations

import pytest

from mergelake.api.sql.parser import parse_one
from mergelake.api.sql.statements import CreateTable
from mergelake.core.base.errors import MergelakeError
from mergelake.core.model.schema import TableSchema
from mergelake.expr.parser import parse
from mergelake.jobs.mutate.expressions import settled
from mergelake.jobs.mutate.validate import Submission, fixed_columns, unsupported_expression, validate
from mergelake.table.pending.commands import Command, Delete, Update, commands_text, parse_commands

# 2026-01-02 03:04:05.678 UTC
NOW_MS = 1_767_323_045_678
GIVEN = Submission(NOW_MS, "db.t")


def table(text: str) -> TableSchema:
    statement = parse_one(f"CREATE TABLE t {text}")
    assert isinstance(statement, CreateTable)
    assert statement.schema is not None
    return statement.schema


SCHEMA = table(
    "(k UInt64, ts DateTime, a Int64, s String, n Nullable(Int64), al DateTime ALIAS now() + a, b Int64 ALIAS a + 1, "
    "f Float64, arr Array(UInt8), t Tuple(a UInt8), settings UInt8, in_use UInt8) ENGINE = MergeTree ORDER BY k"
)


def update(value: str, where: str = "1", name: str = "a") -> Update:
    return Update(((name, value),), where)


def logged(command: Command, schema: TableSchema = SCHEMA) -> str:
    checked = validate([command], schema, GIVEN)
    assert parse_commands(commands_text(checked)) == checked
    return commands_text(checked)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("toUnixTimestamp(now())", "toUnixTimestamp(CAST('2026-01-02 03:04:05', 'DateTime'))"),
        ("toUnixTimestamp(NOW())", "toUnixTimestamp(CAST('2026-01-02 03:04:05', 'DateTime'))"),
        ("toInt64(today())", "toInt64(CAST('2026-01-02', 'Date'))"),
        ("toInt64(curdate() - yesterday())", "toInt64(CAST('2026-01-02', 'Date') - CAST('2026-01-01', 'Date'))"),
        ("toInt64(now64(3))", "toInt64(CAST('2026-01-02 03:04:05.678', 'DateTime64(3)'))"),
        ("toInt64(current_timestamp())", "toInt64(CAST('2026-01-02 03:04:05', 'DateTime'))"),
        ("toInt64(UTCTimestamp())", "toInt64(CAST('2026-01-02 03:04:05', 'DateTime(\\'UTC\\')'))"),
        (
            "toHour(now('Asia/Tokyo'))",
            "toHour(CAST(CAST('2026-01-02 03:04:05', 'DateTime(\\'UTC\\')'), 'DateTime(\\'Asia/Tokyo\\')'))",
        ),
        ("db.t.k + t.a", "k + t.a"),
        ("t.k + a", "k + a"),
        ("b + 1", "b + 1"),
        ("toInt64(al)", "toInt64(CAST(CAST('2026-01-02 03:04:05', 'DateTime') + a, 'DateTime'))"),
        ("k IN (1, 2)", "k IN (1, 2)"),
        ("settings + in_use", "settings + in_use"),
    ],
)
def test_what_is_logged_has_one_meaning(expression: str, expected: str) -> None:
    assert logged(update(expression)) == f"UPDATE a = {expected} WHERE 1"


def test_the_column_that_is_a_tuple_comes_before_the_table() -> None:
    assert str(settled("t.a", SCHEMA, NOW_MS, "db.t")) == "t.a"
    assert settled("t.zz", SCHEMA, NOW_MS, "db.t") == parse("t.zz")


@pytest.mark.parametrize(
    ("where", "expected"),
    [("a", "a != 0"), ("f", "f != 0"), ("n", "n != 0"), ("a = 1", "a = 1"), ("NULL", "NULL"), ("b", "b != 0")],
)
def test_the_condition_of_alter_delete_may_be_a_number(where: str, expected: str) -> None:
    assert logged(Delete(where)) == f"DELETE WHERE {expected}"


def test_a_lightweight_delete_takes_none() -> None:
    with pytest.raises(MergelakeError, match="ILLEGAL_TYPE_OF_ARGUMENT"):
        logged(Delete("a", lightweight=True))
    assert logged(Delete("a = 1", lightweight=True)) == "UPDATE _row_exists = 0 WHERE a = 1"


def test_setting_row_exists_to_0_is_a_lightweight_delete() -> None:
    assert validate([update("0", "a = 1", "_row_exists")], SCHEMA, GIVEN) == (Delete("a = 1", lightweight=True),)
    for value in ("1", "a", "toUInt8(0)"):
        with pytest.raises(MergelakeError, match="NOT_IMPLEMENTED"):
            logged(update(value, "a = 1", "_row_exists"))


@pytest.mark.parametrize("name", ["_part", "_part_offset", "_partition_id", "_row_exists", "_block_number", "_table"])
def test_virtual_columns_are_refused_by_name(name: str) -> None:
    for command in (update(f"{name} = 1"), Delete(f"{name} = 'x'"), Delete(f"t.k = 1 AND f({name})")):
        with pytest.raises(MergelakeError, match=f"virtual column {name} .*NOT_IMPLEMENTED"):
            logged(command)
    own = table(f"(k UInt64, a UInt8, {name} UInt8) ENGINE = MergeTree ORDER BY k")
    assert logged(update(f"{name} + 1"), own) == f"UPDATE a = {name} + 1 WHERE 1"


def test_keys_stay_as_they_are() -> None:
    schema = table(
        "(k UInt64, ts DateTime, p String, t Tuple(x UInt8, y UInt8), v UInt32, d UInt8, a UInt8) "
        "ENGINE = ReplacingMergeTree(v, d) PARTITION BY (length(p), t.x) PRIMARY KEY toDate(ts) "
        "ORDER BY (toDate(ts), intHash32(k)) SAMPLE BY intHash32(k)"
    )
    assert fixed_columns(schema) >= {"k", "ts", "p", "t", "v"}
    assert fixed_columns(schema).isdisjoint({"d", "a"})


def test_arrays_of_a_nested_are_left_alone_but_a_single_one_is_not() -> None:
    schema = table(
        "(k UInt64, `n.a` Array(UInt8), `n.b` Array(UInt8), `m.a` Array(UInt8)) ENGINE = MergeTree ORDER BY k"
    )
    with pytest.raises(MergelakeError, match="NOT_IMPLEMENTED"):
        logged(update("[1]", name="n.a"), schema)
    assert logged(update("[1]", name="m.a"), schema) == "UPDATE `m.a` = [1] WHERE 1"


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ("CAST(['01'], 'Array(String)')", "NOT_IMPLEMENTED"),
        ("CAST([1.5], 'Array(Float64)')", "NOT_IMPLEMENTED"),
        ("CAST([(1, 2)], 'Array(Tuple(UInt8, UInt8))')", "NUMBER_OF_COLUMNS_DOESNT_MATCH"),
        ("CAST([1, 300], 'Array(Int16)')", ""),
        ("CAST([], 'Array(Nothing)')", ""),
        ("CAST([], 'Array(UInt64)')", ""),
        ("('1', '2')", ""),
        ("[1, 2]", ""),
    ],
)
def test_results_of_subqueries_are_of_the_type_of_the_left_side(members: str, name: str) -> None:
    if not name:
        logged(Delete(f"k IN {members}"))
        return
    with pytest.raises(MergelakeError) as refused:
        logged(Delete(f"k NOT IN {members}"))
    assert refused.value.name == name


def test_names_that_cut_a_command_short_are_refused() -> None:
    schema = table("(k UInt64, `where` UInt8, a UInt8) ENGINE = MergeTree ORDER BY k")
    with pytest.raises(MergelakeError, match="NOT_IMPLEMENTED"):
        logged(update("`where` + 1"), schema)


def test_nothing_to_do_is_refused() -> None:
    for commands in ([], [Update((), "1")]):
        with pytest.raises(MergelakeError, match="BAD_ARGUMENTS"):
            validate(commands, SCHEMA, GIVEN)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (update("nosuch(a)"), "nosuch(a)"),
        (update("1", "nosuch(a)"), "nosuch(a)"),
        (Delete("zz = 1"), "zz = 1"),
        (update("a +"), "a +"),
        (update("1", "s"), "s"),
    ],
)
def test_the_expression_that_is_to_be_judged_is_found(command: Command, text: str) -> None:
    found = unsupported_expression([update("a + 1"), command], SCHEMA, GIVEN)
    assert found is not None
    assert found.text == text


@pytest.mark.parametrize("command", [update("rand()"), Delete("_part = ''"), Delete("s"), update("a", "1", "k")])
def test_what_is_refused_by_rule_is_not_to_be_judged(command: Command) -> None:
    assert unsupported_expression([command], SCHEMA, GIVEN) is None
