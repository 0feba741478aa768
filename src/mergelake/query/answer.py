"""The result of a statement from ClickHouse, in the requested form."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from mergelake.core.base.cancel import current
from mergelake.core.base.progress import Progress
from mergelake.query import totals
from mergelake.query.context import Context
from mergelake.query.embedded import engine
from mergelake.query.embedded.arrow_bridge import needs_types, parse_types, to_public, without_nothing
from mergelake.query.embedded.piping import begin
from mergelake.query.embedded.streamed import Batches, Chunks
from mergelake.query.prepare import Prepared
from mergelake.query.statement.limits import ReadLimits
from mergelake.query.statement.settings_semantics import writes_file
from mergelake.store.metering.meter import counted, current_tally

HELD_BYTES = 64 << 20
"""Maximum bytes of a scan that are read before ClickHouse starts."""


@dataclass(frozen=True, slots=True)
class StatementAnswer:
    """The result of a statement: all of it, or a stream."""

    rows: pa.Table | Batches | bytes | Chunks
    types: tuple[str, ...] = ()
    totals: pa.Table | None = None
    cost: tuple[int, int] = (0, 0)
    count: int | None = None

    @property
    def open(self) -> Batches | Chunks | None:
        """The stream, if the result is one."""
        return self.rows if isinstance(self.rows, Batches | Chunks) else None

    def read(self) -> tuple[int, int]:
        """Rows and bytes read, as ClickHouse counts them."""
        return self.cost if self.open is None else self.open.read


def answer_of(prepared: Prepared, text: str, tables: Mapping[str, object], context: Context) -> StatementAnswer:
    """Run the statement in ClickHouse; returns the result in the requested form, a large one as a stream."""
    form = prepared.rewritten.format
    if writes_file(prepared.parsed):
        data = engine.run(text, tables, output=form or "TabSeparated", settings=context.settings)
        return StatementAnswer(data.data.to_pybytes(), cost=(data.rows_read, data.bytes_read))
    if form:
        chunks = Chunks(begin(text, tables, output=form, settings=context.settings))
        return StatementAnswer(chunks.whole() if chunks.ended else chunks, cost=chunks.read, count=chunks.rows)
    names, kinds = prepared.columns(context)
    if totals.has_totals(prepared.parsed):
        rows_and_totals = totals.run(text, tables, totals.carried(context.settings, prepared.parsed), names, kinds)
        return finish(rows_and_totals.rows, kinds, totals=rows_and_totals.totals)
    batches = Batches(begin(without_nothing(text, names, kinds), tables, settings=context.settings), kinds)
    return StatementAnswer(batches.whole() if batches.ended else batches, kinds, cost=batches.read)


def clickhouse_input(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, *, whole: bool
) -> pa.Table | pa.RecordBatchReader:
    """The batches of a scan as input of ClickHouse: a table if it fits into `HELD_BYTES`, else a stream.

    ClickHouse's threads pull a stream through Python and so wait for each other; they do not for a table. Without
    `whole` it is always a stream, because the statement may stop early.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches if whole else ():
        held.append(batch)
        size += batch.nbytes
        if size > HELD_BYTES:
            return pa.RecordBatchReader.from_batches(schema, chain(held, batches))
    if whole:
        return pa.Table.from_batches(held, schema)
    return pa.RecordBatchReader.from_batches(schema, batches)


def finish(raw: pa.Table, kinds: tuple[str, ...], totals: pa.Table | None = None) -> StatementAnswer:
    """Convert ClickHouse's result with columns of types `kinds` to the public form."""
    parsed = parse_types([kind.replace("Array(Nothing)", "Array(String)") for kind in kinds])
    if needs_types(raw.schema, parsed):
        raw = to_public(raw, parsed)
    if totals is not None and needs_types(totals.schema, parsed):
        totals = to_public(totals, parsed)
    return StatementAnswer(raw, kinds, totals)


class StatementMeter:
    """Counts the rows and bytes of scans, reports progress, checks limits and cancellation."""

    def __init__(self, total: int, context: Context, limits: ReadLimits) -> None:
        self.rows = 0
        self.bytes = 0
        self._total, self._context, self._limits, self._cancel = total, context, limits, current()
        self._tally = current_tally()
        self._lock = threading.Lock()

    def add(self, rows: int, size: int) -> None:
        """Add rows and bytes that were read."""
        self.rows += rows
        self.bytes += size

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the batches through and count them."""
        tell = self._context.on_progress
        for batch in counted(self._tally, batches):
            if self._cancel is not None:
                self._cancel.check()
            with self._lock:
                self.rows += batch.num_rows
                self.bytes += batch.nbytes
                self._limits.check_bytes(self.bytes)
            if tell is not None:
                tell(Progress("read", self.rows, self._total, self.bytes))
            yield batch
