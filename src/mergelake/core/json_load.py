"""JSON that somebody else wrote, read whole or piece by piece; any nesting is just another ValueError.

`fields` and `items` leave the values as text (`msgspec.Raw`), so that each is read by who knows its type, and a file
table, most of the bytes of a log entry, by nobody until it is asked for.
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
    """The value of a JSON text. ValueError for what is no JSON, or too deep for Python's own reader."""
    try:
        return json.loads(text, parse_constant=parse_constant)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def typed(decoder: msgspec.json.Decoder[T], text: str | bytes | msgspec.Raw) -> T:
    """The value of a JSON text of a known type. ValueError for anything else."""
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def fields(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The fields of a JSON object, as they stand there."""
    return typed(_FIELDS, text)


def items(text: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """The items of a JSON array, as they stand there."""
    return typed(_ITEMS, text)


def value(text: bytes | msgspec.Raw) -> Any:
    """Any JSON value."""
    return typed(_VALUE, text)


_VALUE: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_TOO_DEEP = "JSON is nested too deeply"
