"""The text of one scope of a statement: its clauses, the items of its lists, its limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from mergelake.core.base.lexer import Token
from mergelake.query.statement.parsed_select import Item, ParsedSelect, Range, Scope

_TAIL = frozenset(("LIMIT", "SETTINGS", "FORMAT", "INTO"))


@dataclass(frozen=True, slots=True)
class Limit:
    """A LIMIT of plain numbers."""

    count: int
    offset: int
    by: Range | None
    """The expressions after BY."""
    ties: bool
    """WITH TIES."""

    @property
    def reach(self) -> int:
        """Number of first rows that it can select: offset plus count."""
        return self.count + self.offset

    def text(self, by: str = "") -> str:
        """The text of the clause, with `by` after BY."""
        numbers = f" LIMIT {self.count}" + (f" OFFSET {self.offset}" if self.offset else "")
        return numbers + (f" BY {by}" if by else "") + (" WITH TIES" if self.ties else "")


@dataclass(frozen=True)
class ScopeText:
    """A scope with access to its text."""

    parsed: ParsedSelect
    scope: Scope

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Tokens of the whole statement."""
        return self.parsed.tokens

    @cached_property
    def inner(self) -> tuple[Range, ...]:
        """Tokens of its subqueries."""
        return tuple((each.first, each.end) for each in self.parsed.inside(self.scope))

    def range(self, clause: str) -> Range:
        """Tokens of a clause without its keyword; (0, 0) if there is none."""
        return self.scope.clause(clause)

    def has(self, clause: str) -> bool:
        """Whether the scope has the clause."""
        return clause in self.scope.clauses

    def text(self, first: int, end: int) -> str:
        """Text of tokens [first, end)."""
        return self.parsed.slice(first, end)

    def clause(self, word: str, keyword: str = "") -> str:
        """A clause as it is written, like ` WHERE …`; empty if there is none."""
        return f" {keyword or word} {self.text(*self.range(word))}" if self.has(word) else ""

    def own(self, first: int, end: int) -> Iterator[int]:
        """Indices of the tokens of a range that are not in a subquery."""
        return self.parsed.own(self.scope, first, end)

    @cached_property
    def words(self) -> frozenset[str]:
        """Upper-case words of the scope, without its subqueries."""
        return frozenset(self.tokens[at].upper for at in self.own(self.scope.first, self.scope.end))

    @cached_property
    def distinct(self) -> bool:
        """Whether it is SELECT DISTINCT."""
        return self.tokens[self.range("SELECT")[0]].upper == "DISTINCT"

    @cached_property
    def picks(self) -> bool:
        """Whether it has a limit other than LIMIT: SELECT TOP n, DISTINCT ON (…), FETCH FIRST."""
        if "FETCH" in self.words:
            return True
        at = self.range("SELECT")[0] + self.distinct
        follow = self.tokens[at + 1]
        return (self.tokens[at].upper == "TOP" and follow.kind == "number") or (
            self.tokens[at].upper in ("TOP", "ON") and follow.text == "("
        )

    @cached_property
    def select(self) -> Range:
        """Tokens of the SELECT list, without DISTINCT and a final comma."""
        first, end = self.range("SELECT")
        first += self.distinct
        return first, end - (end > first and self.tokens[end - 1].text == ",")

    @cached_property
    def columns(self) -> list[Item]:
        """Items of the SELECT list."""
        return self.items(*self.select)

    def items(self, first: int, end: int) -> list[Item]:
        """The items of a comma-separated list."""
        return self.parsed.items(first, end)

    def closing(self, at: int) -> int:
        """Index of the bracket that closes the one at `at`."""
        return self.parsed.closing(at)

    @cached_property
    def limits(self) -> list[Limit] | None:
        """Its LIMIT clauses in order; None if one has expressions rather than numbers, or they cannot be combined."""
        starts = [self.scope.clause_words[word] for word in ("LIMIT", "OFFSET") if self.has(word)]
        if not starts:
            return []
        before = max(
            (self.range(word)[0] for word in ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER")), default=0
        )
        at = next(i for i in self.own(before, self.scope.end) if self.tokens[i].upper in ("LIMIT", "OFFSET"))
        out: list[Limit] = []
        begins = [i for i in self.parsed.level(at, self.scope.end) if self.tokens[i].upper in _TAIL or i == at]
        for begin, end in zip(begins, [*begins[1:], self.scope.end], strict=True):
            if self.tokens[begin].upper not in ("LIMIT", "OFFSET"):
                break
            limit_clause = self._limit(begin, end)
            if limit_clause is None:
                return None
            out.append(limit_clause)
        plain = [limit for limit in out if limit.by is None]
        return out if len(plain) <= 1 and out[len(out) - len(plain) :] == plain and len(out) <= 2 else None

    def _limit(self, begin: int, end: int) -> Limit | None:
        """Parse `LIMIT [offset,] count [OFFSET offset] [BY … | WITH TIES]`."""
        at, words = begin + 1, [token.upper or token.text for token in self.tokens[begin:end]]
        if self.tokens[begin].upper != "LIMIT" or not self._is_count(at):
            return None
        count, offset = int(self.tokens[at].text), 0
        if end > at + 2 and words[2] in (",", "OFFSET"):
            if not self._is_count(at + 2):
                return None
            second = int(self.tokens[at + 2].text)
            count, offset = (second, count) if words[2] == "," else (count, second)
            at += 2
        rest = [token.upper for token in self.tokens[at + 1 : end]]
        if not rest:
            return Limit(count, offset, None, False)
        if rest[0] == "BY" and len(rest) > 1 and "ALL" not in rest:
            return Limit(count, offset, (at + 2, end), False)
        return Limit(count, offset, None, True) if rest == ["WITH", "TIES"] else None

    def _is_count(self, at: int) -> bool:
        return self.tokens[at].kind == "number" and self.tokens[at].text.isdigit()


def shape(tokens: Sequence[Token]) -> tuple[tuple[str, str], ...]:
    """Equal for token sequences of the same expression."""
    return tuple(("name", token.name) if token.is_name else (token.kind, token.text) for token in tokens)
