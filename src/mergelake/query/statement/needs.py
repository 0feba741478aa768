"""The needs of a statement from each table: columns, predicates, FINAL, SAMPLE. Pure, by tokens.

Columns are matched by name: every column of the table whose name occurs in the scope, with any meaning. A star means
all columns, except in a plain subquery, where the names in the outer scope decide.

A predicate is pushed down to the scan if the rows that it rejects cannot affect the result: it is one of the ANDed
conditions of WHERE (or PREWHERE), uses columns of this table alone (no alias, which ClickHouse would prefer over a
column, and no element of ARRAY JOIN), and there is no outer join between. It also stays in the statement, so pushing it
down only saves work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from mergelake.core.base.lexer import Token
from mergelake.query.source import Readable, ReadRequest
from mergelake.query.statement.parsed_select import ParsedSelect, Scope, TableReference, names_in
from mergelake.query.statement.settings import keeps_conditions
from mergelake.query.statement.settings_semantics import statement_settings
from mergelake.scan.prune.request import VIRTUAL_COLUMNS

_NOT_PUSHED = frozenset(
    ("SELECT", "ARRAYJOIN", "NOW64", "YESTERDAY", "CURRENT_TIMESTAMP", "UTCTIMESTAMP", "UTC_TIMESTAMP")
)
"""Words of conditions that are not pushed down: `now()` and `today()` are replaced by one instant, others are not."""
_ANY_COLUMN = frozenset(("NATURAL", "COLUMNS", "APPLY"))
"""Words that may mean any column."""
_MATCHER = "COLUMNS"
"""Its columns are those that a star leaves out, too."""
_INNER = frozenset(("GLOBAL", "LOCAL", "ALL", "INNER", "CROSS", ","))
_NOT_BEFORE_ALIAS = frozenset(
    [
        "SELECT",
        "DISTINCT",
        "AS",
        "NOT",
        "AND",
        "OR",
        "LIKE",
        "ILIKE",
        "IN",
        "BETWEEN",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "INTERVAL",
        "IS",
        "DIV",
        "MOD",
        "FROM",
        "BY",
        "ON",
    ]
)


def wanted(
    parsed: ParsedSelect, reference: TableReference, source: Readable, sources: Mapping[TableReference, Readable]
) -> ReadRequest:
    """The columns and rows of `reference` that the statement needs. `sources` has the table of every reference.

    `columns` is empty if the statement needs only the number of rows.
    """
    scope = parsed.scope_of[reference]
    names = parsed.names(scope.first, scope.end)
    outside = _outside_names(parsed, scope) if star_tokens(parsed, scope) and not reference.in_operator else set()
    if outside is None or _needs_all(parsed, reference, scope):
        outside = set(source.columns) - source.hidden
    names |= outside
    if _MATCHER in parsed.words(scope.first, scope.end):
        names.update(matched(source))
    for name in computed_names(parsed, reference, source):
        names.update(_expression_names(source.computed[name][1]))
    where, prewhere = predicates(parsed, reference, source, sources)
    return ReadRequest(
        tuple(sorted((name for name in source.columns if name in names), key=source.hidden.__contains__)),
        where,
        prewhere,
        reference.final is not None,
        reference.sample_ratio,
        reference.sample_offset,
    )


def computed_names(parsed: ParsedSelect, reference: TableReference, source: Readable) -> list[str]:
    """The computed columns that the scope of `reference` mentions; the column `n.a` does not mention `n`."""
    scope = parsed.scope_of[reference]
    if not source.computed or reference.in_operator:
        return []
    names = set()
    for at in range(scope.first, scope.end):
        token, dot = parsed.tokens[at], parsed.tokens[at + 1].text == "."
        if token.is_name and not (dot and f"{token.name}.{parsed.tokens[at + 2].name}" in source.columns):
            names.add(token.name)
    if _MATCHER in parsed.words(scope.first, scope.end):
        names.update(matched(source))
    return [name for name in source.computed if name in names]


def matched(source: Readable) -> set[str]:
    """The columns that COLUMNS may mean and a star does not: MATERIALIZED and ALIAS ones.

    No virtual ones, and not `n` for the columns `n.a` and `n.b` of a Nested.
    """
    groups = {name.partition(".")[0] for name in source.columns if "." in name}
    return set(source.hidden) - set(VIRTUAL_COLUMNS) - (groups & set(source.computed))


def _expression_names(expression: str) -> set[str]:
    from mergelake.core.base.lexer import tokenize

    return set(names_in(tokenize(expression)))


def _needs_all(parsed: ParsedSelect, reference: TableReference, scope: Scope) -> bool:
    if reference.in_operator:
        return True
    return bool(parsed.words(scope.first, scope.end) & _ANY_COLUMN)


def star_tokens(parsed: ParsedSelect, scope: Scope) -> list[int]:
    """Indices of each `*` in any clause of `scope` itself that means columns (not `count(*)`)."""
    out = []
    for at in parsed.own(scope, scope.first, scope.end):
        token, before = parsed.tokens[at], parsed.tokens[at - 1]
        if token.text != "*":
            continue
        counts = before.text == "(" and parsed.tokens[at - 2].upper == "COUNT"
        if not counts and (before.text in (",", ".", "(", "[") or before.upper in ("SELECT", "DISTINCT", "ALL", "BY")):
            out.append(at)
    return out


def _outside_names(parsed: ParsedSelect, scope: Scope) -> set[str] | None:
    """Names in the scopes around a `SELECT *`; None if all columns may be needed."""
    first, _ = scope.clause("SELECT")
    if (
        scope.role != "from"
        or scope.in_set_operation
        or scope.parent is None
        or parsed.tokens[first].upper == "DISTINCT"
    ):
        return None
    if _counts_columns(parsed, scope):
        return None
    parent = scope.parent
    if parsed.words(parent.first, parent.end) & _ANY_COLUMN:
        return None
    names = parsed.names(parent.first, parent.end)
    if not star_tokens(parsed, parent):
        return names
    outside = _outside_names(parsed, parent)
    return None if outside is None else names | outside


def _counts_columns(parsed: ParsedSelect, scope: Scope) -> bool:
    """Whether omitting columns of a star would change the result: `f(*)`, ORDER BY 2, GROUP BY ALL."""
    for clause in ("GROUP", "ORDER", "LIMIT"):
        tokens = parsed.tokens[slice(*scope.clause(clause))]
        by_place = clause != "LIMIT" and any(token.kind == "number" for token in tokens)
        if by_place or any(token.upper in ("ALL", "BY") for token in tokens):
            return True
    first, end = scope.clause("SELECT")
    return not set(star_tokens(parsed, scope)) <= set(parsed.level(first, end))


def predicates(
    parsed: ParsedSelect, reference: TableReference, source: Readable, sources: Mapping[TableReference, Readable]
) -> tuple[str, str]:
    """The conjuncts of WHERE and of PREWHERE that the table can evaluate alone, as text without qualifiers."""
    scope = parsed.scope_of[reference]
    if reference.in_operator or reference not in scope.sources or not _may_filter_before_joins(scope, reference):
        return "", ""
    if not keeps_conditions(statement_settings(parsed)):
        return "", ""
    banned = scope_aliases(parsed, scope)
    out = []
    for clause in ("WHERE", "PREWHERE"):
        first, end = scope.clause(clause)
        texts = (_own_text(parsed, c, reference, scope, source, sources, banned) for c in parsed.conjuncts(first, end))
        out.append(" AND ".join(f"({text})" for text in texts if text and source.can_filter(text)))
    return out[0], out[1]


def prewhere_alone(parsed: ParsedSelect, reference: TableReference, source: Readable) -> str:
    """PREWHERE as text over the columns of the only table of its scope; empty if it needs anything else."""
    scope = parsed.scope_of[reference]
    if scope.sources != (reference,) or scope.array_join or computed_names(parsed, reference, source):
        return ""
    first, end = scope.clauses["PREWHERE"]
    banned = scope_aliases(parsed, scope) - {reference.alias}
    if banned & parsed.names(first, end):
        return ""
    texts = [_own_text(parsed, c, reference, scope, source, {}, banned) for c in parsed.conjuncts(first, end)]
    return " AND ".join(f"({text})" for text in texts) if all(texts) else ""


def _may_filter_before_joins(scope: Scope, reference: TableReference) -> bool:
    kinds = [set(words.split()) for words in scope.joins if words]
    if all(kind <= _INNER for kind in kinds):
        return True
    is_first = scope.sources[0] is reference and scope.joins[0] == ""
    return is_first and all(
        kind <= _INNER or ("LEFT" in kind and "RIGHT" not in kind) or kind <= {"ASOF", "GLOBAL", "INNER"}
        for kind in kinds
    )


def scope_aliases(parsed: ParsedSelect, scope: Scope, *, select_only: bool = False) -> set[str]:
    """Names in `scope` that are not columns: aliases of this and outer scopes, and of ARRAY JOIN.

    With `select_only` only the aliases of its SELECT list.
    """
    if select_only:
        return aliases_in(parsed, *scope.clause("SELECT"))
    out: set[str] = set()
    around: Scope | None = scope
    while around is not None:
        own = parsed.own(around, around.first, around.end)  # names within subqueries are not seen outside of them
        out |= {
            parsed.tokens[at + 1].name
            for at in own
            if parsed.tokens[at].upper == "AS" and parsed.tokens[at + 1].is_name
        }
        out |= _bare_aliases(parsed, *around.clause("SELECT"))
        for begin, stop in around.array_join:
            out.update(parsed.names(begin, stop))
        around = around.parent
    return out


def aliases_in(parsed: ParsedSelect, first: int, end: int) -> set[str]:
    """Names that expressions give to themselves and to what is in them: `(k AS z) + 1 AS y`."""
    named = {b.name for a, b in pairwise(parsed.tokens[first:end]) if a.upper == "AS" and b.is_name}
    return named | _bare_aliases(parsed, first, end)


def _bare_aliases(parsed: ParsedSelect, first: int, end: int) -> set[str]:
    return {parsed.tokens[at].name for at in range(first + 1, end) if _is_bare_alias(parsed.tokens, at)}


def _is_bare_alias(tokens: Sequence[Token], at: int) -> bool:
    token, before = tokens[at], tokens[at - 1]
    if not token.is_name or token.upper in ("AS", "FROM", "END", "AND", "OR", "IN", "LIKE", "OVER"):
        return False
    if before.is_name:
        return before.upper not in _NOT_BEFORE_ALIAS
    return before.kind in ("number", "string") or before.text in (")", "]")


def _own_text(
    parsed: ParsedSelect,
    conjunct: tuple[int, int],
    reference: TableReference,
    scope: Scope,
    source: Readable,
    sources: Mapping[TableReference, Readable],
    banned: set[str],
) -> str:
    """The text of a condition without qualifiers; empty if it uses anything but columns of this table."""
    first, end = conjunct
    tokens = parsed.tokens
    others = [sources.get(s) if s is not None else None for s in scope.sources if s is not reference]
    foreign = {s.alias or s.name for s in scope.sources if s is not None and s is not reference}
    pieces: list[str] = []
    at = first
    while at < end:
        token = tokens[at]
        if token.text == "{" or token.upper in _NOT_PUSHED or (token.upper == "AS" and not _in_cast(parsed, first, at)):
            return ""
        gap = parsed.text[tokens[at - 1].end : token.start] if at > first else ""
        is_column = token.is_name and tokens[at + 1].text not in ("(", "'")
        skip = _qualifier(tokens, at, reference) if is_column else 0
        if is_column and not skip and tokens[at + 1].text == "." and token.name in foreign:
            return ""
        at += skip
        name = tokens[at].name
        is_open = not skip and any(other is None or name in other.columns for other in others)
        is_other = name in banned and not (skip and not scope.array_join)
        if is_column and name in source.columns and (is_open or is_other):
            return ""
        pieces.append(gap + tokens[at].text)
        at += 1
    return "".join(pieces).strip()


def _in_cast(parsed: ParsedSelect, first: int, at: int) -> bool:
    opening = parsed.opening(at)
    return opening > first and parsed.tokens[opening - 1].upper == "CAST"


def _qualifier(tokens: Sequence[Token], at: int, reference: TableReference) -> int:
    """Number of tokens of the qualifier `alias.` or `db.table.` before a column of `reference`."""
    if tokens[at + 1].text != "." or not tokens[at + 2].is_name:
        return 0
    if reference.alias:
        return 2 if tokens[at].name == reference.alias else 0
    if tokens[at].name == reference.name:
        return 2
    full = reference.database and tokens[at].name == reference.database and tokens[at + 2].name == reference.name
    return 4 if full and tokens[at + 3].text == "." and tokens[at + 4].is_name else 0
