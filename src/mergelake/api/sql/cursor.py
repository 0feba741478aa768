"""A position in a statement: look ahead, accept, expect. Errors show the position and what was expected there."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from mergelake.api.sql.statements import Like, Name
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import Token, TokenReader, next_token, syntax_error
from mergelake.core.base.text import unescape

_WANTS_OPERAND = frozenset(
    (
        "AND",
        "OR",
        "NOT",
        "IS",
        "IN",
        "LIKE",
        "ILIKE",
        "BETWEEN",
        "DIV",
        "MOD",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "INTERVAL",
    )
)
_OPEN, _CLOSE = ("(", "[", "{"), (")", "]", "}")


class Cursor(TokenReader):
    """The parsers' position in a statement. The data after VALUES is never cut into tokens."""

    def expect(self, *words: str) -> None:
        """Consume these words. Raises SYNTAX_ERROR if others follow."""
        for word in words:
            if not self.accept(word):
                raise self.error(word)

    def error(self, *expected: str) -> MergelakeError:
        """A SYNTAX_ERROR at the current token."""
        token = self.peek()
        actual = "the end of the statement" if token.kind == "end" else f"'{token.text[:40]}'"
        wanted = " or ".join(expected) if len(expected) < 3 else "one of " + ", ".join(expected)
        return syntax_error(self.text[: self.end], token.start, f"expected {wanted}, found {actual}", found=actual)

    def finish(self) -> None:
        """Raise SYNTAX_ERROR unless the statement ends here."""
        if self.peek().kind != "end":
            raise self.error("the end of the statement")

    def rest(self) -> str:
        """Consume and return the text up to the end."""
        return self._taken(self.peek().start).strip()

    def data(self) -> str:
        """Consume and return what follows the last token, without cutting it into tokens."""
        return self._taken(self.previous_end)

    def _taken(self, start: int) -> str:
        self._tokens[self._at :] = [Token("end", "", self.end, self.end, "")]
        return self.text[start : self.end]

    def rest_before_tail(self, *, comment: bool = False) -> str:
        """Consume and return the text up to INTO OUTFILE, the FORMAT of the statement or the end.

        A `comment` ends it too: COMMENT '…' before these.
        """
        first, depth = self.peek(), 0
        while (token := self.peek()).kind != "end" and (depth or not self._begins_tail()):
            is_comment = comment and not depth and self.at("COMMENT") and self.peek(1).kind == "string"
            if is_comment and self.peek(2).upper in ("", "FORMAT", "INTO"):
                break
            if token.kind == "sign":
                depth += (token.text in _OPEN) - (token.text in _CLOSE)
            self.next()
        return self.text[first.start : self.peek().start].strip()

    def _begins_tail(self) -> bool:
        if self.at("INTO", "OUTFILE"):
            return True
        follow = self.peek(2)
        follows = follow.kind == "end" or follow.upper in ("FORMAT", "SETTINGS")
        return self.at("FORMAT") and self.peek(1).is_name and follows

    def identifier(self, what: str = "a name") -> str:
        """One identifier, quoted or not."""
        if not self.peek().is_name or not self.peek().name:
            raise self.error(what)
        name = self.next().name
        if any("\udc80" <= character <= "\udcff" for character in name):
            shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            raise error("NOT_IMPLEMENTED", f"The name {shown} is not UTF-8, as names are here", "Rename it")
        return name

    def table_name(self) -> Name:
        """`table` or `database.table`."""
        first = self.identifier("the name of a table")
        if self.accept("."):
            return Name(first, self.identifier("the name of a table"))
        return Name("", first)

    def string(self, what: str = "a string in single quotes") -> str:
        """A string literal's text."""
        if self.peek().kind != "string":
            raise self.error(what)
        return unescape(self.next().text)

    def if_exists(self) -> bool:
        """Accept IF EXISTS, and return whether it was there."""
        return self.accept("IF", "EXISTS")

    def if_not_exists(self) -> bool:
        """Accept IF NOT EXISTS, and return whether it was there."""
        return self.accept("IF", "NOT", "EXISTS")

    def like(self) -> Like | None:
        """[NOT] LIKE | ILIKE 'pattern', or None."""
        negated = self.accept("NOT")
        if self.at("LIKE") or self.at("ILIKE"):
            word = self.next().upper
            return Like(self.string(), ignore_case=word == "ILIKE", negated=negated)
        if negated:
            raise self.error("LIKE", "ILIKE")
        return None

    def expression(self, stops: Collection[str], what: str = "an expression") -> str:
        """The text up to a comma, a closing bracket or one of the words `stops`, all outside of brackets."""

        def ends(token: Token) -> bool:
            return token.text == "," or (token.kind == "word" and token.upper in stops) or self._begins_tail()

        return self._text_until(ends, what)

    def clause(self, stops: Collection[str]) -> str:
        """Like `expression`, commas included."""
        return self._text_until(
            lambda token: (token.kind == "word" and token.upper in stops) or self._begins_tail(), "an expression"
        )

    def default_expression(self, stops: Collection[str]) -> str:
        """Like `expression`, but NULL or NOT NULL after a complete operand ends it too: `DEFAULT 1 NULL`."""

        def ends(token: Token) -> bool:
            before = self._tokens[self._at - 1]
            operand = before.kind in ("number", "string", "quoted") or before.text in (")", "]")
            operand = operand or (before.kind == "word" and before.upper not in _WANTS_OPERAND)
            follow = self.peek(1).upper
            modifier = token.upper == "NULL" or (token.upper == "NOT" and follow == "NULL")
            return token.text == "," or (token.kind == "word" and (token.upper in stops or (operand and modifier)))

        return self._text_until(ends, "an expression")

    def command_expression(self, *stops: str) -> str:
        """An expression of a mutation: up to a comma, WHERE, IN PARTITION or the tail of the statement.

        One of `stops` ends it too, if it is the last word before the tail. Comments and line breaks become spaces.
        """
        tails = ("", "FORMAT", "SETTINGS", "INTO")

        def ends(token: Token) -> bool:
            if token.kind != "word":
                return token.text == ","
            tail = self._begins_tail() or (self.at("SETTINGS") and self.peek(1).is_name)
            stopped = token.upper in stops and self.peek(1).upper in tails
            return tail or stopped or token.upper == "WHERE" or self.at("IN", "PARTITION")

        return self._text_until(ends, "an expression")

    def expression_list(self, stops: Collection[str]) -> list[str]:
        """Expressions separated by commas."""
        out = [self.expression(stops)]
        while self.accept(","):
            out.append(self.expression(stops))
        return out

    def bracket(self) -> str:
        """The text of a pair of brackets and everything between them."""
        first, depth = self.peek(), 0
        while (token := self.next()).kind != "end":
            if token.kind == "sign":
                depth += (token.text in _OPEN) - (token.text in _CLOSE)
            if depth == 0:
                return self.text[first.start : token.end]
        raise self.error("a closing bracket")

    def bracketed(self) -> list[str]:
        """`(a, b, …)` as the texts between the commas; none for `()`."""
        self.expect("(")
        if self.accept(")"):
            return []
        out = self.expression_list(())
        self.expect(")")
        return out

    def _text_until(self, stops: Callable[[Token], bool], what: str) -> str:
        first = self.peek()
        depth = cases = 0
        while (token := self.peek()).kind != "end":
            if depth == 0 and not cases and (token is not first or token.text == ",") and stops(token):
                break
            if depth == 0 and (token.text in _CLOSE or token.text == ";") and token.kind == "sign":
                break
            if token.kind == "sign":
                depth += (token.text in _OPEN) - (token.text in _CLOSE)
            cases += (token.upper == "CASE") - (token.upper == "END" and cases > 0)
            self.next()
        if self.peek() is first:
            raise self.error(what)
        return clean(self.text[first.start : self.previous_end])


def clean(text: str) -> str:
    """An expression on one line: breaks and comments between tokens become single spaces."""
    if not re.search(r"[\n\r\t]|--|/\*|  ", text):
        return text
    out: list[str] = []
    at = before = 0
    while (token := next_token(text, at)).kind != "end":
        out.append((" " if out and token.start > before else "") + token.text)
        at = before = token.end
    return "".join(out)
