"""Random keys: tables of two to four columns of any type, sorted and partitioned by them, by what is computed of them
and by their subcolumns, some descending, with skip indexes over the same.

One text of CREATE TABLE serves both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from mergelake.core.types.types import DataType, parse_type
from tests.helpers.random_arrays import random_array
from tests.helpers.random_types import LEAVES

SETTINGS = {"index_granularity": "8", "max_partitions_per_insert_block": "0"}
_NUMBERS = ("{x} % 10", "-{x}", "toString({x})", "intDiv({x}, 1000)", "{x} * NULL", "ignore({x})", "cityHash64({x})")
_OF = {
    "String": ("{x}.size", "lower({x})", "length({x})", "cityHash64({x})", "concat({x}, 'a')", "substring({x}, 1, 2)"),
    "Int32": _NUMBERS,
    "UInt64": _NUMBERS,
    "Date": ("toYYYYMM({x})", "toStartOfMonth({x})"),
    "DateTime('UTC')": ("toDate({x})", "toStartOfHour({x})"),
    "Nullable(Int32)": ("{x}.null", "ifNull({x}, 3)", "isNull({x})", "{x} + 1"),
    "Nullable(String)": ("{x}.null", "{x}.size", "coalesce({x}, 'z')", "lower({x})"),
    "LowCardinality(String)": ("upper({x})", "length({x})", "{x}.size"),
    "LowCardinality(Nullable(String))": ("upper({x})", "{x}.null", "isNull({x})"),
    "Tuple(a Int32, b Nullable(String))": ("{x}.a", "{x}.b", "{x}.b.null", "{x}.b.size", "{x}.1", "{x}.c"),
    "Tuple(UInt8, Array(Nullable(Int16)))": ("{x}.1", "{x}.2", "length({x}.2)"),
    "Tuple(p Tuple(q Float64, r Array(Int8)), s Bool)": ("{x}.p", "{x}.p.q", "{x}.p.r", "{x}.p.r.size0", "{x}.s"),
    "Array(Int32)": ("{x}.size0", "length({x})", "{x}[1]", "{x}.size1", "empty({x})"),
    "Array(String)": ("{x}.size0", "{x}.size", "{x}[1]"),
    "Array(Nullable(Float64))": ("{x}.null", "{x}.size0"),
    "Array(Array(UInt8))": ("{x}.size0", "{x}.size1"),
    "Array(LowCardinality(Nullable(String)))": ("{x}.size0",),
    "Array(Tuple(p UInt8, q String))": ("{x}.p", "{x}.q", "{x}.size0", "{x}.q.size"),
    "Map(String, UInt8)": ("{x}.keys", "{x}.values", "{x}.size0", "{x}['a']", "{x}.key_a", "length({x}.keys)"),
    "Map(UInt8, Array(String))": ("{x}.keys", "{x}.values", "{x}.size0"),
    "SimpleAggregateFunction(sum, UInt64)": ("{x} + 1",),
    "Variant(String, UInt8)": (),
    "Dynamic": (),
    "JSON(a UInt32)": (),
    "AggregateFunction(sum, UInt64)": (),
}
_ODD = tuple(_OF)
_UNCOUNTED = 4
"""The last types of `_ODD` may be in no key."""


@dataclass(frozen=True)
class KeyedTable:
    """A table and its inserts."""

    columns: str
    clauses: str
    types: dict[str, DataType]
    blocks: list[pa.Table] = field(repr=False)

    def create(self, name: str, settings: str) -> str:
        """The statement."""
        return f"CREATE TABLE {name} ({self.columns}) ENGINE = MergeTree {self.clauses} SETTINGS {settings}"


def keyed_table(rng: np.random.Generator, inserts: int = 3, rows: int = 60) -> KeyedTable:
    """A table with a sorting key of one to four columns."""
    kinds = [_kind(rng) for _ in range(int(rng.integers(2, 5)))]
    names = [f"c{i}" for i in range(len(kinds))]
    order = list(dict.fromkeys(_key(rng, name, kind) for name, kind in zip(names, kinds, strict=True)))
    rng.shuffle(order)
    shown = [text + (" DESC" if rng.random() < 0.2 else "") for text in order]
    clauses = f"ORDER BY ({', '.join(shown)})"
    if len(order) > 1 and rng.random() < 0.3 and not any(text.endswith("DESC") for text in shown):
        clauses += f" PRIMARY KEY ({', '.join(order[:-1])})"
    if rng.random() < 0.5:
        at = int(rng.integers(len(kinds)))
        clauses = f"PARTITION BY {_key(rng, names[at], kinds[at])} {clauses}"
    texts = [f"{name} {kind}" for name, kind in zip(names, kinds, strict=True)]
    if rng.random() < 0.3:
        at = int(rng.integers(len(kinds)))
        index = ("minmax", "set(5)", "bloom_filter")[int(rng.integers(3))]
        texts.append(f"INDEX ix {_key(rng, names[at], kinds[at])} TYPE {index} GRANULARITY 2")
    types = dict(zip(names, map(parse_type, kinds), strict=True))
    few = {name: random_array(rng, kind, 6, 0.3) for name, kind in types.items() if not _is_uncounted(str(kind))}
    blocks = []
    for _ in range(inserts):
        count = int(rng.integers(1, rows))
        picks = {name: pa.array(rng.integers(0, 6, count)) for name in few}
        blocks.append(pa.table({name: values.take(picks[name]) for name, values in few.items()}))
    return KeyedTable(", ".join(texts), clauses, types, blocks)


def _is_uncounted(kind: str) -> bool:
    return kind.startswith(("Variant", "Dynamic", "JSON", "AggregateFunction"))


def _kind(rng: np.random.Generator) -> str:
    chance = rng.random()
    if chance < 0.3:
        return str(LEAVES[int(rng.integers(len(LEAVES)))])
    if chance < 0.4:
        return f"Nullable({LEAVES[int(rng.integers(len(LEAVES)))]})"
    odd = _ODD if chance > 0.97 else _ODD[:-_UNCOUNTED]
    return odd[int(rng.integers(len(odd)))]


def _key(rng: np.random.Generator, name: str, kind: str) -> str:
    """The column, or something computed of it."""
    forms = _OF.get(kind, ())
    if not forms or rng.random() < 0.4:
        return name
    return forms[int(rng.integers(len(forms)))].format(x=name)
