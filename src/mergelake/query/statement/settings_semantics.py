"""Settings and functions in statements that would change the rows of tables are refused.

ClickHouse gets the rewritten statement with its settings, so most of them work unchanged; `settings` has the handling
of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from mergelake.core.base.errors import error
from mergelake.query.statement.parsed_select import ParsedSelect
from mergelake.query.statement.settings import refuse_meaningless


def statement_settings(parsed: ParsedSelect) -> dict[str, str]:
    """The SETTINGS of the statement and its subqueries: name -> literal. A name alone means 1."""
    clauses = settings_clauses(parsed)
    return {name: value for first, end in clauses for name, value, _ in setting_items(parsed, first, end)}


def last_settings(parsed: ParsedSelect) -> tuple[int, int] | None:
    """The tokens, keyword included, of a SETTINGS clause after brackets at the end; None if there is none."""
    for first, end in parsed.loose_settings:
        follow = parsed.tokens[end]
        if follow.kind == "end" or follow.text == ";" or follow.upper == "FORMAT":
            return first - 1, end
    return None


def setting_items(parsed: ParsedSelect, first: int, end: int) -> Iterator[tuple[str, str, str]]:
    """(name, literal, text) of each setting of a clause; the literal is 1 if there is none."""
    for begin, stop in (item.range for item in parsed.items(first, end)):
        has_value = stop - begin > 1 and parsed.tokens[begin + 1].text == "="
        yield parsed.tokens[begin].name, parsed.slice(begin + 2, stop) if has_value else "1", parsed.slice(begin, stop)


def settings_clauses(parsed: ParsedSelect) -> list[tuple[int, int]]:
    """The tokens of every SETTINGS clause without its keyword."""
    inside = [scope.clauses["SETTINGS"] for scope in parsed.scopes if "SETTINGS" in scope.clauses]
    return [*inside, *parsed.loose_settings]


_READ_TABLES = {
    "cluster": "Name the table itself: there are no clusters",
    "clusterallreplicas": "Name the table itself: there are no clusters",
    "dictionary": "There are no dictionaries; JOIN the table itself",
    "loop": "Name the table itself",
    "merge": "Write merge('db', 'pattern'), without a database before it",
    "mergetreeanalyzeindexes": "EXPLAIN indexes = 1 shows what indexes leave over",
    "mergetreeanalyzeindexesuuid": "EXPLAIN indexes = 1 shows what indexes leave over",
    "mergetreecodecblockcounts": "`mergelake part inspect` tells codecs and sizes",
    "mergetreeindex": "`mergelake part inspect` tells granules and indexes",
    "mergetreeprojection": "Projections are read through the table that has them",
    "mergetreetextindex": "`mergelake part inspect` tells of indexes",
    "prometheusquery": "There are no TimeSeries tables",
    "prometheusqueryrange": "There are no TimeSeries tables",
    "timeseriesdata": "There are no TimeSeries tables",
    "timeseriesmetricfamilies": "There are no TimeSeries tables",
    "timeseriesmetrics": "There are no TimeSeries tables",
    "timeseriessamples": "There are no TimeSeries tables",
    "timeseriesselector": "There are no TimeSeries tables",
    "timeseriestags": "There are no TimeSeries tables",
    "viewexplain": "Write (EXPLAIN …) in its place",
}
"""Table functions that read tables by name, which ClickHouse would look up among its own."""
_TELL_OF_TABLES = {
    "getmergetreesetting": "system.merge_tree_settings has the defaults that hold here",
    "hascolumnintable": "system.columns has the columns of all tables",
    "joinget": "There are no tables of the engine Join; JOIN the table itself",
    "joingetornull": "There are no tables of the engine Join; JOIN the table itself",
}
"""Functions that ClickHouse would evaluate on its own tables and defaults."""


def _check_functions(parsed: ParsedSelect) -> None:
    for name in parsed.table_functions:
        if name.lower() in _READ_TABLES:
            raise error("NOT_IMPLEMENTED", f"The table function {name} is not supported", _READ_TABLES[name.lower()])
    for word, follow in pairwise(parsed.tokens):
        hint = _TELL_OF_TABLES.get(word.text.lower()) if follow.text == "(" and word.kind == "word" else None
        if hint:
            raise error("NOT_IMPLEMENTED", f"The function {word.text} is not supported", hint)


_EXPLAINED = {
    "QUERY": "EXPLAIN SYNTAX shows how the statement is read",
    "PIPELINE": "EXPLAIN shows the scans and ClickHouse's plan over them",
    "ESTIMATE": "EXPLAIN indexes = 1 tells parts, marks and rows that would be read",
    "TABLE": "CREATE TABLE is checked when it runs",
    "CURRENT": "Every statement is one commit",
}
_TABLES_NEEDED = ("optimize", "run_query_tree_passes")
"""Options of EXPLAIN AST and SYNTAX for which ClickHouse would use its own tables."""


def check_explain(kind: str) -> str:
    """The form of an EXPLAIN: `PLAN`, `AST`, or `SYNTAX`. Raises NOT_IMPLEMENTED for other forms."""
    first, _, rest = kind.strip().partition(" ")
    form = first.upper() if first and "=" not in kind[: len(first) + 2] else "PLAN"
    if form in _EXPLAINED:
        name = f"{form} TREE" if form == "QUERY" else form
        raise error("NOT_IMPLEMENTED", f"EXPLAIN {name} is not supported", _EXPLAINED[form])
    if form in ("AST", "SYNTAX"):
        for option in _TABLES_NEEDED:
            if option in rest:
                raise error("NOT_IMPLEMENTED", f"EXPLAIN {form} {option} is not supported", "Leave the option out")
    return form


def check_meaning(parsed: ParsedSelect) -> None:
    """Raise NOT_IMPLEMENTED for settings and functions that would change the rows of tables."""
    _check_functions(parsed)
    refuse_meaningless(statement_settings(parsed), carrier=parsed.format.startswith("Arrow"))


def writes_file(parsed: ParsedSelect) -> bool:
    """Whether the statement has INTO OUTFILE: ClickHouse writes the result, and none is returned."""
    words = [token.upper for token in parsed.tokens]
    return ("INTO", "OUTFILE") in pairwise(words)
