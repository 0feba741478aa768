"""NULLs between Arrow's bitmaps and ClickHouse's bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mergelake.core.base.errors import InternalError
from mergelake.format.kernels.kernels_nulls import blank_nulls, mark_nulls
from mergelake.format.serializations.keytable import DistinctKeys
from mergelake.format.serializations.serialization import null_bytes


def _flags(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(rows) < 0.3


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 63, 64, 65, 1000])
def test_null_bytes_are_those_of_the_bitmap_from_any_bit_on(rows: int) -> None:
    missing = _flags(rows + 20, rows)
    array = pa.array(np.arange(rows + 20), mask=missing)
    for start in range(20):
        assert np.array_equal(null_bytes(array.slice(start, rows)), missing[start : start + rows])


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32, 3])
def test_what_lies_under_a_null_becomes_zero(width: int) -> None:
    missing = _flags(333, width)
    values = np.random.default_rng(width).integers(1, 256, (333, width), dtype=np.uint8)
    out = np.full_like(values, 9)
    nulls = missing.view(np.uint8)
    blank_nulls(values.ctypes.data, nulls.ctypes.data, len(values), width, out.ctypes.data)
    assert np.array_equal(out, np.where(missing[:, None], 0, values))


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 15, 16, 17, 40, 1001])
def test_negative_indexes_are_nulls(rows: int) -> None:
    ids = np.random.default_rng(rows).integers(-1, 5, rows, dtype=np.int32)
    missing = ids < 0
    bits = np.full((rows + 7) // 8, 255, np.uint8)
    assert mark_nulls(ids.ctypes.data, rows, bits.ctypes.data) == missing.sum()
    assert np.array_equal(np.unpackbits(bits, bitorder="little")[:rows], ~missing)
    assert ids.min(initial=0) == 0
    assert not ids[missing].any()


def test_an_index_under_null_may_be_anything_and_others_are_checked() -> None:
    keys = pa.array([b"a", b"b"], pa.binary())
    bits = pa.py_buffer(bytes([0b0101]))
    given = np.array([1, 77, 0, -5], np.int32)
    buffers = [bits, pa.py_buffer(given)]
    indexes = pa.Array.from_buffers(pa.int32(), 4, buffers)
    table = DistinctKeys(0, 2)
    assert table.number(pa.DictionaryArray.from_arrays(indexes, keys, safe=False)).tolist() == [2, 0, 3, 0]
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), keys.slice(0, 0))
    assert DistinctKeys(0, 2).number(nothing).tolist() == [0, 0]
    for bad in (2, -1):
        wrong = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(np.array([bad], np.int32))])
        with pytest.raises(InternalError):
            DistinctKeys(0, 2).number(pa.DictionaryArray.from_arrays(wrong, keys, safe=False))
