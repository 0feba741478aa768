"""minmax indexes: the least and the greatest value of each expression, in single value binary form.

NULL is greatest (format 2, the files end in `.idx2`). Source: ClickHouse, `MergeTreeIndexMinMax.cpp`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mergelake.core.base.errors import InternalError
from mergelake.core.types import types as t
from mergelake.format.files.extremes import order_keys
from mergelake.format.indexes.skip_builder import GranuleBuilder, Rows, segments
from mergelake.format.kernels.kernels_skip import extreme_rows
from mergelake.format.serializations.ragged import fixed
from mergelake.format.serializations.values import binary_cells, decode_prefix, fixed_bytes, plain_type, value_cells

Bounds = tuple[pa.Array, pa.Array]
"""Least and greatest value of each granule."""


class MinMaxBuilder(GranuleBuilder[list[Bounds]]):
    """Granules of a minmax index."""

    def __init__(self, types: Sequence[t.DataType], granularity: int) -> None:
        super().__init__(granularity)
        self._types = [plain_type(kind) for kind in types]

    def _take(self, arrays: Sequence[pa.Array], cuts: Rows, ends: Rows) -> tuple[bytes, Rows]:
        lead = 0 if self._open is None else 2  # both extremes of the open granule are put before its next rows
        bounds, goes_on = segments(ends + lead, len(arrays[0]) + lead)
        extremes: list[Bounds] = []
        for i, (array, kind) in enumerate(zip(arrays, self._types, strict=True)):
            plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            if self._open is not None:
                plain = pa.concat_arrays([*self._open[i], plain])
            extremes.append(segment_extremes(plain, kind, bounds))
        self._open = None
        if goes_on:
            whole = len(bounds) - 1
            self._open = [(low.slice(whole), high.slice(whole)) for low, high in extremes]
            extremes = [(low.slice(0, whole), high.slice(0, whole)) for low, high in extremes]
        return encode_bounds(extremes, self._types)

    def _encode_open(self, summary: list[Bounds]) -> tuple[bytes, Rows]:
        return encode_bounds(summary, self._types)


def encode_bounds(bounds: Sequence[Bounds], types: Sequence[t.DataType]) -> tuple[bytes, Rows]:
    """Granules of the extremes of each expression: bytes, and where each granule ends."""
    cells = value_cells([a for pair in bounds for a in pair], [k for kind in types for k in (kind, kind)])
    return cells.data.tobytes(), cells.offsets[1:]


def decode_bounds(data: bytes, types: Sequence[t.DataType], granules: int) -> list[Bounds]:
    """The extremes of each expression in the first `granules` granules of `data`."""
    columns, _ = decode_prefix(data, [k for kind in types for k in (kind, kind)], granules)
    return list(zip(columns[::2], columns[1::2], strict=True))


def segment_extremes(array: pa.Array, kind: t.DataType, ends: Rows) -> Bounds:
    """Least and greatest value of each segment (none empty) of a plain array.

    NaN counts for nothing unless there is nothing else; NULL is greatest.
    """
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    missing = np.asarray(array.is_null())
    keys = order_keys(array, kind)
    if not (pa.types.is_integer(keys.type) or pa.types.is_floating(keys.type)) or keys.type != array.type:
        return _by_row(array, keys, missing, ends)
    dtype = keys.type.to_pandas_dtype()
    values = np.frombuffer(keys.buffers()[1], dtype, count=len(keys), offset=keys.offset * np.dtype(dtype).itemsize)
    some_null = np.bitwise_or.reduceat(missing, starts)
    all_null = np.bitwise_and.reduceat(missing, starts)
    if pa.types.is_floating(keys.type):
        # fmin and fmax pass over NaN, which NULLs become.
        values = np.where(missing, np.nan, values).astype(dtype) if array.null_count else values
        low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    elif array.null_count:
        info = np.iinfo(dtype)
        low = np.minimum.reduceat(np.where(missing, info.max, values), starts)
        high = np.maximum.reduceat(np.where(missing, info.min, values), starts)
    else:
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    if not array.null_count:
        return pa.array(low, array.type), pa.array(high, array.type)
    return pa.array(low, array.type, mask=all_null), pa.array(high, array.type, mask=some_null)


def _by_row(array: pa.Array, keys: pa.Array, missing: NDArray[np.bool_], ends: Rows) -> Bounds:
    """By the rows of the extremes, for values that compare as bytes or by their ranks."""
    if pa.types.is_floating(keys.type):  # BFloat16, compared as Float32
        raise InternalError(f"no extremes of {keys.type} by bytes")
    cells = binary_cells(keys) if pa.types.is_binary(keys.type) else fixed(fixed_bytes(keys))
    data = np.ascontiguousarray(cells.data)
    low, high = np.empty(len(ends), np.int64), np.empty(len(ends), np.int64)
    extreme_rows(data.ctypes.data, cells.offsets, missing, ends, low, high)
    all_null = low < 0
    some_null = np.bitwise_or.reduceat(missing, np.concatenate((np.zeros(1, np.int64), ends[:-1])))
    return array.take(pa.array(low, mask=all_null)), array.take(pa.array(high, mask=some_null))
