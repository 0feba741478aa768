"""Streamed results: Arrow batches in the public form, or the bytes of a format.

A statement starts at once, and the first `AHEAD_BYTES` of its result are read at once, so a small result is complete,
and most errors are raised where the statement is run. The rest is computed as it is read.
"""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.query.embedded import engine
from mergelake.query.embedded.arrow_bridge import needs_types, parse_types, to_public
from mergelake.query.embedded.piping import ByteStream

AHEAD_BYTES = 16 << 20
"""Bytes of a result that are read in advance."""
_CHUNK_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 16

Piece = TypeVar("Piece")
Explain = Callable[[MergelakeError], MergelakeError]
"""Translates an error for the user."""


class Pieces(Generic[Piece]):
    """An iterator over the pieces of a result. Thread-safe: each piece is returned to one thread."""

    def __init__(self, source: ByteStream, pieces: Iterator[Piece]) -> None:
        self._source, self._pieces = source, pieces
        self.explained: Explain | None = None
        """Translates ClickHouse's errors for the user."""
        self.at_failure: Callable[[BaseException], object] = lambda failure: None
        """Called with the error of a statement that fails."""
        self._held: deque[Piece] = deque()
        self._failure: BaseException | None = None
        self._pulling = threading.Lock()
        self.ended = False
        """Whether the statement has ended; remaining pieces are in memory."""

    def ahead(self, size: Callable[[Piece], int]) -> None:
        """Read pieces in advance until there are `AHEAD_BYTES`, or no more. Raises the statement's error."""
        held = 0
        with self._pulling:
            while held < AHEAD_BYTES and (piece := self._pull()) is not None:
                self._held.append(piece)
                held += size(piece)

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        with self._pulling:
            piece = self._held.popleft() if self._held else self._pull()
        if piece is None:
            raise StopIteration
        return piece

    def held(self) -> list[Piece]:
        """The next pieces, as far as they are in memory."""
        with self._pulling:
            return list(self._held)

    def close(self) -> None:
        """Drop the remaining pieces and end the statement. Raises nothing."""
        self._source.close()
        if self._pulling.acquire(blocking=False):  # else another thread waits for a piece, and stops now
            try:
                self._held.clear()
                if not self.ended:
                    self._failure = error("QUERY_WAS_CANCELLED", "The result was closed before its last row")
                self.ended = True
            finally:
                self._pulling.release()

    def let_go(self) -> None:
        """Close later from another thread, for use during garbage collection."""
        if not self.ended:
            self._source.let_go()

    def at_end(self, call: Callable[[], object]) -> None:
        """Call `call` when the statement has ended."""
        self._source.at_end(call)

    @property
    def rows(self) -> int | None:
        """Rows of the whole result after the statement has succeeded; else None."""
        return None if (answer := self._source.answer) is None else answer.rows

    @property
    def read(self) -> tuple[int, int]:
        """Rows and bytes that ClickHouse has read from its own tables; 0 until the statement has ended."""
        return (0, 0) if (answer := self._source.answer) is None else (answer.rows_read, answer.bytes_read)

    def _pull(self) -> Piece | None:
        if self._failure is not None:
            raise self._failure
        if self.ended:
            return None
        try:
            with engine.inside():
                piece = next(self._pieces, None)
        except BaseException as failure:  # noqa: BLE001  (raised again, here and whenever somebody asks for more)
            self._source.close()
            problem = self._source.raised or failure  # pyarrow may have replaced the error by its own
            if isinstance(problem, MergelakeError) and self.explained is not None:
                problem = self.explained(problem)
            self._failure = problem
            self.at_failure(problem)
            raise self._failure from None
        if piece is None:
            self._source.close()
            self.ended = True
        return piece


class Batches(Pieces[pa.RecordBatch]):
    """The rows of a result."""

    def __init__(self, source: ByteStream, types: Sequence[str]) -> None:
        """`types` are ClickHouse's names of the column types. Waits for the first bytes; raises early errors."""
        self._schemas: list[pa.Schema] = []
        super().__init__(source, _public_batches(source, types, self._schemas))
        self.ahead(_bytes_of)

    @property
    def schema(self) -> pa.Schema:
        """Schema of every batch."""
        return self._schemas[-1]

    def whole(self) -> pa.Table:
        """All remaining pieces."""
        return pa.Table.from_batches(self, self.schema)


class _Bytes(io.RawIOBase):
    """A wrapper that keeps the stream open when pyarrow's reader, which closes its input, is collected."""

    def __init__(self, source: ByteStream) -> None:
        super().__init__()
        self.readinto = source.readinto  # type: ignore[method-assign]

    def readable(self) -> bool:
        """Yes."""
        return True


def _public_batches(source: ByteStream, types: Sequence[str], schemas: list[pa.Schema]) -> Iterator[pa.RecordBatch]:
    """The non-empty batches in the public form; appends their schema to `schemas` before the first."""
    kinds = parse_types([kind.replace("Array(Nothing)", "Array(String)") for kind in types])

    def public(table: pa.Table) -> pa.Table:
        return to_public(table, kinds) if needs_types(table.schema, kinds) else table

    reader = pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(_Bytes(source), _BUFFER_BYTES), "r"))
    schemas.append(public(pa.Table.from_batches([], reader.schema)).schema)
    for raw in reader:
        if raw.num_rows:
            (batch,) = public(pa.Table.from_batches([raw])).to_batches()
            if len(schemas) == 1:  # for some types the values decide whether a field is nullable
                schemas.append(batch.schema)
            yield batch
    source.readall()  # errors after the end of the Arrow stream are raised here


class Chunks(Pieces[bytes]):
    """The bytes of a result in a format."""

    def __init__(self, source: ByteStream) -> None:
        """Waits for the first bytes; raises early errors."""
        super().__init__(source, iter(lambda: source.read(_CHUNK_BYTES), b""))
        self.ahead(len)

    def whole(self) -> bytes:
        """All remaining pieces."""
        return b"".join(self)


def _bytes_of(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes)


def until_end(answer: Pieces[Piece] | None, now: Callable[[], float]) -> Callable[[], float]:
    """A clock that returns `now()` until the statement has ended, then the time of its end (now, without `answer`)."""
    ended: list[float] = []
    if answer is None:
        ended.append(now())
    else:
        answer.at_end(lambda: ended.append(now()))
    return lambda: ended[0] if ended else now()
