"""The commands of a mutation: `UPDATE a = x, … [IN PARTITION …] WHERE …`, `DELETE [IN PARTITION …] WHERE …`, and
`MATERIALIZE | CLEAR INDEX i [IN PARTITION …]`, which changes no row.

The log has them as text. A lightweight DELETE is `UPDATE _row_exists = 0 WHERE …`, as in ClickHouse. Expressions stay
text until they are bound against the columns of a table (`table.pending.bound`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from mergelake.core.base.errors import error
from mergelake.core.base.lexer import Token, TokenReader, syntax_error
from mergelake.core.base.sized_cache import sized_cache
from mergelake.core.base.text import quote_identifier_if_needed, quote_string, string_bytes

ROW_EXISTS = "_row_exists"
"""The column of ClickHouse's lightweight DELETE: 0 for deleted rows."""


_OF_TTL = "MATERIALIZE TTL"
"""What stands before the commands of that statement."""


@dataclass(frozen=True, slots=True)
class Update:
    """New values for the rows that match. All expressions see the row as it was before the command."""

    assignments: tuple[tuple[str, str], ...]
    """Column and expression, as ClickHouse text."""
    where: str
    partition_id: str | None = None
    """The partition that it is restricted to."""
    own_value: bool = field(default=False, compare=False)
    """Whether the new value is what the column's own definition says, so that a MATERIALIZED one may have it."""

    def __str__(self) -> str:
        sets = ", ".join(f"{quote_identifier_if_needed(name)} = {value}" for name, value in self.assignments)
        return f"UPDATE {sets}{_in_partition(self.partition_id)} WHERE {self.where}"


@dataclass(frozen=True, slots=True)
class Delete:
    """The rows that match go."""

    where: str
    partition_id: str | None = None
    lightweight: bool = False
    """Whether parts get a mask (`_row_exists`) at first, and lose the rows in their next merge."""

    def __str__(self) -> str:
        head = f"UPDATE {ROW_EXISTS} = 0" if self.lightweight else "DELETE"
        return f"{head}{_in_partition(self.partition_id)} WHERE {self.where}"


@dataclass(frozen=True, slots=True)
class IndexCommand:
    """Parts get the files of a skip index, or lose them."""

    name: str
    clears: bool = False
    partition_id: str | None = None

    def __str__(self) -> str:
        word = "CLEAR" if self.clears else "MATERIALIZE"
        return f"{word} INDEX {quote_identifier_if_needed(self.name)}{_in_partition(self.partition_id)}"


RowCommand: TypeAlias = Update | Delete
Command: TypeAlias = Update | Delete | IndexCommand


def _in_partition(partition_id: str | None) -> str:
    return "" if partition_id is None else f" IN PARTITION ID {quote_string(partition_id)}"


def commands_text(commands: Sequence[Command], *, of_ttl: bool = False) -> str:
    """The commands as the log has them; `parse_commands` reads it. `of_ttl`: those of MATERIALIZE TTL."""
    return ", ".join([*([_OF_TTL] if of_ttl else []), *map(str, commands)])


def are_of_ttl(text: str) -> bool:
    """Whether the commands of a mutation are those of MATERIALIZE TTL: parts get its times, too."""
    return text.startswith(_OF_TTL)


@sized_cache(1024, 64 << 20, len)
def parse_commands(text: str) -> tuple[Command, ...]:
    """Inverse of `commands_text`. Raises SYNTAX_ERROR."""
    tokens = TokenReader(text)
    out: list[Command] = []
    if are_of_ttl(text):
        tokens.accept("MATERIALIZE", "TTL")
        if not tokens.accept(","):
            return ()
    while True:
        out.append(_command(tokens))
        if tokens.peek().kind == "end":
            return tuple(out)
        _expect(tokens, ",")


def row_commands(text: str) -> tuple[RowCommand, ...]:
    """The commands of `parse_commands` that may change rows."""
    return tuple(command for command in parse_commands(text) if not isinstance(command, IndexCommand))


def drops_rows(commands: Sequence[Command]) -> bool:
    """Whether any of the commands deletes rows."""
    return any(isinstance(command, Delete) for command in commands)


def _command(tokens: TokenReader) -> Command:
    word = tokens.next()
    if word.upper == "DELETE":
        partition_id = _partition(tokens)
        _expect(tokens, "WHERE")
        return Delete(_expression(tokens), partition_id)
    if word.upper in ("MATERIALIZE", "CLEAR"):
        _expect(tokens, "INDEX")
        name = tokens.next()
        return IndexCommand(name.name, word.upper == "CLEAR", _partition(tokens))
    if word.upper != "UPDATE":
        raise syntax_error(tokens.text, word.start, "Expected UPDATE or DELETE", found=word.text)
    assignments = _assignments(tokens)
    partition_id = _partition(tokens)
    _expect(tokens, "WHERE")
    where = _expression(tokens)
    if assignments == ((ROW_EXISTS, "0"),):
        return Delete(where, partition_id, lightweight=True)
    return Update(assignments, where, partition_id)


def _assignments(tokens: TokenReader) -> tuple[tuple[str, str], ...]:
    """`a = x, b = y`, up to IN PARTITION or WHERE."""
    out = []
    while True:
        name = tokens.next()
        if not name.is_name:
            raise syntax_error(tokens.text, name.start, "Expected the name of a column", found=name.text)
        _expect(tokens, "=")
        out.append((name.name, _expression(tokens)))
        if tokens.peek().text != ",":
            return tuple(out)
        tokens.next()


def _expression(tokens: TokenReader) -> str:
    """The text of an expression, which ends at a comma outside of brackets, WHERE, IN PARTITION or the end."""
    first, depth = tokens.peek(), 0
    while True:
        token = tokens.peek()
        if token.kind == "end" or (not depth and _is_end(token, tokens.peek(1))):
            break
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if depth < 0:
            break
        if tokens.next().text == "[":
            tokens.strings()
    if tokens.peek() is first:
        raise syntax_error(tokens.text, first.start, "Expected an expression", found=first.text or "the end")
    return tokens.text[first.start : tokens.previous_end]


def _is_end(token: Token, after: Token) -> bool:
    return token.text == "," or token.upper == "WHERE" or (token.upper == "IN" and after.upper == "PARTITION")


def _partition(tokens: TokenReader) -> str | None:
    """`IN PARTITION ID '…'`, the form of the log."""
    if tokens.peek().upper != "IN":
        return None
    for word in ("IN", "PARTITION", "ID"):
        _expect(tokens, word)
    token = tokens.next()
    if token.kind != "string":
        raise error("SYNTAX_ERROR", f"The id of a partition is a string, not {token.text}")
    return string_bytes(token.text).decode()


def _expect(tokens: TokenReader, word: str) -> None:
    token = tokens.next()
    if token.upper != word:
        raise syntax_error(tokens.text, token.start, f"Expected {word}", found=token.text or "the end")
