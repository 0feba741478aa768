"""SELECT: parse, sources, rewrite, scans, ClickHouse.

1. The statement is parsed (`parse_select`), its views become subqueries (`expand`), and every table it names is
   looked up.
2. `rewrite` replaces each table by a scan of the columns and rows that are needed; the result is cached by the text.
3. An executor runs it. *Local*: all scans stream into ClickHouse in this process. *Spark*: subqueries run one by one
   (`steps`), each task computes a partial result in its own ClickHouse, and the final merge runs here (`splitting`).
4. The result is converted to Arrow in the public form, with the types of ClickHouse's DESCRIBE.

A point look-up costs about 3 ms in addition to its scan: 0.1 for parsing, 1.2 for DESCRIBE (cached by text), 1.6 for
ClickHouse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mergelake.core.base.errors import MergelakeError
from mergelake.core.convert.storage import to_public_table
from mergelake.core.types.arrow import storage_schema
from mergelake.query.answer import StatementAnswer, StatementMeter, answer_of, clickhouse_input
from mergelake.query.attach.attaching import NotAttachedError
from mergelake.query.context import Context
from mergelake.query.embedded import progress
from mergelake.query.embedded.streamed import until_end
from mergelake.query.expand.statement import expanded
from mergelake.query.explain import explain
from mergelake.query.in_place import check_scannable, in_place_because, run_in_place, why_scanned
from mergelake.query.point_lookup import direct_scan, first_rows
from mergelake.query.prepare import (
    Prepared,
    Tables,
    checked,
    empty_tables,
    look_up_tables,
    plan_scans,
    prepared_of,
    with_last_settings,
)
from mergelake.query.result import QueryResult, Stats
from mergelake.query.source import Resolve, SourceScan
from mergelake.query.spread.chosen import Chosen, choose_executor, may_be_spread
from mergelake.query.statement.limits import ReadLimits
from mergelake.query.statement.parsed_select import ParsedSelect
from mergelake.query.statement.settings import reading
from mergelake.query.statement.wording import in_words

SMALL_ROWS = 100_000
"""Maximum rows of a scan that is read whole even with a LIMIT."""


def prepare(sql: str, resolve: Resolve, context: Context | None = None) -> Prepared:
    """Parse the statement, look up its tables and rewrite it, without reading data."""
    context = context or Context()
    parsed = expanded(sql, resolve, context)
    tables = look_up_tables(parsed, resolve, context, explain)
    checked(parsed, context)
    return prepared_of(parsed, tables, context)


def run_select(sql: str, resolve: Resolve, context: Context | None = None) -> QueryResult:
    """Run a SELECT on tables of `resolve`; other tables (`numbers(10)`, `system.one`) are ClickHouse's own."""
    context = context or Context()
    started = context.clock.monotonic_s()
    parsed = expanded(sql, resolve, context)
    tables = look_up_tables(parsed, resolve, context, explain)
    limits = checked(parsed, context)
    context = with_last_settings(parsed, context)
    looked_up = _look_up(parsed, tables, context, limits, started)
    if looked_up is not None:
        return looked_up
    prepared = prepared_of(parsed, tables, context)
    scans = plan_scans(prepared, context.settings) if may_be_spread(context) else {}
    chosen = choose_executor(prepared, tables, scans, context)
    if chosen.steps is not None:
        from mergelake.query.spread.halves import NotSplitError

        try:
            return _run_spread(prepared, chosen, scans, context, limits, started)
        except NotSplitError as told:
            chosen = Chosen("local", str(told))
    scanned = why_scanned(prepared, context, count=True)
    if scanned is not None:
        try:
            why = in_place_because(context, chosen.why)
            return run_in_place(prepared, scanned, context, limits, started, why)
        except NotAttachedError as why:
            check_scannable(prepared, str(why))
    scans = scans or plan_scans(prepared, context.settings)
    limits.check(scans.values())
    meter = StatementMeter(sum(scan.rows for scan in scans.values()), context, limits)
    try:
        # Without a scan of ours ClickHouse alone knows how far it is.
        with progress.reporting(None if scans else context.on_progress, context.settings) as marked:
            answer = _run_local(prepared, scans, replace(context, settings=marked), meter)
    except MergelakeError as failure:
        raise in_words(failure, prepared.parsed, prepared.sources) from None
    return _result(prepared, answer, chosen, context, meter, started)


def _run_spread(
    prepared: Prepared,
    chosen: Chosen,
    scans: Mapping[str, SourceScan],
    context: Context,
    limits: ReadLimits,
    started_s: float,
) -> QueryResult:
    from mergelake.query.spread.executor import run_spread

    meter = StatementMeter(sum(scan.rows for scan in scans.values()), context, limits)
    assert context.run_tasks is not None
    try:
        limits.check(scans.values())
        answer = run_spread(chosen, context, meter, context.run_tasks)
    except MergelakeError as failure:
        chosen.close()
        raise in_words(failure, prepared.parsed, prepared.sources) from None
    return _result(prepared, answer, chosen, context, meter, started_s)


def _result(
    prepared: Prepared,
    answer: StatementAnswer,
    chosen: Chosen,
    context: Context,
    meter: StatementMeter,
    started_s: float,
) -> QueryResult:
    elapsed = until_end(answer.open, lambda: context.clock.monotonic_s() - started_s)
    if answer.open is not None:
        answer.open.explained = lambda failure: in_words(failure, prepared.parsed, prepared.sources)

    def stats() -> Stats:
        return Stats(elapsed(), meter.rows, meter.bytes, chosen.executor, chosen.why)

    return QueryResult(answer.rows, answer.types, stats, totals=answer.totals, rows=answer.count)


def _look_up(
    parsed: ParsedSelect, tables: Tables, context: Context, limits: ReadLimits, started_s: float
) -> QueryResult | None:
    """The result of a statement that is a short scan (`direct_scan`); None for any other."""
    if context.executor == "spark" or context.format or len(tables.by_reference) != 1 or reading(context.settings):
        return None
    (source,) = tables.by_reference.values()
    direct = direct_scan(parsed, source, context.settings)
    if direct is None:
        return None
    scan, limit = direct
    limits.check((scan,))
    types = {name: source.columns[name] for name in scan.columns}
    meter = StatementMeter(scan.rows, context, limits)
    table = to_public_table(first_rows(meter.counted(scan.read()), storage_schema(types), limit), types)
    stats = Stats(context.clock.monotonic_s() - started_s, meter.rows, meter.bytes, "local", "a look-up: only a scan")
    return QueryResult(table, tuple(map(str, types.values())), stats)


def _run_local(
    prepared: Prepared, scans: Mapping[str, SourceScan], context: Context, meter: StatementMeter
) -> StatementAnswer:
    text = prepared.text(context.now_ms)
    schemas = empty_tables(prepared)
    whole = not _may_stop_early(prepared.parsed, scans)
    tables = {
        name: clickhouse_input(meter.counted(scan.read()), schemas[name].schema, whole=whole)
        for name, scan in scans.items()
    }
    return answer_of(prepared, text, tables, context)


def _may_stop_early(parsed: ParsedSelect, scans: Mapping[str, SourceScan]) -> bool:
    """Whether a LIMIT may end the scans early: not in a look-up, nor if all rows are sorted or grouped."""
    if sum(scan.rows for scan in scans.values()) <= SMALL_ROWS:
        return False
    limited = [scope for scope in parsed.scopes if "LIMIT" in scope.clauses]
    return any("ORDER" not in scope.clauses and "GROUP" not in scope.clauses for scope in limited)
