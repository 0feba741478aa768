"""Running a step of a statement in this process: tables are attached or scanned, results of other steps are files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from mergelake.query.answer import StatementAnswer, StatementMeter, answer_of, clickhouse_input
from mergelake.query.attach.attaching import NotAttachedError
from mergelake.query.context import Context
from mergelake.query.embedded.piping import begin
from mergelake.query.in_place import READS_FILES, attached_layers, check_scannable, rests, why_scanned
from mergelake.query.prepare import Prepared, empty_tables, plan_scans
from mergelake.query.spread.given_table import GivenTable
from mergelake.query.spread.halves import NotSplitError

BYTES_MAX = 512 << 20
"""Maximum bytes of the result of a step."""
_CHUNK_BYTES = 1 << 20


def native(
    text: str, context: Context, tables: Mapping[str, object] | None = None, *, bytes_max: int = BYTES_MAX
) -> bytes:
    """Run a statement; returns its result as Native. Raises NotSplitError if it exceeds `bytes_max`."""
    pieces, size = [], 0
    with begin(text, tables or {}, output="Native", settings=context.settings) as stream:
        while piece := stream.read(_CHUNK_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > bytes_max:
                raise NotSplitError(f"a subquery or a smaller table gives more than {bytes_max} bytes")
    return b"".join(pieces)


def native_here(prepared: Prepared, context: Context, meter: StatementMeter, *, bytes_max: int = BYTES_MAX) -> bytes:
    """Run a prepared statement; returns its result as Native. Raises NotSplitError if it exceeds `bytes_max`."""
    with ExitStack() as held:
        text, tables, context = _over_tables(prepared, context, meter, held)
        return native(text, context, tables, bytes_max=bytes_max)


def run_here(prepared: Prepared, context: Context, meter: StatementMeter) -> StatementAnswer:
    """Run a prepared statement; returns its result in the requested form."""
    with ExitStack() as held:
        text, tables, context = _over_tables(prepared, context, meter, held)
        answer = answer_of(prepared, text, tables, context)
        if answer.open is not None:
            answer.open.at_end(held.pop_all().close)
        return answer


def _over_tables(
    prepared: Prepared, context: Context, meter: StatementMeter, held: ExitStack
) -> tuple[str, dict[str, object], Context]:
    """(statement for ClickHouse, its Arrow objects, its context); tables stay attached until `held` is closed."""
    scanned = why_scanned(prepared, context, count=True)
    if scanned is not None:
        try:
            layers = held.enter_context(attached_layers(prepared, scanned, context))
        except NotAttachedError as why:
            check_scannable(prepared, str(why))
            pairs = zip(prepared.rewritten.slots, prepared.sources, strict=True)
            scanned = {
                slot.object_name: "" if isinstance(source, GivenTable) else str(why)
                for slot, source in pairs
                if not slot.counted
            }
            layers = held.enter_context(attached_layers(prepared, scanned, context))
        how = {} if any(each.remote for each in layers.values()) else READS_FILES
        text = prepared.text(context.now_ms, layers)
        return text, dict(rests(prepared, layers)), replace(context, settings={**how, **context.settings})
    scans = plan_scans(prepared, context.settings)
    schemas = empty_tables(prepared)
    read: dict[str, object] = {
        name: clickhouse_input(meter.counted(scan.read()), schemas[name].schema, whole=True)
        for name, scan in scans.items()
    }
    return prepared.text(context.now_ms), read, context
