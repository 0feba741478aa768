"""JSON text of Dynamic and JSON values.

The text is equal to ClickHouse's: numbers are bare, types without a JSON form (dates, UUIDs, addresses, …) are strings,
NaN and infinity are null, named tuples and maps are objects. Paths `a.b` and `a.c` become `{"a":{"b":…,"c":…}}`.

Each distinct value is converted once. Objects are assembled column-wise: the text between two values depends only on
their paths, so it is computed once for each distinct pair of paths.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.convert.text_write import by_distinct, literal_text, to_text
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type, tuple_names
from mergelake.core.types.single_value import read_value
from mergelake.core.types.type_binary import PLAIN_TYPES, decode_type


def dynamic_text(array: pa.Array) -> pa.Array:
    """Dynamic values as a binary array of JSON text; NULL stays NULL.

    Values of a type without parameters are converted together; each other distinct value by itself.
    """
    edges = np.frombuffer(array.buffers()[1] or bytes(4), np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    lengths = np.diff(edges)
    valid = array.is_valid().to_numpy(zero_copy_only=False) & (lengths > 0)
    codes = np.full(len(array), _OTHERS, np.int64)
    codes[valid] = data[edges[:-1][valid]]
    texts: list[pa.Array] = []
    places = np.zeros(len(array), np.int64)
    done = 0
    for code in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == code)
        cells = array.take(pa.array(rows))
        texts.append(_plain_texts(cells, lengths[rows], PLAIN_TYPES.get(code)))
        places[rows] = np.arange(done, done + len(rows))
        done += len(rows)
    return pa.concat_arrays(texts).take(pa.array(places)) if texts else pa.array([], pa.binary())


_OTHERS = -1
_SIMPLE = r"^[\x20\x21\x23-\x5b\x5d-\x7e]*$"
"""Strings that need no escapes in JSON."""


def _plain_texts(cells: pa.Array, lengths: npt.NDArray[np.int32], kind: t.DataType | None) -> pa.Array:
    """Texts of values; `kind` is the type of all of them if it has no parameters, else None."""
    if isinstance(kind, t.String):
        return _string_texts(cells, lengths)
    width = 0 if kind is None or isinstance(kind, t.Nothing) else storage_type(kind).bit_width // 8
    if kind is None or not width or (lengths != 1 + width).any():
        return by_distinct(cells, _cell_text, pa.binary())
    raw = np.frombuffer(cells.buffers()[2], np.uint8)[: len(cells) * (1 + width)].reshape(-1, 1 + width)
    values = pa.Array.from_buffers(storage_type(kind), len(cells), [None, pa.py_buffer(raw[:, 1:].tobytes())])
    if isinstance(kind, (t.Float, t.BFloat16, t.Bool)):
        return by_distinct(values, lambda value: _value_text(value, kind).encode(), pa.binary())
    texts = to_text(values, kind)
    return texts if isinstance(kind, t.Int) else pc.binary_join_element_wise(b'"', texts, b'"', b"")


def _string_texts(cells: pa.Array, lengths: npt.NDArray[np.int32]) -> pa.Array:
    """Quote short strings without escapes together; convert the others one by one."""
    edges = np.frombuffer(cells.buffers()[1], np.int32)[: len(cells) + 1]
    data = np.frombuffer(cells.buffers()[2], np.uint8)
    stated_lengths = data[
        np.minimum(edges[:-1] + 1, len(data) - 1)
    ]  # the length is one byte for strings below 128 bytes
    bodies = pc.binary_slice(cells, 2, 1 << 30)
    simple = np.asarray(pc.match_substring_regex(bodies, _SIMPLE)) & (lengths >= 2) & (stated_lengths == lengths - 2)
    quoted = pc.binary_join_element_wise(b'"', bodies, b'"', b"")
    if simple.all():
        return quoted
    escaped = by_distinct(cells.filter(pa.array(~simple)), _cell_text, pa.binary())
    return pc.replace_with_mask(quoted, pa.array(~simple), escaped)


def json_text(array: pa.Array) -> pa.Array:
    """JSON objects (lists of path and value, paths ascending) as a binary array of JSON text; NULL stays NULL."""
    rows = len(array)
    if not rows:
        return pa.array([], pa.binary())
    edges = np.asarray(array.offsets).astype(np.int64)
    entries = array.values.slice(edges[0], edges[-1] - edges[0])
    edges -= edges[0]
    paths = entries.field("path").dictionary_encode()
    names = [path.decode(errors="surrogateescape").split(".") for path in paths.dictionary.to_pylist()]
    ids = np.asarray(paths.indices).astype(np.int64)
    before = np.zeros(len(ids), np.int64)
    before[1:] = ids[:-1] + 1
    full = edges[1:] > edges[:-1]
    before[edges[:-1][full]] = 0  # an object begins
    pairs, at = np.unique(before * max(len(names), 1) + ids, return_inverse=True)
    between = [_between(names, *divmod(pair, max(len(names), 1))) for pair in pairs.tolist()]
    texts = dynamic_text(entries.field("value"))
    pieces = pc.binary_join_element_wise(pa.array(between, pa.binary()).take(pa.array(at)), texts, b"")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(edges.astype(np.int32)), pieces), b"")
    ends = np.zeros(rows, np.int64)
    ends[full] = ids[edges[1:][full] - 1] + 1
    closing = pa.array([b"{}", *(b"}" * len(path) for path in names)], pa.binary()).take(pa.array(ends))
    whole = pc.binary_join_element_wise(joined, closing, b"")
    return pc.if_else(array.is_valid(), whole, pa.scalar(None, pa.binary())) if array.null_count else whole


def _between(names: list[list[str]], before: int, this: int) -> bytes:
    """The text between the values of paths `before - 1` and `this`; if `before` is 0, between `{` and the value."""
    path = names[this]
    last = names[before - 1] if before else []
    same = 0
    while same < min(len(last), len(path)) - 1 and last[same] == path[same]:
        same += 1
    text = "}" * max(len(last) - 1 - same, 0) + ("," if before else "{")
    return (text + "".join(f"{_quoted(key)}:{{" for key in path[same:-1]) + f"{_quoted(path[-1])}:").encode()


def _cell_text(cell: bytes) -> bytes:
    kind, at = decode_type(cell, 0)
    value, _ = read_value(cell, at, kind)
    return _value_text(value, kind).encode()


def _quoted(text: str) -> str:
    """A JSON string; bytes that are not UTF-8 become the replacement character."""
    valid = text.encode(errors="surrogateescape").decode(errors="replace") if not text.isascii() else text
    return json.dumps(valid, ensure_ascii=False)


def _value_text(value: Any, data_type: t.DataType) -> str:
    """One storage value as JSON."""
    if value is None:
        return "null"
    match data_type:
        case t.Nullable(inner) | t.LowCardinality(inner) | t.SimpleAggregateFunction(_, inner):
            return _value_text(value, inner)
        case t.Float() | t.BFloat16():
            text = literal_text(value, data_type)
            return "null" if text in ("nan", "inf", "-inf") else text
        case t.Int() | t.Bool() | t.Decimal() | t.Interval():
            return literal_text(value, data_type)
        case t.Array(inner):
            return f"[{','.join(_value_text(each, inner) for each in value)}]"
        case t.Map(key, inner):
            pairs = ((_key_text(each["keys"], key), _value_text(each["values"], inner)) for each in value)
            return "{" + ",".join(f"{name}:{text}" for name, text in pairs) + "}"
        case t.Tuple(elements, names):
            each = [_value_text(value[n], e) for n, e in zip(tuple_names(data_type), elements, strict=True)]
            if not names:
                return f"[{','.join(each)}]"
            return "{" + ",".join(f"{_quoted(name)}:{text}" for name, text in zip(names, each, strict=True)) + "}"
        case t.Variant(alternatives, names):
            return next(
                (_value_text(value[n], e) for n, e in zip(names, alternatives, strict=True) if value[n] is not None),
                "null",
            )
        case t.Dynamic():
            return _cell_text(value).decode()
        case t.Json():
            whole: bytes = json_text(pa.array([value], storage_type(data_type)))[0].as_py()
            return whole.decode()
    return _quoted(literal_text(value, data_type))


def _key_text(value: Any, data_type: t.DataType) -> str:
    text = _value_text(value, data_type)
    return text if text.startswith('"') else _quoted(text)
