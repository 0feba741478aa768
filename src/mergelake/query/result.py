"""What a SELECT gives back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mergelake.core.errors import MergelakeError, error
from mergelake.query.embedded.streamed import Batches, Chunks, Pieces


@dataclass(frozen=True, slots=True)
class Stats:
    """Time and data that a SELECT has used so far."""

    elapsed_s: float = 0.0
    """Seconds."""
    rows_read: int = 0
    """Rows that scans returned to ClickHouse."""
    bytes_read: int = 0
    """Bytes of those rows in memory."""
    executor: str = "local"
    """Where it ran: `local` or `spark`."""
    reason: str = ""
    """Why it ran there."""


class QueryResult:
    """Rows in the public Arrow form, with the ClickHouse types of their columns; or bytes in a format.

    A large answer is open: its statement goes on only as far as somebody takes it. `table` and `formatted` take all of
    it and keep it; `batches` and `chunks` give it piece by piece, once, and keep nothing. Safe for threads.
    """

    def __init__(
        self,
        answer: pa.Table | Batches | bytes | Chunks,
        types: tuple[str, ...] = (),
        stats: Stats | Callable[[], Stats] | None = None,
        *,
        totals: pa.Table | None = None,
        rows: int | None = None,
    ) -> None:
        """`answer` is bytes or `Chunks` where the statement asked for a format; of bytes, `rows` says how many."""
        self.types = types
        """ClickHouse's name of each column's type."""
        self.totals = totals
        """The row of WITH TOTALS, or None."""
        self.has_format = isinstance(answer, bytes | Chunks)
        """Whether it is bytes: it has no columns here."""
        self.schema: pa.Schema = pa.schema([]) if isinstance(answer, bytes | Chunks) else answer.schema
        """Names and Arrow types of the columns."""
        self._stats = stats or Stats()
        self._rows = answer.num_rows if isinstance(answer, pa.Table) else rows
        self._source = answer if isinstance(answer, Batches | Chunks) else None
        self._whole = None if isinstance(answer, Batches | Chunks) else answer
        self._lock = threading.Lock()
        self._given = self._kept = False

    @property
    def stats(self) -> Stats:
        """What it has cost so far."""
        return self._stats() if callable(self._stats) else self._stats

    @property
    def rows(self) -> int | None:
        """How many rows there are; None while that is not known, and for bytes that came from Spark."""
        return self._rows if self._source is None else self._source.rows

    @property
    def table(self) -> pa.Table:
        """All rows; none of an answer in a format. BAD_ARGUMENTS once they were given by `batches`."""
        if self.has_format:
            return self.schema.empty_table()
        return self._all()

    @property
    def formatted(self) -> bytes | None:
        """All bytes, or None. BAD_ARGUMENTS once they were given by `chunks`."""
        return self._all() if self.has_format else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, piece by piece; none of an answer in a format. A generator: closing it ends the statement."""
        if self.has_format:
            return iter(())
        with self._lock:
            self._give()
            whole = self._whole
        return iter(whole.to_batches()) if isinstance(whole, pa.Table) else _pieces(self._source)

    def chunks(self) -> Iterator[bytes]:
        """The bytes of an answer in a format, piece by piece, likewise."""
        with self._lock:
            self._give()
            whole = self._whole
        return iter((whole,)) if isinstance(whole, bytes) else _pieces(self._source)

    def first(self, rows: int) -> pa.Table:
        """The first rows, or fewer where more would have to wait for ClickHouse; none of them is given away."""
        if self._whole is None and isinstance(self._source, Batches) and not self._given:
            return pa.Table.from_batches(self._source.held(), self.schema).slice(0, rows)
        return self.table.slice(0, rows)

    def close(self) -> None:
        """End the statement, if it runs; rows that were not taken are lost."""
        if self._source is not None:
            self._source.close()

    def at_end(self, call: Callable[[], object]) -> None:
        """Have `call` called once its statement has ended."""
        if self._source is None:
            call()
        else:
            self._source.at_end(call)

    def _give(self) -> None:
        """Pieces go out that nobody keeps."""
        if self._given and not self._kept:
            raise _gone()
        self._given = True

    def _all(self) -> Any:
        with self._lock:
            if self._given and not self._kept:
                raise _gone()
            if self._whole is None and self._source is not None:
                self._whole = self._source.whole()
            self._kept = True
            return self._whole


def _gone() -> MergelakeError:
    what = "The rows of this result were given away piece by piece, and are not kept"
    return error("BAD_ARGUMENTS", what, "Run the statement again, or ask for all of it first: arrow() keeps it")


def _pieces(source: Pieces[Any] | None) -> Iterator[Any]:
    assert source is not None
    try:
        yield from source
    finally:
        source.let_go()
