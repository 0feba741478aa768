"""The result of a SELECT."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.query.embedded.streamed import Batches, Chunks, Pieces
from mergelake.store.interface.protocol import Counters


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
    requests: Counters = field(default_factory=Counters)
    """Requests to the store and their bytes, of this process and of its Spark tasks that succeeded."""
    cost: float = 0.0
    """What these cost by the prices of the warehouse (`Prices`), in their currency."""
    billed: bool = False
    """Whether the store is a bucket; for any other `cost` is what S3 would have billed."""


class QueryResult:
    """Rows in the public Arrow form, with the ClickHouse types of their columns; or bytes in a format.

    A large result is open: its statement runs only as far as it is consumed. `table` and `formatted` read all of it and
    keep it; `batches` and `chunks` iterate over it once and keep nothing. Thread-safe.
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
        """`answer` is bytes or `Chunks` if the statement has a format; `rows` is the number of rows in bytes."""
        self.types = types
        """ClickHouse's name of each column's type."""
        self.totals = totals
        """The row of WITH TOTALS, or None."""
        self.has_format = isinstance(answer, bytes | Chunks)
        """Whether the result is bytes in a format, without columns."""
        self.schema: pa.Schema = pa.schema([]) if isinstance(answer, bytes | Chunks) else answer.schema
        """Names and Arrow types of the columns."""
        self._stats = stats or Stats()
        self._rows = answer.num_rows if isinstance(answer, pa.Table) else rows
        self._source = answer if isinstance(answer, Batches | Chunks) else None
        self._whole = None if isinstance(answer, Batches | Chunks) else answer
        self._lock = threading.Lock()
        self._consumed = self._kept = False

    @property
    def stats(self) -> Stats:
        """Statistics so far."""
        return self._stats() if callable(self._stats) else self._stats

    @property
    def rows(self) -> int | None:
        """Number of rows; None while it is not known, and for bytes from Spark."""
        return self._rows if self._source is None else self._source.rows

    @property
    def table(self) -> pa.Table:
        """All rows; none for a result in a format. Raises BAD_ARGUMENTS after `batches` consumed some."""
        if self.has_format:
            return self.schema.empty_table()
        return self._all()

    @property
    def formatted(self) -> bytes | None:
        """All bytes of a result in a format, or None. Raises BAD_ARGUMENTS after `chunks` consumed some."""
        return self._all() if self.has_format else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Iterate over the rows; none for a result in a format. Closing the generator ends the statement."""
        if self.has_format:
            return iter(())
        with self._lock:
            self._give()
            whole = self._whole
        return iter(whole.to_batches()) if isinstance(whole, pa.Table) else _pieces(self._source)

    def chunks(self) -> Iterator[bytes]:
        """Iterate over the bytes of a result in a format. Closing the generator ends the statement."""
        with self._lock:
            self._give()
            whole = self._whole
        return iter((whole,)) if isinstance(whole, bytes) else _pieces(self._source)

    def first(self, rows: int) -> pa.Table:
        """The first rows, or fewer if more are not available yet. Does not consume them."""
        if self._whole is None and isinstance(self._source, Batches) and not self._consumed:
            return pa.Table.from_batches(self._source.held(), self.schema).slice(0, rows)
        return self.table.slice(0, rows)

    def close(self) -> None:
        """End the statement if it runs; rows that were not consumed are lost."""
        if self._source is not None:
            self._source.close()

    def at_end(self, call: Callable[[], object]) -> None:
        """Call `call` when the statement has ended."""
        if self._source is None:
            call()
        else:
            self._source.at_end(call)

    def at_failure(self, call: Callable[[BaseException], object]) -> None:
        """Call `call` with the error if the statement fails from now on, after the functions of `at_end`."""
        if self._source is not None:
            self._source.at_failure = call

    @property
    def is_complete(self) -> bool:
        """Whether the statement has succeeded: all rows are computed."""
        return self._source is None or self._source.rows is not None

    def _give(self) -> None:
        """Begin to iterate over pieces, which can be done once."""
        if self._consumed and not self._kept:
            raise _gone()
        self._consumed = True

    def _all(self) -> Any:
        with self._lock:
            if self._consumed and not self._kept:
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
