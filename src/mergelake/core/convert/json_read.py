"""Parsing of JSON text into values of JSON columns, and encoding of Python values as Dynamic values.

The type of a path follows from its value: Int64 for integers (UInt64 or Float64 beyond its range), Float64 for other
numbers, Bool for true and false, String for strings, Array of one of these or of JSON for lists, Array(Dynamic) for
lists of several types; null means a missing path. Unlike ClickHouse's parser, strings are not inspected for dates.
Paths that the column's type declares are converted to their type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from mergelake.core.base.errors import InternalError, error
from mergelake.core.base.json_load import loads
from mergelake.core.convert.text_write import by_distinct
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.single_value import write_value
from mergelake.core.types.type_binary import encode_type
from mergelake.core.types.varuint import write_varuint

Convert = Callable[[pa.Array, t.DataType], pa.Array]
"""Converts an Arrow array to the storage form of a type: `core.convert.storage`."""


def json_from_text(texts: pa.Array, data_type: t.Json, convert: Convert) -> pa.Array:
    """Texts of JSON objects in the storage form of `data_type`; NULL stays NULL. Raises INCORRECT_DATA."""
    objects = _Objects(data_type, convert)
    return by_distinct(texts, objects.entries, storage_type(data_type))


def parse_json(text: bytes) -> Any:
    """The Python value of a JSON text. Raises INCORRECT_DATA."""
    try:
        return loads(text.decode(errors="surrogateescape"), parse_constant=_no_constant)
    except ValueError as broken:
        raise error("INCORRECT_DATA", f"Cannot parse JSON: {str(text)[:80]} ({broken})") from None


def dynamic_cell(value: Any) -> bytes | None:
    """Encode a JSON value (bool, int, float, str or bytes, list, dict) as a Dynamic value; None for None."""
    if value is None:
        return None
    kind = t.Json() if isinstance(value, dict) else _settled(_kind_of(value))
    return encode_type(kind) + write_value(_storage(value, kind), kind)


class _Objects:
    """Builds the entries of objects of one JSON type."""

    def __init__(self, kind: t.Json, convert: Convert) -> None:
        self._typed = dict(kind.typed)
        self._convert = convert
        self._defaults = {path: encode_type(each) + _default(each) for path, each in kind.typed}
        if kind.skip_regexps:
            raise error(
                "NOT_IMPLEMENTED", "JSON with SKIP REGEXP is read, not written from text", "Use SKIP with a path"
            )
        self._skip = kind.skip

    def entries(self, text: bytes) -> list[dict[str, bytes]]:
        """Entries (path, value) of the JSON text of one object, sorted by path."""
        value = parse_json(text)
        if not isinstance(value, dict):
            raise error("INCORRECT_DATA", f"A JSON column takes objects, not {str(text)[:80]}")
        return self.of_object(value)

    def of_object(self, value: dict[str, Any]) -> list[dict[str, bytes]]:
        """Entries (path, value) of a parsed object, sorted by path."""
        cells = dict(self._defaults)
        for path, each in self._walk(value, ""):
            if any(path == skipped or path.startswith(skipped + ".") for skipped in self._skip):
                continue
            kind = self._typed.get(path)
            cell = dynamic_cell(each) if kind is None else self._typed_cell(each, kind)
            if cell is not None:
                cells[path] = cell
        encoded = {path.encode(errors="surrogateescape"): cell for path, cell in cells.items()}
        return [{"path": path, "value": encoded[path]} for path in sorted(encoded)]

    def _typed_cell(self, value: Any, kind: t.DataType) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, dict):
            value = json.dumps(value, ensure_ascii=False)
        if isinstance(value, str):
            value = value.encode(errors="surrogateescape")
        return encode_type(kind) + write_value(self._convert(pa.array([value]), kind)[0].as_py(), kind)

    def _walk(self, value: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for key, each in value.items():
            path = prefix + key
            if isinstance(each, dict) and path not in self._typed:
                yield from self._walk(each, path + ".")
            else:
                yield path, each


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _default(kind: t.DataType) -> bytes:
    match kind:
        case t.Nullable():
            return write_value(None, kind)
        case t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return _default(inner)
        case t.String() | t.Array() | t.Map() | t.Dynamic():
            return b"\0"
        case t.Tuple(elements):
            return b"".join(map(_default, elements))
        case t.Enum(_, items):
            return write_value(items[0][1], kind)
        case t.Json(typed):
            return write_varuint(len(typed)) + b"".join(
                write_value(p.encode(), t.STRING) + _default(e) for p, e in typed
            )
        case t.Variant():
            return b"\xff"
        case _:
            return bytes(storage_type(kind).bit_width // 8)


def _no_typed_paths(array: pa.Array, kind: t.DataType) -> pa.Array:
    raise InternalError("a JSON type without typed paths asked for one")


_NESTED_JSON = t.Json(max_paths=256, max_types=16)


_INT64 = t.Int(64, signed=True)


def _kind_of(value: Any) -> t.DataType:
    match value:
        case None:
            return t.Nullable(t.Nothing())
        case bool():
            return t.Bool()
        case int() if -(1 << 63) <= value < 1 << 63:
            return _INT64
        case int() if 0 <= value < 1 << 64:
            return t.Int(64, signed=False)
        case int() | float():
            return t.Float(64)
        case str() | bytes():
            return t.STRING
        case dict():
            return _NESTED_JSON
    return t.Array(_common([_kind_of(each) for each in value]))


def _common(kinds: Sequence[t.DataType]) -> t.DataType:
    """The common type of list elements of these types; Nullable(Nothing) if all are null."""
    plain = {kind.inner if isinstance(kind, t.Nullable) else kind for kind in kinds} - {t.Nothing()}
    if not plain:
        return t.Nullable(t.Nothing())
    if len(plain) > 1 and all(isinstance(kind, (t.Int, t.Float)) for kind in plain):
        return t.Nullable(t.Float(64))
    if plain == {t.Bool(), _INT64}:
        return t.Nullable(_INT64)
    inner = [kind.inner for kind in plain if isinstance(kind, t.Array)]
    if len(inner) == len(plain):
        return t.Array(_common(inner))
    if len(plain) > 1:
        return t.Dynamic()
    (kind,) = plain
    return kind if isinstance(kind, (t.Dynamic, t.Json)) else t.Nullable(kind)


def _settled(kind: t.DataType) -> t.DataType:
    """`kind` with String in place of unknown types, as in ClickHouse."""
    if isinstance(kind, t.Array):
        return t.Array(_settled(kind.inner))
    return t.Nullable(t.STRING) if kind == t.Nullable(t.Nothing()) else kind


def _storage(value: Any, kind: t.DataType) -> Any:
    match kind:
        case t.Nullable(inner):
            return None if value is None else _storage(value, inner)
        case t.String():
            return value if isinstance(value, bytes) else value.encode(errors="surrogateescape")
        case t.Float():
            return float(value)
        case t.Array(inner):
            return [_storage(each, inner) for each in value]
        case t.Dynamic():
            return dynamic_cell(value)
        case t.Json():
            return _Objects(kind, _no_typed_paths).of_object(value or {})
        case _:
            return int(value)
