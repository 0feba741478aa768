"""Statements with tables that ClickHouse reads by itself, and scans of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.progress import Progress
from mergelake.query.answer import answer_of, clickhouse_input
from mergelake.query.attach.attached import DAMAGE, scan_differs
from mergelake.query.attach.attaching import NotAttachedError
from mergelake.query.context import Context
from mergelake.query.embedded import progress
from mergelake.query.embedded.streamed import until_end
from mergelake.query.prepare import Prepared, empty_tables, plan_scans
from mergelake.query.result import QueryResult, Stats
from mergelake.query.source import IN_MEMORY, Layers
from mergelake.query.statement.limits import ReadLimits
from mergelake.query.statement.settings import keeps_conditions
from mergelake.query.statement.settings_semantics import statement_settings
from mergelake.query.statement.wording import in_words
from mergelake.store.metering.meter import counted, current_tally

READS_ITSELF = "ClickHouse reads the parts itself"
READS_FILES = {
    "remote_filesystem_read_method": "'read'",
    "merge_tree_min_bytes_per_task_for_remote_reading": "16777216",
}
"""Settings for attached tables over local files: ClickHouse treats every object disk as remote and prefetches."""

WITHOUT_PROJECTIONS = {"optimize_use_projections": "0"}
"""For statements whose settings change what expressions mean (`session_timezone`): parts hold projections as they are
computed without them, and ClickHouse would take them all the same."""


def in_place_because(context: Context, why: str) -> str:
    """The reason for running a statement locally; for `executor = 'spark'` with `why` it cannot run in tasks."""
    return f"{why}; {READS_ITSELF}" if context.executor == "spark" else READS_ITSELF


def why_scanned(prepared: Prepared, context: Context, *, count: bool = False) -> dict[str, str] | None:
    """By object name why its table is scanned; empty if ClickHouse reads it by itself. None if all are scanned.

    `count`: the statement is about to run. Raises the error of a table that can neither be scanned nor be read by
    ClickHouse.
    """
    pairs = [pair for pair in zip(prepared.rewritten.slots, prepared.sources, strict=True) if not pair[0].counted]
    reasons = {}
    for slot, source in pairs:
        why = source.why_scanned(slot.judged(context.settings), count=count, must=prepared.must(slot))
        if why and prepared.must(slot) and (slot.refused or why != IN_MEMORY):
            check_scannable(prepared, why)
        reasons[slot.object_name] = why
    return None if all(reasons.values()) else reasons


def check_scannable(prepared: Prepared, why: str) -> None:
    """Raise NOT_IMPLEMENTED for a table that cannot be scanned; `why` is why ClickHouse does not read it by itself."""
    if prepared.setting:
        what = f"The setting {prepared.setting} is for ClickHouse's own reading, and it does not read the parts: {why}"
        raise error("NOT_IMPLEMENTED", what, "Leave it at its default")
    for slot in prepared.rewritten.slots:
        if slot.refused is not None:
            raise error(
                "NOT_IMPLEMENTED", f"{slot.refused.message}, and it does not read the parts: {why}", slot.refused.hint
            )


def run_in_place(
    prepared: Prepared,
    scanned: Mapping[str, str],
    context: Context,
    limits: ReadLimits,
    started_s: float,
    why: str = READS_ITSELF,
) -> QueryResult:
    """Run a statement of which ClickHouse reads some tables by itself, and checks the limits of these.

    `why` is the reason for this way, for statistics.
    """
    with ExitStack() as held:
        layers = held.enter_context(attached_layers(prepared, scanned, context))
        limits.check(each.rest for each in layers.values() if each.rest is not None)
        tables = rests(prepared, layers)
        how = {} if any(each.remote for each in layers.values()) else READS_FILES
        if not keeps_conditions({**context.settings, **statement_settings(prepared.parsed)}):
            how = {**how, **WITHOUT_PROJECTIONS}
        settings = {**how, **context.settings, **limits.settings}
        try:
            with progress.reporting(context.on_progress, settings) as marked:
                text = prepared.text(context.now_ms, layers)
                answer = answer_of(prepared, text, tables, replace(context, settings=marked))
        except MergelakeError as failure:
            viewed = any(each.view is not None for each in layers.values())
            scannable = not any(prepared.must(slot) for slot in prepared.rewritten.slots)
            if scan_differs(failure, viewed=viewed and scannable):
                raise NotAttachedError(str(failure)) from failure
            raise in_words(_named(failure, prepared, layers), prepared.parsed, prepared.sources) from None
        if answer.open is not None:
            answer.open.at_end(held.pop_all().close)  # tables stay attached until then
            answer.open.explained = partial(_scanned_or, prepared, layers, context)
    elapsed = until_end(answer.open, lambda: context.clock.monotonic_s() - started_s)

    def stats() -> Stats:
        return Stats(elapsed(), *answer.read(), "local", why)

    if context.on_progress is not None and answer.open is None:
        rows, size = answer.read()
        context.on_progress(Progress("read", rows, rows, size))
    return QueryResult(answer.rows, answer.types, stats, totals=answer.totals, rows=answer.count)


def _scanned_or(
    prepared: Prepared, layers: Mapping[str, Layers], context: Context, failure: MergelakeError
) -> MergelakeError:
    """The error that a scan raises for damage that ClickHouse found after its first rows; else ClickHouse's error."""
    if failure.name.lower() in DAMAGE and not any(slot.refused for slot in prepared.rewritten.slots):
        try:
            for scan in plan_scans(prepared, context.settings).values():
                for _ in scan.read():
                    pass
        except MergelakeError as told:
            return told
    return in_words(_named(failure, prepared, layers), prepared.parsed, prepared.sources)


@contextmanager
def attached_layers(prepared: Prepared, scanned: Mapping[str, str], context: Context) -> Iterator[dict[str, Layers]]:
    """Context with the attached tables by object name; tables in `scanned` are not attached."""
    scans = plan_scans(prepared, context.settings, [name for name, why in scanned.items() if why])
    with ExitStack() as stack:
        yield {
            slot.object_name: Layers((), scans[slot.object_name])
            if scanned[slot.object_name]
            else stack.enter_context(source.attached(slot.judged(context.settings), must=prepared.must(slot)))
            for slot, source in zip(prepared.rewritten.slots, prepared.sources, strict=True)
            if not slot.counted
        }


def rests(prepared: Prepared, layers: Mapping[str, Layers]) -> dict[str, pa.Table | pa.RecordBatchReader]:
    """By object name the scans of parts that attached tables do not have."""
    scans = {name: each.rest for name, each in layers.items() if each.rest is not None}
    schemas = empty_tables(prepared) if scans else {}
    return {
        name: clickhouse_input(counted(current_tally(), scan.read()), schemas[name].schema, whole=True)
        for name, scan in scans.items()
    }


def _named(failure: MergelakeError, prepared: Prepared, layers: Mapping[str, Layers]) -> MergelakeError:
    """The error with the user's table names in place of those of attached tables."""
    failure.message = with_names(failure.message, prepared, layers)
    return failure


def with_names(text: str, prepared: Prepared, layers: Mapping[str, Layers]) -> str:
    """ClickHouse's text with the user's table names in place of those of attached tables."""
    for slot in prepared.rewritten.slots:
        for name, _ in layers[slot.object_name].tables if slot.object_name in layers else ():
            text = text.replace(name, ".".join(filter(None, slot.table[:2])))
    return text
