"""ALTER TABLE t: commands separated by commas, each of which may stand in brackets.

`COMMANDS` says by first words how a command is read. A file with commands of its own adds them there. A command is a
`SchemaCommand`, a command of a mutation, one on partitions or parts, or a whole statement. Neighbours of one kind are
done together; see `statements.AlterSteps`.

Source: ClickHouse, `src/Parsers/ParserAlterQuery.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from mergelake.api.sql import (
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
from mergelake.api.sql.cursor import Cursor
from mergelake.api.sql.ddl import refuse_cluster
from mergelake.api.sql.unsupported import HINTS
from mergelake.core.base.errors import error
from mergelake.table.definition.command import SchemaCommand

Mutating = s.MutationCommand | s.ColumnMutation | s.IndexMutation
Command = SchemaCommand | Mutating | s.PartitionCommand | s.WriteProjection | s.MaterializeTtl
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
    """What follows the word ALTER. NOT_IMPLEMENTED for commands that only ClickHouse has."""
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
    files = tuple(command for command in commands if isinstance(command, s.IndexMutation))
    if schema and len(schema) + len(files) == len(commands):
        return s.AlterSchema(name, schema, files)
    steps = [_step(name, kind, list(run)) for kind, run in groupby(commands, _kind)]
    if sum(isinstance(step, s.AlterPartitions) for step in steps) > 1:
        message = "Partition commands must be sequential in alter query"
        raise error("QUERY_IS_PROHIBITED", message, "Write them one after the other, or a statement for each")
    return steps[0] if len(steps) == 1 else s.AlterSteps(name, tuple(steps))


def _kind(command: Command) -> object:
    """What neighbours are done together."""
    kinds = (SchemaCommand, Mutating, s.PartitionCommand)
    return next((kind for kind in kinds if isinstance(command, kind)), id(command))


def _step(name: s.Name, kind: object, run: list[Any]) -> s.AlterStep:
    if kind is SchemaCommand:
        return s.AlterSchema(name, tuple(run))
    if kind is Mutating:
        return s.Mutate(name, tuple(run))
    if kind is s.PartitionCommand:
        return s.AlterPartitions(name, tuple(run))
    (statement,) = run
    assert isinstance(statement, s.WriteProjection | s.MaterializeTtl)
    return statement


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
