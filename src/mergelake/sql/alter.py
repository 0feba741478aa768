"""ALTER TABLE t: commands separated by commas, each of which may stand in brackets.

`COMMANDS` says by first words how a command is read. A file with commands of its own adds them there. A command is a
`SchemaCommand`, a command of a mutation, one on partitions or parts, or a whole statement, which stands alone.

Source: ClickHouse, `src/Parsers/ParserAlterQuery.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mergelake.core.errors import error
from mergelake.sql import (
    alter_between,
    alter_columns,
    alter_definitions,
    alter_parts,
    alter_projections,
    alter_settings,
    alter_ttl,
    mutation_statements,
    statements as s,
)
from mergelake.sql.cursor import Cursor
from mergelake.sql.ddl import refuse_cluster
from mergelake.sql.unsupported import HINTS
from mergelake.table.alter.command import SchemaCommand

Mutating = s.MutationCommand | s.ColumnMutation | s.IndexMutation
Command = SchemaCommand | Mutating | s.PartitionCommand | s.Statement
Parse = Callable[[Cursor, s.Name], Command]
"""Reads what follows the first words of a command of ALTER TABLE `name`."""

COMMANDS: Mapping[str, Parse] = {
    **alter_columns.COMMANDS,
    **alter_definitions.COMMANDS,
    **alter_settings.COMMANDS,
    **alter_parts.COMMANDS,
    **alter_ttl.COMMANDS,
    **alter_between.COMMANDS,
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


def _command(cursor: Cursor, name: s.Name) -> Command:
    for count in range(_WORDS_MAX, 0, -1):
        words = [cursor.peek(ahead).upper for ahead in range(count)]
        parse = COMMANDS.get(" ".join(words))
        if parse is not None:
            cursor.accept(*words)
            return parse(cursor, name)
    raise _unknown(cursor)


def _statement(name: s.Name, commands: list[Command]) -> s.Statement:
    schema = tuple(command for command in commands if isinstance(command, SchemaCommand))
    if len(schema) == len(commands):
        return s.AlterSchema(name, schema)
    files = tuple(command for command in commands if isinstance(command, s.IndexMutation))
    if schema and len(schema) + len(files) == len(commands):
        return s.AlterSchema(name, schema, files)
    mutation = tuple(command for command in commands if isinstance(command, Mutating))
    if len(mutation) == len(commands):
        return s.Mutate(name, mutation)
    partitions = tuple(command for command in commands if isinstance(command, s.PartitionCommand))
    if len(partitions) == len(commands):
        return s.AlterPartitions(name, partitions)
    if len(commands) == 1:
        assert not isinstance(commands[0], SchemaCommand | Mutating | s.PartitionCommand)
        return commands[0]
    what = "UPDATE or DELETE" if mutation else "A command on partitions or parts"
    message = f"{what} with other commands in one ALTER TABLE is not supported"
    raise error("NOT_IMPLEMENTED", message, "Write a statement for each")


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
