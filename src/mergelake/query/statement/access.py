"""Access control: by default a statement may read its tables, but no files and no network.

The embedded ClickHouse has the rights of the process: `file('/etc/passwd')`, `url(…)`, `FROM 'data.csv'`, INTO OUTFILE.
So the tokens of a statement are checked before ClickHouse gets it, unless the connection was opened with
`allow_external_access`:

1. Every name that is called, or passed as a function (`arrayMap(file, …)`, `APPLY file`), is a pure function, a table
   function in `TABLE_FUNCTIONS`, or no function of this ClickHouse: a keyword, a type, an alias. Functions in no list
   are refused, because those of a newer ClickHouse have to be reviewed first.
2. No table is named by a string, and no result goes INTO OUTFILE.
3. Settings with free text (paths, URLs, expressions) are refused except `TEXT_SETTINGS`.

Tokens are equal to ClickHouse's (`core.base.lexer`, tested against `tokenizeQuery`), so nothing can hide in a comment
or quote. No statement may change `FIXED_SETTINGS`, which belong to the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import Token, tokenize
from mergelake.query.embedded import engine
from mergelake.query.statement.parsed_select import ParsedSelect


def words(*lines: str) -> frozenset[str]:
    """The space-separated words of some lines."""
    return frozenset(" ".join(lines).split())


TABLE_FUNCTIONS = words(
    "format fuzzjson fuzzquery generaterandom generateseries generate_series loop null numbers numbers_mt",
    "primes sqlstandardvalues values view viewexplain viewifpermitted zeros zeros_mt",
)
"""Table functions that only read their arguments, in lower case."""
TEXT_SETTINGS = words(
    "bool_false_representation bool_true_representation cast_string_to_date_time_mode",
    "column_names_for_schema_inference compatibility count_distinct_implementation date_time_input_format",
    "errors_output_format force_data_skipping_indices force_optimize_projection_name format_csv_delimiter",
    "format_csv_null_representation format_custom_field_delimiter format_custom_result_after_delimiter",
    "format_custom_result_before_delimiter format_custom_row_after_delimiter",
    "format_custom_row_before_delimiter format_custom_row_between_delimiter",
    "format_json_object_each_row_column_for_object_name format_regexp format_tsv_null_representation",
    "ignore_data_skipping_indices input_format_orc_reader_time_zone_name insert_deduplication_token",
    "log_comment output_format_avro_codec output_format_avro_string_column_pattern",
    "output_format_orc_writer_time_zone_name output_format_pretty_grid_charset",
    "output_format_sql_insert_table_name preferred_optimize_projection_name query_cache_tag",
    "schema_inference_hints session_timezone temporary_files_codec",
)
"""Settings with free text that is no file, address or expression."""
FIXED_SETTINGS = frozenset(("allow_introspection_functions", "dialect", "polyglot_dialect"))
"""Settings that no statement may change: the SQL dialect, and introspection of the process."""
_HINT = "Where every statement is trusted, mergelake.connect(…, allow_external_access=True)"
_FREE_TEXT = ("String", "Map", "URI")


@lru_cache(maxsize=1)
def pure_functions() -> frozenset[str]:
    """Functions, in lower case, whose value depends only on their arguments and the session."""
    return frozenset(
        resources.files("mergelake.query.statement").joinpath("pure_functions.txt").read_text("ascii").split()
    )


def check_access(parsed: ParsedSelect, before: str = "") -> None:
    """Raise ACCESS_DENIED if the statement accesses more than its tables. `before` is text before it (EXPLAIN …)."""
    if before:
        _check_tokens(tokenize(f"{before} {parsed.text}"))
    _check_statement(parsed)


@lru_cache(maxsize=1024)
def _check_statement(parsed: ParsedSelect) -> None:
    if parsed.files:
        raise denied(f"The table {parsed.files[0].text} is a file")
    _check_tokens(parsed.tokens)


@lru_cache(maxsize=1024)
def check_expression(text: str) -> None:
    """Raise ACCESS_DENIED if an expression (of an ALIAS column, a row of VALUES) accesses more than its columns."""
    tokens = tokenize(text)
    if any(token.upper in ("SELECT", "FROM") for token in tokens):
        raise denied("A subquery stands in an expression")
    _check_tokens(tokens)


def check_data(text: str) -> None:
    """Like `check_expression`, for the data of VALUES, which may be long."""
    check_expression.__wrapped__(text)


def check_fixed(names: Iterable[str]) -> None:
    """Raise READONLY for `FIXED_SETTINGS`."""
    for name in names:
        if name in FIXED_SETTINGS:
            raise error("READONLY", f"The setting {name} cannot be changed", "Leave it out")


def check_settings(names: Iterable[str]) -> None:
    """Raise ACCESS_DENIED for settings that may be a file, an address or an expression."""
    for name in names:
        if name not in TEXT_SETTINGS and _is_free_text(name):
            raise denied(f"The setting {name} may name a file, an address or an expression")


def set_names(tokens: Sequence[Token]) -> Iterator[str]:
    """Names of the settings in all SETTINGS clauses."""
    for start, word in enumerate(tokens):
        if word.upper != "SETTINGS":
            continue
        depth, begins = 0, True
        for at in range(start + 1, len(tokens) - 1):
            token = tokens[at]
            depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
            if depth < 0 or token.upper == "SETTINGS":
                break
            if begins and token.is_name and (tokens[at + 1].text == "=" or token.name in FIXED_SETTINGS):
                yield token.name
            begins = depth == 0 and token.text == ","


def _check_tokens(tokens: Sequence[Token]) -> None:
    check_settings(set_names(tokens))
    for at, token in enumerate(tokens):
        if token.upper == "INTO" and tokens[at + 1].upper == "OUTFILE":
            raise denied("INTO OUTFILE writes a file")
        if token.upper == "JOIN" and tokens[at + 1].kind == "string":
            raise denied(f"The table {tokens[at + 1].text} is a file")
    for name in dict.fromkeys(_called(tokens)):
        _check_function(name)


def _called(tokens: Sequence[Token]) -> Iterator[str]:
    """Names in positions where a function may be."""
    for at, token in enumerate(tokens):
        if not token.is_name:
            continue
        before, follow = tokens[at - 1] if at else None, tokens[at + 1]
        if (follow.text == "(" and follow.kind == "sign") or (before is not None and before.upper == "APPLY"):
            yield token.name
        elif before is not None and before.text == "(" and before.kind == "sign" and at > 1:
            caller = tokens[at - 2]
            if caller.upper == "APPLY" or (
                follow.text == "," and caller.is_name and caller.name.lower() in _catalog().higher_order
            ):
                yield token.name


def _check_function(name: str) -> None:
    low = name.lower()
    if low in pure_functions() or low in TABLE_FUNCTIONS:
        return
    if low in _catalog().functions or _is_function(low):
        raise denied(f"The function {name} may read files, the network or this process")


@dataclass(frozen=True, slots=True)
class _Catalog:
    """Functions and settings of this ClickHouse, in lower case."""

    functions: frozenset[str]
    higher_order: frozenset[str]


@lru_cache(maxsize=1)
def _catalog() -> _Catalog:
    rows = engine.run(
        "SELECT lower(name) AS name, higher_order FROM system.functions"
        " UNION ALL SELECT lower(name), 0 FROM system.table_functions"
    ).table()
    names, higher = rows["name"].to_pylist(), rows["higher_order"].to_pylist()
    return _Catalog(frozenset(names), frozenset(n for n, is_higher in zip(names, higher, strict=True) if is_higher))


@lru_cache(maxsize=4096)
def _is_function(low: str) -> bool:
    """Whether the name is a function that was defined in the process after the catalog was read."""
    answer = engine.run(f"SELECT count() FROM system.functions WHERE lower(name) = {engine.setting_literal(low)}")
    return bool(answer.table().column(0)[0].as_py())


@lru_cache(maxsize=4096)
def _is_free_text(name: str) -> bool:
    rows = engine.run(f"SELECT type FROM system.settings WHERE name = {engine.setting_literal(name)}").table()
    return any(kind in _FREE_TEXT for kind in rows.column(0).to_pylist())


def denied(what: str) -> MergelakeError:
    """An ACCESS_DENIED error with a hint."""
    return error("ACCESS_DENIED", f"{what}, and this connection reads only its tables", _HINT)
