"""A parsed SELECT as an immutable value: scopes, clauses, items, brackets, and the tables that it reads.

Terms: a *scope* is one SELECT with its clauses; a *reference* is a place where a table is named (a table that is named
twice has two references); a *range* is `[first, end)` of tokens. `select_parser` makes the value; other modules use its
methods rather than counting brackets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mergelake.core.base.lexer import Token
from mergelake.query.source import AsOf

Range = tuple[int, int]
"""Tokens [first, end)."""
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True, slots=True, eq=False)
class TableReference:
    """A place where a table is named; offsets are in characters."""

    database: str
    """Empty if the statement does not name it."""
    name: str
    start: int
    """First character of the name."""
    end: int
    """One past its last."""
    as_of: AsOf | None = None
    """The older version that it refers to."""
    as_of_at: tuple[int, int] | None = None
    """Position of AS OF …."""
    alias: str = ""
    """Alias, or empty."""
    renames: tuple[int, int] | None = None
    """Position of `(a, b)` after the alias: names that a subquery's columns would have, and a table's have not."""
    final: tuple[int, int] | None = None
    """Position of FINAL."""
    sample: tuple[int, int] | None = None
    """Position of SAMPLE … [OFFSET …]."""
    sample_ratio: str = ""
    sample_offset: str = ""
    join: str = ""
    """The upper-case words before JOIN (`LEFT ANY`), `,` for a comma, empty for the first table."""
    in_operator: bool = False
    """It stands after IN rather than in a FROM."""
    explain: tuple[str, str] | None = None
    """Kind and SELECT of an `(EXPLAIN …)` in place of a name."""

    @property
    def table(self) -> tuple[str, str, AsOf | None]:
        """(database, name, version): equal for all references to one table."""
        return (f"EXPLAIN {self.explain[0]}" if self.explain else self.database), self.name, self.as_of

    @property
    def outside(self) -> list[tuple[int, int]]:
        """Positions of what stands beside its name, and means nothing beside a subquery in its place."""
        places = (self.as_of_at, self.renames, self.final, self.sample)
        return [place for place in places if place is not None]


@dataclass(frozen=True, slots=True)
class CteUse:
    """A place where a CTE is read."""

    name: str
    start: int
    """First character of the name."""
    end: int
    """One past its last."""
    aliased: bool
    """Whether it has an alias there."""
    in_operator: bool
    """It stands after IN rather than in a FROM."""


@dataclass(frozen=True, slots=True)
class TableCall:
    """A table function in a FROM; offsets are in characters."""

    database: str
    """Empty if the statement does not name it."""
    name: str
    start: int
    """First character of the name, with its database."""
    name_at: int
    """First character of the name without it."""
    end: int
    """One past the closing bracket."""
    arguments: Range
    """Tokens between the brackets."""
    aliased: bool
    """Whether it has an alias."""


@dataclass(frozen=True, slots=True)
class Item:
    """An expression of a list."""

    first: int
    end: int
    """One past its last token, without the alias."""
    alias: str
    """Alias, or empty."""

    @property
    def range(self) -> Range:
        """The expression's tokens."""
        return self.first, self.end


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """One SELECT."""

    parent: Scope | None
    role: str
    """top, from (a subquery in a FROM), cte, or expression."""
    first: int
    """Index of its first token."""
    end: int
    """Index one past its last token."""
    clauses: Mapping[str, Range]
    """Clause -> its tokens without the keyword."""
    clause_words: Mapping[str, int]
    """Clause -> index of its keyword."""
    sources: tuple[TableReference | None, ...]
    """References in its FROM, in order; None for a subquery, a CTE or a table function."""
    joins: tuple[str, ...]
    """The join of each source, like `TableReference.join`."""
    array_join: tuple[Range, ...]
    """Tokens of its ARRAY JOINs."""
    in_set_operation: bool

    def clause(self, word: str) -> Range:
        """Tokens of a clause without the keyword; (0, 0) if there is none."""
        return self.clauses.get(word, (0, 0))


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """A statement and its tokens: ranges of them as text, and their brackets."""

    text: str
    tokens: tuple[Token, ...]
    """The last one has the kind `end`."""

    def slice(self, first: int, end: int) -> str:
        """The text of a range."""
        return self.text[self.tokens[first].start : self.tokens[end - 1].end] if end > first else ""

    @cached_property
    def _brackets(self) -> tuple[dict[int, int], list[int]]:
        """(opening bracket -> closing bracket; for each token the innermost opening bracket around it, or -1)."""
        pairs: dict[int, int] = {}
        around: list[int] = []
        open_at: list[int] = []
        for at, token in enumerate(self.tokens):
            if token.kind == "sign" and token.text in _CLOSING and open_at:
                pairs[open_at.pop()] = at
            around.append(open_at[-1] if open_at else -1)
            if token.kind == "sign" and token.text in _OPENING:
                open_at.append(at)
        return pairs, around

    def closing(self, at: int) -> int:
        """The bracket that closes the one at `at`; the last token if none does."""
        return self._brackets[0].get(at, len(self.tokens) - 1)

    def opening(self, at: int) -> int:
        """The innermost opening bracket around the token at `at`; -1 if there is none."""
        return self._brackets[1][at]

    def level(self, first: int, end: int) -> Iterator[int]:
        """The tokens of a range outside of its brackets, including the brackets themselves."""
        around = self._brackets[1]
        return (at for at in range(first, end) if around[at] == around[first])


@dataclass(frozen=True, eq=False)
class ParsedSelect(TokenizedText):
    """A parsed SELECT statement."""

    scopes: tuple[Scope, ...]
    """Scopes in the order of their first tokens."""
    references: tuple[TableReference, ...]
    scope_of: Mapping[TableReference, Scope]
    """The scope of each reference."""
    files: tuple[Token, ...]
    """Strings in place of table names, which ClickHouse reads as files."""
    format_at: tuple[int, int] | None
    """Position of a final FORMAT clause, in characters."""
    format: str
    calls: tuple[TableCall, ...]
    """Its table functions."""
    cte_uses: tuple[CteUse, ...]
    loose_settings: tuple[Range, ...]
    """SETTINGS clauses that are in no scope: `(SELECT 1) UNION ALL (SELECT 2) SETTINGS …`."""

    @property
    def table_functions(self) -> tuple[str, ...]:
        """Names of its table functions."""
        return tuple(call.name for call in self.calls)

    def items(self, first: int, end: int) -> list[Item]:
        """The items of a comma-separated list."""
        commas = [at for at in self.level(first, end) if self.tokens[at].text == "," and self.tokens[at].kind == "sign"]
        out = []
        for begin, stop in zip([first, *(at + 1 for at in commas)], [*commas, end], strict=True):
            if stop > begin:
                named = stop - begin >= 3 and self.tokens[stop - 2].upper == "AS" and self.tokens[stop - 1].is_name
                out.append(Item(begin, stop - 2 if named else stop, self.tokens[stop - 1].name if named else ""))
        return out

    def conjuncts(self, first: int, end: int) -> list[Range]:
        """The operands of the top-level ANDs of an expression."""
        out: list[Range] = []
        cases = betweens = 0
        begin = first
        for at in self.level(first, end):
            word = self.tokens[at].upper
            if word in ("?", "->"):
                return [(first, end)]
            cases += (word == "CASE") - (word == "END" and cases > 0)
            if cases:
                continue
            if word == "OR":
                return [(first, end)]
            if word == "BETWEEN":
                betweens += 1
            elif word == "AND" and betweens:
                betweens -= 1
            elif word == "AND":
                out.append((begin, at))
                begin = at + 1
        return [*out, (begin, end)] if end > begin else out

    def names(self, first: int, end: int) -> set[str]:
        """All identifiers of a range, and dotted paths as a whole."""
        return set(names_in(self.tokens[first:end]))

    def words(self, first: int, end: int) -> set[str]:
        """The upper-case words of a range."""
        return {token.upper for token in self.tokens[first:end] if token.kind == "word"}

    def inside(self, scope: Scope) -> list[Scope]:
        """The subqueries of a scope, including nested ones."""
        return [each for each in self.scopes if each is not scope and scope.first <= each.first < scope.end]

    def own(self, scope: Scope, first: int, end: int) -> Iterator[int]:
        """The tokens of a range that are not in a subquery of the scope."""
        ends = {each.first: each.end for each in self.inside(scope)}
        at = next((stop for begin, stop in ends.items() if begin <= first < stop), first)
        while at < end:
            if at in ends:
                at = ends[at]
            else:
                yield at
                at += 1


def names_in(tokens: Sequence[Token]) -> Iterator[str]:
    """All identifiers among `tokens`, and dotted paths as a whole."""
    path = ""
    for index, token in enumerate(tokens):
        if token.is_name:
            after_dot = index > 1 and tokens[index - 1].text == "." and bool(path)
            path = f"{path}.{token.name}" if after_dot else token.name
            yield token.name
            if after_dot:
                pieces = path.split(".")
                for first in range(len(pieces) - 1):
                    yield ".".join(pieces[first:])
        elif token.text != ".":
            path = ""
