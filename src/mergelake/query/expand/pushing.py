"""What a statement needs of a view as a narrower query: without other columns, and with its conditions.

So the table is pruned as if the statement named it. Only where the query filters and projects one table, row by row,
and only conditions over columns that it returns as they are. They stay around the view, too: this only saves work.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from mergelake.query.embedded import engine
from mergelake.query.statement.access import pure_functions
from mergelake.query.statement.edits import applied
from mergelake.query.statement.needs import aliases_in, scope_aliases
from mergelake.query.statement.parsed_select import Item, ParsedSelect, Scope
from mergelake.query.statement.select_parser import parse_select

_CLAUSES = frozenset(("SELECT", "FROM", "PREWHERE", "WHERE", "ORDER"))
"""Clauses of a query whose rows are those of its table, filtered; no SETTINGS, under which a condition may mean another
thing."""


def with_condition(query: str, condition: str, columns: frozenset[str]) -> str:
    """A view's query with as much of a condition over its `columns` as it may have."""
    parsed = parse_select(query)
    scope = _only_scope(parsed)
    if scope is None or not condition:
        return query
    text = conditions(condition, _columns_as_they_are(parsed, scope, columns), columns)
    if not text:
        return query
    first, end = scope.clause("WHERE")
    if first != end:
        start, stop = parsed.tokens[first].start, parsed.tokens[end - 1].end
        return applied(query, [(start, start, "("), (stop, stop, f") AND {text}")])
    at = parsed.tokens[max(scope.clause("FROM")[1], scope.clause("PREWHERE")[1]) - 1].end
    return applied(query, [(at, at, f" WHERE {text}")])


def with_columns(query: str, needed: Collection[str]) -> str:
    """A view's query without columns that are not `needed`, as far as nothing else in it names them.

    An ORDER BY may name them by their places, or all: such a query stays as it is.
    """
    parsed = parse_select(query)
    scope = _only_scope(parsed)
    if scope is None or "ORDER" in scope.clauses:
        return query
    first, end = scope.clause("SELECT")
    items = parsed.items(first, end)
    places = [(item.first, item.end + 2 if item.alias else item.end) for item in items]
    kept = []
    for item, place in zip(items, places, strict=True):
        name = item.alias or _column_of(parsed, scope, item)
        elsewhere = parsed.names(scope.first, place[0]) | parsed.names(place[1], scope.end)
        if not name or name in needed or aliases_in(parsed, *place) & elsewhere:
            kept.append(parsed.slice(*place))
    if len(kept) == len(items):
        return query
    text = ", ".join(kept or [parsed.slice(*places[0])])
    return applied(query, [(parsed.tokens[first].start, parsed.tokens[end - 1].end, text)])


def conditions(condition: str, inside: Mapping[str, str], columns: frozenset[str]) -> str:
    """The ANDed parts of a condition over `columns` that need nothing but those of `inside`: name -> name there."""
    if not condition:
        return ""
    around = parse_select(f"SELECT 1 WHERE {condition}")
    parts = (_renamed(around, *c, inside, columns) for c in around.conjuncts(*around.scopes[0].clause("WHERE")))
    return " AND ".join(f"({part})" for part in parts if part)


def _only_scope(parsed: ParsedSelect) -> Scope | None:
    """The scope of a query that filters and projects one table; None for any other."""
    scope = parsed.scopes[0] if parsed.scopes else None
    if scope is None or sum(each.parent is None for each in parsed.scopes) > 1 or parsed.loose_settings:
        return None
    simple = scope.clauses.keys() <= _CLAUSES and not scope.in_set_operation and not scope.array_join
    if not simple or len(scope.sources) != 1 or scope.sources[0] is None:
        return None
    words = parsed.words(scope.first, scope.end)
    first, end = scope.clause("SELECT")
    if words & {"OVER", "FILL", "FETCH", "OFFSET", "LIMIT"} or parsed.tokens[first].upper == "DISTINCT":
        return None
    called = (parsed.tokens[at] for at in range(first, end) if parsed.tokens[at + 1].text == "(")
    if all(token.name.lower() in _row_by_row() for token in called if token.is_name):
        return scope
    return None


@lru_cache(maxsize=1)
def _row_by_row() -> frozenset[str]:
    """Functions of one row and nothing else, in lower case: no aggregates, no arrayJoin."""
    rows = engine.run("SELECT lower(name) AS name FROM system.functions WHERE NOT is_aggregate").table()
    return frozenset(rows["name"].to_pylist()) & pure_functions() - {"arrayjoin"}


def _columns_as_they_are(parsed: ParsedSelect, scope: Scope, columns: frozenset[str]) -> dict[str, str]:
    """The columns that are those of the table: name in the view -> name in its query."""
    items = parsed.items(*scope.clause("SELECT"))
    aliases = scope_aliases(parsed, scope)
    plain = {item: parsed.slice(*item.range) for item in items if _column_of(parsed, scope, item)}
    star = any(parsed.slice(*item.range) == "*" for item in items)
    if star and not all(item.alias or parsed.slice(*item.range) == "*" for item in items):
        return {}
    out = {}
    for item, text in plain.items():
        name = parsed.tokens[item.end - 1].name
        hidden = name in aliases and name != item.alias
        if not hidden:
            out[item.alias or name] = text
    return {**{name: f"`{name}`" for name in columns - aliases if star and "`" not in name}, **out}


def _column_of(parsed: ParsedSelect, scope: Scope, item: Item) -> str:
    """The name of the column that an expression is, `k` or `t.k`; empty for any other, an element of a tuple too."""
    tokens, source = parsed.tokens[item.first : item.end], scope.sources[0]
    if len(tokens) == 3 and source is not None and tokens[1].text == ".":
        qualified = tokens[0].is_name and tokens[0].name == (source.alias or source.name)
        return tokens[2].name if qualified and tokens[2].is_name else ""
    return tokens[0].name if len(tokens) == 1 and tokens[0].is_name else ""


def _renamed(parsed: ParsedSelect, first: int, end: int, inside: Mapping[str, str], columns: frozenset[str]) -> str:
    """A condition with the names of the query; empty if it cannot be one there."""
    edits = []
    for at in range(first, end):
        token = parsed.tokens[at]
        if token.text == "->":
            return ""  # its variables may be named like columns
        is_column = token.is_name and parsed.tokens[at + 1].text != "(" and parsed.tokens[at - 1].text != "."
        if is_column and token.name in columns:
            if token.name not in inside:
                return ""
            edits.append((token.start, token.end, inside[token.name]))
    start, stop = parsed.tokens[first].start, parsed.tokens[end - 1].end
    return applied(parsed.text[:stop], edits)[start:]
