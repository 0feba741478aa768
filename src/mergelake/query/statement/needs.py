"""What each table of a statement must give: columns, predicates, FINAL, SAMPLE. Pure, by tokens.

Columns are judged by name: every column of the table that the statement's scope mentions, in any meaning. A
star means all of them, except in a plain subquery, where the scope outside says which.

A predicate goes down to the scan when the rows it rejects could not have mattered: it is one of the ANDed
conditions of WHERE (or PREWHERE), names columns of this table alone (never an alias, which ClickHouse would
prefer over a column, never an element of ARRAY JOIN), and no outer join stands between. It stays in the
statement as well, so pushing it only ever saves work.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from mergelake.core.lexer import Token
from mergelake.query.source import ReadRequest, Source
from mergelake.query.statement.parsed_select import ParsedSelect, Scope, TableReference, names_in
from mergelake.query.statement.settings import keeps_conditions
from mergelake.query.statement.settings_semantics import statement_settings

_NOT_PUSHED = frozenset(
    ("SELECT", "ARRAYJOIN", "NOW64", "YESTERDAY", "CURRENT_TIMESTAMP", "UTCTIMESTAMP", "UTC_TIMESTAMP")
)
"""Words of a condition that stays above: `now()` and `today()` are pinned to one instant, their relatives are not."""
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


def wanted(plan: ParsedSelect, found: TableReference, source: Source, sources: Mapping[int, Source]) -> ReadRequest:
    """What `found` must give. `sources` has the table of every occurrence, by `id`.

    `columns` is empty where the statement needs only the number of rows.
    """
    scope = plan.scope_of[id(found)]
    names = mentioned(plan, scope)
    outside = _outside_names(plan, scope) if _has_star(plan, scope) and not found.in_operator else set()
    if outside is None or _needs_all(plan, found, scope):
        outside = set(source.columns) - source.hidden
    names |= outside
    for name in computed_names(plan, found, source):
        names.update(_expression_names(source.computed[name][1]))
    where, prewhere = predicates(plan, found, source, sources)
    return ReadRequest(
        tuple(name for name in source.columns if name in names),
        where,
        prewhere,
        found.final is not None,
        found.sample_ratio,
        found.sample_offset,
    )


def computed_names(plan: ParsedSelect, found: TableReference, source: Source) -> list[str]:
    """The computed columns that the scope of `found` mentions. `n.a`, where that is a column, does not mention `n`."""
    scope = plan.scope_of[id(found)]
    if not source.computed or found.in_operator:
        return []
    names = set()
    for at in range(scope.first, scope.end):
        token, dot = plan.tokens[at], plan.tokens[at + 1].text == "."
        if token.is_name and not (dot and f"{token.name}.{plan.tokens[at + 2].name}" in source.columns):
            names.add(token.name)
    return [name for name in source.computed if name in names]


def mentioned(plan: ParsedSelect, scope: Scope) -> set[str]:
    """Every identifier in `scope`, its subqueries included."""
    return set(names_in(plan.tokens[scope.first : scope.end]))


def _expression_names(expression: str) -> set[str]:
    from mergelake.core.lexer import tokenize

    return set(names_in(tokenize(expression)))


def _needs_all(plan: ParsedSelect, found: TableReference, scope: Scope) -> bool:
    if found.in_operator:
        return True
    words = {token.upper for token in plan.tokens[scope.first : scope.end] if token.kind == "word"}
    return "NATURAL" in words or "COLUMNS" in words or "APPLY" in words


def star_tokens(plan: ParsedSelect, scope: Scope) -> list[int]:
    """Indices of the `*` in `scope` itself, any clause, that stand for columns (`count(*)` does not)."""
    first, end = scope.first, scope.end
    inner = [s for s in plan.scopes if s is not scope and first <= s.first < end]
    out = []
    for at in range(first, end):
        token, before = plan.tokens[at], plan.tokens[at - 1]
        if token.text != "*" or any(s.first <= at < s.end for s in inner):
            continue
        counts = before.text == "(" and plan.tokens[at - 2].upper == "COUNT"
        if not counts and (before.text in (",", ".", "(", "[") or before.upper in ("SELECT", "DISTINCT", "ALL", "BY")):
            out.append(at)
    return out


def _has_star(plan: ParsedSelect, scope: Scope) -> bool:
    return bool(star_tokens(plan, scope))


def _outside_names(plan: ParsedSelect, scope: Scope) -> set[str] | None:
    """What the scopes around a `SELECT *` mention; None if all columns may matter."""
    first, _ = scope.clauses.get("SELECT", (0, 0))
    if scope.role != "from" or scope.in_set_operation or scope.parent is None or plan.tokens[first].upper == "DISTINCT":
        return None
    if _counts_columns(plan, scope):
        return None
    parent = scope.parent
    words = {token.upper for token in plan.tokens[parent.first : parent.end] if token.kind == "word"}
    if words & {"NATURAL", "COLUMNS", "APPLY"}:
        return None
    names = mentioned(plan, parent)
    if not _has_star(plan, parent):
        return names
    outside = _outside_names(plan, parent)
    return None if outside is None else names | outside


def _counts_columns(plan: ParsedSelect, scope: Scope) -> bool:
    """Whether fewer columns behind a star would change a value or an order: `f(*)`, ORDER BY 2, GROUP BY ALL."""
    for clause in ("GROUP", "ORDER", "LIMIT"):
        tokens = plan.tokens[slice(*scope.clauses.get(clause, (0, 0)))]
        by_place = clause != "LIMIT" and any(token.kind == "number" for token in tokens)
        if by_place or any(token.upper in ("ALL", "BY") for token in tokens):
            return True
    first, end = scope.clauses.get("SELECT", (0, 0))
    stars, depth, plain = set(star_tokens(plan, scope)), 0, 0
    for at in range(first, end):
        token = plan.tokens[at]
        if token.kind == "sign":
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        plain += depth == 0 and at in stars
    return plain < len(stars)


def predicates(
    plan: ParsedSelect, found: TableReference, source: Source, sources: Mapping[int, Source]
) -> tuple[str, str]:
    """The parts of WHERE and of PREWHERE that the table can judge alone, as text without qualifiers."""
    scope = plan.scope_of[id(found)]
    if found.in_operator or found not in scope.sources or not _may_filter_before_joins(scope, found):
        return "", ""
    if not keeps_conditions(statement_settings(plan)):
        return "", ""
    banned = scope_aliases(plan, scope)
    out = []
    for clause in ("WHERE", "PREWHERE"):
        first, end = scope.clauses.get(clause, (0, 0))
        texts = (_own_text(plan, c, found, scope, source, sources, banned) for c in conjuncts(plan, first, end))
        out.append(" AND ".join(f"({text})" for text in texts if text and source.can_filter(text)))
    return out[0], out[1]


def prewhere_alone(plan: ParsedSelect, found: TableReference, source: Source) -> str:
    """PREWHERE as text over the columns of the one table that its scope reads; empty if it needs more than these."""
    scope = plan.scope_of[id(found)]
    if scope.sources != [found] or scope.array_join or computed_names(plan, found, source):
        return ""
    first, end = scope.clauses["PREWHERE"]
    banned = scope_aliases(plan, scope) - {found.alias}
    if banned & set(names_in(plan.tokens[first:end])):
        return ""
    texts = [_own_text(plan, c, found, scope, source, {}, banned) for c in conjuncts(plan, first, end)]
    return " AND ".join(f"({text})" for text in texts) if all(texts) else ""


def _may_filter_before_joins(scope: Scope, found: TableReference) -> bool:
    kinds = [set(words.split()) for words in scope.joins if words]
    if all(kind <= _INNER for kind in kinds):
        return True
    is_first = scope.sources[0] is found and scope.joins[0] == ""
    return is_first and all(
        kind <= _INNER or ("LEFT" in kind and "RIGHT" not in kind) or kind <= {"ASOF", "GLOBAL", "INNER"}
        for kind in kinds
    )


def scope_aliases(plan: ParsedSelect, scope: Scope, *, select_only: bool = False) -> set[str]:
    """Names that mean something other than a column in `scope`: its aliases, those around it, ARRAY JOIN's.

    With `select_only` just those of its SELECT list.
    """
    out: set[str] = set()
    if select_only:
        first, end = scope.clauses.get("SELECT", (0, 0))
        tokens = plan.tokens[first:end]
        out.update(b.name for a, b in pairwise(tokens) if a.upper == "AS" and b.is_name)
        out.update(plan.tokens[at].name for at in range(first + 1, end) if _is_bare_alias(plan.tokens, at))
        return out
    around: Scope | None = scope
    while around is not None:
        tokens = plan.tokens[around.first : around.end]
        out.update(b.name for a, b in pairwise(tokens) if a.upper == "AS" and b.is_name)
        first, end = around.clauses.get("SELECT", (0, 0))
        out.update(plan.tokens[at].name for at in range(first + 1, end) if _is_bare_alias(plan.tokens, at))
        for begin, stop in around.array_join:
            out.update(names_in(plan.tokens[begin:stop]))
        around = around.parent
    return out


def _is_bare_alias(tokens: list[Token], at: int) -> bool:
    token, before = tokens[at], tokens[at - 1]
    if not token.is_name or token.upper in ("AS", "FROM", "END", "AND", "OR", "IN", "LIKE", "OVER"):
        return False
    if before.is_name:
        return before.upper not in _NOT_BEFORE_ALIAS
    return before.kind in ("number", "string") or before.text in (")", "]")


def conjuncts(plan: ParsedSelect, first: int, end: int) -> list[tuple[int, int]]:
    """Token ranges of the conditions that AND joins at the top of an expression."""
    out: list[tuple[int, int]] = []
    depth = cases = betweens = 0
    begin = first
    for at in range(first, end):
        token = plan.tokens[at]
        if token.kind == "sign":
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
            if depth == 0 and token.text in ("?", "->"):
                return [(first, end)]
        if depth or token.kind != "word":
            continue
        cases += (token.upper == "CASE") - (token.upper == "END" and cases > 0)
        if cases:
            continue
        if token.upper == "BETWEEN":
            betweens += 1
        elif token.upper == "OR":
            return [(first, end)]
        elif token.upper == "AND" and betweens:
            betweens -= 1
        elif token.upper == "AND":
            out.append((begin, at))
            begin = at + 1
    if end > begin:
        out.append((begin, end))
    return out


def _own_text(
    plan: ParsedSelect,
    conjunct: tuple[int, int],
    found: TableReference,
    scope: Scope,
    source: Source,
    sources: Mapping[int, Source],
    banned: set[str],
) -> str:
    """The condition without qualifiers, or empty if it is not this table's own."""
    first, end = conjunct
    tokens = plan.tokens
    others = [sources.get(id(s)) if s is not None else None for s in scope.sources if s is not found]
    foreign = {s.alias or s.name for s in scope.sources if s is not None and s is not found}
    pieces: list[str] = []
    at = first
    while at < end:
        token = tokens[at]
        if token.text == "{" or token.upper in _NOT_PUSHED or (token.upper == "AS" and not _in_cast(tokens, first, at)):
            return ""
        gap = plan.text[tokens[at - 1].end : token.start] if at > first else ""
        is_column = token.is_name and tokens[at + 1].text not in ("(", "'")
        skip = _qualifier(tokens, at, found) if is_column else 0
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


def _in_cast(tokens: list[Token], first: int, at: int) -> bool:
    depth = 0
    for back in range(at - 1, first - 1, -1):
        depth += (tokens[back].text == ")") - (tokens[back].text == "(")
        if depth < 0:
            return back > first and tokens[back - 1].upper == "CAST"
    return False


def _qualifier(tokens: list[Token], at: int, found: TableReference) -> int:
    """How many tokens of `alias.` or `db.table.` stand before a column of `found`."""
    if tokens[at + 1].text != "." or not tokens[at + 2].is_name:
        return 0
    if found.alias:
        return 2 if tokens[at].name == found.alias else 0
    if tokens[at].name == found.name:
        return 2
    full = found.database and tokens[at].name == found.database and tokens[at + 2].name == found.name
    return 4 if full and tokens[at + 3].text == "." and tokens[at + 4].is_name else 0
