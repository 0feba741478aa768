"""`QueryLog`: the last statements of a connection, in memory: for `system.query_log` and `system.processes`."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mergelake.api.sql import statements as s
from mergelake.api.sql.settings import log_length
from mergelake.core.base.clock import Clock
from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.ids import IdSource
from mergelake.query.result import QueryResult
from mergelake.query.statement.select_parser import parse_select
from mergelake.query.statement.settings_semantics import statement_settings
from mergelake.store.metering.meter import Tally

if TYPE_CHECKING:
    from mergelake.api.sql.result import Result

TEXT_MAX = 10_000
"""Characters that are kept of a statement."""
FINISHED, FAILED_BEFORE, FAILED_WITHIN = "QueryFinish", "ExceptionBeforeStart", "ExceptionWhileProcessing"
_KINDS = {
    s.Select: "Select", s.Insert: "Insert", s.Optimize: "Optimize", s.Set: "Set", s.Use: "Use", s.Explain: "Explain",
    s.CreateDatabase: "Create", s.CreateTable: "Create", s.CloneTable: "Create",
    s.CreateView: "Create",
    s.DropDatabase: "Drop", s.DropTable: "Drop", s.TruncateTable: "Drop", s.TruncateTables: "Drop",
    s.UndropTable: "Undrop", s.UndropDatabase: "Undrop",
    s.RenameDatabase: "Rename", s.RenameTable: "Rename", s.ExchangeTables: "Rename",
    s.AlterPartitions: "Alter", s.AlterSchema: "Alter", s.WriteProjection: "Alter", s.MaterializeTtl: "Alter",
    s.AlterSteps: "Alter", s.KillMutation: "KillQuery",
    s.CheckTable: "Check", s.Describe: "Describe", s.Exists: "Exists", s.ShowDatabases: "Show", s.ShowTables: "Show",
    s.ShowColumns: "Show", s.ShowCreateTable: "Show",
}  # fmt: skip


@dataclass(slots=True, eq=False)
class LoggedQuery:
    """One statement: begun, and perhaps ended."""

    id: str
    text: str
    database: str
    """The current database when it began."""
    tally: Tally
    """Its requests; those that it causes in the background, a checkpoint for instance, are added later."""
    started_ms: int
    started_s: float
    kind: str = ""
    """ClickHouse's kind of statement; empty before it is parsed."""
    ended_ms: int | None = None
    duration_s: float = 0.0
    type: str = ""
    """How it ended; empty while it runs."""
    rows_read: int = 0
    bytes_read: int = 0
    result_rows: int = 0
    exception_code: int = 0
    exception: str = ""
    _result: weakref.ref[QueryResult] | None = field(default=None, repr=False)

    def read_so_far(self) -> tuple[int, int]:
        """Rows and bytes that were read, while it runs and afterwards."""
        result = self._result() if self._result is not None else None
        if self.type or result is None:
            return self.rows_read, self.bytes_read
        stats = result.stats
        return stats.rows_read, stats.bytes_read


class QueryLog:
    """A ring of statements. Thread-safe."""

    def __init__(self, clock: Clock, ids: IdSource) -> None:
        self._clock, self._ids = clock, ids
        self._lock = threading.Lock()
        self._ring: deque[LoggedQuery] = deque()
        self._running: dict[str, LoggedQuery] = {}

    def entries(self) -> list[LoggedQuery]:
        """The last statements, oldest first."""
        with self._lock:
            return list(self._ring)

    def running(self) -> list[LoggedQuery]:
        """Statements that have not ended, oldest first."""
        with self._lock:
            return list(self._running.values())

    def begin(self, text: str, database: str, tally: Tally, most: int) -> LoggedQuery:
        """Add a statement. The ring keeps the last `most`; 0: this one is only among those that run."""
        query = LoggedQuery(
            self._ids.new_id(), _cut(text), database, tally, self._clock.now_ms(), self._clock.monotonic_s()
        )
        with self._lock:
            self._running[query.id] = query
            if most:
                self._ring.append(query)
            while len(self._ring) > max(most, 0):
                self._ring.popleft()
        return query

    def forget(self, query: LoggedQuery) -> None:
        """Take a statement out of the ring."""
        with self._lock:
            if query in self._ring:
                self._ring.remove(query)

    def parsed(self, query: LoggedQuery, statement: s.Statement, head: Callable[[int], str]) -> None:
        """Note what kind of statement it is. The data of an INSERT is left out of its text.

        `head` returns the text up to an offset of the script. A statement with settings by which it is not logged is
        taken out.
        """
        inner = statement.statement if isinstance(statement, s.Tailed) else statement
        settings = dict(statement.settings) if isinstance(statement, s.Tailed) else {}
        if isinstance(inner, s.Select) and "log_queries" in query.text:
            settings |= statement_settings(parse_select(inner.query))
        if log_length(settings) == 0:
            self.forget(query)
        query.kind = _KINDS.get(type(inner), "")
        if isinstance(inner, s.Mutate):
            query.kind = "Alter" if not inner.lightweight else "Delete" if inner.deletes else "Update"
        if isinstance(inner, s.Insert) and inner.data:
            query.text = _cut(head(inner.data_at).rstrip())

    def failed(self, query: LoggedQuery, failure: BaseException, kind: str = FAILED_BEFORE) -> None:
        """Note that it ended with an error."""
        query.type, query.exception = kind, str(failure)
        query.exception_code = failure.code if isinstance(failure, MergelakeError) else 0
        self._end(query)

    def returned(self, query: LoggedQuery, result: Result) -> None:
        """Note that it has a result. It ends with its last row."""
        query._result = weakref.ref(result.query_result)  # without keeping the rows

        def ended() -> None:
            found = query._result() if query._result is not None else None
            if found is not None:
                stats = found.stats
                query.rows_read, query.bytes_read = stats.rows_read, stats.bytes_read
            if found is not None and found.is_complete:
                query.type, query.result_rows = FINISHED, found.rows or 0
                self._end(query)
            else:  # closed, or about to hear of its failure
                closed = error("QUERY_WAS_CANCELLED", "The result was closed before its last row")
                self.failed(query, closed, FAILED_WITHIN)

        result.query_result.at_failure(lambda failure: self.failed(query, failure, FAILED_WITHIN))
        result.at_end(ended)

    def _end(self, query: LoggedQuery) -> None:
        if query.ended_ms is None:
            query.ended_ms = self._clock.now_ms()
            query.duration_s = self._clock.monotonic_s() - query.started_s
        with self._lock:
            self._running.pop(query.id, None)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"
