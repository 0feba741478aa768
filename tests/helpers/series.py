"""Series of values as codecs of values like them and as they hate them, in storage form."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mergelake.core.types import types as t
from mergelake.core.types.arrow import storage_type

SHAPES = 10


def series(rng: np.random.Generator, data_type: t.DataType, rows: int, shape: int) -> pa.Array:
    """`rows` values of a type of fixed width, of one of `SHAPES` shapes."""
    if isinstance(data_type, t.Enum):
        return pa.array(rng.choice([number for _, number in data_type.items], rows).tolist(), storage_type(data_type))
    if isinstance(data_type, t.Bool):
        return pa.array((rng.random(rows) < shape / SHAPES).astype(np.uint8))
    kind = storage_type(data_type)
    width = kind.bit_width // 8
    if isinstance(data_type, t.Float) and shape in (1, 4, 7):
        walk = np.round(np.cumsum(rng.normal(size=rows)) if shape != 7 else np.arange(rows) / 4, 2)
        return pa.array(walk.astype(f"f{width}"))
    raw = _raw(rng, rows, shape, width).astype("<i8")
    if width <= 8:
        data = np.ascontiguousarray(raw.view(np.uint8).reshape(rows, 8)[:, :width]).tobytes()
    else:
        wide = np.repeat((raw >> 63)[:, None], width // 8, axis=1)
        wide[:, 0] = raw
        if shape in (0, 6):
            wide[:, -1] = rng.permutation(raw)
        data = np.ascontiguousarray(wide).tobytes()
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def _raw(rng: np.random.Generator, rows: int, shape: int, width: int) -> np.ndarray:
    low, high = -(1 << 8 * min(width, 8) - 1), (1 << 8 * min(width, 8) - 1) - 1
    match shape:
        case 0:
            return rng.integers(low, high, rows, endpoint=True)
        case 1:
            return np.cumsum(rng.integers(0, 10, rows))
        case 2:
            return np.full(rows, int(rng.integers(low, high)))
        case 3:
            return rng.integers(-5, 6, rows)
        case 4:
            return rng.integers(-1000, 1000, rows) * 60
        case 5:
            return np.zeros(rows, np.int64)
        case 6:
            return rng.choice(np.array([low, high, 0, 1, -1, low + 1]), rows)
        case 7:
            return np.arange(rows) * 12 + 1_700_000_000
        case 8:
            return rng.integers(0, 1 << int(rng.integers(1, 8 * min(width, 7))), rows)
        case _:
            # Differences of differences of every size.
            steps = rng.choice(np.array([0, 0, 1, -62, -63, 63, 64, 255, 256, -255, 2047, 2048, -2047, 1 << 31]), rows)
            return np.cumsum(np.cumsum(steps))
