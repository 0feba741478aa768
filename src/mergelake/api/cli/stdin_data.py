"""Data of an INSERT from standard input: `cat x.csv | mergelake sql -q "INSERT INTO t FORMAT CSV"`.

A small amount of text is appended to the statement. More data, and binary formats, become a file from which the
statement reads (`api.sql.infile`): a pipe, so that only a few blocks are held, or a temporary file for a format that is
not read from beginning to end.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TextIO

from mergelake.api.sql.formats import is_inline
from mergelake.api.sql.infile import is_typed
from mergelake.api.sql.parser import parse_statement
from mergelake.api.sql.script import split_statements
from mergelake.api.sql.statements import Insert
from mergelake.core.base.errors import error
from mergelake.core.base.text import quote_string

HELD_BYTES = 1 << 20
"""The most data that are appended to a statement, unless they are VALUES."""
_PIECE_BYTES = 1 << 18
_ENDS_A_STATEMENT = re.compile(rb"^[ \t]*;[ \t]*\r?$", re.MULTILINE)
"""A line that ends the data of an INSERT in a script, but not data from standard input."""


@contextmanager
def with_data(text: str, stdin: TextIO, cancel: Callable[[], object]) -> Iterator[str]:
    """The statements, with what stands in `stdin` as the data of the last one, if that is an INSERT without any.

    Nothing is read for other statements, nor from a terminal. `cancel` ends the statement if `stdin` cannot be read.
    """
    place = _without_data(text) if not stdin.isatty() else None
    if place is None:
        yield text
        return
    insert, end = place
    try:
        number = stdin.fileno()
    except io.UnsupportedOperation:
        yield f"{text[:end]}\n{stdin.read()}"
        return
    first = _read(number, HELD_BYTES + 1)
    values = insert.format.upper() == "VALUES"
    little = len(first) <= HELD_BYTES and not _ENDS_A_STATEMENT.search(first)
    if is_inline(insert.format) and (values or little):
        while values and (piece := os.read(number, _PIECE_BYTES)):
            first += piece
        yield f"{text[:end]}\n{first.decode('utf-8', 'surrogateescape')}"
        return
    if not first:
        raise error("NO_DATA_TO_INSERT", "No data to insert", "Nothing comes from standard input")
    at = insert.infile_at
    head, tail = text[:at], text[at : insert.data_at]
    with _kept(number, first) if is_typed(insert.format) else _piped(number, first, cancel) as path:
        yield f"{head} FROM INFILE {quote_string(path)} COMPRESSION 'none' {tail}"


def _without_data(text: str) -> tuple[Insert, int] | None:
    """The last statement, if it is an INSERT that waits for data, and where it ends."""
    statements = split_statements(text)
    if not statements or not text[statements[-1][0] :].upper().startswith("INSERT"):
        return None
    start, end = statements[-1]
    last = parse_statement(text, start, end)
    if not isinstance(last, Insert) or last.query or last.infile or last.data.strip():
        return None
    return last, end


def _read(number: int, most: int) -> bytes:
    """Up to `most` bytes, fewer only at the end."""
    data = bytearray()
    while len(data) < most and (piece := os.read(number, most - len(data))):
        data += piece
    return bytes(data)


@contextmanager
def _kept(number: int, first: bytes) -> Iterator[str]:
    """A temporary file with all of the data."""
    with tempfile.TemporaryFile() as file:
        _copy(number, first, file)
        yield f"/dev/fd/{file.fileno()}"


def _copy(number: int, first: bytes, file: IO[bytes]) -> None:
    piece = first
    while piece:
        file.write(piece)
        piece = os.read(number, _PIECE_BYTES)
    file.flush()


@contextmanager
def _piped(number: int, first: bytes, cancel: Callable[[], object]) -> Iterator[str]:
    """A pipe into which a thread writes the data, until the reader closes it.

    If standard input fails, the reader sees the end of the data too, but by then its statement is cancelled.
    """
    source, sink = os.pipe()
    closing = threading.Lock()
    failures: list[OSError] = []
    closed = False

    def feed() -> None:
        nonlocal closed
        try:
            piece = first
            while piece:
                if not _written(sink, piece):
                    return
                piece = os.read(number, _PIECE_BYTES)
        except OSError as failure:
            failures.append(failure)
            cancel()
        finally:
            with closing:
                os.close(sink)
                closed = True

    threading.Thread(target=feed, name="mergelake-stdin", daemon=True).start()
    try:
        yield f"/dev/fd/{source}"
    except Exception:
        if failures:
            raise error("CANNOT_READ_FROM_FILE_DESCRIPTOR", f"Cannot read standard input: {failures[0]}") from None
        raise
    finally:
        os.close(source)
        with closing:
            if not closed:  # the thread waits for standard input: it must not keep the pipe open
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sink)
                os.close(nowhere)


def _written(sink: int, data: bytes) -> bool:
    """Write all of `data`; false if the reader has closed the pipe."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(sink, rest) :]
    except BrokenPipeError:
        return False
    return True
