"""The parser of SELECT: one pass over the tokens with a stack of brackets.

The parser knows of each bracket whether it holds a SELECT, a parenthesised FROM, or something else, like
`extract(YEAR FROM d)`, whose FROM is not a clause. It is exact for tables, all of which must be replaced, and
conservative for columns: a superfluous name costs time, but does not change the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from mergelake.core.base.errors import error
from mergelake.core.base.lexer import Token, tokenize
from mergelake.core.base.text import unescape
from mergelake.query.source import AsOf
from mergelake.query.statement.parsed_select import (
    CteUse,
    ParsedSelect,
    Range,
    Scope,
    TableCall,
    TableReference,
    TokenizedText,
)

_KEPT_LENGTH_MAX = 100_000
"""Maximum length, in characters, of a text whose result is cached."""
CLAUSES = ("WITH", "SELECT", "FROM", "PREWHERE", "WHERE", "GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER", "LIMIT")
_JOIN_WORDS = frozenset(
    [
        "GLOBAL",
        "LOCAL",
        "ANY",
        "ALL",
        "ASOF",
        "SEMI",
        "ANTI",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "OUTER",
        "CROSS",
        "PASTE",
        "NATURAL",
    ]
)
_NOT_ALIASES = _JOIN_WORDS | frozenset(
    (
        *CLAUSES,
        *[
            "OFFSET",
            "FETCH",
            "SETTINGS",
            "FORMAT",
            "INTO",
            "UNION",
            "EXCEPT",
            "INTERSECT",
            "JOIN",
            "ARRAY",
            "ON",
            "USING",
            "FINAL",
            "SAMPLE",
            "AS",
            "BY",
        ],
    )
)
_AFTER_SETTINGS = frozenset(("FORMAT", "INTO", "UNION", "EXCEPT", "INTERSECT"))
_BEFORE_OPERAND = frozenset(
    [
        "SELECT", "DISTINCT", "ALL", "FROM", "JOIN", "WHERE", "PREWHERE", "HAVING", "QUALIFY", "BY", "ON", "USING",
        "LIMIT", "OFFSET", "AND", "OR", "NOT", "IN", "LIKE", "ILIKE", "BETWEEN", "IS", "AS", "CASE", "WHEN", "THEN",
        "ELSE", "DIV", "MOD", "WITH", "INTERVAL", "SETTINGS",
    ]
)  # fmt: skip
"""Words that an operand follows, so that the next word does not begin a clause."""
_AFTER_WITH = frozenset(("TOTALS", "ROLLUP", "CUBE", "FILL", "TIES"))


@dataclass(slots=True, eq=False)
class _OpenScope:
    """A `Scope` while it is parsed."""

    parent: _OpenScope | None
    role: str
    first: int
    end: int = 0
    clauses: dict[str, Range] = field(default_factory=dict)
    clause_words: dict[str, int] = field(default_factory=dict)
    sources: list[TableReference | None] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)
    array_join: list[Range] = field(default_factory=list)
    in_set_operation: bool = False

    def closed(self, parent: Scope | None) -> Scope:
        """The finished scope."""
        return Scope(
            parent,
            self.role,
            self.first,
            self.end,
            self.clauses,
            self.clause_words,
            tuple(self.sources),
            tuple(self.joins),
            tuple(self.array_join),
            self.in_set_operation,
        )


@dataclass(slots=True)
class _Frame:
    kind: str
    """select, group (a bracketed FROM) or other."""
    scope: _OpenScope | None = None
    clause: str = ""
    expects_table: bool = False
    join: str = ""
    mode: str = ""
    """Within FROM: '', 'on', 'using' or 'array'."""
    ctes: set[str] = field(default_factory=set)
    pending_cte: str = ""
    """The CTE that becomes visible when the current bracket closes."""
    role: str = "expression"
    inherits: bool = False
    """Whether the bracket only wraps the content of the outer one: `((SELECT 1) UNION ALL (SELECT 2))`."""
    scopes: list[_OpenScope] = field(default_factory=list)
    set_operation: bool = False
    loose: int = 0
    """First token of a SETTINGS clause after brackets; 0 for none."""


def parse_select(text: str) -> ParsedSelect:
    """Parse a SELECT, WITH … SELECT, or the statement inside an EXPLAIN; cached by its text, unless that is long."""
    return _parsed(text) if len(text) <= _KEPT_LENGTH_MAX else _Walker(text).walk()


@lru_cache(maxsize=512)
def _parsed(text: str) -> ParsedSelect:
    return _Walker(text).walk()


class _Walker:
    def __init__(self, text: str) -> None:
        self.text, self.tokens = text, tuple(tokenize(text))
        self.statement = TokenizedText(text, self.tokens)
        self.stack: list[_Frame] = [_Frame("select", role="top")]
        self.scopes: list[_OpenScope] = []
        self.references: list[tuple[TableReference, _OpenScope]] = []
        self.files: list[Token] = []
        self.format_at: tuple[int, int] | None = None
        self.format = ""
        self.calls: list[tuple[TableReference, int]] = []
        self.cte_uses: list[CteUse] = []
        self.loose_settings: list[Range] = []
        self._run_end = 0

    def walk(self) -> ParsedSelect:
        at = 0
        while self.tokens[at].kind != "end" and self.tokens[at].text != ";":
            at = self._step(at)
        while self.stack:
            self._pop(at)
        closed: dict[_OpenScope, Scope] = {}
        for scope in self.scopes:  # outer scopes come first
            closed[scope] = scope.closed(None if scope.parent is None else closed[scope.parent])
        return ParsedSelect(
            self.text,
            self.tokens,
            tuple(closed.values()),
            tuple(reference for reference, _ in self.references),
            {reference: closed[scope] for reference, scope in self.references},
            tuple(self.files),
            self.format_at,
            self.format,
            tuple(map(self._call, self.calls)),
            tuple(self.cte_uses),
            tuple(self.loose_settings),
        )

    def _call(self, found: tuple[TableReference, int]) -> TableCall:
        """The table function of a name and the index of the bracket after it."""
        named, opening = found
        closing = self._closing(opening)
        aliased = self._has_alias(min(closing + 1, len(self.tokens) - 1))
        end = self.tokens[closing].end
        name_at = self.tokens[opening - 1].start
        return TableCall(named.database, named.name, named.start, name_at, end, (opening + 1, closing), aliased)

    def _closing(self, opening: int) -> int:
        """Index of the bracket that closes the one at `opening`, or of the last token."""
        return self.statement.closing(opening)

    def _has_alias(self, at: int) -> bool:
        """Whether an alias begins here, with or without AS."""
        token = self.tokens[at]
        if token.upper == "AS":
            return self.tokens[at + 1].is_name
        return token.is_name and token.upper not in _NOT_ALIASES

    def _pop(self, at: int) -> None:
        frame = self.stack.pop()
        self._close_scope(frame, at)
        self._end_loose(frame, at)
        if frame.set_operation:
            for scope in frame.scopes:
                scope.in_set_operation = True
        if self.stack:
            outer = self.stack[-1]
            if frame.inherits:
                outer.scopes += frame.scopes
            if outer.pending_cte:
                outer.ctes.add(outer.pending_cte)
                outer.pending_cte = ""

    def _end_loose(self, frame: _Frame, at: int) -> None:
        if frame.loose:
            self.loose_settings.append((frame.loose, at))
            frame.loose = 0

    def _step(self, at: int) -> int:
        token, frame = self.tokens[at], self.stack[-1]
        if token.text == "|>" and token.kind == "sign":
            raise error("NOT_IMPLEMENTED", "The pipe operator |> is not supported", "Write the clauses of a SELECT")
        if token.text == "(" and token.kind == "sign":
            return self._open(at)
        if token.text in ("[", "{") and token.kind == "sign":
            self.stack.append(_Frame("other"))
            return at + 1
        if token.text in (")", "]", "}") and token.kind == "sign":
            if len(self.stack) > 1:
                self._pop(at)
            return at + 1
        if token.upper == "IN" and token.kind == "word" and self.tokens[at + 1].is_name:
            return self._in_table(at)
        if frame.kind == "other" or self._is_member(at):
            return at + 1
        if frame.expects_table and token.is_name:
            return self._table(at)
        if frame.expects_table and token.kind == "string":
            frame.expects_table = False
            self.files.append(token)
        if token.kind == "word":
            return self._word(at)
        if token.kind == "quoted" and (opening := self._begins_cte(at)):
            return opening
        if token.text == "," and frame.clause == "FROM" and frame.mode in ("", "on"):
            frame.expects_table, frame.join, frame.mode = True, ",", ""
        return at + 1

    def _is_member(self, at: int) -> bool:
        return at > 0 and self.tokens[at - 1].text == "." and self.tokens[at - 1].kind == "sign"

    def _open(self, at: int) -> int:
        frame = self.stack[-1]
        follow = self.tokens[at + 1]
        if frame.expects_table and frame.scope is not None and follow.upper == "EXPLAIN" and follow.kind == "word":
            return self._explain(at)
        # There may be several brackets before a SELECT: ((SELECT 1) UNION ALL (SELECT 2)).
        is_select = self.tokens[self._inside(at)].upper in ("SELECT", "WITH", "FROM") and (
            follow.text != "(" or frame.expects_table or frame.kind == "select"
        )
        if frame.expects_table and frame.kind in ("select", "group"):
            frame.expects_table = False
            if is_select and frame.scope is not None:
                frame.scope.sources.append(None)
                frame.scope.joins.append(frame.join)
                self.stack.append(_Frame("select", role="from"))
            else:
                self.stack.append(_Frame("group", frame.scope, "FROM", expects_table=True, join=frame.join))
            return at + 1
        if not is_select:
            self.stack.append(_Frame("other"))
            return at + 1
        inherits = frame.kind == "select" and frame.scope is None
        role = frame.role if inherits else "cte" if frame.pending_cte else "expression"
        self.stack.append(_Frame("select", role=role, inherits=inherits))
        return at + 1

    def _explain(self, at: int) -> int:
        """Parse `(EXPLAIN … SELECT …)` in place of a table."""
        frame = self.stack[-1]
        assert frame.scope is not None
        end = self._closing(at)
        begin = at + 2
        while begin < end and self.tokens[begin].upper not in ("SELECT", "WITH", "FROM", "("):
            begin += 1
        kind, query = (self.statement.slice(first, last) for first, last in ((at + 2, begin), (begin, end)))
        reference = TableReference(
            "", query, self.tokens[at].start, self.tokens[end].end, explain=(kind, query), join=frame.join
        )
        frame.expects_table = False
        frame.scope.joins.append(frame.join)
        return self._after_table(reference, min(end + 1, len(self.tokens) - 1), frame.scope)

    def _inside(self, at: int) -> int:
        """Index of the first token after the opening brackets that follow token `at`; cached for each run."""
        if at < self._run_end:
            return self._run_end
        ahead = at + 1
        while self.tokens[ahead].text == "(":
            ahead += 1
        self._run_end = ahead
        return ahead

    def _word(self, at: int) -> int:
        token, frame = self.tokens[at], self.stack[-1]
        word = token.upper
        if frame.kind == "select":
            if self._is_set_operation(at):
                frame.set_operation = True
                self._close_scope(frame, at)
                return at + 1
            if frame.scope is None:
                if word == "FORMAT" and self._starts_clause(at, frame):  # after a last SELECT in brackets
                    self._end_loose(frame, at)
                    self._keep_format(at)
                if word == "SETTINGS" and self._starts_clause(at, frame):
                    frame.loose = at + 1
                    return at + 1
                if word not in ("SELECT", "WITH", "FROM"):
                    return at + 1
                self._new_scope(frame, at)
            if self._starts_clause(at, frame):
                self._enter(frame, word, at)
                return at + 1
        if opening := self._begins_cte(at):
            return opening
        if frame.clause == "FROM":
            if word == "JOIN":
                return self._join(at)
            if word in ("ON", "USING"):
                frame.mode = word.lower()
        return at + 1

    def _begins_cte(self, at: int) -> int:
        """Index of the bracket of a CTE `name [(a, b)] AS (SELECT …` that begins here, and keep its name; or 0."""
        frame, last = self.stack[-1], len(self.tokens) - 1
        if frame.scope is None or frame.clause != "WITH":
            return 0
        named = self._closing(at + 1) if self.tokens[at + 1].text == "(" else at
        if self.tokens[min(named + 1, last)].upper != "AS" or self.tokens[min(named + 2, last)].text != "(":
            return 0
        if self.tokens[min(named + 3, last)].upper not in ("SELECT", "WITH", "FROM", "("):
            return 0
        frame.pending_cte = self.tokens[at].name
        if self.tokens[frame.scope.clause_words["WITH"] + 1].upper == "RECURSIVE":
            frame.ctes.add(frame.pending_cte)
        return named + 2

    def _is_set_operation(self, at: int) -> bool:
        word, follow = self.tokens[at].upper, self.tokens[at + 1]
        if word in ("UNION", "INTERSECT"):
            return follow.upper in ("ALL", "DISTINCT", "SELECT", "WITH", "(")
        if word != "EXCEPT" or self.tokens[at - 1].text == "*":
            return False  # `* EXCEPT (a, b)` excludes columns
        if follow.text == "(":
            return self.tokens[at + 2].upper in ("SELECT", "WITH", "(")
        return follow.upper in ("SELECT", "ALL", "DISTINCT", "WITH")

    def _starts_clause(self, at: int, frame: _Frame) -> bool:
        token, follow = self.tokens[at], self.tokens[at + 1]
        word = token.upper
        if frame.clause == "SETTINGS" and follow.text == "=":
            return False  # the setting `limit`
        match word:
            case "GROUP" | "ORDER":
                return follow.upper == "BY"
            case "WITH":
                return follow.upper not in _AFTER_WITH and frame.clause == ""
            case "WINDOW":
                return follow.is_name and self.tokens[at + 2].upper == "AS"
            case "SETTINGS":
                return follow.is_name and (self.tokens[at + 2].text == "=" or self._is_flag(at))
            case "FORMAT":
                return follow.kind == "word" and (
                    self.tokens[at + 2].kind == "end"
                    or self.tokens[at + 2].text == ";"
                    or self.tokens[at + 2].upper == "SETTINGS"
                )
            case "FROM":
                # The FROM of `a IS DISTINCT FROM b` and `WITH FILL FROM 0` is not a clause.
                before = self.tokens[at - 1].upper
                compares = before == "DISTINCT" and self.tokens[at - 2].upper in ("IS", "NOT")
                return not compares and not (before == "FILL" and frame.clause == "ORDER")
            case "SELECT" | "PREWHERE" | "WHERE" | "HAVING" | "QUALIFY" | "LIMIT":
                return True
            case "OFFSET":
                return follow.kind == "number" and frame.clause in (
                    "ORDER",
                    "LIMIT",
                    "FROM",
                    "WHERE",
                    "GROUP",
                    "HAVING",
                )
        return False

    def _is_flag(self, at: int) -> bool:
        """Whether this is `SETTINGS name` without a value rather than a column `settings` with an alias."""
        before, after = self.tokens[at - 1], self.tokens[at + 2]
        ends = after.kind == "end" or after.text in (",", ")", ";") or after.upper in _AFTER_SETTINGS
        operand = before.kind in ("number", "string", "quoted") or before.text in (")", "]", "*")
        return ends and (operand or (before.kind == "word" and before.upper not in _BEFORE_OPERAND))

    def _new_scope(self, frame: _Frame, at: int) -> None:
        parent = next((f.scope for f in reversed(self.stack[:-1]) if f.scope is not None), None)
        frame.scope = _OpenScope(parent, frame.role, at)
        self.scopes.append(frame.scope)
        frame.scopes.append(frame.scope)
        frame.clause = ""

    def _enter(self, frame: _Frame, word: str, at: int) -> None:
        assert frame.scope is not None
        self._end_clause(frame, at)
        frame.clause, frame.mode = word, ""
        frame.expects_table, frame.join = word == "FROM", ""
        begin = at + 2 if word in ("GROUP", "ORDER") else at + 1
        frame.scope.clauses[word] = (begin, begin)
        frame.scope.clause_words[word] = at
        if word == "FORMAT":
            self._keep_format(at)

    def _keep_format(self, at: int) -> None:
        if len(self.stack) == 1:
            self.format_at = (self.tokens[at].start, self.tokens[at + 1].end)
            self.format = self.tokens[at + 1].text

    def _end_clause(self, frame: _Frame, at: int) -> None:
        if frame.scope is not None and frame.clause:
            begin, _ = frame.scope.clauses[frame.clause]
            frame.scope.clauses[frame.clause] = (begin, at)
            if frame.mode == "array":
                first, _ = frame.scope.array_join[-1]
                frame.scope.array_join[-1] = (first, at)

    def _close_scope(self, frame: _Frame, at: int) -> None:
        if frame.kind == "select" and frame.scope is not None:
            self._end_clause(frame, at)
            frame.scope.end = at
            frame.scope, frame.clause, frame.expects_table = None, "", False

    def _join(self, at: int) -> int:
        frame = self.stack[-1]
        first = at
        while self.tokens[first - 1].upper in _JOIN_WORDS or self.tokens[first - 1].upper == "ARRAY":
            first -= 1
        words = [token.upper for token in self.tokens[first:at]]
        assert frame.scope is not None
        if frame.mode == "array":
            begin, _ = frame.scope.array_join[-1]
            frame.scope.array_join[-1] = (begin, first)
        if "ARRAY" in words:
            frame.mode = "array"
            frame.scope.array_join.append((at + 1, at + 1))
        else:
            frame.mode, frame.expects_table, frame.join = "", True, " ".join(words) or "INNER"
        return at + 1

    def _table(self, at: int) -> int:
        frame = self.stack[-1]
        scope = frame.scope
        assert scope is not None
        frame.expects_table = False
        scope.joins.append(frame.join)
        reference, following = self._name(at)
        if self.tokens[following].text == "(":
            self.calls.append((reference, following))
            scope.sources.append(None)
            return following
        if not reference.database and self._is_cte(reference.name):
            scope.sources.append(None)
            aliased = self._has_alias(following)
            self.cte_uses.append(CteUse(reference.name, reference.start, reference.end, aliased, in_operator=False))
            return following
        return self._after_table(replace(reference, join=frame.join), following, scope)

    def _name(self, at: int) -> tuple[TableReference, int]:
        first = self.tokens[at]
        if self.tokens[at + 1].text == "." and self.tokens[at + 2].is_name:
            last = self.tokens[at + 2]
            return TableReference(first.name, last.name, first.start, last.end), at + 3
        return TableReference("", first.name, first.start, first.end), at + 1

    def _is_cte(self, name: str) -> bool:
        return any(name in frame.ctes for frame in self.stack)

    def _after_table(self, reference: TableReference, at: int, scope: _OpenScope) -> int:
        """Parse what follows a table's name in FROM (AS OF, alias, FINAL, SAMPLE), and record the reference."""
        reference, at = self._as_of(reference, at)
        if self._has_alias(at):
            at += self.tokens[at].upper == "AS"
            reference = replace(reference, alias=self.tokens[at].name)
            at += 1
            if self.tokens[at].text == "(":
                end = self._closing(at)
                reference = replace(reference, renames=(self.tokens[at].start, self.tokens[end].end))
                at = min(end + 1, len(self.tokens) - 1)
        if self.tokens[at].upper == "FINAL":
            reference = replace(reference, final=(self.tokens[at].start, self.tokens[at].end))
            at += 1
        if self.tokens[at].upper == "SAMPLE":
            begin, offset = at, ""
            ratio, at = self._ratio(at + 1)
            if self.tokens[at].upper == "OFFSET":
                offset, at = self._ratio(at + 1)
            place = (self.tokens[begin].start, self.tokens[at - 1].end)
            reference = replace(reference, sample=place, sample_ratio=ratio, sample_offset=offset)
        scope.sources.append(reference)
        self.references.append((reference, scope))
        return at

    def _as_of(self, reference: TableReference, at: int) -> tuple[TableReference, int]:
        """Parse `AS OF VERSION 42 | TAG 'name' | TIMESTAMP 'text'`, which is not valid in ClickHouse."""
        last = len(self.tokens) - 1
        word, value = self.tokens[min(at + 2, last)].upper, self.tokens[min(at + 3, last)]
        if self.tokens[at].upper != "AS" or self.tokens[at + 1].upper != "OF":
            return reference, at
        if word == "VERSION" and value.kind == "number" and value.text.isdecimal():
            moment = AsOf(version=int(value.text))
        elif word == "TAG" and value.kind == "string":
            moment = AsOf(version=unescape(value.text))
        elif word == "TIMESTAMP" and value.kind == "string":
            moment = AsOf(timestamp=unescape(value.text))
        else:
            return reference, at
        return replace(reference, as_of=moment, as_of_at=(self.tokens[at].start, value.end)), at + 4

    def _ratio(self, at: int) -> tuple[str, int]:
        text = self.tokens[at].text
        if self.tokens[at + 1].text == "/":
            return f"{text}/{self.tokens[at + 2].text}", at + 3
        return text, at + 1

    def _in_table(self, at: int) -> int:
        reference, following = self._name(at + 1)
        scope = next((frame.scope for frame in reversed(self.stack) if frame.scope is not None), None)
        is_cte = not reference.database and self._is_cte(reference.name)
        if is_cte and self.tokens[following].text not in ("(", "."):
            self.cte_uses.append(
                CteUse(reference.name, reference.start, reference.end, aliased=False, in_operator=True)
            )
        bare = self.tokens[following].text not in ("(", ".") and not is_cte
        if bare and scope is not None and self.tokens[at + 1].upper not in ("NULL", "TRUE", "FALSE"):
            self.references.append((replace(reference, in_operator=True), scope))
        return following
