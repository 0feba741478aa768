"""Parsing of untrusted JSON, whole or lazily; too deep nesting is a ValueError like other invalid JSON.

`fields` and `items` leave the values as text (`msgspec.Raw`), so that each is parsed as its own type, and a file table,
which is most of a log entry, only when it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def loads(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """The value of a JSON text. Raises ValueError if it is invalid, or too deep for Python's parser."""
    try:
        return json.loads(text, parse_constant=parse_constant)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def typed(decoder: msgspec.json.Decoder[T], text: str | bytes | msgspec.Raw) -> T:
    """The value of a JSON text of the decoder's type. Raises ValueError for anything else."""
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def fields(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The fields of a JSON object, unparsed."""
    return typed(_FIELDS, text)


def items(text: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """The items of a JSON array, unparsed."""
    return typed(_ITEMS, text)


def value(text: bytes | msgspec.Raw) -> Any:
    """The value of a JSON text of any type. Raises ValueError."""
    return typed(_VALUE, text)


_VALUE: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_TOO_DEEP = "JSON is nested too deeply"
