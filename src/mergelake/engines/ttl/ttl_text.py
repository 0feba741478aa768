"""The elements of a TTL clause, read and printed as ClickHouse prints them.

::

    TTL d + toIntervalDay(30),                                        rows
        d WHERE k = 1,                                                where
        d GROUP BY k SET x = max(x), y = any(y),                      group_by
        d RECOMPRESS CODEC(ZSTD(5))                                   recompression
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import Token, TokenReader, syntax_error
from mergelake.core.base.text import quote_identifier_if_needed
from mergelake.expr.nodes import SyntaxNode
from mergelake.expr.parser import parse, parse_aggregate

_AFTER = ("DELETE", "WHERE", "GROUP", "RECOMPRESS", "TO", "SET")
_OPEN, _CLOSE = ("(", "[", "{"), (")", "]", "}")
_NO_TIERS = "Tables here have one tier of storage: leave TO DISK and TO VOLUME out"


@dataclass(frozen=True, slots=True)
class TtlElement:
    """One element of a table's TTL, or the TTL of a column."""

    kind: str
    """`rows`, `where`, `group_by`, `recompression`, or `column`."""
    expression: str
    """The time at which a row expires."""
    where: str = ""
    """Only rows for which this is true expire; of the kind `where`."""
    group_by: tuple[str, ...] = ()
    """Expressions: expired rows for which they are equal, one after the other, become one row."""
    assignments: tuple[tuple[str, str], ...] = ()
    """Columns and the expressions over aggregate functions that give their values in that row."""
    codec: str = ""
    """The contents of `CODEC(…)` of a recompression."""
    column: str = ""
    """The column whose values expire; of the kind `column`."""

    def renamed(self, text: Callable[[str], str], name: str, new_name: str) -> TtlElement:
        """The element after a column got another name; `text` renames it in an expression."""
        return replace(
            self,
            expression=text(self.expression),
            where=text(self.where) if self.where else "",
            group_by=tuple(map(text, self.group_by)),
            assignments=tuple((new_name if each == name else each, text(value)) for each, value in self.assignments),
        )

    def __str__(self) -> str:
        out = self.expression
        if self.where:
            out += f" WHERE {self.where}"
        if self.group_by:
            out += f" GROUP BY {', '.join(self.group_by)}"
        if self.assignments:
            out += " SET " + ", ".join(f"{quote_identifier_if_needed(n)} = {text}" for n, text in self.assignments)
        return out + (f" RECOMPRESS CODEC({self.codec})" if self.codec else "")


def parse_ttl(text: str) -> tuple[TtlElement, ...]:
    """The elements of a TTL clause. Raises SYNTAX_ERROR, BAD_TTL_EXPRESSION for TO DISK and TO VOLUME."""
    reader = TokenReader(text)
    elements = [_element(reader)]
    while reader.accept(","):
        elements.append(_element(reader))
    if reader.peek().kind != "end":
        raise _unexpected(reader, "the end of the TTL")
    return tuple(elements)


def column_ttl(column: str, text: str) -> TtlElement:
    """The TTL of a column. Raises SYNTAX_ERROR."""
    return TtlElement("column", printed(text), column=column)


def printed(text: str, read: Callable[[str], SyntaxNode] = parse) -> str:
    """An expression as ClickHouse prints it; as it is if it could not be read again by `read`."""
    node = read(text)
    out = str(node)
    try:
        return out if repr(read(out)) == repr(node) else text
    except MergelakeError:
        return text


def _element(reader: TokenReader) -> TtlElement:
    expression = printed(_until(reader, lambda token: token.text == "," or token.upper in _AFTER))
    if reader.accept("RECOMPRESS"):
        if not reader.accept("CODEC") or not reader.at("("):
            raise _unexpected(reader, "CODEC(…)")
        reader.next()
        codec = _until(reader, lambda token: False)
        if not reader.accept(")"):
            raise _unexpected(reader, "')'")
        return TtlElement("recompression", expression, codec=codec)
    if reader.at("TO"):
        raise error("BAD_TTL_EXPRESSION", f"TTL {expression} TO … moves parts to another tier", _NO_TIERS)
    if reader.accept("GROUP", "BY"):
        return _grouping(reader, expression)
    reader.accept("DELETE")
    if not reader.accept("WHERE"):
        return TtlElement("rows", expression)
    return TtlElement("where", expression, printed(_until(reader, lambda token: token.text == ",")))


def _grouping(reader: TokenReader, expression: str) -> TtlElement:
    keys = [_key(reader)]
    while reader.accept(","):
        keys.append(_key(reader))
    if len(keys) == 1 and keys[0].startswith("("):
        inner = TokenReader(keys[0], 1, len(keys[0]) - 1)
        keys = [_key(inner)]
        while inner.accept(","):
            keys.append(_key(inner))
    assignments: list[tuple[str, str]] = []
    if reader.accept("SET"):
        assignments.append(_assignment(reader))
        while reader.at(",") and reader.peek(1).is_name and reader.peek(2).text == "=":
            reader.next()
            assignments.append(_assignment(reader))
    return TtlElement("group_by", expression, group_by=tuple(keys), assignments=tuple(assignments))


def _key(reader: TokenReader) -> str:
    return printed(_until(reader, lambda token: token.text == "," or token.upper == "SET"))


def _assignment(reader: TokenReader) -> tuple[str, str]:
    if not reader.peek().is_name or reader.peek(1).text != "=":
        raise _unexpected(reader, "column = expression")
    name = reader.next().name
    reader.next()
    return name, printed(_until(reader, lambda token: token.text == ","), parse_aggregate)


def _until(reader: TokenReader, stops: Callable[[Token], bool]) -> str:
    """The text up to a token that stops, outside of brackets, or to a closing bracket or the end."""
    first, depth = reader.peek(), 0
    while (token := reader.peek()).kind != "end":
        sign = token.kind == "sign"
        if depth == 0 and ((sign and token.text in _CLOSE) or (token.kind != "string" and stops(token))):
            break
        if sign:
            depth += (token.text in _OPEN) - (token.text in _CLOSE)
        reader.next()
    if reader.peek() is first:
        raise _unexpected(reader, "an expression")
    return reader.text[first.start : reader.previous_end]


def _unexpected(reader: TokenReader, wanted: str) -> MergelakeError:
    token = reader.peek()
    found = f"'{token.text[:40]}'" if token.kind != "end" else "the end"
    return syntax_error(reader.text, token.start, f"expected {wanted} in TTL, found {found}", found=found)
