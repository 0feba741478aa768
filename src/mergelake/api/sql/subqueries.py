"""Subqueries in the expressions of a mutation: each is executed once, and its result is written in its place.

===========================================  ================================================================
text                                         becomes
===========================================  ================================================================
`(SELECT …)`                                 its only value, a CAST; NULL if there is no row
`x IN (SELECT …)`, `x IN t`, `in(x, (…))`    an array of the distinct rows without NULL
`EXISTS (SELECT …)`                          1 or 0
`x GLOBAL IN …`                              `x IN …`
===========================================  ================================================================

All subqueries of a mutation read the same versions of their tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, NotFoundError, error
from mergelake.core.base.lexer import Token, tokenize
from mergelake.core.convert.storage import to_storage
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.types import parse_type
from mergelake.expr.exact import exact_tree
from mergelake.expr.values import python_value
from mergelake.query.select import run_select

if TYPE_CHECKING:
    from mergelake.api.sql.session import Session

_IN_FUNCTIONS = ("in", "notin", "globalin", "globalnotin")
_CONSTANTS = ("NULL", "TRUE", "FALSE", "NAN", "INF")
_OPEN, _CLOSE = ("(", "[", "{"), (")", "]", "}")


class Subqueries:
    """Evaluates the subqueries of one mutation."""

    def __init__(self, db: Session, schema: TableSchema, bytes_max: int) -> None:
        """`schema` is that of the table that is changed; `bytes_max` limits the results, as text."""
        self._resolve = db.resolver()
        self._context = db.context()
        self._schema = schema
        self._bytes_max = self._bytes_left = bytes_max

    def replaced(self, text: str) -> str:
        """An expression with the results of its subqueries in their places.

        Raises the errors of the subqueries, LIMIT_EXCEEDED for results that are too large, and NOT_IMPLEMENTED for a
        subquery that refers to the row, or stands after ANY or ALL.
        """
        tokens = tokenize(text)
        out, at = "", 0
        callers: list[str] = []
        place = 0
        while place < len(tokens) - 1:
            token = tokens[place]
            end, result = self._at(text, tokens, place, callers[-1] if callers else "")
            if result is not None:
                out += text[at : token.start] + result
                at = tokens[end].start if result == "" else tokens[end - 1].end
                place = end
                continue
            if token.kind == "sign" and token.text in _OPEN:
                before = tokens[place - 1] if place else None
                callers.append(before.name.lower() if before is not None and before.is_name else "")
            elif token.kind == "sign" and token.text in _CLOSE and callers:
                callers.pop()
            place += 1
        return out + text[at:]

    def _at(self, text: str, tokens: list[Token], place: int, caller: str) -> tuple[int, str | None]:
        """What replaces the tokens from `place` on, up to a place; None if nothing does."""
        token, follow = tokens[place], tokens[place + 1]
        if token.upper == "GLOBAL" and (follow.upper == "IN" or (follow.upper == "NOT" and _in_at(tokens, place + 2))):
            return place + 1, ""
        if token.upper == "EXISTS" and _begins_query(tokens, place + 1):
            end = _closing(tokens, place + 1)
            return end, self._exists(_inside(text, tokens, place + 1, end))
        before = tokens[place - 1] if place else None
        if before is not None and before.upper == "IN":
            return self._set_at(text, tokens, place)
        if not _begins_query(tokens, place):
            return place, None
        end = _closing(tokens, place)
        query = _inside(text, tokens, place, end)
        if before is not None and before.upper in ("ANY", "ALL", "SOME"):
            what = f"{before.upper} with a subquery is not supported in mutations"
            raise error("NOT_IMPLEMENTED", what, "Write IN, or compare with (SELECT max(…) …)")
        if caller in _IN_FUNCTIONS and before is not None and before.text == ",":
            return end, self._set(query)
        return end, self._scalar(query)

    def _set_at(self, text: str, tokens: list[Token], place: int) -> tuple[int, str | None]:
        """The right side of IN: a subquery, or a table by its name, in brackets or not."""
        first = place
        while tokens[first].text == "(" and not _begins_query(tokens, first):
            first += 1
        depth = first - place
        if _begins_query(tokens, first):
            end = _closing(tokens, first)
            if all(tokens[end + i].text == ")" for i in range(depth)):
                return end + depth, self._set(_inside(text, tokens, first, end))
            return place, None
        if not tokens[first].is_name or tokens[first].upper in _CONSTANTS:
            return place, None
        end = first + 1
        while tokens[end].text == "." and tokens[end + 1].is_name:
            end += 2
        closed = all(tokens[min(end + i, len(tokens) - 1)].text == ")" for i in range(depth))
        if not closed or tokens[end].text in ("(", ".", "["):
            return place, None
        name = text[tokens[first].start : tokens[end - 1].end]
        try:
            return end + depth, self._set(f"SELECT * FROM {name}")
        except NotFoundError as failure:
            raise error("UNKNOWN_IDENTIFIER", f"Unknown table {name} after IN", failure.hint) from None

    def _scalar(self, query: str) -> str:
        rows, kinds = self._rows(f"SELECT ({query}\n) AS value")
        (row,) = rows
        return self._counted(str(exact_tree(row[0], kinds[0])))

    def _exists(self, query: str) -> str:
        rows, _ = self._rows(f"SELECT count() > 0 AS value FROM (SELECT 1 FROM ({query}\n) LIMIT 1)")
        (row,) = rows
        return str(row[0])

    def _set(self, query: str) -> str:
        rows, kinds = self._rows(f"SELECT DISTINCT * FROM ({query}\n)")
        plain = [t.inner_type(kind) for kind in kinds]
        kind = plain[0] if len(plain) == 1 else t.Tuple(tuple(plain))
        members = []
        for row in rows:
            if None not in row:
                members.append(row[0] if len(row) == 1 else row)
                self._check(len(members) * len("0, "))
        return self._counted(str(exact_tree(members, t.Array(kind))))

    def _rows(self, query: str) -> tuple[Iterator[tuple[Any, ...]], list[t.DataType]]:
        """The rows of a query as storage values, and the types of its columns."""
        try:
            result = run_select(query, self._resolve, self._context)
        except MergelakeError as failure:
            raise self._of_row(failure) from None
        kinds = list(map(parse_type, result.types))

        def rows() -> Iterator[tuple[Any, ...]]:
            with closing(result):
                for batch in result.batches():
                    arrays = [
                        to_storage(pa.chunked_array([batch.column(i)]), kind, "value") for i, kind in enumerate(kinds)
                    ]
                    for at in range(batch.num_rows):
                        yield tuple(python_value(a[at], kind) for a, kind in zip(arrays, kinds, strict=True))

        return rows(), kinds

    def _of_row(self, failure: MergelakeError) -> MergelakeError:
        """The error of a subquery; NOT_IMPLEMENTED if it names a column of the table that is changed."""
        match = re.search(r"[`']([^`']+)[`']", failure.message)
        if failure.name == "UNKNOWN_IDENTIFIER" and match is not None:
            name = match[1]
            if self._schema.has(name) or self._schema.has(name.rpartition(".")[2]):
                message = f"Correlated subqueries in mutations are not supported: {name}"
                return error("NOT_IMPLEMENTED", message, "A subquery is evaluated once, not for each row")
        return failure

    def _counted(self, text: str) -> str:
        self._check(len(text))
        self._bytes_left -= len(text)
        return text

    def _check(self, size: int) -> None:
        if size > self._bytes_left:
            message = f"The subqueries of the mutation give more than {self._bytes_max} bytes as literals"
            raise error("LIMIT_EXCEEDED", message, "Raise mutations_max_literal_size_to_replace, or mutate in pieces")


def has_subqueries(text: str) -> bool:
    """Whether an expression may have something for `Subqueries` to replace."""
    return re.search(r"\b(SELECT|IN|GLOBAL)\b", text, re.IGNORECASE) is not None


def _begins_query(tokens: list[Token], place: int) -> bool:
    """Whether a bracket opens at a place, with a query inside."""
    if place + 2 >= len(tokens) or tokens[place].text != "(" or tokens[place].kind != "sign":
        return False
    word, follow = tokens[place + 1].upper, tokens[place + 2]
    return word == "SELECT" or (word in ("WITH", "FROM") and (follow.kind != "sign" or follow.text in _OPEN))


def _in_at(tokens: list[Token], place: int) -> bool:
    return place < len(tokens) and tokens[place].upper == "IN"


def _closing(tokens: list[Token], place: int) -> int:
    """The place after the bracket that closes the one at `place`. SYNTAX_ERROR if there is none."""
    depth = 0
    for at in range(place, len(tokens)):
        if tokens[at].kind == "sign":
            depth += (tokens[at].text in _OPEN) - (tokens[at].text in _CLOSE)
        if not depth:
            return at + 1
    raise error("SYNTAX_ERROR", "A bracket of a subquery is never closed")


def _inside(text: str, tokens: list[Token], place: int, end: int) -> str:
    return text[tokens[place].end : tokens[end - 1].start]
