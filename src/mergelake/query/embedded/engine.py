"""Access to chdb, which only this module imports: a stateless ClickHouse in this process that reads Arrow objects.

A connection is cheap (0.15 ms after the first) and several of them run concurrently, so every thread has its own;
settings belong to a connection. No data is stored in ClickHouse: tables are Arrow objects that a statement names with
`Python(name)`, results are one Arrow stream whose bytes are used in place. (An Arrow file cannot hold a dictionary
inside Array, Map or Tuple that differs from batch to batch.)

In a process forked from one that has started ClickHouse its threads do not exist, so calls raise an error. Errors keep
ClickHouse's code and name.

A running statement can be ended by KILL QUERY from another connection, for the thread that waits for it. Python runs
signal handlers only in the main thread and only between bytecodes, so the main thread calls ClickHouse from a helper
thread, and Ctrl-C takes effect at once.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mergelake.core.base.cancel import CancelToken, current, running
from mergelake.core.base.errors import CLICKHOUSE_CODES, MergelakeError, UnavailableError, error
from mergelake.core.base.text import quote_string
from mergelake.query.embedded import helpers, leftovers

_BASE_SETTINGS = {
    "allow_suspicious_low_cardinality_types": "1",
    "allow_suspicious_types_in_group_by": "1",
    "allow_suspicious_types_in_order_by": "1",
    "output_format_arrow_compression_method": "'none'",
    "output_format_arrow_low_cardinality_as_dictionary": "1",
    "session_timezone": "'UTC'",
    "allow_introspection_functions": "0",
    "max_query_size": "0",
}
_READ_AS = {"max_query_size": "max_bytes_in_distinct"}
"""Settings that affect the parsing of a statement -> others of the same type, by which a value is converted."""
_LEVEL = re.compile(r"\s*Code: (\d+)\. DB::Exception: ")
_VERSION = re.compile(r"\s*\(version [^()]*(?:\([^()]*\))?[^()]*\)\.?\s*$")
_NAME = re.compile(r"\.?\s*\(([A-Z][A-Z0-9_]*)\)\s*$")
_OF_A_READER = "PY_EXCEPTION_OCCURED"
_UNCODED = {
    "memory limit": "MEMORY_LIMIT_EXCEEDED",
    "Query was cancelled": "QUERY_WAS_CANCELLED",
    "Timeout exceeded": "TIMEOUT_EXCEEDED",
}
"""Texts of errors of which chdb passes on no name, while it reads an Arrow object -> ClickHouse's name."""
_SCOPE = re.compile(r"[.:]? (?:In scope|while executing) .*", re.DOTALL)
"""Quotation of the statement in an error, which is removed because it is the rewritten statement."""
_local = threading.local()
_anchors: dict[int, Any] = {}
"""Process id -> a connection that keeps the engine running while those of threads come and go; also used for KILL."""
_folders: dict[int, Path] = {}
"""Process id -> the folder of its engine."""
_anchor_lock = threading.Lock()
_statements: set[_Running] = set()
"""The running statements."""
_KILL_AGAIN_S = 0.05
_HEARS_WITHIN_S = 0.1
"""Maximum delay of a signal handler."""
_ENDS_WITHIN_S = 2.0
"""Maximum time that an interrupted call waits for ClickHouse to end."""
_LEFT_WITHIN_S = 10.0
"""Maximum time that the end of the process waits for threads inside ClickHouse, which aborts or hangs otherwise."""


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The result of a statement."""

    data: pa.Buffer
    """The bytes in the requested format; valid as long as this object."""
    rows_read: int
    """Rows read from tables of ClickHouse itself."""
    bytes_read: int
    elapsed_s: float
    rows: int
    """Rows of the result."""

    def table(self) -> pa.Table:
        """The rows of a result in ArrowStream, in ClickHouse's Arrow types."""
        return pa.ipc.open_stream(self.data).read_all()

    def text(self) -> str:
        """The bytes as text; invalid UTF-8 is replaced."""
        return bytes(self.data).decode("utf-8", "replace")


def available() -> bool:
    """Whether the extra `sql` is installed."""
    import importlib.util

    return importlib.util.find_spec("chdb") is not None


def run(
    sql: str,
    tables: Mapping[str, object] | None = None,
    *,
    output: str = "ArrowStream",
    settings: Mapping[str, str] | None = None,
    on_kill: Callable[[], None] | None = None,
) -> EngineAnswer:
    """Run one statement; `tables` has the object of each `Python(name)` in it.

    Objects are pyarrow Tables or RecordBatchReaders (a reader is consumed). `settings` are ClickHouse settings as SQL
    literals, for this statement only. An exception of a reader is raised unchanged; ClickHouse's errors are raised as
    `MergelakeError` with their code and name. Cancelling the statement (`core.base.cancel`) or KeyboardInterrupt ends
    it. `on_kill` is called from another thread on each KILL QUERY, so that it can unblock what the statement waits for.

    At the end of the process running statements are stopped, and raise SystemExit, as do later ones, because it prints
    no traceback: writing one while Python closes stderr can abort the process.
    """
    cancel = current()
    if cancel is not None:
        cancel.check()

    def run_inside(chosen: CancelToken | None) -> EngineAnswer:
        with _door:
            try:
                return _run_inside(sql, tables or {}, output, settings or {}, chosen, on_kill)
            finally:
                if _door.closed:  # now, while the exit handler waits: not when the thread is destroyed, after Python
                    close_connection()

    if threading.current_thread() is threading.main_thread():
        _door.check()  # helper threads have ended by then
        interrupted = cancel or CancelToken()
        return _interruptible(lambda: run_inside(interrupted), interrupted)
    try:
        return run_inside(cancel)
    except MergelakeError:
        if _door.closed:
            raise SystemExit from None
        raise


@contextmanager
def inside() -> Iterator[None]:
    """Context in which the end of the process waits for this thread, which waits for bytes of ClickHouse.

    The process would abort if Python ended a thread that pyarrow has called back. Raises SystemExit once it is ending.
    """
    try:
        _door.__enter__()
    except MergelakeError:
        raise SystemExit from None
    try:
        yield
    finally:
        _door.__exit__()


def _run_inside(
    sql: str,
    tables: Mapping[str, object],
    output: str,
    settings: Mapping[str, str],
    cancel: CancelToken | None,
    on_kill: Callable[[], None] | None,
) -> EngineAnswer:
    connection = _connection()
    _apply(settings)
    scope = {name: _guarded(value) for name, value in tables.items()}
    objects = {name: value.stream if isinstance(value, _Guard) else value for name, value in scope.items()}
    under_way = _Running(on_kill)
    try:
        with cancel.stopping(under_way.stop) if cancel is not None else nullcontext(), under_way:
            # chdb looks up names in the frames of its callers: the locals of this frame are exactly `objects`.
            result = eval(
                "connection.query(sql, output)", {"connection": connection, "sql": sql, "output": output}, objects
            )
    except Exception as failure:  # noqa: BLE001  (chdb raises a RuntimeError, its own, and what a reader raised)
        if not _door.closed:
            _renew()
        for guard in scope.values():
            if isinstance(guard, _Guard) and guard.raised is not None:
                raise guard.raised from None
        raise translate(str(failure)) from None
    finally:
        for guard in scope.values():
            if isinstance(guard, _Guard):
                guard.close()
    if cancel is not None:
        cancel.check()  # ClickHouse may end a statement that is killed early as if it had no rows
    read = int(result.storage_rows_read()), int(result.storage_bytes_read())
    return EngineAnswer(_buffer(result), *read, float(result.elapsed()), int(result.rows_read()))


def translate(text: str) -> MergelakeError:
    """Convert ClickHouse's error text to a `MergelakeError` with its code and name."""
    message, code, name = text.strip(), 0, ""
    levels = 0
    while (level := _LEVEL.match(message)) is not None:  # errors may be wrapped several times: use the innermost
        message, code, levels = message[level.end() :], int(level[1]), levels + 1
    for _ in range(levels):
        message = _VERSION.sub("", message)
        if (match := _NAME.search(message)) is None:
            break
        message, name = message[: match.start()], match[1]
    if not name:
        return error("LOGICAL_ERROR", text.strip() or "ClickHouse failed without a message")
    if name == _OF_A_READER:
        message = message.removeprefix("Python data handling ").removesuffix(": While executing Python")
        if _LEVEL.match(message):
            return translate(message)
        name = next((known for words, known in _UNCODED.items() if words in message), name)
        code = CLICKHOUSE_CODES.get(name, code)
    CLICKHOUSE_CODES.setdefault(name, code)
    return error(name, _SCOPE.sub("", message.strip()))


def plain_values(settings: Mapping[str, str]) -> dict[str, str]:
    """Values of settings that ClickHouse reads from their literals: `'10Mi'` is 10485760. Raises the errors of SET.

    The settings are applied to the statement that reads them, so one that would affect it is replaced (`_READ_AS`).
    """
    if not settings:
        return {}
    read_as = {_READ_AS.get(name, name): name for name in settings}
    names = ", ".join(map(quote_string, read_as))
    assignments = ", ".join(f"{alike} = {settings[name]}" for alike, name in read_as.items())
    values = run(f"SELECT name, value FROM system.settings WHERE name IN ({names}) SETTINGS {assignments}").table()
    return {read_as[row["name"]]: row["value"] for row in values.to_pylist()}


def folder() -> Path | None:
    """The engine's temporary folder; None if the engine was started with a path."""
    _start()
    path = _folders[os.getpid()]
    return path if leftovers.is_temporary(path) else None


def forget_table(name: str) -> None:
    """Detach a table without removing its data."""
    run(f"DETACH TABLE {name} PERMANENTLY SYNC")


def setting_names() -> list[str]:
    """Names of all settings of this ClickHouse."""
    names: list[str] = run("SELECT name FROM system.settings").table()["name"].to_pylist()
    return names


def setting_literal(value: object) -> str:
    """A setting's value as SQL: numbers bare, text quoted, booleans as 1 and 0."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    return text if re.fullmatch(r"-?\d+(\.\d+)?", text) else quote_string(text)


class _Door:
    """Counts the threads inside ClickHouse, and refuses new ones once the process is ending."""

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Reset the state. Needed in a forked process, because a thread of the parent may have held the lock."""
        self._changed = threading.Condition()
        self._inside = 0
        self.closed = False

    def __enter__(self) -> None:
        with self._changed:
            self.check()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def check(self) -> None:
        """Raise UnavailableError once the process is ending."""
        if self.closed:
            raise UnavailableError("This process is ending, and ClickHouse with it")

    def close(self) -> None:
        """Refuse new threads."""
        with self._changed:
            self.closed = True

    def empty(self, within_s: float) -> bool:
        """Wait until no thread is inside; False after `within_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._inside, within_s)


class _Running:
    """A running statement of the current thread."""

    def __init__(self, on_kill: Callable[[], None] | None) -> None:
        self._thread = threading.get_native_id()
        self._on_kill = on_kill
        self._lock = threading.Lock()
        self.over = threading.Event()

    def __enter__(self) -> None:
        _statements.add(self)

    def __exit__(self, *_: object) -> None:
        with self._lock:  # a later KILL would end the next statement of the thread
            self.over.set()
        _statements.discard(self)

    def stop(self) -> None:
        """End the statement in the background."""
        threading.Thread(target=self._kill_until_over, name="mergelake-kill", daemon=True).start()

    def _kill_until_over(self) -> None:
        # A statement that is being parsed is not in the list of processes yet, so KILL is repeated.
        self.kill()
        while not self.over.wait(_KILL_AGAIN_S):
            self.kill()

    def kill(self) -> None:
        """Send one KILL QUERY."""
        with self._lock, _anchor_lock:
            if not self.over.is_set():
                _anchors[os.getpid()].query(f"KILL QUERY WHERE has(thread_ids, {self._thread}) ASYNC")
        if self._on_kill is not None:
            self._on_kill()


def _interruptible(call: Callable[[], EngineAnswer], cancel: CancelToken) -> EngineAnswer:
    """Run `call` in a helper thread, so that this thread handles signals; an exception here ends the statement."""
    done = threading.Event()
    outcome: list[EngineAnswer | BaseException] = []

    def work() -> None:
        try:
            with running(cancel):
                outcome.append(call())
        except BaseException as failure:  # noqa: BLE001  (raised again in the caller's thread)
            outcome.append(failure)
        finally:
            done.set()

    helper = helpers.take()  # not reused if the call is interrupted
    helper.run(work)
    try:
        # An unlimited wait is not interrupted by a signal for which a library (polars) has set SA_RESTART.
        while not done.wait(_HEARS_WITHIN_S):
            pass
    except BaseException:
        cancel.set()
        if done.wait(_ENDS_WITHIN_S):
            helpers.give_back(helper, close_connection)
        else:
            helper.leave(close_connection)
        raise
    helpers.give_back(helper, close_connection)
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    return result


_door = _Door()
os.register_at_fork(after_in_child=_door.open)


class _Guard:
    """A reader that records its exception, because chdb only passes on the text."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.raised: BaseException | None = None
        self._generator = self._batches(reader)
        self.stream = pa.RecordBatchReader.from_batches(reader.schema, self._generator)

    def close(self) -> None:
        """Release the reader, which chdb keeps after a statement that did not read all of it."""
        with suppress(ValueError):  # a thread of ClickHouse is still reading
            self._generator.close()

    def _batches(self, reader: pa.RecordBatchReader) -> Generator[pa.RecordBatch, None, None]:
        try:
            yield from reader
        except GeneratorExit:
            raise
        except BaseException as failure:
            self.raised = failure
            raise


def _buffer(result: Any) -> pa.Buffer:
    """The result's bytes without a copy. chdb's view does not keep them alive, so the buffer references the result."""
    view = result.get_memview()
    window = memoryview(view.view()) if view is not None else memoryview(b"")
    if not len(window):
        return pa.py_buffer(b"")
    address = np.frombuffer(window, np.uint8).ctypes.data
    return pa.foreign_buffer(address, len(window), base=(result, view, window))


def _guarded(value: object) -> object:
    return _Guard(value) if isinstance(value, pa.RecordBatchReader) else value


def _connection() -> Any:
    if getattr(_local, "pid", None) != os.getpid():
        _start()
        _local.connection = _connected()
        _local.pid = os.getpid()
        _local.applied = {}
        _local.connection.query("SET " + ", ".join(f"{name} = {value}" for name, value in _BASE_SETTINGS.items()))
    return _local.connection


def _start() -> None:
    """Start the engine in this process, unless it is running."""
    with _anchor_lock:
        if os.getpid() in _anchors:
            return
        if _anchors:
            raise UnavailableError(
                "This process was forked from one that had started ClickHouse, whose threads a fork does not have",
                hint="Start it with multiprocessing's method 'spawn', or fork before the first SELECT",
            )
        leftovers.sweep()
        anchor = _anchors[os.getpid()] = _connected()
        _folders[os.getpid()] = Path(
            str(anchor.query("SELECT path FROM system.disks WHERE name = 'default'", "TSVRaw")).strip()
        )
        leftovers.mark(_folders[os.getpid()])
        atexit.register(_end, os.getpid())


def _end(pid: int) -> None:
    """Exit handler: stop running statements, because ClickHouse aborts if it is destroyed while they run."""
    if os.getpid() != pid:
        return
    _door.close()
    for _ in range(round(_LEFT_WITHIN_S / _KILL_AGAIN_S)):
        for statement in set(_statements):  # read anew each time: others may still be connecting
            statement.kill()
        if _door.empty(_KILL_AGAIN_S):
            break
    helpers.end_all(close_connection, _ENDS_WITHIN_S)


def close_connection() -> None:
    """Close this thread's connection."""
    if getattr(_local, "pid", None) == os.getpid():
        _local.pid = None
        _local.connection.close()


def _renew() -> None:
    """Replace this thread's connection: after an error its next result may begin with remains of the last."""
    old = _local.connection
    _local.pid = None
    _connection()
    old.close()


def _connected() -> Any:
    try:
        from chdb.state.sqlitelike import Connection
    except ImportError as missing:
        raise UnavailableError(
            "SELECT runs in ClickHouse itself, and the package chdb is not installed",
            hint="pip install 'mergelake[sql]'",
        ) from missing
    try:
        return Connection(":memory:")
    except RuntimeError as failure:
        # A process has one ClickHouse. If the caller started it with a path, connect to that one.
        match = re.search(r"already initialized with path '([^']*)'", str(failure))
        if match is None:
            raise translate(str(failure)) from None
        return Connection(match.group(1))


def _apply(settings: Mapping[str, str]) -> None:
    """Set the connection's settings to the base ones and `settings`."""
    if settings == _local.applied:
        return
    dropped = [name for name in _local.applied if name not in settings]
    try:
        for name in dropped:
            base = _BASE_SETTINGS.get(name, "DEFAULT")
            _local.connection.query(f"SET {name} = {base}")
            del _local.applied[name]
        for name, value in settings.items():
            if _local.applied.get(name) != value:
                _local.connection.query(f"SET {name} = {value}")
                _local.applied[name] = value
    except Exception as failure:  # noqa: BLE001  (chdb raises a RuntimeError or its own)
        raise translate(str(failure)) from None
