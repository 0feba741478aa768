"""The query of a view as the catalog keeps it: each table with its database, so that it means the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.text import back_quote, quote_string
from mergelake.query.embedded import engine
from mergelake.query.source import Names
from mergelake.query.statement.edits import Edit, applied
from mergelake.query.statement.needs import star_tokens
from mergelake.query.statement.parsed_select import ParsedSelect
from mergelake.query.statement.select_parser import parse_select
from mergelake.query.statement.wording import check_syntax

Where = tuple[str, str]
"""Database and table."""


def view_query(text: str, database: str, names: Names, aliases: Sequence[str] = ()) -> tuple[str, list[Where]]:
    """The query of a view, laid out by ClickHouse, and the tables and views that it names, in `database` by default.

    `aliases` are names of its columns, in order. Raises SYNTAX_ERROR, and BAD_ARGUMENTS for aliases that do not fit.
    """
    parsed = parse_select(text)
    check_syntax(parsed)
    edits: list[Edit] = _alias_edits(parsed, aliases) if aliases else []
    reads: list[Where] = []
    for reference in parsed.references:
        if reference.explain:
            raise error("NOT_IMPLEMENTED", "An EXPLAIN in a view is not supported", "EXPLAIN the SELECT itself")
        where = reference.database or database, reference.name
        if reference.in_operator and not reference.database and reference.name not in _known(names, database):
            continue  # a column or an alias
        reads.append(where)
        if reference.in_operator:  # ClickHouse lays `IN t` out as `IN (t)`, which we would take for a column
            edits.append((reference.start, reference.end, f"(SELECT * FROM {'.'.join(map(_identifier, where))})"))
        elif not reference.database:
            edits.append((reference.start, reference.start, f"{_identifier(database)}."))
    for call in parsed.calls:
        if call.database or names.virtual(database, call.name) is not None:
            reads.append((call.database or database, call.name))
        elif call.name == "merge" and len(parsed.items(*call.arguments)) == 1:
            at = parsed.tokens[call.arguments[0]].start
            edits.append((at, at, f"{quote_string(database)}, "))
    edits += [(call.start, call.name_at, "") for call in parsed.calls if call.database]
    if parsed.format_at is not None:
        edits.append((*parsed.format_at, ""))
    query = laid_out(applied(parsed.text, edits).strip())
    return _with_called_databases(query, parsed, database, names), list(dict.fromkeys(reads))


def _with_called_databases(query: str, written: ParsedSelect, database: str, names: Names) -> str:
    """A query with databases before its parameterised views, which ClickHouse would lay out as one name `a.b`."""
    databases = [
        call.database or (database if names.virtual(database, call.name) is not None else "") for call in written.calls
    ]
    calls = parse_select(query).calls
    if not any(databases) or len(calls) != len(databases):
        return query
    pairs = zip(calls, databases, strict=True)
    return applied(query, [(c.start, c.start, f"{_identifier(d)}.") for c, d in pairs if d and not c.database])


def laid_out(query: str, *, one_line: bool = False) -> str:
    """A query as ClickHouse writes it; as it is, if ClickHouse cannot read it (AS OF)."""
    function = "formatQuerySingleLine" if one_line else "formatQuery"
    try:
        return str(engine.run(f"SELECT {function}({quote_string(query)}) AS text").table()["text"].to_pylist()[0])
    except MergelakeError:
        return query


def _known(names: Names, database: str) -> Sequence[str]:
    try:
        return names.tables(database)
    except MergelakeError:
        return ()


def _identifier(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else back_quote(name)


def _alias_edits(parsed: ParsedSelect, aliases: Sequence[str]) -> list[Edit]:
    """Give the columns of the first SELECT these names."""
    edits: list[Edit] = []
    first = next((scope for scope in parsed.scopes if scope.parent is None and scope.role == "top"), None)
    if first is None:
        return edits
    stars = star_tokens(parsed, first)
    begin, end = first.clause("SELECT")
    if parsed.tokens[begin].upper == "DISTINCT":
        begin += 1
    words = parsed.words(begin, end)
    if any(begin <= at < end for at in stars) or "COLUMNS" in words:
        what = "Cannot use column aliases with asterisk (*) or COLUMNS matcher in SELECT list of a view definition"
        raise error("BAD_ARGUMENTS", what, "List the columns")
    items = parsed.items(begin, end)
    if len(items) != len(aliases):
        raise error("BAD_ARGUMENTS", "Number of aliases does not match number of expressions in SELECT list")
    for item, alias in zip(items, aliases, strict=True):
        start = parsed.tokens[item.end - 1].end
        stop = parsed.tokens[item.end + 1].end if item.alias else start
        edits.append((start, stop, f" AS {_identifier(alias)}"))
    return edits
