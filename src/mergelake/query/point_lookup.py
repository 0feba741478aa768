"""Look-ups without ClickHouse: columns of one table, a condition that the scan can evaluate, a LIMIT.

`SELECT a, b FROM t WHERE k = 1 AND ts > '…' LIMIT 10` is a plain scan, so its rows are the result. This halves the time
of a point look-up. Statements with anything else (a function, an alias, an order, FINAL, a setting), or with a
condition that `expr` does not support, are run by ClickHouse, which also reports their errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError
from mergelake.core.base.lexer import Token
from mergelake.query.source import ReadRequest, Source, SourceScan
from mergelake.query.statement.parsed_select import ParsedSelect

ROWS_MAX = 200_000
"""Maximum rows to read for a direct look-up; ClickHouse filters more rows faster."""
_CLAUSES = {"SELECT", "FROM", "PREWHERE", "WHERE", "LIMIT"}
_SETTINGS = {"max_threads"}
"""Settings that do not change results."""


def direct_scan(
    parsed: ParsedSelect, source: Source, settings: Mapping[str, str]
) -> tuple[SourceScan, int | None] | None:
    """(planned scan whose rows are the result, LIMIT); None if the statement needs ClickHouse."""
    if len(parsed.scopes) != 1 or len(parsed.references) != 1 or parsed.format:
        return None
    scope, reference = parsed.scopes[0], parsed.references[0]
    if not scope.clauses.keys() <= _CLAUSES or not settings.keys() <= _SETTINGS:
        return None
    if reference.alias or reference.final or reference.sample or scope.array_join or not _only_the_table(parsed):
        return None
    columns = _columns(_clause(parsed, "SELECT"), source)
    limit = _clause(parsed, "LIMIT")
    if not columns or (limit and (len(limit) != 1 or not limit[0].text.isdigit())):
        return None
    where, prewhere = (parsed.slice(*scope.clause(name)) for name in ("WHERE", "PREWHERE"))
    wanted = ReadRequest(columns, where, prewhere, exact=True)
    sooner = source.scans_sooner(wanted)
    if not sooner and not source.why_scanned(wanted):
        return None
    try:
        scan = source.plan(wanted)
    except MergelakeError:
        return None
    if scan.rows > ROWS_MAX:
        return None
    if not sooner:
        source.why_scanned(wanted, count=True)  # counts the statement: the next one may attach the table
    return scan, int(limit[0].text) if limit else None


def first_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, limit: int | None) -> pa.Table:
    """The rows of a scan, at most `limit`."""
    left = limit
    taken = []
    for batch in batches if limit != 0 else ():
        taken.append(batch if left is None else batch.slice(0, left))
        if left is not None:
            left -= taken[-1].num_rows
            if left == 0:
                break
    return pa.Table.from_batches(taken, schema)


def _clause(parsed: ParsedSelect, name: str) -> Sequence[Token]:
    first, end = parsed.scopes[0].clause(name)
    return parsed.tokens[first:end]


def _only_the_table(parsed: ParsedSelect) -> bool:
    """Whether FROM consists of the table's name and an optional AS OF."""
    reference = parsed.references[0]
    end = reference.as_of_at[1] if reference.as_of_at else reference.end
    tokens = _clause(parsed, "FROM")
    return bool(tokens) and tokens[0].start == reference.start and tokens[-1].end == end


def _columns(tokens: Sequence[Token], source: Source) -> tuple[str, ...]:
    """The columns of a SELECT list of plain names or one `*`; empty for any other list."""
    if len(tokens) == 1 and tokens[0].text == "*":
        return tuple(name for name in source.columns if name not in source.hidden)
    names = [token.name for token in tokens[0::2] if token.is_name]
    separated = all(token.text == "," for token in tokens[1::2])
    known = all(name in source.columns for name in names)
    single = len(tokens) % 2 == 1 and len(names) == len(tokens[0::2]) == len(set(names))
    return tuple(names) if separated and known and single else ()
