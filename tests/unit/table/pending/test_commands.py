"""Commands of mutations as text: what is read is what was written."""

from __future__ import annotations

import pytest

from mergelake.core.base.errors import MergelakeError
from mergelake.table.pending.commands import Delete, Update, commands_text, drops_rows, parse_commands

COMMANDS = {
    "UPDATE a = 1 WHERE b": Update((("a", "1"),), "b"),
    "UPDATE a = b, b = a WHERE a > 1 AND b < 2": Update((("a", "b"), ("b", "a")), "a > 1 AND b < 2"),
    "UPDATE a = f(x, [1, 2], (3, 4)), b = 'a, b WHERE c' WHERE has(x, 'WHERE')": Update(
        (("a", "f(x, [1, 2], (3, 4))"), ("b", "'a, b WHERE c'")), "has(x, 'WHERE')"
    ),
    "UPDATE a = x IN (1, 2) WHERE x NOT IN (3)": Update((("a", "x IN (1, 2)"),), "x NOT IN (3)"),
    "UPDATE a = 1 IN PARTITION ID '202401' WHERE 1": Update((("a", "1"),), "1", "202401"),
    "UPDATE `odd name` = `where` WHERE `from` = 1": Update((("odd name", "`where`"),), "`from` = 1"),
    "UPDATE `n.e` = [1] WHERE 1": Update((("n.e", "[1]"),), "1"),
    "UPDATE a = (SELECT max(x) FROM s WHERE x > 1) WHERE 1": Update(
        (("a", "(SELECT max(x) FROM s WHERE x > 1)"),), "1"
    ),
    "DELETE WHERE a = 'it''s'": Delete("a = 'it''s'"),
    "DELETE IN PARTITION ID 'p\\'q' WHERE 1": Delete("1", "p'q"),
    "UPDATE _row_exists = 0 WHERE a": Delete("a", lightweight=True),
    "UPDATE _row_exists = 0 IN PARTITION ID 'all' WHERE a": Delete("a", "all", lightweight=True),
}


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_is_read_and_written(text: str) -> None:
    (command,) = parse_commands(text)
    assert command == COMMANDS[text]
    assert str(command) == text


def test_commands_are_separated_by_commas_outside_of_brackets() -> None:
    commands = tuple(COMMANDS.values())
    assert parse_commands(commands_text(commands)) == commands


def test_words_may_be_written_in_any_case() -> None:
    assert parse_commands("update a = 1 in partition id 'x' where b, Delete Where c") == (
        Update((("a", "1"),), "b", "x"),
        Delete("c"),
    )


def test_the_blanks_and_comments_within_an_expression_stay() -> None:
    (command,) = parse_commands("DELETE WHERE  a  = /* one */ 1  ")
    assert command == Delete("a  = /* one */ 1")


@pytest.mark.parametrize(
    "text",
    [
        "", "INSERT", "UPDATE", "UPDATE a", "UPDATE a =", "UPDATE a = WHERE 1", "UPDATE a = 1", "UPDATE a = 1 WHERE",
        "UPDATE a = 1, WHERE 1", "UPDATE 1 = a WHERE 1", "DELETE", "DELETE a = 1", "DELETE WHERE", "DELETE WHERE a,",
        "DELETE WHERE a) = 1", "DELETE WHERE a; DELETE WHERE b", "DELETE IN PARTITION 1 WHERE a",
        "DELETE IN PARTITION ID 1 WHERE a", "UPDATE a = 1 IN PARTITION ID 'x' IN PARTITION ID 'y' WHERE 1",
        "DELETE WHERE a IN PARTITION ID 'x'", "UPDATE n.e = [1] WHERE 1",
    ],
)  # fmt: skip
def test_anything_else_is_a_syntax_error(text: str) -> None:
    with pytest.raises(MergelakeError) as refused:
        parse_commands(text)
    assert refused.value.name == "SYNTAX_ERROR"


def test_only_deletes_drop_rows() -> None:
    assert drops_rows(parse_commands("UPDATE a = 1 WHERE 1, DELETE WHERE b"))
    assert drops_rows(parse_commands("UPDATE _row_exists = 0 WHERE 1"))
    assert not drops_rows(parse_commands("UPDATE a = 1 WHERE 1"))
