"""Random columns whose values differ in type from row to row: Variant, Dynamic and JSON, alone and inside others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type
from mergelake.core.types.type_binary import encode_type
from mergelake.format.serializations.values import encode_cells
from tests.helpers.random_arrays import random_array
from tests.helpers.random_types import LEAVES, random_type

PATHS = ["a", "a-b", "b.c", "b.d", "b.d.e", "c", "key with space", "ключ", "z.y.x.w", *(f"p{i}" for i in range(30))]


def random_mixed_type(rng: np.random.Generator, depth: int) -> str:
    """A Variant, Dynamic or JSON type, or one around such, `depth` types deep at most."""
    match int(rng.integers(7 if depth > 1 else 3)):
        case 0:
            kinds = {random_type(rng, max(depth - 1, 1)) for _ in range(rng.integers(1, 6))}
            kinds = {kind for kind in kinds if not t.is_nullable(t.parse_type(kind))}
            return f"Variant({', '.join(sorted(kinds) or ['UInt8'])})"
        case 1:
            return f"Dynamic(max_types={rng.choice([0, 1, 3, 32])})"
        case 2:
            limits = f"max_dynamic_paths={rng.choice([0, 2, 20])}, max_dynamic_types={rng.choice([0, 1, 32])}"
            typed = ["", ", `t.x` UInt32", ", `t.y` LowCardinality(Nullable(String)), `t.z` Array(Nullable(Int16))"]
            return f"JSON({limits}{typed[int(rng.integers(3))]})"
        case 3:
            return f"Array({random_mixed_type(rng, depth - 1)})"
        case 4:
            return f"Tuple(x {random_mixed_type(rng, depth - 1)}, y {random_type(rng, 1)})"
        case 5:
            return f"Map(String, {random_mixed_type(rng, depth - 1)})"
        case _:
            return "Nullable(JSON(max_dynamic_paths=1))"


def mixed_array(rng: np.random.Generator, kind: t.DataType, rows: int) -> pa.Array:
    """`rows` values of `kind` in storage form."""
    if not t.holds(kind, t.Variant, t.Dynamic, t.Json):
        return random_array(rng, kind, rows)
    arrow = storage_type(kind)
    match kind:
        case t.Variant(alternatives):
            which = rng.integers(0, len(alternatives) + 1, rows)  # the last: NULL
            fields = []
            for number, each in enumerate(alternatives):
                here = which == number
                values = mixed_array(rng, each, int(here.sum()))
                fields.append(values.take(pa.array(np.cumsum(here) - 1, mask=~here)))
            return pa.StructArray.from_arrays(fields, fields=list(arrow))
        case t.Dynamic():
            return pa.array(_cells(rng, rows), arrow)
        case t.Json(typed):
            return pa.array([_entries(rng, typed) for _ in range(rows)], arrow)
        case t.Nullable(inner):
            values = mixed_array(rng, inner, rows).to_pylist()
            return pa.array([None if rng.random() < 0.2 else value for value in values], arrow)
        case t.Array(inner):
            sizes = rng.choice([0, 0, 1, 3], rows) * (rng.random() < 0.9)  # at times there are no elements at all
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
            return pa.ListArray.from_arrays(pa.array(offsets), mixed_array(rng, inner, int(offsets[-1])), type=arrow)
        case t.Map(key, value):
            return mixed_array(rng, t.Array(t.Tuple((key, value), ("keys", "values"))), rows)
        case t.Tuple(elements):
            parts = [mixed_array(rng, element, rows) for element in elements]
            return pa.StructArray.from_arrays(parts, fields=list(arrow))
    raise AssertionError(kind)


def _cells(rng: np.random.Generator, rows: int) -> list[bytes | None]:
    """Type and value of Dynamic values, of a handful of types."""
    kinds = [t.parse_type(LEAVES[int(rng.integers(len(LEAVES)))]) for _ in range(4)]
    kinds += [
        t.parse_type(text) for text in ("Array(Nullable(String))", "Tuple(a UInt8, b String)", "LowCardinality(String)")
    ]
    kinds.append(t.parse_type("Array(JSON(max_dynamic_paths=256, max_dynamic_types=16))"))
    made = []
    for kind in kinds:
        cells = encode_cells(mixed_array(rng, kind, 6), kind)
        made.append([encode_type(kind) + cells.row(i) for i in range(6)])
    return [
        None if rng.random() < 0.15 else made[int(rng.integers(len(kinds)))][int(rng.integers(6))] for _ in range(rows)
    ]


def _entries(rng: np.random.Generator, typed: tuple[tuple[str, t.DataType], ...]) -> list[dict[str, Any]]:
    found: dict[bytes, bytes] = {}
    for path, kind in typed:
        found[path.encode()] = encode_type(kind) + encode_cells(random_array(rng, kind, 1), kind).row(0)
    for path in rng.choice(PATHS, int(rng.integers(0, 6)), replace=False).tolist():
        kind = t.parse_type(
            ["Int64", "String", "Float64", "Bool", "Array(Nullable(Int64))", "Date"][int(rng.integers(6))]
        )
        found[path.encode()] = encode_type(kind) + encode_cells(random_array(rng, kind, 1), kind).row(0)
    return [{"path": path, "value": found[path]} for path in sorted(found)]
