"""Pending mutations as the files `mutation_<version>.txt` of a table of ClickHouse, which applies them on reading.

The setting `apply_mutations_on_fly` makes ClickHouse apply to each part the commands of a greater version than that of
the part's data, before PREWHERE, FINAL and everything else. This is the rule by which scans apply them, too.

The expressions are written as they were parsed here, without ALIAS columns, so that both read the same.
"""

from __future__ import annotations

from functools import lru_cache

from mergelake.core.errors import MergelakeError
from mergelake.core.schema import TableSchema
from mergelake.core.text import quote_identifier_if_needed, quote_string
from mergelake.expr.aliases import expand_aliases
from mergelake.expr.nodes import SyntaxNode
from mergelake.expr.parser import parse
from mergelake.log.state import PendingMutation
from mergelake.views.commands import Command, Delete, parse_commands

_HEAD = "format version: 1\ncreate time: 1970-01-01 00:00:00\ncommands: "
_ESCAPED = str.maketrans(
    {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\b": "\\b", "\f": "\\f"}
)


def mutation_files(mutations: tuple[PendingMutation, ...], schema: TableSchema) -> dict[str, bytes]:
    """Names and bodies of the files. Errors: those of `why_not`, as NOT_IMPLEMENTED and those of parsing."""
    return {
        f"mutation_{mutation.version}.txt": f"{_HEAD}{clickhouse_text(mutation, schema).translate(_ESCAPED)}\n".encode()
        for mutation in mutations
    }


def clickhouse_text(mutation: PendingMutation, schema: TableSchema) -> str:
    """The commands of a mutation for ClickHouse: a lightweight DELETE is a DELETE. Raises the errors of parsing."""
    return ", ".join(_command(command, schema) for command in parse_commands(mutation.commands))


def _command(command: Command, schema: TableSchema) -> str:
    inside = "" if command.partition_id is None else f" IN PARTITION ID {quote_string(command.partition_id)}"
    where = f"{inside} WHERE {_text(command.where, schema)}"
    if isinstance(command, Delete):
        return f"DELETE{where}"
    sets = (f"{quote_identifier_if_needed(name)} = {_text(value, schema)}" for name, value in command.assignments)
    return f"UPDATE {', '.join(sets)}{where}"


def _text(expression: str, schema: TableSchema) -> str:
    return f"({expand_aliases(parse(expression), schema)})"
