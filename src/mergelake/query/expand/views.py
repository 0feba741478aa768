"""A view as a subquery.

The columns of a view are those of its creation: what its query returns today is taken by name and cast to their types,
as ClickHouse does. So a view of `SELECT *` does not change with its table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mergelake.core.base.errors import MergelakeError, error, there_are
from mergelake.core.base.lexer import tokenize
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.types.types import DataType, parse_type
from mergelake.log.storage.catalog import VirtualTable
from mergelake.query.context import Context
from mergelake.query.embedded import engine
from mergelake.query.expand.parameters import filled_in, literal, parameters
from mergelake.query.statement.access import check_expression
from mergelake.query.statement.parsed_select import ParsedSelect, TableCall


def columns_of(view: VirtualTable, now: Mapping[str, str]) -> dict[str, DataType]:
    """The columns of a view, of which the query returns the columns `now`."""
    if view.schema.columns:
        return view.schema.types
    return {name: parse_type(kind) for name, kind in now.items()}


def as_subquery(query: str, columns: Mapping[str, DataType], needed: Sequence[str], now: Mapping[str, str]) -> str:
    """A view of `query`, which returns the columns `now`, as a subquery with at least the columns `needed`."""
    if list(now.items()) == [(name, str(kind)) for name, kind in columns.items()]:
        return f"({query})"
    out = []
    for name in needed or tuple(columns)[:1]:
        quoted, kind = back_quote(name), str(columns[name])
        out.append(quoted if now.get(name, kind) == kind else f"CAST({quoted}, {quote_string(kind)}) AS {quoted}")
    return f"(SELECT {', '.join(out)} FROM ({query}))"


def as_empty(columns: Mapping[str, DataType]) -> str:
    """An empty table with these columns, as a subquery."""
    structure = ", ".join(f"{back_quote(name)} {kind}" for name, kind in columns.items())
    return f"(SELECT * FROM null({quote_string(structure)}))"


def with_arguments(view: VirtualTable, name: str, parsed: ParsedSelect, call: TableCall, context: Context) -> str:
    """The query of a parameterised view with the arguments of a call.

    Raises UNKNOWN_QUERY_PARAMETER for one that is missing, BAD_QUERY_PARAMETER for one of another type.
    """
    known = parameters(view.query)
    if not known:
        raise error("UNKNOWN_FUNCTION", f"Unknown table function {name}: the view has no parameters", "Leave out ()")
    given: dict[str, str] = {}
    for item in parsed.items(*call.arguments):
        first, end = item.range
        if end - first > 2 and parsed.tokens[first].is_name and parsed.tokens[first + 1].text == "=":
            given[parsed.tokens[first].name] = parsed.slice(first + 2, end)
    values: dict[tuple[str, str], str] = {}

    def value(parameter: str, kind: str) -> str:
        if (parameter, kind) not in values:
            if parameter not in given:
                what = f"Substitution `{parameter}` is not set: {name} has no value for it"
                raise error("UNKNOWN_QUERY_PARAMETER", what, there_are("parameters", sorted(known)))
            values[parameter, kind] = _constant(given[parameter], parameter, kind, context)
        return values[parameter, kind]

    return filled_in(view.query, value)


def _constant(expression: str, parameter: str, kind: str, context: Context) -> str:
    """A constant expression as a literal of the type `kind`."""
    if any(token.upper == "SELECT" for token in tokenize(expression)):
        what = f"A subquery as the value of the parameter {parameter} is not supported"
        raise error("NOT_IMPLEMENTED", what, "Run it first, and write its result")
    if not context.external:
        check_expression(expression)
    settings = {name: value for name, value in context.settings.items() if name.startswith("param_")}
    found = engine.run(f"SELECT toString({expression}) AS value", settings=settings).table()
    text: str | None = found["value"].to_pylist()[0]
    written = literal(text, kind, parameter)
    if text is None and kind != "Identifier":
        try:
            engine.run(f"SELECT {written}")
        except MergelakeError as failure:
            what = f"Value NULL cannot be parsed as {kind} for query parameter '{parameter}': {failure.message}"
            raise error("BAD_QUERY_PARAMETER", what) from None
    return written
