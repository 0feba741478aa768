"""FINAL of one table in shares: ranges of the first column of its sorting key, each with the parts that overlap it.

Rows of equal keys are in one range, so ranges can be evaluated independently. Their bounds are taken from primary
indexes, so the cost depends on the number of parts, not of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mergelake.core.base.text import back_quote
from mergelake.core.model.schema import TableSchema
from mergelake.core.types import types as t
from mergelake.engines.rules.modes import mode_of
from mergelake.log.model.parts import ActivePart
from mergelake.parts.read.ahead import open_parts
from mergelake.query.part_set import PartSet
from mergelake.query.spread.halves import NotSplitError
from mergelake.scan.prune.keys import decode_keys, scan_keys
from mergelake.scan.read.source import open_part


@dataclass(frozen=True, slots=True)
class FinalShare:
    """A range of keys."""

    condition: str
    """`k >= … AND k < …`."""
    parts: tuple[ActivePart, ...]
    """Parts that may have rows in the range."""


def final_shares(parts: PartSet, count: int) -> list[FinalShare]:
    """At most `count` shares of about equally many granules. Raises NotSplitError if the table has no suitable key."""
    kind = key_type(parts.schema)
    types = scan_keys(parts.schema).primary.types
    if any(not part.manifest.key_range[1] for part in parts.parts):
        raise NotSplitError("FINAL of parts whose last key nobody knows")
    readers = [
        open_part(parts.store, parts.directory, part.manifest, parts.schema, parts.caches) for part in parts.parts
    ]
    open_parts(readers, (), key=types)
    marks = pa.concat_arrays([_plain(reader.primary_index(types)[0]) for reader in readers])
    begins = cuts(marks, count)
    if not begins:
        raise NotSplitError("FINAL of keys that are all about the same")
    first, last = (
        _plain(decode_keys([part.manifest.key_range[end] for part in parts.parts], types)[0]).to_pylist()
        for end in (0, 1)
    )
    column = back_quote(parts.schema.order_by[0])
    out = []
    for low, high in zip([None, *begins], [*begins, None], strict=True):
        conditions = [f"{column} >= {_literal(low, kind)}"] if low is not None else []
        conditions += [f"{column} < {_literal(high, kind)}"] if high is not None else []
        inside = tuple(
            part
            for part, least, most in zip(parts.parts, first, last, strict=True)
            if (low is None or most >= low) and (high is None or least < high)
        )
        if inside:
            out.append(FinalShare(" AND ".join(conditions), inside))
    return out


def key_type(schema: TableSchema) -> t.DataType:
    """The type of the first column of the sorting key. Raises NotSplitError for an unsupported type."""
    mode = mode_of(schema)
    if mode is None or mode.by_columns:
        raise NotSplitError(f"FINAL of {schema.engine} compares rows of all parts")
    name = schema.order_by[0] if schema.order_by else ""
    column = next((column for column in schema.stored if column.name == name), None)
    if column is None or any(schema.order_desc[:1]):
        raise NotSplitError("FINAL of a table whose key does not begin with a column, ascending")
    kind = column.type.inner if isinstance(column.type, t.LowCardinality) else column.type
    if not isinstance(kind, t.Int | t.Date | t.DateTime | t.String):
        raise NotSplitError(f"FINAL of a table whose key begins with {column.type}")
    return kind


def cuts(marks: pa.Array, count: int) -> list[int | bytes]:
    """Ascending values that cut the keys at marks into at most `count` non-empty ranges of about equal size."""
    values = np.sort(marks.to_numpy(zero_copy_only=False))
    places = [len(values) * i // count for i in range(1, count)]
    cut_values = sorted({values[at] for at in places if values[at] > values[0]}) if len(values) else []
    return [value if isinstance(value, bytes) else int(value) for value in cut_values]


def _plain(keys: pa.Array) -> pa.Array:
    """Keys as integers or bytes."""
    kind = keys.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return keys.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()).cast(pa.large_binary())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return keys.cast(pa.large_binary())
    if pa.types.is_integer(kind):
        return keys
    raise NotSplitError(f"FINAL of keys kept as {kind}")


def _literal(value: int | bytes, kind: t.DataType) -> str:
    """A key as a ClickHouse literal of this type."""
    return f"unhex('{value.hex()}')" if isinstance(value, bytes) else f"CAST({value} AS {kind})"
