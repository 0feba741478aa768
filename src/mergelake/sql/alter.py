"""ALTER TABLE t: commands separated by commas, each of which may stand in brackets.

`COMMANDS` says by first words how a command is read. A file with commands of its own adds them there. A command is a
`SchemaCommand`, a command of a mutation, or a whole statement, which stands alone.

Source: ClickHouse, `src/Parsers/ParserAlterQuery.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.core.errors import error
from mergelake.sql import (
    alter_columns,
    alter_parts,
    alter_projections,
    alter_settings,
    mutation_statements,
    statements as s,
)
from mergelake.sql.cursor import Cursor
from mergelake.sql.ddl import refuse_cluster
from mergelake.sql.unsupported import HINTS
from mergelake.table.alter.command import SchemaCommand

Parse = Callable[[Cursor, s.Name], SchemaCommand | s.MutationCommand | s.Statement]
"""Reads what follows the first words of a command of ALTER TABLE `name`."""

COMMANDS: Mapping[str, Parse] = {
    **alter_columns.COMMANDS,
    **alter_settings.COMMANDS,
    **alter_parts.COMMANDS,
    **alter_projections.COMMANDS,
    **mutation_statements.COMMANDS,
}
"""First words of a command -> how the rest of it is read. Of several that fit, the longest counts."""
_WORDS_MAX = max(len(words.split()) for words in COMMANDS)


def alter(cursor: Cursor) -> s.Statement:
    """What follows the word ALTER. NOT_IMPLEMENTED for commands that only ClickHouse has, and for some mixtures."""
    cursor.expect("TABLE")
    name = cursor.table_name()
    refuse_cluster(cursor)
    bracketed = cursor.at("(")
    commands = []
    while True:
        if bracketed:
            cursor.expect("(")
        commands.append(_command(cursor, name))
        if bracketed:
            cursor.expect(")")
        if not cursor.accept(","):
            return _statement(name, commands)


def _command(cursor: Cursor, name: s.Name) -> SchemaCommand | s.MutationCommand | s.Statement:
    for count in range(_WORDS_MAX, 0, -1):
        words = [cursor.peek(ahead).upper for ahead in range(count)]
        parse = COMMANDS.get(" ".join(words))
        if parse is not None:
            cursor.accept(*words)
            return parse(cursor, name)
    raise _unknown(cursor)


def _statement(name: s.Name, commands: list[SchemaCommand | s.MutationCommand | s.Statement]) -> s.Statement:
    schema = tuple(command for command in commands if isinstance(command, SchemaCommand))
    if len(schema) == len(commands):
        return s.AlterSchema(name, schema)
    mutation = tuple(command for command in commands if isinstance(command, s.MutationCommand))
    if len(mutation) == len(commands):
        return s.Mutate(name, mutation)
    if len(commands) == 1:
        assert not isinstance(commands[0], SchemaCommand | s.MutationCommand)
        return commands[0]
    what = "UPDATE or DELETE with other commands" if mutation else "Several commands of partitions and parts"
    raise error("NOT_IMPLEMENTED", f"{what} in one ALTER TABLE are not supported", "Write a statement for each")


def _unknown(cursor: Cursor) -> Exception:
    words = []
    for ahead in range(3):
        token = cursor.peek(ahead)
        if token.kind != "word" or (ahead and token.upper != token.text):
            break
        words.append(token.upper)
    if not words:
        return cursor.error("ADD COLUMN", "DROP COLUMN", "UPDATE", "DELETE", "DROP PARTITION")
    what = f"ALTER TABLE … {' '.join(words)} is not supported yet"
    return error("NOT_IMPLEMENTED", what, HINTS["ALTER"])
