"""Messages name only what exists: every command, option, statement and method that a text of ours tells of."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer.main

import mergelake as ml
from mergelake.api.cli.main import commands
from mergelake.api.sql.parser import _STATEMENTS
from mergelake.core.base.errors import MergelakeError, there_are
from mergelake.query.embedded.engine import translate

SOURCE = Path(ml.__file__).parent
_SQL = re.compile(
    r"\b(CREATE|DROP|ALTER|SHOW|ATTACH|DETACH|SYSTEM|KILL|UNDROP|OPTIMIZE|TRUNCATE|RENAME|EXCHANGE|BACKUP|RESTORE|CHECK)"
    r"(?= (?:TABLES?|DATABASES?|QUERY)\b)"
)


def texts() -> Iterator[tuple[str, str]]:
    """Every string of the source that is no docstring, with its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node.value


def all_commands() -> click.Group:
    return typer.main.get_command(commands)  # type: ignore[return-value]


def test_commands_that_texts_name_exist() -> None:
    seen = 0
    for place, text in texts():
        for first, second in re.findall(r"`mergelake ([a-z]+)(?: ([a-z]+))?", text):
            assert first in all_commands().commands, (place, text)
            command = all_commands().commands[first]
            inner = getattr(command, "commands", None)
            assert not (inner and second) or second in inner, (place, text)
            seen += 1
    assert seen > 1


def test_options_that_texts_name_exist() -> None:
    known: set[str] = set()

    def gather(command: click.Command) -> None:
        known.update(option for parameter in command.params for option in parameter.opts)
        for inner in getattr(command, "commands", {}).values():
            gather(inner)

    gather(all_commands())
    for place, text in texts():
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text):
            assert option in known | {"--help"}, (place, text)


def test_statements_that_texts_tell_to_use_exist() -> None:
    for place, text in texts():
        for word in _SQL.findall(text):
            ours = place.startswith(("query/embedded/engine", "query/attach/attaching"))
            assert word in _STATEMENTS or ours, (place, text)


def test_methods_that_texts_name_exist() -> None:
    kinds = {"Table": ml.Table, "Database": ml.Database, "mergelake": ml}
    for place, text in texts():
        for owner, name in re.findall(r"\b(Table|Database|mergelake)\.([a-z_]+)(?=[( ,])", text):
            assert hasattr(kinds[owner], name), (place, text)


FORMAT = "DB::Exception: Unknown format X. (UNKNOWN_FORMAT)"
VERSION = "(version 26.9.2.1 (official build))"
READER = "Code: 800. DB::Exception: Python data handling {}: While executing Python. (PY_EXCEPTION_OCCURED)"


@pytest.mark.parametrize(
    ("told", "code", "shown"),
    [
        (f"Code: 73. {FORMAT}", 73, "Unknown format X"),
        (f"Code: 73. DB::Exception: Code: 73. {FORMAT} (version 26.9.2.1). (UNKNOWN_FORMAT)", 73, "Unknown format X"),
        (f"Code: 36. DB::Exception: Code: 73. {FORMAT} {VERSION}. (BAD_ARGUMENTS) {VERSION}", 73, "Unknown format X"),
        ("Code: 72. DB::Exception: Bad (really). (CANNOT_PARSE_NUMBER)", 72, "Bad (really)"),
        (READER.format("Query memory limit exceeded: maximum: 4 MiB"), 241, "Query memory limit exceeded"),
        (READER.format("Code: 159. DB::Exception: Too slow. (TIMEOUT_EXCEEDED)"), 159, "Too slow"),
        (READER.format("it broke"), 800, "it broke"),
        ("no code at all", 49, "no code at all"),
    ],
)
def test_an_error_has_the_innermost_code_and_tells_it_once(told: str, code: int, shown: str) -> None:
    failure = translate(told)
    assert failure.code == code
    assert failure.message.startswith(shown)
    assert str(failure).count("Code: ") == 1
    assert "version" not in str(failure)


@pytest.mark.chdb
def test_a_statement_over_its_memory_carries_the_code_of_clickhouse() -> None:
    db = ml.connect("memory://")
    db.sql("CREATE TABLE t (s String) ENGINE = MergeTree ORDER BY s")
    db.sql("INSERT INTO t SELECT repeat(toString(number), 20) FROM numbers(200000)")
    with pytest.raises(MergelakeError) as caught:
        db.sql("SELECT s FROM t ORDER BY s", settings={"max_memory_usage": 5_000_000})
    assert (caught.value.code, caught.value.name) == (241, "MEMORY_LIMIT_EXCEEDED")


@pytest.mark.chdb
@pytest.mark.parametrize(
    ("text", "place", "line"),
    [
        ("SELECT a FROM t WHERE a = (1", "position 29", "SELECT a FROM t WHERE a = (1"),
        ("SELECT a FROM t\nWHERE a = 1 GROUP BY ) x", "line 2, column 22", "WHERE a = 1 GROUP BY ) x"),
        ("SELECT 'é', a FROM t AS OF VERSION 1 WHERE )", "column 44", "SELECT 'é', a FROM t AS OF VERSION 1 WHERE )"),
        ("INSERT INTO t SELECT a FROM t WHERE )", "column 23", "SELECT a FROM t WHERE )"),
    ],
)
def test_a_syntax_error_shows_the_place_in_the_text_of_the_user(text: str, place: str, line: str) -> None:
    db = ml.connect("memory://")
    db.sql("CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
    with pytest.raises(MergelakeError) as caught:
        db.sql(text)
    shown = str(caught.value)
    assert caught.value.code == 62
    assert place in shown, shown
    assert line in shown.split("\n")[1]
    assert "ml_0" not in shown


def test_a_list_of_nothing_is_told_as_nothing() -> None:
    assert there_are("columns", ["a", "b"]) == "There are columns a, b"
    assert there_are("columns", []) == "There are no columns"
    assert there_are("columns", map(str, range(30)), most=2) == "There are columns 0, 1 and 28 more"
