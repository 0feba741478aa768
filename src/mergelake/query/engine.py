"""The one door to chdb: ClickHouse in this process, stateless, fed with Arrow objects.

A connection is cheap (0.15 ms after the first) and two of them run truly side by side, so every thread
keeps its own; settings belong to a connection. Nothing of ours is ever stored in it: tables come in as
Arrow objects that a statement names with `Python(name)`, answers go out as one Arrow stream whose bytes are
used in place. (An Arrow file cannot hold a dictionary inside Array, Map or Tuple that differs from batch to batch.)

After a fork the child starts afresh, and an error keeps ClickHouse's code and name.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mergelake.core.errors import CLICKHOUSE_CODES, MergelakeError, UnavailableError, error
from mergelake.core.text import quote_string

_BASE_SETTINGS = {
    "allow_suspicious_low_cardinality_types": "1",
    "allow_suspicious_types_in_group_by": "1",
    "allow_suspicious_types_in_order_by": "1",
    "output_format_arrow_compression_method": "'none'",
    "output_format_arrow_low_cardinality_as_dictionary": "1",
    "session_timezone": "'UTC'",
    "allow_introspection_functions": "0",
}
_FAILURE = re.compile(r"Code: (\d+)\. DB::Exception: (.*?)(?:\. )?\((\w+)\)\s*$", re.DOTALL)
_NESTED = re.compile(r"^Code: \d+\. DB::Exception: (?=Code: )|\s*\(version [\d.]+\)\.?(?: \(\w+\))?\s*$")
"""An error that ClickHouse has wrapped once more."""
_SCOPE = re.compile(r"[.:]? (?:In scope|while executing) .*", re.DOTALL)
"""ClickHouse quotes the statement, which here is not the one that the user wrote."""
_local = threading.local()
_anchors: dict[int, Any] = {}
"""Process id -> a connection that only keeps the engine up while threads, and theirs, come and go."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What ClickHouse gave back."""

    data: pa.Buffer
    """The bytes of the asked format; they live as long as this object."""
    rows_read: int
    bytes_read: int
    elapsed_s: float

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
) -> Answer:
    """Run one statement; `tables` gives the object behind each `Python(name)` in it.

    Objects are pyarrow Tables or RecordBatchReaders (a reader is consumed). `settings` are ClickHouse
    settings as SQL literals; they hold for this statement alone. An exception that a reader raised is
    raised again as it was; ClickHouse's own come as `MergelakeError` with its code and name.
    """
    connection = _connection()
    _apply(settings or {})
    scope = {name: _guarded(value) for name, value in (tables or {}).items()}
    objects = {name: value.stream if isinstance(value, _Guard) else value for name, value in scope.items()}
    try:
        # chdb looks for the names in the frames that call it: this frame's locals are exactly `objects`.
        result = eval(
            "connection.query(sql, output)", {"connection": connection, "sql": sql, "output": output}, objects
        )
    except Exception as failure:  # noqa: BLE001  (chdb raises a RuntimeError, its own, and what a reader raised)
        _renew()
        for guard in scope.values():
            if isinstance(guard, _Guard) and guard.raised is not None:
                raise guard.raised from None
        raise translate(str(failure)) from None
    return Answer(_buffer(result), int(result.rows_read()), int(result.bytes_read()), float(result.elapsed()))


def translate(text: str) -> MergelakeError:
    """ClickHouse's error text as one of ours, its code and name kept."""
    match = _FAILURE.search(_NESTED.sub("", text.strip()))
    if match is None:
        return error("LOGICAL_ERROR", text.strip() or "ClickHouse failed without a message")
    code, message, name = match.groups()
    CLICKHOUSE_CODES.setdefault(name, int(code))
    return error(name, _SCOPE.sub("", message.strip()))


def plain_values(settings: Mapping[str, str]) -> dict[str, str]:
    """Values of settings as ClickHouse reads their literals: `'10Mi'` is 10485760. Raises what SET would.

    They must be such that they change nothing of this very statement.
    """
    if not settings:
        return {}
    names = ", ".join(map(quote_string, settings))
    given = ", ".join(f"{name} = {literal}" for name, literal in settings.items())
    found = run(f"SELECT name, value FROM system.settings WHERE name IN ({names}) SETTINGS {given}").table()
    return dict(zip(found["name"].to_pylist(), found["value"].to_pylist(), strict=True))


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


class _Guard:
    """A reader whose exception is kept, because chdb only passes on its text."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.raised: BaseException | None = None
        self.stream = pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
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
        if _anchors.get(os.getpid()) is None:
            _anchors[os.getpid()] = _connected()
        _local.connection = _connected()
        _local.pid = os.getpid()
        _local.applied = {}
        _local.connection.query("SET " + ", ".join(f"{name} = {value}" for name, value in _BASE_SETTINGS.items()))
    return _local.connection


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
