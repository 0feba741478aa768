"""Parsing of arrays, tuples and maps in ClickHouse text: `[1,2]`, `('a',NULL)`, `{'k':1}`.

Each text is split into nested lists whose leaves are texts; then the leaves of all rows are parsed together as columns.
Escapes in quoted leaves are decoded; a bare NULL is NULL.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from mergelake.core.base.errors import MergelakeError, error
from mergelake.core.base.lexer import QUOTED_STRING
from mergelake.core.base.text import unescape_bytes
from mergelake.core.types import types as t
from mergelake.core.types.arrow import tuple_names

_BARE = re.compile(rb"[^,\]\)\}:\s]+(?:[^,\]\)\}:]*[^,\]\)\}:\s])?")
_BARE_WITH_COLON = re.compile(rb"[^,\]\)\}\s]+")
_QUOTED = re.compile(QUOTED_STRING.encode(), re.DOTALL)
_SPACE = re.compile(rb"\s*")


def text_type(data_type: t.DataType) -> pa.DataType:
    """The Arrow type of split texts: the nesting of `data_type` with binary leaves."""
    plain = t.inner_type(data_type)
    match plain:
        case t.Array(inner):
            return pa.list_(text_type(inner))
        case t.Map(key, value):
            return pa.map_(text_type(key), text_type(value))
        case t.Tuple(elements):
            named = zip(tuple_names(plain), elements, strict=True)
            return pa.struct([pa.field(name, text_type(element)) for name, element in named])
    return pa.binary()


def cut_texts(texts: pa.Array, data_type: t.DataType) -> pa.Array:
    """Split nested texts (binary, NULL stays NULL) into an array of `text_type(data_type)`. Errors name the row."""
    values = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else _whole(text, data_type))
        except MergelakeError as failure:
            failure.row = row
            raise
    return pa.array(values, text_type(data_type))


def _whole(text: bytes, data_type: t.DataType) -> Any:
    cutter = _Cutter(text)
    value = cutter.value(data_type, in_map=False)
    cutter.skip()
    if cutter.at != len(text):
        raise cutter.wrong("the end")
    return value


class _Cutter:
    def __init__(self, text: bytes) -> None:
        self.text = text
        self.at = 0

    def skip(self) -> None:
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at

    def wrong(self, wanted: str) -> MergelakeError:
        shown = self.text[:100].decode(errors="backslashreplace")
        return error(
            "CANNOT_PARSE_INPUT_ASSERTION_FAILED", f"Cannot parse '{shown}': expected {wanted} at byte {self.at}"
        )

    def accept(self, sign: bytes) -> bool:
        self.skip()
        if self.text[self.at : self.at + 1] == sign:
            self.at += 1
            return True
        return False

    def expect(self, sign: bytes) -> None:
        if not self.accept(sign):
            raise self.wrong(f"'{sign.decode()}'")

    def value(self, data_type: t.DataType, *, in_map: bool) -> Any:
        plain = t.inner_type(data_type)
        if isinstance(plain, t.Array):
            self.expect(b"[")
            return self._list(plain.inner, b"]")
        if isinstance(plain, t.Map):
            return self._map(plain)
        if isinstance(plain, t.Tuple):
            return self._tuple(plain)
        self.skip()
        quoted = _QUOTED.match(self.text, self.at)
        if quoted:
            self.at = quoted.end()
            return unescape_bytes(quoted.group()[1:-1], b"'", "CANNOT_PARSE_QUOTED_STRING")
        bare = (_BARE if in_map else _BARE_WITH_COLON).match(self.text, self.at)
        if bare is None:
            raise self.wrong("a value")
        self.at = bare.end()
        return None if bare.group().upper() == b"NULL" and t.is_nullable(data_type) else bare.group()

    def _list(self, inner: t.DataType, close: bytes) -> list[Any]:
        values: list[Any] = []
        if self.accept(close):
            return values
        while True:
            values.append(self.value(inner, in_map=False))
            if self.accept(close):
                return values
            self.expect(b",")

    def _map(self, kind: t.Map) -> list[tuple[Any, Any]]:
        self.expect(b"{")
        entries: list[tuple[Any, Any]] = []
        if self.accept(b"}"):
            return entries
        while True:
            key = self.value(kind.key, in_map=True)
            self.expect(b":")
            entries.append((key, self.value(kind.value, in_map=True)))
            if self.accept(b"}"):
                return entries
            self.expect(b",")

    def _tuple(self, kind: t.Tuple) -> dict[str, Any]:
        self.expect(b"(")
        values: dict[str, Any] = {}
        for i, (name, element) in enumerate(zip(tuple_names(kind), kind.elements, strict=True)):
            if i:
                self.expect(b",")
            values[name] = self.value(element, in_map=False)
        self.accept(b",")
        self.expect(b")")
        return values
