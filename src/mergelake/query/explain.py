"""EXPLAIN of SELECT."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError
from mergelake.query.attach.attaching import NotAttachedError
from mergelake.query.context import Context
from mergelake.query.embedded import engine
from mergelake.query.expand.statement import expanded
from mergelake.query.in_place import attached_layers, check_scannable, in_place_because, why_scanned, with_names
from mergelake.query.prepare import (
    Prepared,
    checked,
    empty_tables,
    look_up_tables,
    plan_scans,
    prepared_of,
    with_last_settings,
)
from mergelake.query.source import Resolve
from mergelake.query.spread.chosen import choose_executor, may_be_spread, step_lines
from mergelake.query.statement.rewrite import filled
from mergelake.query.statement.select_parser import parse_select
from mergelake.query.statement.settings_semantics import check_explain
from mergelake.query.statement.wording import in_own_words, without_moments


def explain(sql: str, resolve: Resolve, context: Context | None = None, kind: str = "") -> list[str]:
    """Lines of EXPLAIN: the executor and the reason for it, the pruning of each scan, ClickHouse's own plan."""
    context = context or Context()
    parsed = expanded(sql, resolve, context)
    tables = look_up_tables(parsed, resolve, context, explain, kind)
    checked(parsed, context)
    form = check_explain(kind)
    if form in ("AST", "SYNTAX"):  # depend on the text alone, not on tables
        parsed = parse_select(sql)
        try:
            return _explained_lines(f"EXPLAIN {kind} {without_moments(parsed)}", {}, context)
        except MergelakeError as failure:
            raise in_own_words(parsed) if failure.name == "SYNTAX_ERROR" else failure from None
    context = with_last_settings(parsed, context)
    prepared = prepared_of(parsed, tables, context)
    scans = plan_scans(prepared, context.settings) if may_be_spread(context) else {}
    chosen = choose_executor(prepared, tables, scans, context)
    chosen.close()
    scanned = why_scanned(prepared, context) if chosen.steps is None else None
    if scanned is not None:
        try:
            return _explained_attached(prepared, scanned, context, kind, in_place_because(context, chosen.why))
        except NotAttachedError as refused:
            check_scannable(prepared, str(refused))
    scans = scans or plan_scans(prepared, context.settings)
    lines = [f"Executor: {chosen.executor} ({chosen.why})", *step_lines(chosen)]
    for slot, source in zip(prepared.rewritten.slots, prepared.sources, strict=True):
        name = ".".join(part for part in slot.table[:2] if part)
        if slot.counted:
            lines.append(f"Count of {name}: from the parts' row counts, nothing is read")
            continue
        lines.append(
            f"Scan of {name}" + (f" ({why})" if (why := source.why_scanned(slot.judged(context.settings))) else "")
        )
        lines.append(f"  Columns: {', '.join(slot.wanted.columns)}")
        for label, text in (("Prewhere", slot.wanted.prewhere), ("Filter", slot.wanted.where)):
            if text:
                lines.append(f"  {label}: {text}")
        lines += [f"  {line}" for line in scans[slot.object_name].explain()]
    forms = {slot.object_name: slot.scanned or slot.shape for slot in prepared.rewritten.slots}
    text = filled(prepared.marked(context.now_ms), forms)
    lines.append("ClickHouse")
    lines += [f"  {line}" for line in _explained_lines(f"EXPLAIN {kind} {text}", empty_tables(prepared), context)]
    return lines


def _explained_attached(
    prepared: Prepared, scanned: Mapping[str, str], context: Context, kind: str, why: str
) -> list[str]:
    """Lines of EXPLAIN of a statement whose tables ClickHouse reads by itself."""
    lines = [f"Executor: local ({why})"]
    with attached_layers(prepared, scanned, context) as layers:
        text = prepared.text(context.now_ms, layers)
        plan = _explained_lines(f"EXPLAIN {kind or 'indexes = 1'} {text}", empty_tables(prepared), context)
        for slot in prepared.rewritten.slots:
            name = slot.object_name
            lines += slot.explain(layers[name], scanned[name]) if name in layers else ()
        return [*lines, "ClickHouse", *(f"  {with_names(line, prepared, layers)}" for line in plan)]


def _explained_lines(text: str, tables: Mapping[str, pa.Table], context: Context) -> list[str]:
    lines: list[str] = engine.run(text, tables, settings=context.settings).table().column(0).to_pylist()
    return lines
