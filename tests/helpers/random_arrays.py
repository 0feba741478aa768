"""Random columns in storage form, of any type, with the values that break things more likely than chance."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type

TYPES = [
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
    "Float32",
    "Float64",
    "Bool",
    "String",
    "FixedString(3)",
    "Date",
    "DateTime('UTC')",
    "DateTime64(3, 'UTC')",
    "Enum8('a' = -3, 'b' = 0, 'c' = 7)",
    "Enum16('x' = 1, 'y' = 300)",
    "UUID",
    "Decimal(9, 2)",
    "Decimal(18, 4)",
    "Decimal(38, 6)",
    "LowCardinality(String)",
    "LowCardinality(Nullable(String))",
    "Nullable(Int32)",
    "Nullable(String)",
    "Nullable(DateTime64(6, 'UTC'))",
    "Nullable(FixedString(3))",
    "Array(UInt16)",
    "Array(String)",
    "Array(Nullable(String))",
    "Array(LowCardinality(String))",
    "Array(Array(Int64))",
    "Array(Decimal(18, 2))",
]
"""The types of the first milestone, and arrays of them."""


def random_array(rng: np.random.Generator, data_type: t.DataType, rows: int, edges: float = 0.0) -> pa.Array:
    """`rows` values of `data_type`; a share of `edges` of those without values inside is at the edges of the type."""
    kind = storage_type(data_type)
    if edges and rows and (found := _edges(data_type, kind)) is not None:
        usual = random_array(rng, data_type, rows)
        drawn = np.where(rng.random(rows) < edges, rows + rng.integers(len(found), size=rows), np.arange(rows))
        return pa.concat_arrays([usual, found]).take(pa.array(drawn))
    match data_type:
        case t.SimpleAggregateFunction(_, inner):
            return random_array(rng, inner, rows, edges)
        case t.Nullable(inner):
            values = random_array(rng, inner, rows, edges)
            if isinstance(inner, t.Tuple):
                valid = np.packbits(rng.random(rows) < 0.8, bitorder="little")
                children = [values.field(i) for i in range(kind.num_fields)]
                return pa.Array.from_buffers(kind, rows, [pa.py_buffer(valid)], children=children)
            return pa.array(values.to_pylist(), kind, mask=rng.random(rows) < 0.2)
        case t.LowCardinality(inner):
            few = random_array(rng, inner, max(1, rows // 10), edges)
            if pa.types.is_floating(few.type):  # a dictionary of ClickHouse's has no -0.0 beside 0.0
                few = pc.add(few, pa.scalar(0.0, few.type))
            picked = few.take(pa.array(rng.integers(0, len(few), rows)))
            return picked.dictionary_encode().cast(kind)
        case t.Array(inner):
            lengths = rng.choice([0, 1, 2, 5], rows)
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            return pa.ListArray.from_arrays(
                pa.array(offsets), random_array(rng, inner, int(offsets[-1]), edges), type=kind
            )
        case t.Tuple(elements):
            parts = [random_array(rng, element, rows, edges) for element in elements]
            if not parts:
                return pa.StructArray.from_buffers(kind, rows, [None], children=[])
            return pa.StructArray.from_arrays(parts, fields=list(kind))
        case t.Map(key, value):
            return random_array(rng, t.Array(t.Tuple((key, value), ("keys", "values"))), rows, edges)
        case t.String():
            lengths = rng.choice([0, 1, 7, 20, 127, 128, 300], rows, p=[0.2, 0.2, 0.2, 0.2, 0.05, 0.05, 0.1])
            data = rng.integers(0, 256, int(lengths.sum()), dtype=np.uint8).tobytes()
            ends = np.cumsum(lengths)
            return pa.array([data[e - n : e] for e, n in zip(ends.tolist(), lengths.tolist(), strict=True)], kind)
        case t.Bool():
            return pa.array(rng.integers(0, 2, rows, dtype=np.uint8))
        case t.Enum(_, items):
            return pa.array(rng.choice([number for _, number in items], rows).tolist(), kind)
        case t.Float():
            values = rng.normal(size=rows) * 10.0 ** rng.integers(-5, 5, rows)
            values[rng.random(rows) < 0.05] = -np.inf
            return pa.array(values.astype(kind.to_pandas_dtype()))
        case t.Date32():
            return pa.array(rng.integers(-25567, 120530, rows, dtype=np.int32))
        case t.Time():
            return pa.array(rng.integers(-3599999, 3600000, rows, dtype=np.int32))
        case t.Time64(precision):
            limit = 3599999 * 10**precision
            return pa.array(rng.integers(-limit, limit + 1, rows))
        case t.DateTime64():
            return pa.array(rng.integers(0, 2 * 10**9, rows) * 10**data_type.precision + rng.integers(0, 1000, rows))
        case t.Decimal(precision):
            if data_type.bits <= 64:
                return pa.array(rng.integers(-(10**precision) + 1, 10**precision, rows).tolist(), kind)
            numbers = [int(n) * 10**9 for n in rng.integers(-(2**62), 2**62, rows)]
            return pa.array([n.to_bytes(kind.byte_width, "little", signed=True) for n in numbers], kind)
        case _:
            raw = rng.integers(0, 256, rows * (kind.bit_width // 8), dtype=np.uint8).tobytes()
            return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(raw)])


def _edges(data_type: t.DataType, kind: pa.DataType) -> pa.Array | None:
    """The least, the greatest and the odd values of a type that holds no others; None for other types."""

    def among(*numbers: int) -> pa.Array:
        return pa.array(numbers, kind)

    match data_type:
        case t.String():
            return pa.array([b"", b"\0", b"\xff" * 128, b"a" * 16384, b"\0" * 70_000], kind)
        case t.Float(bits):
            odd = [np.nan, -0.0, 0.0, np.inf, -np.inf, 5e-324, float(np.finfo(f"f{bits // 8}").max)]
            return pa.array(np.array(odd, f"f{bits // 8}"))
        case t.Date32():
            return among(-25567, 120529, 0, -1)
        case t.Time():
            return among(-3599999, 3599999, 0, -1)
        case t.Time64(precision):
            return among(-3599999 * 10**precision, 3599999 * 10**precision, 0, -1)
        case t.DateTime64(precision):
            return among(-2208988800 * 10**precision, 9223372036 * 10**precision, 0, -1)
        case t.Decimal(precision):
            most = 10**precision - 1
            numbers = [most, -most, 0, 1, -1]
            if data_type.bits <= 64:
                return among(*numbers)
            return pa.array([n.to_bytes(kind.byte_width, "little", signed=True) for n in numbers], kind)
        case t.Int() | t.BFloat16() | t.Date() | t.DateTime() | t.UUID() | t.IPv4() | t.IPv6() | t.FixedString():
            width = kind.bit_width // 8
            raw = [bytes(width), b"\xff" * width, b"\xff" * (width - 1) + b"\x7f", bytes(width - 1) + b"\x80"]
            return pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(b"".join(raw))])
        case _:
            return None


def equal(left: pa.Array, right: pa.Array) -> bool:
    """Whether two columns hold the same values (dictionaries may differ), NaN being equal to NaN."""
    left, right = (a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in (left, right))
    if pa.types.is_floating(left.type) and left.null_count == right.null_count == 0:
        return bool(np.array_equal(left.to_numpy(), right.to_numpy(), equal_nan=True))
    if left.type != right.type and pa.types.is_list(left.type):
        return bool(left.to_pylist() == right.to_pylist())
    return bool(left.equals(right)) or bool(left.to_pylist() == right.to_pylist())
