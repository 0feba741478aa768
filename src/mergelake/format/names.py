"""File names of a part: how a stream's name becomes a file's.

A column's name is escaped (ASCII letters, digits and `_` stay, every other byte becomes `%XX`), what lies
deeper in the type is appended (`.null`, `.size0`, `%2E` and a tuple element, …), and a name that is too long
for a file system is replaced by its hash.

Source: ClickHouse, `escapeForFileName.cpp`, `MergeTreeDataPartWide.cpp` (`replace_long_file_name_to_hash`).
"""

from __future__ import annotations

from mergelake.format.siphash import siphash128

_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
STREAM_NAME_MAX = 127
"""Bytes of the longest stream name that stands as it is (`max_file_name_length`)."""


def escape_for_file_name(text: str) -> str:
    """`text` with every byte but ASCII letters, digits and `_` as `%XX`.

    >>> escape_for_file_name("nest.a")
    'nest%2Ea'
    """
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
