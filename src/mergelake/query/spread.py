"""A SELECT in tasks of Spark: whether, how, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mergelake.core.errors import error
from mergelake.query import engine, splitting, task
from mergelake.query.answer import Answer, Meter, finish
from mergelake.query.context import Context, RunTasks
from mergelake.query.meaning import statement_settings
from mergelake.query.prepare import Prepared, described, empty_tables
from mergelake.query.settings import keeps_partial_answers
from mergelake.query.source import Layers, Scan

SPARK_ROWS_MIN = 50_000_000
"""`executor = 'auto'` goes to Spark from this many rows to read."""


def may_be_spread(prepared: Prepared, context: Context) -> bool:
    """Whether the statement may go to Spark: it is there, and the columns can be scanned where they must be."""
    must = any(prepared.must(slot) for slot in prepared.rewritten.slots)
    return context.run_tasks is not None and context.executor != "local" and not must


def choose_executor(
    prepared: Prepared, scans: Mapping[str, Scan], context: Context
) -> tuple[str, str, splitting.Split | None]:
    """(local or spark, why, how it is split)."""
    if context.executor not in ("auto", "local", "spark"):
        raise error(
            "BAD_ARGUMENTS", f"There is no executor '{context.executor}'", "SET executor = 'auto', 'local' or 'spark'"
        )
    if context.executor == "local":
        return "local", "asked for by the setting executor", None
    if context.run_tasks is None:
        return "local", "no Spark session", None
    if not may_be_spread(prepared, context):
        return "local", "types, or a setting, for ClickHouse's own reading", None
    if not keeps_partial_answers((*context.settings, *statement_settings(prepared.plan))):
        return "local", "a setting changes what partial answers mean", None
    rows = sum(scan.rows for scan in scans.values())
    if context.executor == "auto" and rows < SPARK_ROWS_MIN:
        return "local", f"{rows} rows to read, fewer than {SPARK_ROWS_MIN}", None
    if not any(scan.items for scan in scans.values()):
        return "local", "nothing to read", None
    split, why = splitting.split(prepared, context.now_ms)
    if split is None:
        return "local", why, None
    return "spark", why, split


def run_spread(
    prepared: Prepared,
    split: splitting.Split,
    scans: Mapping[str, Scan],
    context: Context,
    meter: Meter,
    run_tasks: RunTasks,
) -> Answer:
    """Partial answers of tasks, merged here."""
    schemas = empty_tables(prepared)
    ((name, scan),) = scans.items()
    settings = {**context.settings, "max_threads": "1"}
    scanned = splitting.PartialTask(scan.reader(), schemas[name].schema, split.partial, settings)
    shared = _shared(prepared, scan, context, scanned, run_tasks.at_once())
    if shared is not None:
        found = run_tasks(*shared)
        answers = [answer for some, _, _ in found for answer in some]
    else:
        found = run_tasks(scanned, list(scan.items))
        answers = [answer for answer, _, _ in found]
    for _, rows, size in found:
        meter.add(rows, size)
    output = prepared.rewritten.format or "ArrowStream"
    partial = dict(zip(*described(split.partial, schemas, context.settings), strict=True))
    result = splitting.gather(
        split, answers, partial, lambda sql: engine.run(sql, output=output, settings=context.settings)
    )
    if prepared.rewritten.format:
        return Answer(result.data.to_pybytes())
    names, kinds = prepared.columns(context.settings)
    return finish(result.table().rename_columns(list(names)), kinds)


def _shared(
    prepared: Prepared, scan: Scan, context: Context, scanned: splitting.PartialTask, at_once: int
) -> tuple[Callable[[Any], Any], list[Any]] | None:
    """A task that has ClickHouse read the parts itself, and its shares of them; None where it cannot."""
    (slot,), (source,) = prepared.rewritten.slots, prepared.sources
    layers = {slot.object_name: Layers(((task.TABLE, ()),))}
    found, _ = splitting.split(prepared, context.now_ms, layers)
    given = source.shared(slot.judged(context.settings))
    if found is None or given is None or not scan.items:
        return None
    spec, parts = given
    work = task.AttachedTask(spec, parts.directory, parts.schema, found.partial, scanned.settings, scanned)
    return work, task.shares(parts.parts, scan.items, task.TASKS_A_CORE * at_once)
