"""The SELECT of a projection as trees: `[WITH …] SELECT … [GROUP BY …] [ORDER BY …]`, its names replaced by what they
stand for.

Source: ClickHouse, `src/Parsers/ParserProjectionSelectQuery.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import Token, TokenReader, syntax_error, tokenize
from mergelake.expr import Call, ColumnRef, SyntaxNode
from mergelake.expr.parser import parse_aggregate

_OPEN, _CLOSE = ("(", "[", "{"), (")", "]", "}")
_CLAUSES = ("WITH", "SELECT", "GROUP", "ORDER")
_NOT_THERE = ("FROM", "PREWHERE", "WHERE", "HAVING", "QUALIFY", "WINDOW", "LIMIT", "OFFSET", "SETTINGS", "UNION")
_MODIFIERS = ("EXCEPT", "REPLACE", "APPLY", "COLUMNS")


@dataclass(frozen=True, slots=True)
class ProjectionQuery:
    """The SELECT of a projection."""

    items: tuple[SyntaxNode, ...]
    """What is selected; `ColumnRef("*")` for an asterisk."""
    group_by: tuple[SyntaxNode, ...] | None
    """None without GROUP BY."""
    order_by: tuple[SyntaxNode, ...]
    aliases: Mapping[str, SyntaxNode] = field(default_factory=dict)
    """What names stand for; they are replaced by it in the trees."""


def parse_projection(text: str) -> ProjectionQuery:
    """The SELECT of a projection. Raises SYNTAX_ERROR, and NOT_IMPLEMENTED for what projections cannot have here."""
    reader = TokenReader(text)
    named = _named(reader) if reader.accept("WITH") else {}
    if not reader.accept("SELECT"):
        raise _unexpected(reader, "SELECT")
    if reader.at("DISTINCT"):
        raise error("NOT_IMPLEMENTED", "DISTINCT in a projection is not supported", "Write GROUP BY")
    items: list[SyntaxNode] = []
    for piece, alias in _list(reader, named):
        if alias:
            named[alias] = piece
        items.append(piece)
    grouped = None
    if reader.accept("GROUP", "BY"):
        grouped = tuple(piece for piece, _ in _list(reader, named))
    ordered: tuple[SyntaxNode, ...] = ()
    if reader.accept("ORDER", "BY"):
        ordered = tuple(piece for piece, _ in _list(reader, named))
        if len(ordered) == 1 and isinstance(ordered[0], Call) and ordered[0].function == "tuple":
            ordered = ordered[0].args or ordered
    if reader.peek().kind != "end":
        raise _unexpected(reader, "the end of the projection")
    return ProjectionQuery(tuple(items), grouped, ordered, named)


def _named(reader: TokenReader) -> dict[str, SyntaxNode]:
    found: dict[str, SyntaxNode] = {}
    for piece, alias in _list(reader, found):
        if not alias:
            raise error("NOT_IMPLEMENTED", "WITH of a projection names expressions only: WITH 1 AS x")
        found[alias] = piece
    return found


def _list(reader: TokenReader, named: Mapping[str, SyntaxNode]) -> list[tuple[SyntaxNode, str]]:
    """Expressions up to the next clause, each with its alias or an empty text."""
    out: list[tuple[SyntaxNode, str]] = []
    seen = dict(named)
    while True:
        node, alias = _item(reader, seen)
        if alias:
            seen[alias] = node
        out.append((node, alias))
        if not reader.accept(","):
            return out


def _item(reader: TokenReader, named: Mapping[str, SyntaxNode]) -> tuple[SyntaxNode, str]:
    if reader.at("*"):
        reader.next()
        if reader.peek().upper in _MODIFIERS:
            raise error("NOT_IMPLEMENTED", f"* {reader.peek().upper} in a projection is not supported", "Name columns")
        return ColumnRef("*"), ""
    if reader.at("COLUMNS", "("):
        raise error("NOT_IMPLEMENTED", "COLUMNS in a projection is not supported", "Name the columns")
    start = reader.peek()
    depth, before, alias = 0, start, ""
    while (token := reader.peek()).kind != "end":
        if not depth and (token.text == "," or _ends(reader, token)):
            break
        if not depth and token.upper == "AS":
            end = token.start
            reader.next()
            if not reader.peek().is_name:
                raise _unexpected(reader, "a name")
            alias = reader.next().name
            return _expression(_plain(reader.text[start.start : end]), named), alias
        if token.text == "(" and reader.peek(1).upper in ("SELECT", "WITH"):
            raise error("NOT_IMPLEMENTED", "A subquery in a projection is not supported")
        if token.upper == "OVER" and depth == 0 and before.text == ")":
            raise error("NOT_IMPLEMENTED", "Window functions in a projection are not supported")
        depth += (token.text in _OPEN) - (token.text in _CLOSE) if token.kind == "sign" else 0
        before = reader.next()
    if before is start and reader.peek() is start:
        raise _unexpected(reader, "an expression")
    return _expression(_plain(reader.text[start.start : before.end]), named), alias


def _plain(text: str) -> str:
    """The text with `count(*)` as `count()`."""
    tokens = tokenize(text)
    for at in range(len(tokens) - 3, 0, -1):
        if [token.text for token in tokens[at - 1 : at + 2]] == ["(", "*", ")"]:
            text = text[: tokens[at].start] + text[tokens[at].end :]
    return text


def _ends(reader: TokenReader, token: Token) -> bool:
    if token.upper in _NOT_THERE:
        raise error("NOT_IMPLEMENTED", f"{token.upper} in a projection is not supported", "It has all rows of its part")
    return token.upper == "SELECT" or (token.upper in _CLAUSES and reader.peek(1).upper == "BY")


def _expression(text: str, named: Mapping[str, SyntaxNode]) -> SyntaxNode:
    return replaced(parse_aggregate(text), lambda node: named.get(node.name) if isinstance(node, ColumnRef) else None)


def replaced(node: SyntaxNode, found: Callable[[SyntaxNode], SyntaxNode | None]) -> SyntaxNode:
    """`node` with each node for which `found` gives another replaced by it."""
    other = found(node)
    if other is not None:
        return other
    if isinstance(node, Call):
        return Call(node.function, tuple(replaced(arg, found) for arg in node.args))
    return node


def _unexpected(reader: TokenReader, *expected: str) -> MergelakeError:
    token = reader.peek()
    actual = "the end" if token.kind == "end" else f"'{token.text[:40]}'"
    return syntax_error(reader.text, token.start, f"expected {' or '.join(expected)}, found {actual}", found=actual)
