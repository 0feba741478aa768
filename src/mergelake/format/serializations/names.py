"""File names of a part: how a stream's name becomes a file's.

A column's name is escaped (ASCII letters, digits and `_` stay, every other byte becomes `%XX`), what lies
deeper in the type is appended (`.null`, `.size0`, `%2E` and a tuple element, …), and a name that is too long
for a file system is replaced by its hash.

Source: ClickHouse, `escapeForFileName.cpp`, `MergeTreeDataPartWide.cpp` (`replace_long_file_name_to_hash`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mergelake.format.serializations.siphash import siphash128

_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_PLAIN = re.compile("[A-Za-z0-9_]*").fullmatch
STREAM_NAME_MAX = 127
"""Bytes of the longest stream name that stands as it is (`max_file_name_length`)."""


def escape_for_file_name(text: str) -> str:
    """`text` with every byte but ASCII letters, digits and `_` as `%XX`.

    >>> escape_for_file_name("nest.a")
    'nest%2Ea'
    """
    if _PLAIN(text):
        return text
    return "".join(chr(byte) if byte in _KEPT else f"%{byte:02X}" for byte in text.encode(errors="surrogateescape"))


def hashed_name(stream: str) -> str:
    """The name that stands for a long one: 32 hex digits of its SipHash-128 as a number."""
    return siphash128(stream.encode(errors="surrogateescape"))[::-1].hex()


def stream_file_name(stream: str) -> str:
    """The file name of a stream, without its extension: the name itself, or its hash when too long.

    >>> stream_file_name("x" * 140)
    '0b5c679c581b080accbf1133ed0eadb2'
    """
    return stream if len(stream.encode(errors="surrogateescape")) <= STREAM_NAME_MAX else hashed_name(stream)


def streams_by_column(files: Iterable[str], columns: Iterable[str]) -> dict[str, list[str]]:
    """The data files (without `.bin`) that each column has in a Wide part, found by their names in one pass.

    A stream of a column begins with the column's name, and goes on with `.` or `%2E`: `n%2Ea.null` is of the column
    `n.a` where there is one, else of `n`. Streams whose names were too long for a file system
    belong to no column here, but for a column's main stream.

    >>> streams_by_column(["n%2Ea.bin", "n.size0.bin", "m.bin", "m.mrk2"], ["m", "n", "o"])
    {'m': ['m'], 'n': ['n%2Ea', 'n.size0'], 'o': []}
    """
    out: dict[str, list[str]] = {name: [] for name in columns}
    owners = {stream_file_name(escape_for_file_name(name)): streams for name, streams in out.items()}
    for file in files:
        if not file.endswith(".bin") or "/" in file:  # those of a projection are files of a part of its own
            continue
        stream = file[: -len(".bin")]
        head = stream.partition(".")[0]
        while head:
            if head in owners:
                owners[head].append(stream)
                break
            head = head.rpartition("%2E")[0]
    return out
