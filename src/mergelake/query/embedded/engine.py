"""The one door to chdb: ClickHouse in this process, stateless, fed with Arrow objects.

A connection is cheap (0.15 ms after the first) and two of them run truly side by side, so every thread
keeps its own; settings belong to a connection. Nothing of ours is ever stored in it: tables come in as
Arrow objects that a statement names with `Python(name)`, answers go out as one Arrow stream whose bytes are
used in place. (An Arrow file cannot hold a dictionary inside Array, Map or Tuple that differs from batch to batch.)

A process forked from one that has started ClickHouse has none (its threads are gone) and is told so. An error keeps
ClickHouse's code and name.

A statement can be ended while ClickHouse computes: KILL QUERY from another connection, for the thread that waits in
it. Python runs signal handlers in the main thread alone and only between its own steps, so there ClickHouse is called
from a helper thread: Ctrl-C is heard at once.
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

from mergelake.core.cancel import Cancel, current, running
from mergelake.core.errors import CLICKHOUSE_CODES, MergelakeError, UnavailableError, error
from mergelake.core.text import quote_string
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
"""Settings that hold while a statement is parsed -> others of their type, to read a value by."""
_LEVEL = re.compile(r"\s*Code: (\d+)\. DB::Exception: ")
_VERSION = re.compile(r"\s*\(version [^()]*(?:\([^()]*\))?[^()]*\)\.?\s*$")
_NAME = re.compile(r"\.?\s*\(([A-Z][A-Z0-9_]*)\)\s*$")
_OF_A_READER = "PY_EXCEPTION_OCCURED"
_UNCODED = {
    "memory limit": "MEMORY_LIMIT_EXCEEDED",
    "Query was cancelled": "QUERY_WAS_CANCELLED",
    "Timeout exceeded": "TIMEOUT_EXCEEDED",
}
"""What chdb passes on as text alone, when it meets ClickHouse while reading an Arrow object -> ClickHouse's name."""
_SCOPE = re.compile(r"[.:]? (?:In scope|while executing) .*", re.DOTALL)
"""ClickHouse quotes the statement, which here is not the one that the user wrote."""
_local = threading.local()
_anchors: dict[int, Any] = {}
"""Process id -> a connection that keeps the engine up while threads, and theirs, come and go, and that kills."""
_folders: dict[int, Path] = {}
"""Process id -> where its engine keeps what it keeps."""
_anchor_lock = threading.Lock()
_statements: set[_UnderWay] = set()
"""What is inside ClickHouse now."""
_KILL_AGAIN_S = 0.05
_HEARS_WITHIN_S = 0.1
"""How long a signal may wait to be handled."""
_ENDS_WITHIN_S = 2.0
"""How long an interrupted call waits for ClickHouse to end."""
_LEFT_WITHIN_S = 10.0
"""How long the end of the process waits for threads that are inside: ClickHouse aborts, or hangs, under them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What ClickHouse gave back."""

    data: pa.Buffer
    """The bytes of the asked format; they live as long as this object."""
    rows_read: int
    """From tables of ClickHouse's own."""
    bytes_read: int
    elapsed_s: float
    rows: int
    """Of the answer."""

    def table(self) -> pa.Table:
        """The rows, where the format was ArrowStream; types as ClickHouse writes Arrow."""
        return pa.ipc.open_stream(self.data).read_all()

    def text(self) -> str:
        """The bytes as text; what is not UTF-8 is replaced."""
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
) -> Answer:
    """Run one statement; `tables` gives the object behind each `Python(name)` in it.

    Objects are pyarrow Tables or RecordBatchReaders (a reader is consumed). `settings` are ClickHouse
    settings as SQL literals; they hold for this statement alone. An exception that a reader raised is
    raised again as it was; ClickHouse's own come as `MergelakeError` with its code and name. A statement that is
    cancelled (`core.cancel`), or that KeyboardInterrupt leaves, stops computing. `on_kill` is called, from another
    thread, each time that ClickHouse is told to end it: what the statement waits for may have to move on.

    When the process ends, threads inside are stopped, and end with SystemExit, as do those that come later: it is
    silent. A traceback would be written while Python takes down stderr, which aborts the process at times.
    """
    cancel = current()
    if cancel is not None:
        cancel.check()

    def run_inside(chosen: Cancel | None) -> Answer:
        with _door:
            try:
                return _run_inside(sql, tables or {}, output, settings or {}, chosen, on_kill)
            finally:
                if _door.closed:  # while the end waits: a thread must not do so by itself, when Python is no more
                    close_connection()

    if threading.current_thread() is threading.main_thread():
        _door.check()  # its helper is gone by then
        heard = cancel or Cancel()
        return _heard(lambda: run_inside(heard), heard)
    try:
        return run_inside(cancel)
    except MergelakeError:
        if _door.closed:
            raise SystemExit from None
        raise


@contextmanager
def inside() -> Iterator[None]:
    """While it lasts, the end of the process waits for this thread, which waits for ClickHouse: for an answer's bytes.

    Where Python ends a thread within pyarrow, which called Python, the process aborts. SystemExit once it ends.
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
    cancel: Cancel | None,
    on_kill: Callable[[], None] | None,
) -> Answer:
    connection = _connection()
    _apply(settings)
    scope = {name: _guarded(value) for name, value in tables.items()}
    objects = {name: value.stream if isinstance(value, _Guard) else value for name, value in scope.items()}
    under_way = _UnderWay(on_kill)
    try:
        with cancel.stopping(under_way.stop) if cancel is not None else nullcontext(), under_way:
            # chdb looks for the names in the frames that call it: this frame's locals are exactly `objects`.
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
    read = int(result.storage_rows_read()), int(result.storage_bytes_read())
    return Answer(_buffer(result), *read, float(result.elapsed()), int(result.rows_read()))


def translate(text: str) -> MergelakeError:
    """ClickHouse's error text as one of ours, its code and name kept."""
    message, code, name = text.strip(), 0, ""
    levels = 0
    while (level := _LEVEL.match(message)) is not None:  # wrapped again and again: the innermost is meant
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
    """Values of settings as ClickHouse reads their literals: `'10Mi'` is 10485760. Raises what SET would.

    They must be such that they change nothing of this very statement; one that would is read as another of its type.
    """
    if not settings:
        return {}
    read_as = {_READ_AS.get(name, name): name for name in settings}
    names = ", ".join(map(quote_string, read_as))
    assignments = ", ".join(f"{alike} = {settings[name]}" for alike, name in read_as.items())
    values = run(f"SELECT name, value FROM system.settings WHERE name IN ({names}) SETTINGS {assignments}").table()
    return {read_as[row["name"]]: row["value"] for row in values.to_pylist()}


def folder() -> Path | None:
    """Where the engine keeps its files, where that is a temporary folder of its own; None if somebody chose it."""
    _start()
    path = _folders[os.getpid()]
    return path if leftovers.is_temporary(path) else None


def forget_table(name: str) -> None:
    """Leave a table that is attached, and what it is made of as it is."""
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
    """Counts the threads that are inside ClickHouse; nobody comes in once the process ends."""

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """As at the start, also in a forked process: one of the threads that are not there may have held the lock."""
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
        """Raise once the process ends."""
        if self.closed:
            raise UnavailableError("This process is ending, and ClickHouse with it")

    def close(self) -> None:
        """Let nobody in any more."""
        with self._changed:
            self.closed = True

    def empty(self, within_s: float) -> bool:
        """Whether all have left by then."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._inside, within_s)


class _UnderWay:
    """A statement inside ClickHouse, from the thread that waits for it."""

    def __init__(self, on_kill: Callable[[], None] | None) -> None:
        self._thread = threading.get_native_id()
        self._on_kill = on_kill
        self._lock = threading.Lock()
        self.over = threading.Event()

    def __enter__(self) -> None:
        _statements.add(self)

    def __exit__(self, *_: object) -> None:
        with self._lock:  # from now on a KILL would meet the thread's next statement
            self.over.set()
        _statements.discard(self)

    def stop(self) -> None:
        """End it, soon; returns at once."""
        threading.Thread(target=self._kill_until_over, name="mergelake-kill", daemon=True).start()

    def _kill_until_over(self) -> None:
        # A statement that is only being parsed is not in the list yet, and one that is killed takes its time.
        self.kill()
        while not self.over.wait(_KILL_AGAIN_S):
            self.kill()

    def kill(self) -> None:
        """Ask ClickHouse to end it, once."""
        with self._lock, _anchor_lock:
            if not self.over.is_set():
                _anchors[os.getpid()].query(f"KILL QUERY WHERE has(thread_ids, {self._thread}) ASYNC")
        if self._on_kill is not None:
            self._on_kill()


def _heard(call: Callable[[], Answer], cancel: Cancel) -> Answer:
    """`call` from the helper thread, so that this one hears of signals; an exception here ends the statement."""
    done = threading.Event()
    outcome: list[Answer | BaseException] = []

    def work() -> None:
        try:
            with running(cancel):
                outcome.append(call())
        except BaseException as failure:  # noqa: BLE001  (raised again in the caller's thread)
            outcome.append(failure)
        finally:
            done.set()

    helper = helpers.take()  # a call that is left before its end keeps it: the next one has another
    helper.run(work)
    try:
        # A wait without end is not left for a signal once a library (polars) has caught it with SA_RESTART.
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
    """A reader whose exception is kept, because chdb only passes on its text."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.raised: BaseException | None = None
        self._generator = self._batches(reader)
        self.stream = pa.RecordBatchReader.from_batches(reader.schema, self._generator)

    def close(self) -> None:
        """Let go of the reader: of a statement that was ended chdb keeps what it has not read to the end."""
        with suppress(ValueError):  # a thread of ClickHouse is still in it
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
    """The result's bytes in place. chdb's own view does not keep them alive, so the buffer holds all of it."""
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
    """Have the engine run in this process."""
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
    """Before the process ends: statements that still run are stopped, for ClickHouse aborts under them."""
    if os.getpid() != pid:
        return
    _door.close()
    for _ in range(round(_LEFT_WITHIN_S / _KILL_AGAIN_S)):
        for statement in set(_statements):  # one that was still connecting is there a moment later
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
    """A new connection for this thread: after a failure the old one may prefix its next answer with leftovers."""
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
        # A process has one ClickHouse. Where the caller started it with a path, ours joins it and stores nothing.
        match = re.search(r"already initialized with path '([^']*)'", str(failure))
        if match is None:
            raise translate(str(failure)) from None
        return Connection(match.group(1))


def _apply(settings: Mapping[str, str]) -> None:
    """Make the connection's settings exactly `settings` over the base ones."""
    if settings == _local.applied:
        return
    gone = [name for name in _local.applied if name not in settings]
    try:
        for name in gone:
            back = _BASE_SETTINGS.get(name, "DEFAULT")
            _local.connection.query(f"SET {name} = {back}")
            del _local.applied[name]
        for name, value in settings.items():
            if _local.applied.get(name) != value:
                _local.connection.query(f"SET {name} = {value}")
                _local.applied[name] = value
    except Exception as failure:  # noqa: BLE001  (chdb raises a RuntimeError or its own)
        raise translate(str(failure)) from None
