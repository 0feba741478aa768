"""The keys of a source, and the condition that finds them in the table. Pure.

The condition of one column, and of several ::

    `k` IN CAST(['1', '2'], 'Array(UInt64)')
    (`k`, `s`) IN arrayZip(CAST(['1', '2'], 'Array(UInt64)'), CAST(['a', 'b'], 'Array(String)'))

Each value is a text that is converted to the type of its column, so that no type of a literal is guessed; times are in
UTC, which has no hour twice. It means the same to ClickHouse.

NULL and NaN match nothing, as in `=`; 0.0 and -0.0 match each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mergelake.core.base.errors import error
from mergelake.core.base.text import back_quote, quote_string
from mergelake.core.convert.text_read import read_text
from mergelake.core.convert.text_write import to_text
from mergelake.core.model.schema import Column, TableSchema
from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.engines.order.keys import table_keys, whole_column
from mergelake.expr.nodes import quote_bytes
from mergelake.format.files.partition import partition_keys

KEYS_MAX = 200_000
"""Rows of the source of one merge."""
TEXT_MAX = 16 << 20
"""Characters of the condition of one merge."""
_QUOTED = (t.String, t.FixedString, t.Enum)
"""Types with values that have to be escaped as text."""
_WAY_OUT = "Split the source, and merge its pieces one after another"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the rows of a block."""

    columns: tuple[Column, ...]
    arrays: tuple[pa.Array, ...]
    """By column the values in plain storage form (no dictionaries), -0.0 as 0.0."""
    comparable: NDArray[np.bool_]
    """For each row whether it can match: no value is NULL or NaN."""

    @staticmethod
    def of(block: pa.Table, columns: Sequence[Column]) -> Keys:
        """The keys in a block of storage-form columns."""
        arrays = tuple(_plain(whole_column(block, column.name)) for column in columns)
        comparable = np.ones(block.num_rows, np.bool_)
        for array in arrays:
            if array.null_count:
                comparable &= np.asarray(array.is_valid())
            if pa.types.is_floating(array.type):
                comparable &= ~np.isnan(array.to_numpy(zero_copy_only=False))
        return Keys(tuple(columns), arrays, comparable)

    def take(self, rows: NDArray[np.int64]) -> Keys:
        """The keys of some rows."""
        at = pa.array(rows)
        return Keys(self.columns, tuple(array.take(at) for array in self.arrays), self.comparable[rows])

    def codes(self, others: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each row a number, equal where keys are; for each row of `others` the number of the equal key here.

        -1 for rows that match nothing.
        """
        own = np.zeros(len(self.comparable), np.int64)
        found = np.zeros(len(others.comparable), np.int64)
        hit = others.comparable.copy()
        for array, other in zip(self.arrays, others.arrays, strict=True):
            values = array.unique()
            own = own * len(values) + _places(array, values)
            at = _places(other, values)
            found = found * len(values) + at
            known, own = np.unique(own, return_inverse=True)
            place = np.minimum(np.searchsorted(known, found), max(len(known) - 1, 0))
            hit &= (at >= 0) & (known[place] == found) if len(known) else np.zeros(len(hit), np.bool_)
            found = place
        return np.where(self.comparable, own, -1), np.where(hit, found, -1)


def check_size(rows: int) -> None:
    """SET_SIZE_LIMIT_EXCEEDED for a source with too many rows."""
    if rows > KEYS_MAX:
        raise error("SET_SIZE_LIMIT_EXCEEDED", f"The source of a merge has more than {KEYS_MAX:,} rows", _WAY_OUT)


def first_repeated(keys: Keys) -> tuple[int, int] | None:
    """Two rows with the same key; None if there are none."""
    codes = keys.codes(keys)[0]
    rows = np.flatnonzero(codes >= 0)
    order = rows[np.argsort(codes[rows], kind="stable")]
    again = np.flatnonzero(codes[order[1:]] == codes[order[:-1]])
    return None if not len(again) else (int(order[again[0]]), int(order[again[0] + 1]))


def key_text(keys: Keys, row: int) -> str:
    """The key of a row, for people."""
    texts = (
        to_text(array.slice(row, 1), c.type)[0].as_py() for array, c in zip(keys.arrays, keys.columns, strict=True)
    )
    shown = (text.decode(errors="backslashreplace") for text in texts)
    return ", ".join(f"{column.name} = {text}" for column, text in zip(keys.columns, shown, strict=True))


def condition_of(keys: Keys) -> str | None:
    """A condition that holds for the rows with one of these keys, as ClickHouse text; None if none can match.

    Raises SET_SIZE_LIMIT_EXCEEDED if it is too long, and BAD_ARGUMENTS for a value that its type has no text for.
    """
    arrays = _distinct(keys)
    if not len(arrays[0]):
        return None
    lists = [_list(array, column) for array, column in zip(arrays, keys.columns, strict=True)]
    if sum(map(len, lists)) > TEXT_MAX:
        message = f"The keys of a merge have more than {TEXT_MAX >> 20} MiB as text"
        raise error("SET_SIZE_LIMIT_EXCEEDED", message, _WAY_OUT)
    names = [back_quote(column.name) for column in keys.columns]
    if len(names) == 1:
        return f"{names[0]} IN {lists[0]}"
    return f"({', '.join(names)}) IN arrayZip({', '.join(lists)})"


def partitions_with(keys: Keys, schema: TableSchema) -> tuple[str, ...] | None:
    """Ids of the partitions that can hold rows with these keys; None if the keys do not tell."""
    partition = table_keys(schema).partition
    names = {column.name for column in keys.columns}
    inexact = any(isinstance(t.inner_type(column.type), t.Float) for column in keys.columns)
    if not partition or inexact or not all(names.issuperset(key.columns) for key in partition):
        return None
    rows = np.flatnonzero(keys.comparable)
    if not len(rows):
        return ()
    block = pa.table(
        {c.name: _stored(a.take(pa.array(rows)), c.type) for a, c in zip(keys.arrays, keys.columns, strict=True)}
    )
    _, found = partition_keys([key.evaluate(block) for key in partition], [key.type for key in partition])
    return tuple(sorted(each.id for each in found))


def _plain(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.equal(array, pa.scalar(0.0, array.type)), pa.scalar(0.0, array.type), array)


def _stored(array: pa.Array, kind: t.DataType) -> pa.Array:
    target = storage_type(kind)
    return array.dictionary_encode().cast(target) if pa.types.is_dictionary(target) else array


def _places(array: pa.Array, values: pa.Array) -> NDArray[np.int64]:
    found = pc.index_in(array, value_set=values).fill_null(-1)
    return np.asarray(found.cast(pa.int64()).to_numpy())


def _distinct(keys: Keys) -> list[pa.Array]:
    """The keys that can match, each once; with both zeros where a float is zero."""
    codes = keys.codes(keys)[0]
    _, first = np.unique(codes[codes >= 0], return_index=True)
    rows = pa.array(np.sort(np.flatnonzero(codes >= 0)[first]))
    arrays = [array.take(rows) for array in keys.arrays]
    for at, array in enumerate(arrays):
        if pa.types.is_floating(array.type):
            zeros = pa.array(np.flatnonzero(array.to_numpy() == 0))
            twins = [each.take(zeros) for each in arrays]
            twins[at] = pc.negate(twins[at])
            arrays = [pa.concat_arrays([each, twin]) for each, twin in zip(arrays, twins, strict=True)]
    return arrays


def _list(array: pa.Array, column: Column) -> str:
    kind = _in_utc(t.inner_type(column.type))
    texts = to_text(array, kind)
    if not read_text(texts, kind).equals(array):
        raise error("BAD_ARGUMENTS", f"A value of column {column.name} is outside of the range of {column.type}")
    shown = map(quote_bytes, texts.to_pylist()) if isinstance(kind, _QUOTED) else map("'{}'".format, _ascii(texts))
    return f"CAST([{', '.join(shown)}], {quote_string(f'Array({kind})')})"


def _ascii(texts: pa.Array) -> list[str]:
    held: list[str] = texts.cast(pa.string()).to_pylist()
    return held


def _in_utc(kind: t.DataType) -> t.DataType:
    match kind:
        case t.DateTime():
            return t.DateTime("UTC")
        case t.DateTime64(precision):
            return t.DateTime64(precision, "UTC")
    return kind
